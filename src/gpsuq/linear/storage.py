"""A fitted linear regression as words and numbers, and back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gpsuq.core.calibration import Calibration, ScaleModel, identity_calibration
from gpsuq.core.generators import MLP, Generator
from gpsuq.core.models import linear_regression
from gpsuq.core.parameters import ParameterMap
from gpsuq.engine.fitting import check_parameters
from gpsuq.files import module_tensors, under
from gpsuq.linear.candidates import EQUAL, LINES, drawn_law
from gpsuq.linear.estimator import GPSLinearRegression
from gpsuq.linear.evidence import Evidence
from gpsuq.linear.fit import LinearFit
from gpsuq.linear.laws import Law
from gpsuq.linear.refine import started_generator, unit_scale
from gpsuq.linear.units import LinearUnits
from gpsuq.storage.checking import Shapes, check_layers, count, counts, feature_names, findings, number, one_of, table

_UNITS = ("center", "matrix", "slope")
_LAW = ("share", "mean", "loadings", "sigma")
_SCALE = ("center", "scale", "lower", "upper", "coefficients")
_CURVE = ("knots", "values")
_KINDS = ("equal", "normal", *LINES, "trained")
_LARGEST, _LARGEST_FLOAT = 1e300, 1e30  # stand for infinity, which JSON and checks of tensors do not know


def describe(estimator: GPSLinearRegression) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Return what is needed to build the estimator again."""
    fit, generator = estimator.fit_, asdict(estimator.generator or MLP())
    names = getattr(estimator, "feature_names_in_", None)
    evidence = None if fit.evidence is None else asdict(fit.evidence)
    if evidence is not None and evidence["detectable"] is not None:
        evidence["detectable"] = min(evidence["detectable"], _LARGEST)
    config = {
        "params": estimator.get_params() | {"fabric": None, "generator": generator, "random_state": estimator.seed_},
        "n_features": int(estimator.n_features_in_),
        "feature_names": None if names is None else [str(name) for name in names],
        "level": fit.units.level,
        "scale": fit.units.scale,
        "kind": fit.kind,
        "spread_weight": fit.spread_weight,
        "spread_path": None if fit.path is None else fit.path.to_dict("list"),
        "trained_chains": None if fit.generator is None else fit.generator.n_chains,
        "bulk": fit.bulk,
        "calibrated_by": fit.calibration.n_rows,
        "evidence": evidence,
        "reweighted": fit.reweighted,
        "findings": [asdict(finding) for finding in fit.findings],
    }
    arrays = {f"units/{name}": getattr(fit.units, name) for name in _UNITS}
    arrays |= {f"law/{name}": getattr(fit.law, name) for name in _LAW}
    arrays |= {f"scale/{name}": np.minimum(getattr(fit.calibration.scale, name), _LARGEST) for name in _SCALE}
    arrays |= {f"calibration/{name}": getattr(fit.calibration, name) for name in _CURVE}
    if fit.chains:
        arrays |= {f"chains/{name}": np.stack([getattr(law, name) for law in fit.chains]) for name in _LAW}
    arrays |= {"moved": fit.moved, "centers": fit.centers, "estimation": fit.estimation, "ranks": fit.ranks}
    tensors = {name: torch.from_numpy(np.ascontiguousarray(value)) for name, value in arrays.items()}
    if fit.generator is not None:
        trained = module_tensors(fit.generator, "generator/")
        tensors |= {name: value.nan_to_num(posinf=_LARGEST_FLOAT) for name, value in trained.items()}
    return config, tensors


def check(config: dict[str, Any], shapes: Shapes) -> None:
    """Raise where the config says what cannot be, or other sizes than the tensors have."""
    n_features, spec = count(config, "n_features", least=1), config["params"]["generator"]
    count(config["params"], "random_state")
    number(config, "level")
    number(config, "scale", above=0.0)
    number(config, "spread_weight")
    one_of(config, "reweighted", (True, False))
    if {shapes[f"units/{name}"][0] for name in _UNITS} != {n_features}:
        raise ValueError(f"n_features cannot be {n_features}")
    widths = [spec["noise_dim"], *spec["hidden"]]
    if "sigma_range" in config:
        n_chains = count(config, "n_chains", least=1)
        check_layers(shapes, "generator/body.", n_chains, widths)
        if not 1 <= len(counts(config["chains"], "chains", most=n_chains - 1)) <= n_chains:
            raise ValueError("a model needs chains, each at most once")
        lowest, highest = config["sigma_range"]
        number({"sigma_range": lowest}, "sigma_range", above=0.0, most=number({"sigma_range": highest}, "sigma_range"))
        number(config, "sigma_factor", above=0.0)
        return
    number(config, "bulk", least=0.0)
    count(config, "calibrated_by")
    one_of(config, "kind", _KINDS)
    if (evidence := config["evidence"]) is not None:
        number(evidence, "p_value", least=0.0, most=1.0)
        number(evidence, "curvature")
        one_of(evidence, "curved", (True, False))
        if evidence["detectable"] is not None:
            number(evidence, "detectable", least=0.0)
    if config["trained_chains"] is not None:
        deepest = 1 + shapes["generator/body.loadings"][3]
        n_chains = count(config, "trained_chains", least=1)
        check_layers(shapes, "generator/body.network.", n_chains, [max(widths[0], deepest), *widths[1:]])


def restore(config: dict[str, Any], tensors: dict[str, Tensor]) -> GPSLinearRegression:
    """Build the estimator that was described."""
    params = dict(config["params"])
    spec = params.pop("generator")
    spec = MLP(**spec | {"hidden": tuple(spec["hidden"])})  # JSON has no tuples
    estimator = GPSLinearRegression(**params, generator=spec)
    check_parameters(estimator)
    units = LinearUnits(
        **{name: tensors[f"units/{name}"].numpy() for name in _UNITS},
        level=config["level"],
        scale=config["scale"],
        intercept=params["fit_intercept"],
    )
    common: dict[str, Any] = {
        "units": units,
        "spread_weight": config["spread_weight"],
        "path": None if config["spread_path"] is None else table(config["spread_path"]),
        "reweighted": config["reweighted"],
        "findings": findings(config),
    }
    own = (_early_parts if "sigma_range" in config else _parts)(config, tensors, spec, units)
    estimator.n_features_in_ = config["n_features"]
    if (names := feature_names(config, config["n_features"])) is not None:
        estimator.feature_names_in_ = np.asarray(names, dtype=object)
    estimator._set_fit(LinearFit(**common, **own), config["params"]["random_state"])
    return estimator


def _parts(config: dict[str, Any], tensors: dict[str, Tensor], spec: MLP, units: LinearUnits) -> dict[str, Any]:
    """Return the fields of a fit that depend on the version it was saved by."""

    def arrays(folder: str, names: Sequence[str]) -> dict[str, Any]:
        return {name: tensors[f"{folder}{name}"].numpy() for name in names}

    generator, chains = None, []
    if config["trained_chains"] is not None:
        start = under(tensors, "generator/")
        most, depth, q = start["body.mean"].shape[1], start["body.loadings"].shape[3], units.rank + 1
        blank = Law(np.full(most, 1.0 / most), np.zeros((most, q)), np.zeros((most, q, depth)), np.ones(most))
        generator = started_generator([blank] * config["trained_chains"], spec, 0, random_level=True)
        generator.load_state_dict(start)
        generator = generator.eval()
    else:
        chains = [Law(*parts) for parts in zip(*arrays("chains/", _LAW).values(), strict=True)]
    scale, evidence = ScaleModel(**arrays("scale/", _SCALE)), config["evidence"]
    return arrays("", ("moved", "centers", "estimation", "ranks")) | {
        "law": Law(**arrays("law/", _LAW)),
        "chains": chains,
        "generator": generator,
        "bulk": config["bulk"],
        "calibration": Calibration(scale, **arrays("calibration/", _CURVE), n_rows=config["calibrated_by"]),
        "kind": config["kind"],
        "evidence": None if evidence is None else Evidence(**evidence),
    }


# --- models saved before laws were calibrated ------------------------------------------------------------------------


class _EarlyGenerator(Generator):
    """A generator whose lines cross in a pivot, with the corrections that its chains had."""

    offset: Tensor
    sigma_range: tuple[float, float]
    sigma_factor: float

    def forward(self, noise: Tensor, x: Tensor | None = None) -> dict[str, Tensor]:
        values = super().forward(noise, x)
        level = values.get("intercept", torch.zeros_like(values["sigma"]))
        if "pivot" in values:
            level = level - (values["pivot"] * values["slope"]).sum(-1)
        shift = self.offset[:, None, None]
        return {
            "slope": values["slope"] + shift[..., :-1],
            "intercept": level.expand_as(values["sigma"]) + shift[..., -1],
            "sigma": values["sigma"].clamp(*self.sigma_range) * self.sigma_factor,
        }

    def select(self, chains: Sequence[int]) -> Generator:
        result = super().select(chains)
        assert isinstance(result, _EarlyGenerator)
        result.offset = self.offset[list(chains)]
        return result


def _early_parts(config: dict[str, Any], tensors: dict[str, Tensor], spec: MLP, units: LinearUnits) -> dict[str, Any]:
    """Return the fields of a fit of version 0.1: what was drawn stays the same, predictions are not calibrated."""
    random = config["params"]["random_intercept"] is True
    pivot = units.intercept and not random
    model = linear_regression(intercept=units.intercept, random_intercept=random, pivot=pivot)
    scale = unit_scale(units.rank)
    parameter_map = ParameterMap(model.parameters, units.rank, scale)
    body = spec.build(parameter_map.width(random=True), config["n_chains"], scale, units.rank, 0)
    generator = _EarlyGenerator(body, parameter_map, config["n_chains"])
    generator.load_state_dict(under(tensors, "generator/"))
    generator.offset = tensors["offset"]
    generator.sigma_range = (config["sigma_range"][0], config["sigma_range"][1])
    generator.sigma_factor = config["sigma_factor"]
    chains = list(config["chains"])
    kept = generator.select(chains).eval()
    law = drawn_law(kept, range(len(chains)), config["params"]["random_state"])
    if law is None:
        raise ValueError("the generator's draws are not finite")
    return {
        "law": law,
        "chains": [],
        "generator": kept,
        "moved": np.zeros(units.rank + 1),
        "centers": np.broadcast_to(law.center, (len(chains), units.rank + 1)),  # its chains hold their own
        "estimation": np.zeros((units.rank + 1,) * 2),
        "bulk": float(np.median(law.sigma)),
        "calibration": identity_calibration(config["n_features"]),
        "ranks": np.empty(0),
        "kind": "trained" if config["spread_weight"] < EQUAL else "equal",
        "evidence": None,
    }
