"""A UQ distribution as words and numbers, and back; the observation model is code, and comes from the user."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import asdict, replace
from typing import Any

import torch
from torch import Tensor, nn

from gpsuq.core.generators import MLP, Generator, GeneratorSpec, as_generator_spec
from gpsuq.core.models import ObservationModel
from gpsuq.core.parameters import DataScale, ParameterMap
from gpsuq.engine.generative import History
from gpsuq.errors import MissingCodeError
from gpsuq.files import module_tensors, under
from gpsuq.storage import your_code
from gpsuq.storage.checking import Shapes, check_layers, count, counts, feature_names, findings, largest, one_of
from gpsuq.uq.distribution import UQDistribution

_HISTORY = ("fit", "pair", "held_out")
_SCALES = ("y_center", "y_scale", "x_center", "x_scale")
_DTYPES = ("float32", "float64", "bfloat16", "float16")


def describe(uq: UQDistribution) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Return words and numbers from which the distribution can be built again, with the user's model."""
    generator = uq.generator
    spec, scale = generator.body.spec, generator.parameter_map.scale
    config = {
        "parameters": {name: repr(parameter) for name, parameter in uq.model.parameters.items()},
        "generator": asdict(spec) if isinstance(spec, MLP) else None,
        "dtype": str(generator.shared.dtype).removeprefix("torch."),
        "n_chains": generator.n_chains,
        "chains": uq.chains,
        "seed": uq.seed,
        "reweighted": uq.reweighted,
        "feature_names": uq.feature_names,
        "x_shape": None if uq.x_shape is None else list(uq.x_shape),
        "concomitants": uq.concomitants,
        "n_features": generator.parameter_map.n_features,
        "x_width": scale.x_width,
        "evaluated_at": uq.history.evaluated_at,
        "findings": [asdict(finding) for finding in uq.findings],
    }
    tensors = module_tensors(generator, "generator/")
    for name in _HISTORY:
        if values := getattr(uq.history, name):
            tensors[f"history/{name}"] = torch.stack(values)
    for name in _SCALES:
        if (value := getattr(scale, name)) is not None:
            tensors[f"scale/{name}"] = value.clone().contiguous()
    return config, tensors


def check(config: dict[str, Any], shapes: Shapes) -> None:
    """Raise where the config says what cannot be, or other sizes than the tensors have."""
    n_chains, most = count(config, "n_chains", least=1, most=largest(shapes)), largest(shapes)
    if not 1 <= len(counts(config["chains"], "chains", most=n_chains - 1)) <= n_chains:
        raise ValueError("a model needs chains, each at most once")
    count(config, "seed")
    counts(config["evaluated_at"], "evaluated_at")
    one_of(config, "reweighted", (True, False))
    one_of(config, "dtype", _DTYPES)
    for name in ("n_features", "x_width"):
        if config[name] is not None:
            count(config, name, most=most)
    if config["x_shape"] is not None:
        counts(config["x_shape"], "x_shape", least=1)
    if (spec := config["generator"]) is not None:
        check_layers(shapes, "generator/body.", n_chains, [spec["noise_dim"], *spec["hidden"]])


def restore(
    config: dict[str, Any],
    tensors: dict[str, Tensor],
    *,
    model: ObservationModel | None = None,
    generator: GeneratorSpec | nn.Module | None = None,
) -> UQDistribution:
    """Build the distribution that was described, for the user's model (and generator, where it was not an MLP)."""
    if model is None:
        declared = ", ".join(f"{name}={kind}" for name, kind in config["parameters"].items())
        raise MissingCodeError(
            "this UQ distribution belongs to an observation model of yours, and a saved model holds no code: pass it, "
            f"as in gpsuq.load(path, model=...); its parameters are {declared}"
        )
    if not isinstance(model, ObservationModel):
        raise MissingCodeError(f"model= takes the ObservationModel of the fit, not a {type(model).__name__}")
    if {name: repr(parameter) for name, parameter in model.parameters.items()} != config["parameters"]:
        raise MissingCodeError(f"the model that was passed declares other parameters than {config['parameters']}")
    own = config["generator"] is None
    if own and generator is None:
        raise MissingCodeError(
            "this UQ distribution has a generator of your own, and a saved model holds no code: pass it, as in "
            "gpsuq.load(path, model=..., generator=...)"
        )
    with your_code("generator") if own else nullcontext():
        built = _built(config, tensors, model, generator)
    history = History(
        **{name: list(tensors.get(f"history/{name}", torch.empty(0)).unbind(0)) for name in _HISTORY},
        evaluated_at=list(config["evaluated_at"]),
    )
    x_shape = None if config["x_shape"] is None else tuple(config["x_shape"])
    return UQDistribution(
        built,
        model,
        config["chains"],
        seed=config["seed"],
        reweighted=config["reweighted"],
        history=history,
        feature_names=feature_names(config, None if x_shape is None else x_shape[-1]),
        x_shape=x_shape,
        concomitants=config.get("concomitants"),
        findings=findings(config),
    )


def _built(
    config: dict[str, Any],
    tensors: dict[str, Tensor],
    model: ObservationModel,
    generator: GeneratorSpec | nn.Module | None,
) -> Generator:
    """Build the generator that was saved, an MLP unless it was the user's own, with its weights."""
    held = config["generator"]
    spec = as_generator_spec(generator) if held is None else MLP(**held | {"hidden": tuple(held["hidden"])})
    scale = DataScale(**{name: tensors.get(f"scale/{name}") for name in _SCALES}, x_width=config["x_width"])  # type: ignore[arg-type]
    n_features, n_chains = config["n_features"], int(config["n_chains"])
    parameter_map = ParameterMap(model.parameters, n_features, scale)
    width = parameter_map.width(random=True)
    if held is not None and width != tensors[f"generator/body.layers.{len(held['hidden'])}.weight"].shape[2]:
        raise ValueError(f"the model has {width} numbers that vary, and the saved generator makes others")
    seen = scale
    if (concomitants := config.get("concomitants")) is not None:  # models of before have none
        center, spread = (tensors.get(f"generator/body.{name}") for name in ("x_center", "x_scale"))
        seen = replace(scale, x_center=center, x_scale=spread, x_width=len(concomitants))
    body = spec.build(width, n_chains, seen, seen.x_width, 0)
    built = Generator(body, parameter_map, n_chains).to(getattr(torch, config["dtype"]))
    built.load_state_dict(under(tensors, "generator/"))
    return built
