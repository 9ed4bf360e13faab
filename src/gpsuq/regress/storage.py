"""A fitted regression as words and numbers, and back."""

from __future__ import annotations

import itertools
from contextlib import nullcontext
from dataclasses import asdict
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from gpsuq.core.calibration import Calibration, ScaleModel
from gpsuq.core.conformal import Conformal
from gpsuq.core.generators import ACTIVATIONS, MLP, Generator, GeneratorSpec, as_generator_spec
from gpsuq.core.models import ObservationModel
from gpsuq.core.parameters import DataScale, ParameterMap
from gpsuq.core.seeds import quasi_normal
from gpsuq.engine.fitting import check_parameters
from gpsuq.errors import MissingCodeError
from gpsuq.files import module_tensors, under
from gpsuq.regress.affine import Affine
from gpsuq.regress.columns import Column, Columns
from gpsuq.regress.estimator import GPSRegressor
from gpsuq.regress.families import FAMILIES, Family, make_family
from gpsuq.regress.forest import Forest
from gpsuq.regress.members import DRAWS, Member, Network, RegressionFit
from gpsuq.regress.network import Tabular
from gpsuq.storage import your_code
from gpsuq.storage.checking import Shapes, count, feature_names, findings, largest, number, one_of

_SCALE = ("center", "scale", "lower", "upper", "coefficients")
_CURVE = ("knots", "values")
_NODES = ("column", "threshold", "below", "above", "outcome")
_PLANES = ("center", "level", "slopes", "root", "size", "spread")
_LARGEST = 1e300  # stands for infinity, which checks of tensors do not know
_MOST_WIDTH = 1 << 16


def describe(estimator: GPSRegressor) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Return what is needed to build the estimator again; the user's own family and network come from the user."""
    fit, names = estimator.fit_, getattr(estimator, "feature_names_in_", None)
    family, network = estimator.family, estimator.network
    config: dict[str, Any] = {
        "params": estimator.get_params(deep=False)
        | {"fabric": None, "network": None, "random_state": fit.seed}
        | ({} if isinstance(family, str) else {"family": None}),
        "network": {"MLP": asdict(network)} if isinstance(network, MLP) else None if network is None else str(network),
        "n_features": int(estimator.n_features_in_),
        "feature_names": None if names is None else [str(name) for name in names],
        "columns": [asdict(column) for column in estimator.columns_.columns],
        "several": estimator._several,
        "center": fit.center.tolist(),
        "scale": fit.scale.tolist(),
        "members": [_described(member) for member in fit.members],
        "calibrated_by": [calibration.n_rows for calibration in fit.calibrations],
        "held_out": fit.held_out,
        "steps": fit.steps,
        "findings": [asdict(finding) for finding in fit.findings],
        "conformal": None if estimator.conformal_ is None else _labels(estimator.conformal_),
    }
    arrays: dict[str, Any] = {"ranks": fit.ranks, "rows": fit.rows, "judges": fit.judges}
    tensors: dict[str, Tensor] = {}
    for place, calibration in enumerate(fit.calibrations):
        arrays |= {f"scale{place}/{n}": np.clip(getattr(calibration.scale, n), -_LARGEST, _LARGEST) for n in _SCALE}
        arrays |= {f"curve{place}/{name}": getattr(calibration, name) for name in _CURVE}
    for place, member in enumerate(fit.members):
        if isinstance(member.drawn, Forest):
            arrays |= {f"member{place}/{name}": getattr(member.drawn, name) for name in ("roots", *_NODES)}
        elif isinstance(member.drawn, Affine):
            arrays |= {f"member{place}/{name}": getattr(member.drawn, name) for name in _PLANES}
        else:
            tensors |= module_tensors(member.drawn.generator, f"member{place}/")
    if estimator.conformal_ is not None:
        arrays |= {f"conformal/{n}": scores for n, scores in enumerate(estimator.conformal_.scores.values())}
    return config, tensors | {name: torch.from_numpy(np.ascontiguousarray(value)) for name, value in arrays.items()}


def _labels(conformal: Conformal) -> list[Any]:
    """Return the labels of groups as JSON holds them; None stands for all rows."""
    return [label.item() if isinstance(label, np.generic) else label for label in conformal.scores]


def _described(member: Member) -> dict[str, Any]:
    held: dict[str, Any] = {"name": member.name, "weight": member.weight, "n_chains": member.drawn.n_chains}
    if isinstance(member.drawn, Forest):
        return held | {"depth": member.drawn.depth, "share": member.drawn.share}
    if isinstance(member.drawn, Affine):
        return held | {"plane": True}
    spec = member.drawn.generator.body.spec
    return held | ({"layers": asdict(spec) | {"edges": ()}} if isinstance(spec, Tabular) else {})


def check(config: dict[str, Any], shapes: Shapes) -> None:
    """Raise where the config says what cannot be, or other sizes than the tensors have."""
    most = largest(shapes)
    count(config, "n_features", least=1, most=_MOST_WIDTH)
    count(config["params"], "random_state")
    one_of(config, "several", (True, False))
    one_of(config["params"], "family", (*FAMILIES, None))
    width = sum(_column(held).width for held in config["columns"])
    if len(config["columns"]) != config["n_features"]:
        raise ValueError(f"n_features cannot be {config['n_features']}")
    n_outputs = len(config["center"])
    if not n_outputs or len(config["scale"]) != n_outputs or len(config["calibrated_by"]) != n_outputs:
        raise ValueError("center, scale and calibrations must be of as many outcomes")
    for place in range(n_outputs):
        number({"center": config["center"][place]}, "center")
        number({"scale": config["scale"][place]}, "scale", above=0.0)
    for place, member in enumerate(config["members"]):
        n_chains = count(member, "n_chains", least=1, most=most)
        number(member, "weight", above=0.0, most=1.0)
        if "depth" in member:
            count(member, "depth", most=most)
            number(member, "share", least=0.0)
            if shapes[f"member{place}/roots"] != (n_chains, DRAWS):
                raise ValueError(f"a forest of {n_chains} chains has other trees")
            if len({shapes[f"member{place}/{name}"] for name in _NODES}) != 1:
                raise ValueError("the nodes of a forest must be as many in all arrays")
        elif "plane" in member:
            p = (n_chains, width)
            wanted = dict(zip(_PLANES, (p, (n_chains,), p, (*p, width), (n_chains,), (n_chains, DRAWS)), strict=True))
            if any(shapes[f"member{place}/{name}"] != shape for name, shape in wanted.items()):
                raise ValueError(f"planes of {n_chains} chains have other sizes")
        elif "layers" in member:
            _check_layers(member, shapes, f"member{place}/", width)


def _check_layers(member: dict[str, Any], shapes: Shapes, prefix: str, width: int) -> None:
    layers, n_chains = member["layers"], member["n_chains"]
    one_of(layers, "activation", tuple(ACTIVATIONS))
    number(layers, "dropout", least=0.0, most=1.0)
    n_in = width + shapes[f"{prefix}body.pieces.column"][0]
    widths = [n_in, *layers["hidden"]]
    held = [shapes[f"{prefix}body.layers.{depth}.weight"] for depth in range(len(layers["hidden"]))]
    wanted = [(n_chains, a, b) for a, b in itertools.pairwise(widths)]
    noise = (n_chains, layers["noise_dim"], layers["width"])
    if held != wanted or shapes[f"{prefix}body.from_noise"] != noise:
        raise ValueError(f"the layers of {member['name']} are not those of its sizes")


def _column(held: dict[str, Any]) -> Column:
    levels = held["levels"]
    if levels is not None and not all(isinstance(level, str) for level in levels):
        raise ValueError("the levels of a column must be texts")
    number(held, "center")
    number(held, "scale", above=0.0)
    one_of(held, "gaps", (True, False))
    cycles = held.get("cycles")
    for period in cycles or ():
        number({"cycles": period}, "cycles", above=0.0)
    if cycles is not None and levels is not None:
        raise ValueError("a column cannot hold both dates and texts")
    lists = {"levels": None if levels is None else tuple(levels), "cycles": None if cycles is None else tuple(cycles)}
    return Column(**held | lists)


def restore(
    config: dict[str, Any],
    tensors: dict[str, Tensor],
    *,
    model: ObservationModel | None = None,
    network: GeneratorSpec | nn.Module | None = None,
) -> GPSRegressor:
    """Build the estimator that was described, for the user's family and network where it has them."""
    params, own = dict(config["params"]), config["network"]
    if params["family"] is None and model is None:
        raise MissingCodeError(
            "this regression has a family of your own, and a saved model holds no code: pass it, as in "
            "gpsuq.load(path, model=...)"
        )
    if isinstance(own, str) and network is None:
        raise MissingCodeError(
            f"this regression has a network of your own ({own.splitlines()[0]}), and a saved model holds no code: pass "
            "it, as in gpsuq.load(path, network=...)"
        )
    if isinstance(own, dict):
        network = MLP(**own["MLP"] | {"hidden": tuple(own["MLP"]["hidden"])})
    params |= {"network": network if own is not None else None, "family": params["family"] or model}
    estimator = GPSRegressor(**params)
    check_parameters(estimator)
    n_outputs = len(config["center"])
    family = make_family(params["family"], n_outputs if config["several"] else None)
    columns = Columns(tuple(_column(held) for held in config["columns"]))
    seed = config["params"]["random_state"]
    with your_code("network") if isinstance(own, str) else nullcontext():
        members = [
            _member(held, under(tensors, f"member{place}/"), family, columns, n_outputs, seed, network)
            for place, held in enumerate(config["members"])
        ]
    fit = RegressionFit(
        family,
        members,
        np.array(config["center"], dtype=np.float64),
        np.array(config["scale"], dtype=np.float64),
        seed,
        [_calibration(tensors, place, rows) for place, rows in enumerate(config["calibrated_by"])],
        tensors["ranks"].numpy(),
        tensors["rows"].numpy(),
        tensors["judges"].numpy(),
        findings(config),
        {str(name): list(map(float, scores)) for name, scores in config["held_out"].items()},
        list(map(int, config["steps"])),
    )
    estimator.columns_, estimator._several = columns, config["several"]
    estimator.n_features_in_ = config["n_features"]
    if (names := feature_names(config, config["n_features"])) is not None:
        estimator.feature_names_in_ = np.asarray(names, dtype=object)
    estimator._set_fit(fit)
    if config["conformal"] is not None:
        labels = config["conformal"]
        estimator.conformal_ = Conformal({lb: tensors[f"conformal/{n}"].numpy() for n, lb in enumerate(labels)})
    return estimator


def _calibration(tensors: dict[str, Tensor], place: int, n_rows: int) -> Calibration:
    scale = ScaleModel(**{name: tensors[f"scale{place}/{name}"].numpy() for name in _SCALE})
    curve = {name: tensors[f"curve{place}/{name}"].numpy() for name in _CURVE}
    return Calibration(scale, **curve, n_rows=int(n_rows))


def _member(
    held: dict[str, Any],
    tensors: dict[str, Tensor],
    family: Family,
    columns: Columns,
    n_outputs: int,
    seed: int,
    network: GeneratorSpec | nn.Module | None,
) -> Member:
    if "depth" in held:
        arrays = {name: tensors[name].numpy() for name in ("roots", *_NODES)}
        _check_trees(arrays, columns.width)
        return Member(held["name"], Forest(**arrays, depth=held["depth"], share=held["share"]), held["weight"])
    if "plane" in held:
        return Member(held["name"], Affine(*(tensors[name].numpy() for name in _PLANES)), held["weight"])
    one, width = torch.ones(() if n_outputs == 1 else (n_outputs,)), columns.width
    scale = DataScale(0.0 * one, one, torch.zeros(width), torch.ones(width), width)  # the weights bring their own
    parameter_map = ParameterMap(family.model.parameters, width, scale)
    if "layers" in held:
        counted = np.bincount(tensors["body.pieces.column"].numpy(), minlength=width).tolist()
        # The bounds come with the weights: here only how many there are matters.
        edges = tuple(tuple(map(float, range(n + 1))) if n else () for n in counted)
        layers = held["layers"]
        spec: GeneratorSpec = Tabular(**layers | {"hidden": tuple(layers["hidden"]), "edges": edges})
    else:
        spec = as_generator_spec(network)
    body = spec.build(parameter_map.width(random=True), held["n_chains"], scale, width, 0)
    generator = Generator(body, parameter_map, held["n_chains"])
    generator.load_state_dict(tensors)
    noise = quasi_normal(DRAWS, generator.noise_dim, seed)
    return Member(held["name"], Network(generator.eval(), noise, n_outputs), held["weight"])


def _check_trees(arrays: dict[str, Any], width: int) -> None:
    """Raise where a node points to a node or a column that is not there."""
    n_nodes = len(arrays["outcome"])
    for name, most in (("roots", n_nodes), ("below", n_nodes), ("above", n_nodes), ("column", width)):
        if arrays[name].size and not (arrays[name].min() >= 0 and arrays[name].max() < most):
            raise ValueError(f"{name} of a forest points to what is not there")
