"""Fitted network classifiers as words and numbers, and back; a user's own network is code, and comes from the user."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import asdict
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from gpsuq.classify.baselines import DropoutClassifier, EnsembleClassifier, PlainClassifier
from gpsuq.classify.decisions import Threshold
from gpsuq.classify.estimator import GPSClassifier
from gpsuq.classify.network import NetworkClassifier
from gpsuq.core.familiarity import Familiarity
from gpsuq.core.noise import NoisyNetwork, with_noise
from gpsuq.engine.fitting import check_parameters
from gpsuq.engine.settings import Recipe
from gpsuq.errors import GPSError, MissingCodeError
from gpsuq.files import module_tensors, under
from gpsuq.storage import SECONDS, your_code
from gpsuq.storage.checking import Shapes, count, counts, feature_names, findings, number, table

CLASSIFIERS: dict[str, type[NetworkClassifier]] = {
    cls.__name__: cls for cls in (GPSClassifier, PlainClassifier, DropoutClassifier, EnsembleClassifier)
}
_FITTED = ("uqc_level_", "certain_above_", "seed_", "losses_", "n_features_in_")
_SETTLED = ("temperature_", "strangeness_weight_", "feature_layers_")
_PLAIN_VERDICT = {"layer": None, "loss": "score", "spread": "even", "verdict": "quantile"}
"""What models of 0.1 were trained with, which had no other."""
_PREFIX = "network/"

Network = nn.Module | Callable[[], nn.Module]


def describe(model: NetworkClassifier | NoisyNetwork) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Return what is needed to build a classifier or a network again, with the user's code at hand."""
    if isinstance(model, NetworkClassifier):
        return _described(model), module_tensors(model.network_, _PREFIX)
    return _described_noise(model) | {"network": repr(model.module)}, module_tensors(model, _PREFIX)


def check(config: dict[str, Any], shapes: Shapes) -> None:
    """Raise where the config says what cannot be, or other sizes than the tensors have."""
    n_members = count({"n_networks": _n_networks(config)}, "n_networks", least=1, most=len(shapes))
    for prefix in [f"{member}." for member in range(n_members)] if n_members > 1 else [""]:
        for layer, noise_dim in zip(config.get("layers", ()), config.get("noise_dims", ()), strict=True):
            if shapes[f"{_PREFIX}{prefix}module.{layer}.noise_weight"][1] != noise_dim:
                raise ValueError(f"layer {layer} has another number of noise inputs than {noise_dim}")
        if config.get("watched") is not None:
            known = [shapes[f"{_PREFIX}{prefix}familiarity.{name}"] for name in ("within", "means")]
            if [known[0][0], known[1][0]] != counts(config["watched"]["sizes"], "sizes", least=1):
                raise ValueError("what the network knows of strangers has other sizes")
    if config["type"] == NoisyNetwork.__name__:
        return
    fitted, sizes = config["fitted"], {size for shape in shapes.values() for size in shape}
    number(fitted, "uqc_level_", above=0.0, most=1.0)
    number({SECONDS: fitted.get("seconds_")} | config, SECONDS, least=0.0)  # 0.1 had it among what was fitted
    count(fitted, "seed_")
    for loss in fitted["losses_"]:
        number({"losses_": loss}, "losses_")
    if fitted["n_features_in_"] is not None:
        count(fitted, "n_features_in_", least=1)
    if "spread_weight" in config:
        number(config, "spread_weight")
    if "settled" in config:
        number(config["settled"], "temperature_", above=0.0)
        if config["settled"]["strangeness_weight_"] is not None:
            number(config["settled"], "strangeness_weight_", least=0.0)
    input_shape = counts(config["input_shape"], "input_shape", least=1)
    if not config["own_network"] and not {*input_shape, len(config["classes"]["labels"])} <= sizes:
        raise ValueError("the network in it has other inputs or classes")
    members = {name.removeprefix(_PREFIX).split(".")[0] for name in shapes}
    if config["type"] == EnsembleClassifier.__name__ and config["params"]["n_members"] != len(members):
        raise ValueError(f"the ensemble in it has {len(members)} members")


def restore(
    config: dict[str, Any], tensors: dict[str, Tensor], *, network: Network | None = None
) -> NetworkClassifier | NoisyNetwork:
    """Build what was described; ``network`` is the user's own, or a function that makes it."""
    if config["type"] != NoisyNetwork.__name__:
        return _restored(config, tensors, network)
    if network is None:
        raise MissingCodeError(_asking(config["network"]))
    with your_code("network", config["network"]):
        noisy = _noisy(network if isinstance(network, nn.Module) else network(), config)
        return _loaded(noisy, tensors)  # type: ignore[return-value]


def _described_noise(network: NoisyNetwork) -> dict[str, Any]:
    known = network.familiarity
    sizes = None if known is None else [len(known.center), len(known.means)]
    return {
        "layers": list(network.layers),
        "noise_dims": network.noise_dims,
        "watched": None if sizes is None else {"layers": list(network.watched), "sizes": sizes},
    }


def _described(estimator: NetworkClassifier) -> dict[str, Any]:
    params = estimator.get_params(deep=False)
    own = params.pop("network") is not None
    params.pop("fabric")
    recipe = params["recipe"]
    names = getattr(estimator, "feature_names_in_", None)
    config: dict[str, Any] = {
        "params": params | {"recipe": None if recipe is None else asdict(recipe), "random_state": estimator.seed_},
        "own_network": own,
        "network": repr(estimator.network_),
        "classes": _written_classes(estimator.classes_),
        "input_shape": list(estimator.input_shape_),
        "integers": estimator.integers_,
        SECONDS: estimator.seconds_,
        "feature_names": None if names is None else [str(name) for name in names],
        "fitted": {name: getattr(estimator, name) for name in _FITTED}
        | {"certain_above_": np.asarray(estimator.certain_above_).tolist()},
        "findings": [asdict(finding) for finding in estimator.findings_],
    }
    if isinstance(estimator, GPSClassifier):
        path = estimator.spread_path_
        config |= _described_noise(estimator.networks_[0]) | {
            "n_networks": len(estimator.networks_),
            "spread_weight": estimator.spread_weight_,
            "settled": {name: getattr(estimator, name) for name in _SETTLED},
            "spread_path": None if path is None else path.reset_index().to_dict("list"),
        }
    return config


def _restored(config: dict[str, Any], tensors: dict[str, Tensor], network: Network | None) -> NetworkClassifier:
    recipe = config["params"]["recipe"]
    params = config["params"] | {"recipe": None if recipe is None else Recipe(**recipe)}
    if config["type"] == GPSClassifier.__name__:
        params = _PLAIN_VERDICT | params
    estimator = CLASSIFIERS[config["type"]](**params)
    check_parameters(estimator)
    estimator.network = network if config["own_network"] else None
    estimator.classes_ = _read_classes(config["classes"])
    estimator.input_shape_ = tuple(int(size) for size in config["input_shape"])
    estimator.integers_ = bool(config.get("integers", False))
    for name in _FITTED:
        setattr(estimator, name, config["fitted"][name])
    estimator.seconds_ = config[SECONDS] if SECONDS in config else config["fitted"]["seconds_"]
    estimator.certain_above_ = _read_threshold(estimator.certain_above_, len(estimator.classes_))
    estimator.findings_ = findings(config)
    if (names := feature_names(config, estimator.n_features_in_)) is not None:
        estimator.feature_names_in_ = np.asarray(names, dtype=object)
    if isinstance(estimator, GPSClassifier):
        estimator.spread_weight_ = config["spread_weight"]
        # Nothing was settled in models of before there was something to settle.
        settled = {"temperature_": 1.0, "feature_layers_": config["layers"][:1]} | config.get("settled", {})
        for name in _SETTLED:
            setattr(estimator, name, settled.get(name))
        path = config["spread_path"]
        estimator.spread_path_ = None if path is None else table(path, "spread_weight")
    with your_code("network", config["network"]) if config["own_network"] else nullcontext():
        estimator.network_ = _loaded(_built(estimator, config), tensors)
    return estimator


def _built(estimator: NetworkClassifier, config: dict[str, Any]) -> nn.Module:
    """Make a network like the one that was saved; its weights are still those of a new one."""
    if config["own_network"] and estimator.network is None:
        raise MissingCodeError(_asking(config["network"]))
    example = torch.zeros(()).expand(2, *estimator.input_shape_)  # takes no memory, whatever the shape
    if isinstance(estimator, EnsembleClassifier):
        return nn.ModuleList(estimator._initial(example) for _ in range(estimator.n_members))
    if not isinstance(estimator, GPSClassifier):
        return estimator._made(estimator._initial(example), example)
    networks = [_noisy(estimator._initial(example), config) for _ in range(_n_networks(config))]
    return networks[0] if len(networks) == 1 else nn.ModuleList(networks)


def _n_networks(config: dict[str, Any]) -> int:
    """Return how many networks a GPS classifier has; models of before had as many as members were asked for."""
    n_networks: int = config.get("n_networks", config.get("params", {}).get("members", 1))
    return n_networks


def _noisy(module: nn.Module, config: dict[str, Any]) -> NoisyNetwork:
    if isinstance(module, NoisyNetwork):
        return module
    noise_dims = counts(config["noise_dims"], "noise_dims", least=1)
    network = with_noise(module, dict(zip(config["layers"], noise_dims, strict=True)))
    if (watched := config.get("watched")) is not None:
        network.watch(watched["layers"], Familiarity(*counts(watched["sizes"], "sizes", least=1)))
    return network


def _asking(description: str) -> str:
    first = description.splitlines()[0].rstrip("(")
    return (
        f"this model holds your own network ({first}), and a saved model holds no code: pass it, as in "
        "gpsuq.load(path, network=...), the same class or function that it was trained with"
    )


def _loaded(network: nn.Module, tensors: dict[str, Tensor]) -> nn.Module:
    network.load_state_dict(under(tensors, _PREFIX))
    return network.eval()


def _read_threshold(written: Any, n_classes: int) -> Threshold:
    thresholds = np.array(written, dtype=np.float64)
    if thresholds.shape not in ((), (n_classes,)) or not np.isfinite(thresholds).all():
        raise ValueError(f"certain_above_ must be one number or {n_classes}, got {written!r}")
    return float(thresholds) if thresholds.ndim == 0 else thresholds


def _written_classes(classes: np.ndarray[Any, Any]) -> dict[str, Any]:
    if classes.dtype.kind not in "biufUO" or (
        classes.dtype.kind == "O" and not all(isinstance(label, str) for label in classes)
    ):
        raise GPSError(f"labels of type {classes.dtype} cannot be saved; use strings or numbers")
    return {"type": "object" if classes.dtype.kind == "O" else str(classes.dtype), "labels": classes.tolist()}


def _read_classes(written: dict[str, Any]) -> np.ndarray[Any, Any]:
    kind = object if written["type"] == "object" else np.dtype(written["type"])
    if kind is not object and np.dtype(kind).kind not in "biufU":
        raise ValueError(f"labels of type {written['type']}")
    return np.array(written["labels"], dtype=kind)
