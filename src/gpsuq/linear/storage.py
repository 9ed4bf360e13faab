"""A fitted linear regression as words and numbers, and back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from gpsuq.core.calibration import Calibration, ScaleModel, identity_calibration
from gpsuq.core.generators import MLP, Generator
from gpsuq.core.models import linear_regression
from gpsuq.core.parameters import DataScale, ParameterMap
from gpsuq.engine.diagnostics import Finding
from gpsuq.files import module_tensors, under
from gpsuq.linear.candidates import EQUAL, drawn_law
from gpsuq.linear.estimator import GPSLinearRegression
from gpsuq.linear.evidence import Evidence
from gpsuq.linear.fit import LinearFit
from gpsuq.linear.laws import Law
from gpsuq.linear.refine import started_generator
from gpsuq.linear.units import LinearUnits
from gpsuq.storage import feature_names

_UNITS = ("center", "matrix", "slope")
_LAW = ("share", "mean", "loadings", "sigma")
_SCALE = ("center", "scale", "lower", "upper", "coefficients")
_CURVE = ("knots", "values")
_LARGEST = 1e300  # stands for infinity, which JSON and checks of tensors do not know


def describe(estimator: GPSLinearRegression) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Give what is needed to build the estimator again."""
    fit = estimator.fit_
    params = estimator.get_params()
    params["generator"] = asdict(estimator.generator or MLP())
    params["random_state"] = estimator.seed_
    names = getattr(estimator, "feature_names_in_", None)
    evidence = None if fit.evidence is None else asdict(fit.evidence)
    if evidence is not None and evidence["detectable"] is not None:
        evidence["detectable"] = min(evidence["detectable"], _LARGEST)
    config = {
        "params": params,
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
        tensors |= {
            name: value.nan_to_num(posinf=_LARGEST_FLOAT)
            for name, value in module_tensors(fit.generator, "generator/").items()
        }
    return config, tensors


_LARGEST_FLOAT = 1e30


def restore(config: dict[str, Any], tensors: dict[str, Tensor]) -> GPSLinearRegression:
    """Build the estimator that was described."""
    params = dict(config["params"])
    spec = params.pop("generator")
    spec = MLP(**spec | {"hidden": tuple(spec["hidden"])})  # JSON has no tuples
    estimator = GPSLinearRegression(**params, generator=spec)
    early = "sigma_range" in config
    fit = _early_fit(config, tensors, spec, params) if early else _fit(config, tensors, spec, params)
    estimator.n_features_in_ = config["n_features"]
    if (names := feature_names(config, config["n_features"])) is not None:
        estimator.feature_names_in_ = np.asarray(names, dtype=object)
    estimator._set_fit(fit, config["params"]["random_state"])
    return estimator


def _units(config: dict[str, Any], tensors: dict[str, Tensor], params: dict[str, Any]) -> LinearUnits:
    return LinearUnits(
        **{name: tensors[f"units/{name}"].numpy() for name in _UNITS},
        level=config["level"],
        scale=config["scale"],
        intercept=params["fit_intercept"],
    )


def _fit(config: dict[str, Any], tensors: dict[str, Tensor], spec: MLP, params: dict[str, Any]) -> LinearFit:
    law = Law(**{name: tensors[f"law/{name}"].numpy() for name in _LAW})
    scale = ScaleModel(**{name: tensors[f"scale/{name}"].numpy() for name in _SCALE})
    curve = {name: tensors[f"calibration/{name}"].numpy() for name in _CURVE}
    generator, units = None, _units(config, tensors, params)
    if config["trained_chains"] is not None:
        start = under(tensors, "generator/")
        most, depth = start["body.mean"].shape[1], start["body.loadings"].shape[3]
        q = units.rank + 1
        blank = Law(np.full(most, 1.0 / most), np.zeros((most, q)), np.zeros((most, q, depth)), np.ones(most))
        generator = started_generator([blank] * config["trained_chains"], spec, 0, random_level=True)
        generator.load_state_dict(start)
        generator = generator.eval()
    chains: list[Law] = []
    if generator is None:
        parts = [tensors[f"chains/{name}"].numpy() for name in _LAW]
        chains = [Law(*(part[chain] for part in parts)) for chain in range(len(parts[0]))]
    path, evidence = config["spread_path"], config["evidence"]
    return LinearFit(
        units=units,
        law=law,
        chains=chains,
        generator=generator,
        moved=tensors["moved"].numpy(),
        centers=tensors["centers"].numpy(),
        estimation=tensors["estimation"].numpy(),
        bulk=config["bulk"],
        calibration=Calibration(scale, **curve, n_rows=config["calibrated_by"]),
        ranks=tensors["ranks"].numpy(),
        kind=config["kind"],
        spread_weight=config["spread_weight"],
        path=None if path is None else pd.DataFrame(path),
        evidence=None if evidence is None else Evidence(**evidence),
        reweighted=config["reweighted"],
        findings=[Finding(**finding) for finding in config["findings"]],
    )


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


def _early_fit(config: dict[str, Any], tensors: dict[str, Tensor], spec: MLP, params: dict[str, Any]) -> LinearFit:
    """Build a fit of version 0.1: what was drawn stays the same, predictions are not calibrated."""
    units, intercept = _units(config, tensors, params), params["fit_intercept"]
    random = params["random_intercept"] is True
    declared = linear_regression(
        intercept=intercept, random_intercept=random, pivot=intercept and not random
    ).parameters
    scale = DataScale(torch.zeros(()), torch.ones(()), torch.zeros(units.rank), torch.ones(units.rank), units.rank)
    parameter_map = ParameterMap(declared, units.rank, scale)
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
    path = config["spread_path"]
    return LinearFit(
        units=units,
        law=law,
        chains=[],
        generator=kept,
        moved=np.zeros(units.rank + 1),
        centers=np.broadcast_to(law.center, (len(chains), units.rank + 1)),  # its chains hold their own
        estimation=np.zeros((units.rank + 1,) * 2),
        bulk=float(np.median(law.sigma)),
        calibration=identity_calibration(config["n_features"]),
        ranks=np.empty(0),
        kind="trained" if config["spread_weight"] < EQUAL else "equal",
        spread_weight=config["spread_weight"],
        path=None if path is None else pd.DataFrame(path),
        evidence=None,
        reweighted=config["reweighted"],
        findings=[Finding(**finding) for finding in config["findings"]],
    )
