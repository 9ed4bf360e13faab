"""A fitted Poisson process as words and numbers, and back."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gpsuq.engine.fitting import check_parameters
from gpsuq.files import module_tensors, under
from gpsuq.poisson.errors import ErrorField, typical
from gpsuq.poisson.estimator import GPSPoissonProcess
from gpsuq.poisson.law import Choice, KernelPart, PoissonFit
from gpsuq.poisson.surfaces import Surface, SurfaceBody
from gpsuq.poisson.tiles import Locations
from gpsuq.spatial.covariates import CovariateGrid
from gpsuq.spatial.grids import Grid
from gpsuq.spatial.windows import window_from_json
from gpsuq.storage.checking import Shapes, check_layers, count, counts, findings, number, table


def describe(estimator: GPSPoissonProcess) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Return what is needed to build the estimator again."""
    fit, grid = estimator.fit_, estimator.grid_
    locations = fit.locations
    config = {
        "params": estimator.get_params()
        | {"fabric": None, "random_state": estimator.seed_, "hidden": list(estimator.hidden)},
        "window": grid.window.to_json(),
        "grid": [grid.n_x, grid.n_y],
        "points": [len(pattern) for pattern in estimator.points_],
        "n_outside": estimator.n_outside_,
        "marks": None if estimator.marks_ is None else [types.tolist() for types in estimator.marks_],
        "length": locations.length,
        "covariates": [covariate.name for covariate in locations.covariates],
        "frequency": fit.frequency,
        "error": asdict(fit.error),
        "smoothness_path": None if fit.smoothness is None else fit.smoothness.table.reset_index().to_dict("list"),
        "spread": fit.spread.value,
        "spread_path": fit.spread.table.reset_index().to_dict("list"),
        "findings": [asdict(finding) for finding in estimator.findings_],
    }
    arrays = {
        "level": fit.level,
        "weight": fit.weight,
        "center": locations.center,
        "covariate_center": locations.covariate_center,
        "covariate_scale": locations.covariate_scale,
        "points": np.concatenate(estimator.points_),
    }
    for place, covariate in enumerate(locations.covariates):
        arrays |= {f"covariate/{place}/{part}": getattr(covariate, part) for part in ("x", "y", "values")}
    if fit.kernel is not None:
        arrays["kernel"] = fit.kernel.image
    tensors = module_tensors(fit.body, "body/")
    return config, tensors | {name: torch.from_numpy(np.array(a, order="C")) for name, a in arrays.items()}


def check(config: dict[str, Any], shapes: Shapes) -> None:
    """Raise where the config says what cannot be, or other sizes than the tensors have."""
    params, names = config["params"], config["covariates"]
    number(config, "length", above=0.0)
    for name in ("frequency", "spread"):
        number(config, name, least=0.0)
    if "error" in config:
        for name in ("length", "level"):
            number(config["error"], name, above=0.0)
        number(config["error"], "factor", least=0.0)
        if shapes["weight"] != shapes["level"]:
            raise ValueError("weights and chains do not agree")
        if "kernel" in shapes and len(shapes["kernel"]) != 2:
            raise ValueError("the image of the kernels must have two dimensions")
    else:  # as 0.1 wrote it
        number(config, "stretch", least=0.0)
    count(params, "random_state")
    counts(config["grid"], "grid", least=1)
    count({"n_outside": 0} | config, "n_outside")  # early versions did not count them
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ValueError("covariates must be names")
    if shapes["points"] != (sum(counts(config["points"], "points")), 2):
        raise ValueError("the numbers of points do not agree")
    marks = config.get("marks")
    if marks is not None and [len(types) for types in marks] != config["points"]:
        raise ValueError("the numbers of points and marks do not agree")
    (n_chains,) = shapes["level"]
    if n_chains < 2:
        raise ValueError("a model needs chains")
    check_layers(shapes, "body/", n_chains, [count(params, "waves", least=1) + len(names), *params["hidden"]])
    if shapes[f"body/layers.{len(params['hidden'])}.weight"][2] != 1 + count(params, "noise_dim", least=1):
        raise ValueError("noise_dim does not agree")


def restore(config: dict[str, Any], tensors: dict[str, Tensor]) -> GPSPoissonProcess:
    """Build the estimator that was described."""
    params = dict(config["params"])
    estimator = GPSPoissonProcess(**params | {"hidden": tuple(params["hidden"])})  # JSON has no tuples
    check_parameters(estimator)
    settings = estimator._settings()
    covariates = []
    for place, name in enumerate(config["covariates"]):
        x, y, values = (tensors[f"covariate/{place}/{part}"].numpy() for part in ("x", "y", "values"))
        covariates.append(CovariateGrid(name, x, y, values))
    center, *scaling = (tensors[name].numpy() for name in ("center", "covariate_center", "covariate_scale"))
    locations = Locations(center, config["length"], tuple(covariates), *scaling)
    level = tensors["level"].numpy()
    path, frequency = config["smoothness_path"], float(config["frequency"])
    frequencies = (frequency,) * len(level)
    spec = Surface(frequencies, len(covariates), settings.waves, settings.hidden, settings.noise_dim)
    body = SurfaceBody(spec, 0)
    body.load_state_dict(under(tensors, "body/"))
    smoothness = None if path is None else Choice(frequency, table(path, next(iter(path))))
    spread = Choice(float(config["spread"]), table(config["spread_path"], "spread"))
    grid = Grid(window_from_json(config["window"]), *config["grid"])
    even = np.full(len(level), 1.0 / len(level))
    weight = tensors["weight"].numpy() if "weight" in tensors else even
    kernel = None
    if "kernel" in tensors:
        image = tensors["kernel"].numpy()
        kernel = KernelPart(Grid(grid.window, image.shape[1], image.shape[0]), image)
    error = ErrorField(**config["error"]) if "error" in config else ErrorField(1.0, 0.0, 1.0)
    fit = PoissonFit(body.eval(), locations, grid, level, weight, kernel, error, smoothness, frequency, spread)
    if "error" not in config:
        fit = replace(fit, error=_error_of_chains(fit, float(config["stretch"]), len(config["points"])))
    patterns = np.split(tensors["points"].numpy(), np.cumsum(config["points"])[:-1])
    estimator._set_fit(fit, grid, patterns, settings.seed, config.get("n_outside", 0), findings(config))
    marks = config.get("marks")
    estimator.marks_ = None if marks is None else [np.array(types, dtype=np.str_) for types in marks]
    return estimator


def _error_of_chains(fit: PoissonFit, stretch: float, n_replicates: int) -> ErrorField:
    """Return the errors of a fit of version 0.1, which held the differences between its chains, stretched."""
    nodes = fit.grid.nodes[fit.grid.inside]
    variance = stretch**2 * fit.chains(nodes)[0].var(0)
    level, length = typical(fit.mean(nodes), n_replicates * variance, fit.grid)
    return ErrorField(length, 1.0 / n_replicates, level)
