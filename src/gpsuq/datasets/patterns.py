"""Point patterns: simulated from known intensities on the unit square, and real ones from the data directory."""

from __future__ import annotations

import math

import numpy as np

from gpsuq.datasets.directory import data_directory
from gpsuq.errors import GPSError
from gpsuq.spatial.covariates import CovariateGrid, read_covariate
from gpsuq.spatial.grids import Grid
from gpsuq.spatial.patterns import PointPattern, point_pattern
from gpsuq.spatial.reading import read_points
from gpsuq.spatial.simulation import Intensity, simulate_poisson
from gpsuq.spatial.windows import Array, Window, read_window

UNIT_SQUARE = Window.rectangle(0.0, 1.0, 0.0, 1.0)


def bumps(points: Array) -> Array:
    """Return the intensity of two smooth bumps on a low level, about 500 points in all."""
    x, y = points[:, 0], points[:, 1]
    first = np.exp(-((x - 0.3) ** 2 + (y - 0.35) ** 2) / (2 * 0.1**2))
    second = np.exp(-((x - 0.7) ** 2 + (y - 0.7) ** 2) / (2 * 0.14**2))
    return np.asarray(140.0 + 2250.0 * first + 1850.0 * second)


def ridge(points: Array) -> Array:
    """Return the intensity of a straight ridge, three hundredths wide, on a low level; about 2,000 points in all."""
    across = (points[:, 1] - 0.2 - 0.6 * points[:, 0]) / math.hypot(1.0, 0.6)
    return np.asarray(500.0 + 17_000.0 * np.exp(-(across**2) / (2 * 0.03**2)))


def constant(points: Array) -> Array:
    """Return the same intensity everywhere, about 300 points in all."""
    return np.full(len(points), 300.0)


INTENSITIES: dict[str, Intensity] = {"bumps": bumps, "ridge": ridge, "constant": constant}


def simulated_pattern(name: str, seed: int) -> PointPattern:
    """Simulate a pattern from ``"bumps"``, ``"ridge"`` or ``"constant"``, known intensities on the unit square.

    >>> from gpsuq.datasets import simulated_pattern
    >>> 400 < len(simulated_pattern("bumps", seed=0)) < 600
    True
    """
    if name not in INTENSITIES:
        raise GPSError(f"there is no intensity {name!r}; use one of {', '.join(INTENSITIES)}")
    rng = np.random.default_rng(seed)
    return PointPattern(simulate_poisson(INTENSITIES[name], UNIT_SQUARE, rng), UNIT_SQUARE)


def log_gaussian_cox(
    n_replicates: int, seed: int, *, mean: float = 300.0, sd: float = 0.6, length: float = 0.15
) -> list[PointPattern]:
    """Simulate replicates of a log-Gaussian Cox process on the unit square.

    The logarithm of the intensity is a Gaussian field with the given standard deviation and correlation
    exp(-distance / length), constant on the cells of a 48 x 48 grid; its mean is ``mean`` everywhere.

    >>> import numpy as np
    >>> from gpsuq.datasets import log_gaussian_cox
    >>> counts = [len(pattern) for pattern in log_gaussian_cox(20, seed=0)]
    >>> bool(np.var(counts) > 3 * np.mean(counts))  # they would be equal if it were a Poisson process
    True
    """
    rng = np.random.default_rng(seed)
    grid = Grid(UNIT_SQUARE, 48, 48)
    nodes = grid.nodes.reshape(-1, 2)
    apart = np.hypot(*(nodes[:, None] - nodes).transpose(2, 0, 1))
    root = np.linalg.cholesky(sd**2 * np.exp(-apart / length) + 1e-9 * np.eye(len(nodes)))

    def replicate() -> PointPattern:
        rate = mean * np.exp(root @ rng.standard_normal(len(nodes)) - 0.5 * sd**2)
        bound = rate.reshape(48, 48)
        points = simulate_poisson(lambda s: rate[grid.cell_of(s)], UNIT_SQUARE, rng, grid=grid, bound=bound)
        return PointPattern(points, UNIT_SQUARE)

    return [replicate() for _ in range(n_replicates)]


def real_pattern(name: str) -> PointPattern:
    r"""Read ``points/<name>.csv`` (columns x and y) and ``points/<name>.window.json`` from the data directory.

    >>> import os, tempfile
    >>> from pathlib import Path
    >>> from unittest.mock import patch
    >>> from gpsuq.datasets import real_pattern
    >>> with tempfile.TemporaryDirectory() as folder, patch.dict(os.environ, GPSUQ_DATA=folder):
    ...     points = Path(folder, "points")
    ...     points.mkdir()
    ...     _ = (points / "trees.csv").write_text("x,y\n0.5,0.5\n1.5,0.2\n")
    ...     _ = (points / "trees.window.json").write_text('{"type": "rectangle", "xrange": [0, 2], "yrange": [0, 1]}')
    ...     len(real_pattern("trees"))
    2
    """
    folder = data_directory() / "points"
    (points,), _ = read_points(folder / f"{name}.csv", "x", "y", None)
    return point_pattern(points, read_window(folder / f"{name}.window.json"))


def real_covariates(name: str, covariates: tuple[str, ...]) -> list[CovariateGrid]:
    r"""Read covariate grids ``points/<name>.<covariate>.grid.csv`` from the data directory.

    >>> import os, tempfile
    >>> from pathlib import Path
    >>> from unittest.mock import patch
    >>> from gpsuq.datasets import real_covariates
    >>> with tempfile.TemporaryDirectory() as folder, patch.dict(os.environ, GPSUQ_DATA=folder):
    ...     grid = Path(folder, "points", "trees.elevation.grid.csv")
    ...     grid.parent.mkdir()
    ...     _ = grid.write_text("0,10,20\n30,40,50\n")
    ...     _ = grid.with_suffix(".json").write_text('{"xcol": [0, 1, 2], "yrow": [0, 1]}')
    ...     real_covariates("trees", ("elevation",))[0].name
    'elevation'
    """
    folder = data_directory() / "points"
    return [read_covariate(folder / f"{name}.{covariate}.grid.csv", covariate) for covariate in covariates]
