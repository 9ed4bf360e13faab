"""A fitted Poisson process as words and numbers, and back."""

from __future__ import annotations

import operator
from dataclasses import asdict
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from gpsuq.engine.diagnostics import Finding
from gpsuq.engine.fitting import check_parameters
from gpsuq.files import module_tensors, under
from gpsuq.poisson.estimator import GPSPoissonProcess
from gpsuq.poisson.fit import Choice, Locations, PoissonFit
from gpsuq.poisson.surfaces import Surface, SurfaceBody
from gpsuq.spatial.covariates import CovariateGrid
from gpsuq.spatial.grids import Grid
from gpsuq.spatial.windows import window_from_json


def describe(estimator: GPSPoissonProcess) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Return what is needed to build the estimator again."""
    fit, grid = estimator.fit_, estimator.grid_
    locations = fit.locations
    config = {
        "params": estimator.get_params() | {"random_state": estimator.seed_, "hidden": list(estimator.hidden)},
        "window": grid.window.to_json(),
        "grid": [grid.n_x, grid.n_y],
        "points": [len(pattern) for pattern in estimator.points_],
        "n_outside": estimator.n_outside_,
        "length": locations.length,
        "covariates": [covariate.name for covariate in locations.covariates],
        "frequency": fit.frequency,
        "stretch": fit.stretch,
        "smoothness_path": None if fit.smoothness is None else fit.smoothness.table.reset_index().to_dict("list"),
        "spread": fit.spread.value,
        "spread_path": fit.spread.table.reset_index().to_dict("list"),
        "findings": [asdict(finding) for finding in estimator.findings_],
    }
    arrays = {
        "level": fit.level,
        "center": locations.center,
        "covariate_center": locations.covariate_center,
        "covariate_scale": locations.covariate_scale,
        "points": np.concatenate(estimator.points_),
    }
    for number, covariate in enumerate(locations.covariates):
        arrays |= {f"covariate/{number}/{part}": getattr(covariate, part) for part in ("x", "y", "values")}
    tensors = module_tensors(fit.body, "body/")
    return config, tensors | {name: torch.from_numpy(np.array(a, order="C")) for name, a in arrays.items()}


def restore(config: dict[str, Any], tensors: dict[str, Tensor]) -> GPSPoissonProcess:
    """Build the estimator that was described."""
    params = dict(config["params"])
    estimator = GPSPoissonProcess(**params | {"hidden": tuple(params["hidden"])})  # JSON has no tuples
    check_parameters(estimator)
    settings = estimator._settings()
    covariates = tuple(
        CovariateGrid(name, *(tensors[f"covariate/{number}/{part}"].numpy() for part in ("x", "y", "values")))
        for number, name in enumerate(config["covariates"])
    )
    center, *scaling = (tensors[name].numpy() for name in ("center", "covariate_center", "covariate_scale"))
    locations = Locations(center, config["length"], covariates, *scaling)
    level, stretch = tensors["level"].numpy(), float(config["stretch"])
    if not (config["length"] > 0 and stretch >= 0 and np.isfinite(level).all()) or len(level) < 2:
        raise ValueError("numbers that must be positive and finite are not")
    path, frequency = config["smoothness_path"], float(config["frequency"])
    frequencies = (frequency,) * len(level)
    spec = Surface(frequencies, len(covariates), settings.waves, settings.hidden, settings.noise_dim)
    body = SurfaceBody(spec, 0)
    body.load_state_dict(under(tensors, "body/"))
    smoothness = None if path is None else Choice(frequency, pd.DataFrame(path).set_index("frequency"))
    spread = Choice(float(config["spread"]), pd.DataFrame(config["spread_path"]).set_index("spread"))
    fit = PoissonFit(body.eval(), locations, level, smoothness, frequency, spread, stretch)
    n_x, n_y = (operator.index(number) for number in config["grid"])
    grid = Grid(window_from_json(config["window"]), n_x, n_y)
    if sum(config["points"]) != len(tensors["points"]):
        raise ValueError("the numbers of points do not agree")
    patterns = np.split(tensors["points"].numpy(), np.cumsum(config["points"])[:-1])
    found = [Finding(**finding) for finding in config.get("findings", [])]  # files of earlier versions have none
    estimator._set_fit(fit, grid, patterns, settings.seed, config.get("n_outside", 0), found)
    return estimator
