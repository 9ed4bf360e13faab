"""A fitted linear regression as words and numbers, and back."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from gpsuq.checkpoints import under
from gpsuq.diagnostics import Finding
from gpsuq.estimators import GPSLinearRegression
from gpsuq.generators import MLP, Generator
from gpsuq.io.checks import feature_names
from gpsuq.io.tensors import whole
from gpsuq.linear import LinearFit, LinearUnits
from gpsuq.parameters import DataScale, ParameterMap
from gpsuq.spread import SpreadChoice

_UNITS = ("center", "matrix", "slope")


def describe(estimator: GPSLinearRegression) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Give what is needed to build the estimator again."""
    fit = estimator.fit_
    params = estimator.get_params()
    params["generator"] = asdict(estimator.generator or MLP())
    params["random_state"] = estimator.seed_
    names = getattr(estimator, "feature_names_in_", None)
    config = {
        "params": params,
        "n_features": int(estimator.n_features_in_),
        "feature_names": None if names is None else [str(name) for name in names],
        "n_chains": fit.generator.n_chains,
        "chains": fit.chains,
        "level": fit.units.level,
        "scale": fit.units.scale,
        "sigma_factor": fit.sigma_factor,
        "sigma_range": fit.sigma_range,
        "spread_weight": fit.spread_weight,
        "spread_path": None if fit.choice is None else fit.choice.table.reset_index().to_dict("list"),
        "reweighted": fit.reweighted,
        "findings": [asdict(finding) for finding in fit.findings],
    }
    tensors = whole(fit.generator, "generator/")
    tensors |= {f"units/{name}": torch.from_numpy(np.ascontiguousarray(getattr(fit.units, name))) for name in _UNITS}
    return config, tensors | {"offset": fit.offset.contiguous()}


def restore(config: dict[str, Any], tensors: dict[str, Tensor]) -> GPSLinearRegression:
    """Build the estimator that was described."""
    params = dict(config["params"])
    spec = params.pop("generator")
    spec = MLP(**spec | {"hidden": tuple(spec["hidden"])})  # JSON has no tuples
    estimator = GPSLinearRegression(**params, generator=spec)
    units = LinearUnits(
        **{name: tensors[f"units/{name}"].numpy() for name in _UNITS}, level=config["level"], scale=config["scale"]
    )
    declared = estimator._settings().model().parameters
    one = torch.ones(())
    rank = torch.ones(units.rank)
    scale = DataScale(torch.zeros(()), one, torch.zeros(units.rank), rank, units.rank)
    parameter_map = ParameterMap(declared, units.rank, scale)
    body = spec.build(parameter_map.width(random=True), config["n_chains"], scale, units.rank, 0)
    generator = Generator(body, parameter_map, config["n_chains"])
    generator.load_state_dict(under(tensors, "generator/"))
    path = config["spread_path"]
    choice = (
        None if path is None else SpreadChoice(config["spread_weight"], pd.DataFrame(path).set_index("spread_weight"))
    )
    fit = LinearFit(
        generator=generator.eval(),
        units=units,
        chains=list(config["chains"]),
        offset=tensors["offset"],
        sigma_factor=config["sigma_factor"],
        sigma_range=(config["sigma_range"][0], config["sigma_range"][1]),
        choice=choice,
        spread_weight=config["spread_weight"],
        reweighted=config["reweighted"],
        findings=[Finding(**finding) for finding in config["findings"]],
    )
    estimator.n_features_in_ = config["n_features"]
    if (names := feature_names(config, config["n_features"])) is not None:
        estimator.feature_names_in_ = np.asarray(names, dtype=object)
    estimator._set_fit(fit, config["params"]["random_state"])
    return estimator
