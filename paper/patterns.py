"""Real point patterns with the default settings: held-out log-likelihood, surfaces and L envelopes."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import shapely

from gpsuq.datasets import real_covariates, real_pattern
from gpsuq.engine.progress import stage
from gpsuq.errors import GPSWarning
from gpsuq.plots.style import COLORS, figure_style, save_figure
from gpsuq.poisson.baselines import HomogeneousIntensity, KernelIntensity, LogLinearIntensity
from gpsuq.poisson.maps import draw_points, draw_window
from gpsuq.poisson.plots import draw_envelope, draw_intensity, draw_relative_uncertainty
from gpsuq.spatial.patterns import PointPattern, thin
from paper.poisson import estimator
from paper.record import Asked

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_THINNINGS, _BEI_THINNINGS = 10, 3
_BEI_COVARIATES = ("elev", "grad")


def longleaf_with_hole() -> PointPattern:
    """Cut the longleaf pines to an octagon with a round pond in it: a window that is not a rectangle."""
    pattern = real_pattern("longleaf")
    center, radius = shapely.Point(100.0, 100.0), 100.0
    angles = np.linspace(0.0, 2.0 * np.pi, 8, endpoint=False) + np.pi / 8.0
    octagon = shapely.Polygon(100.0 + radius * np.column_stack([np.cos(angles), np.sin(angles)]))
    window = replace(pattern.window, polygons=octagon.difference(center.buffer(30.0)))
    return PointPattern(pattern.points[window.contains(pattern.points)], window)


PATTERNS: dict[str, Callable[[], PointPattern]] = {
    "japanesepines": lambda: real_pattern("japanesepines"),
    "redwoodfull": lambda: real_pattern("redwoodfull"),
    "finpines": lambda: real_pattern("finpines"),
    "longleaf, octagon with a hole": longleaf_with_hole,
}


def read_pattern(name: str) -> PointPattern:
    """Read a pattern by its name in ``PATTERNS``, or a whole file."""
    return PATTERNS[name]() if name in PATTERNS else real_pattern(name)


def one_thinning(name: str, seed: int, n_steps: int | None, *, progress: bool = False) -> dict[str, Any]:
    """Split a pattern in two halves at random, fit on one, and score the other."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", GPSWarning)
        pattern = read_pattern(name)
        train, test = thin(pattern.points, 0.5, seed)
        half = PointPattern(train, pattern.window)
        started = time.perf_counter()
        gps = estimator(seed, n_steps, progress=progress).fit(train, pattern.window)
        seconds = time.perf_counter() - started
        result = {
            "pattern": name,
            "gps": gps.log_likelihood(test),
            "homogeneous": HomogeneousIntensity(half).log_likelihood(test),
            "kernel": KernelIntensity(half).log_likelihood(test),
            "frequency": gps.frequency_,
            "fit_seconds": round(seconds, 1),
        }
        if name == "bei":
            covariates = real_covariates("bei", _BEI_COVARIATES)
            with_covariates = estimator(seed, n_steps, progress=progress).fit(
                train, pattern.window, covariates=covariates
            )
            result["gps_with_covariates"] = with_covariates.log_likelihood(test)
            result["log_linear"] = LogLinearIntensity(half, covariates).log_likelihood(test)
    return result


def run(asked: Asked) -> list[Path]:
    """Score ten thinnings of every pattern (three of bei), and draw every surface."""
    seed, n_steps = asked.seed, asked.n_steps
    thinnings = {"bei": _BEI_THINNINGS} | dict.fromkeys(PATTERNS, _THINNINGS)
    tasks = [(name, number, n_steps) for name, n in thinnings.items() for number in range(seed, seed + n)]
    table = asked.replicate(one_thinning, tasks)
    settings = {"thinnings": thinnings, "share": 0.5, "estimator": estimator(seed, n_steps).get_params()}
    files = []
    checks: dict[str, float] = {}
    for name in (*PATTERNS, "bei"):
        with stage(name.split(",")[0]):
            figure, p_value = surface_figure(name, read_pattern(name), seed, n_steps, progress=asked.progress)
        checks[name] = p_value
        files.append(save_figure(figure, asked.out / f"{name.split(',')[0]}.png"))
    results = {"log_likelihood_per_point": summarise(table), "l_envelope_p_value": checks}
    return [asked.write(settings, results), *files]


def summarise(table: pd.DataFrame) -> dict[str, Any]:
    """Return means over thinnings, and of the paired differences, with standard errors."""
    result = {}
    for name, rows in table.groupby("pattern", sort=False):
        numbers = rows.drop(columns="pattern").dropna(axis=1)
        differences = {f"gps_minus_{other}": rows["gps"] - rows[other] for other in ("homogeneous", "kernel")}
        columns: dict[Any, pd.Series] = dict(numbers.items()) | differences
        result[str(name)] = {
            column: {"mean": values.mean(), "standard_error": values.sem()} for column, values in columns.items()
        }
    return result


def surface_figure(
    name: str, pattern: PointPattern, seed: int, n_steps: int | None, *, progress: bool = False
) -> tuple[Figure, float]:
    """Draw points, mean surface, relative uncertainty and L envelope of the fit to a whole pattern."""
    import matplotlib.pyplot as plt

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", GPSWarning)
        gps = estimator(seed, n_steps, progress=progress).fit(pattern.points, pattern.window)
    surface, envelope = gps.surface(), gps.goodness_of_fit()
    x_min, x_max, y_min, y_max = pattern.window.bounds
    height = 1.2 + 7.8 * (y_max - y_min) / (x_max - x_min)
    with figure_style():
        figure, axes = plt.subplots(2, 2, figsize=(11, height), layout="compressed")
        draw_points(axes[0, 0], pattern.points, color=COLORS["gps"])
        draw_window(axes[0, 0], pattern.window)
        axes[0, 0].set_title(f"{name}: {len(pattern):,} points")
        draw_intensity(axes[0, 1], surface)
        draw_relative_uncertainty(axes[1, 0], surface.grid, surface.sd / surface.mean)
        draw_envelope(axes[1, 1], envelope, pattern.window)
        axes[1, 1].set_title("goodness of fit", loc="left")
    return figure, envelope.p_value
