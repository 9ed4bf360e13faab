"""Kernel estimates of an intensity on a fine grid, fixed and adaptive: candidates beside the networks.

Counts are smoothed by a Gaussian that is reflected at the edges of the window's box, and divided by the area, smoothed
alike. Both are products in the cosine transform, so that the time does not grow with the number of points.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.fft import dct, dctn, idct, idctn
from scipy.ndimage import map_coordinates

from gpsuq.spatial.grids import Grid
from gpsuq.spatial.windows import Array, Window

_CELLS = 1 << 14
_WIDEST, _RATIO, _NARROWEST = 0.3, 1.5, 1.2  # longest side, from one bandwidth to the next, cells
_STEP, _MOST_STEPS = math.log(1.25), 7  # of the local bandwidths, and how many up or down


def kernel_grid(window: Window) -> Grid:
    """Return the grid that kernel estimates are computed on: some 16,000 cells that are nearly square."""
    x_min, x_max, y_min, y_max = window.bounds
    across = math.sqrt(_CELLS * (x_max - x_min) / (y_max - y_min))
    n_x = max(1, min(_CELLS, round(across)))
    return Grid(window, n_x, max(1, _CELLS // n_x))


def bandwidths(grid: Grid) -> list[float]:
    """Return the bandwidths that are tried, widest first: from a share of the longest side down to about a cell."""
    x_min, x_max, y_min, y_max = grid.window.bounds
    result, least = [_WIDEST * max(x_max - x_min, y_max - y_min)], _NARROWEST * max(grid.cell_size)
    while result[-1] / _RATIO > least:
        result.append(result[-1] / _RATIO)
    return result


def smoothed(values: Array, bandwidth: float, grid: Grid) -> Array:
    """Smooth values (..., n_y, n_x) by a Gaussian reflected at the edges of the box."""
    return np.asarray(idctn(_damped(dctn(values, axes=(-2, -1)), bandwidth, grid), axes=(-2, -1)))


def _damped(spectrum: Array, bandwidth: float, grid: Grid) -> Array:
    width, height = grid.cell_size
    across = np.exp(-0.5 * (bandwidth * np.pi * np.arange(grid.n_x) / (width * grid.n_x)) ** 2)
    along = np.exp(-0.5 * (bandwidth * np.pi * np.arange(grid.n_y) / (height * grid.n_y)) ** 2)
    return np.asarray(spectrum * along[:, None] * across)


def _seen(bandwidth: float, grid: Grid) -> Array:
    """Return the smoothed area of the cells: what a kernel's mass is divided by."""
    return np.maximum(smoothed(grid.exposure, bandwidth, grid), 1e-9 * np.prod(grid.cell_size))


def fixed(counts: Array, bandwidth: float, grid: Grid) -> Array:
    """Return the estimate with one bandwidth everywhere, from counts (..., n_y, n_x)."""
    return np.maximum(smoothed(counts, bandwidth, grid), 0.0) / _seen(bandwidth, grid)


def adaptive(counts: Array, pilot: Array, widths: list[float], grid: Grid) -> Array:
    """Return Abramson's estimates, (bandwidth, n_y, n_x): wider kernels where a pilot estimate is low.

    A point's bandwidth is proportional to the pilot's square root there, turned over; it is rounded to steps of a
    quarter, and points of one step are smoothed together.
    """
    occupied = counts > 0
    if not occupied.any():
        return np.zeros((len(widths), *counts.shape))
    logs = -0.5 * np.log(np.maximum(pilot[occupied], 1e-3 * pilot[occupied].max()))
    steps = np.full(counts.shape, _MOST_STEPS + 1)
    weighted = logs @ counts[occupied] / counts.sum()
    steps[occupied] = np.clip(np.rint((logs - weighted) / _STEP), -_MOST_STEPS, _MOST_STEPS)
    result = np.zeros((len(widths), *counts.shape))
    for step in np.unique(steps[occupied]):
        spectrum = dctn(np.where(steps == step, counts, 0.0))
        for number, width in enumerate(widths):
            local = width * math.exp(step * _STEP)
            result[number] += np.maximum(idctn(_damped(spectrum, local, grid)), 0.0) / _seen(local, grid)
    return result


def between_cells(image: Array, grid: Grid, points: Array) -> Array:
    """Return values of an image (n_y, n_x) at points (n, 2), linear between the centres of cells."""
    x_min, _, y_min, _ = grid.window.bounds
    width, height = grid.cell_size
    place = [(points[:, 1] - y_min) / height - 0.5, (points[:, 0] - x_min) / width - 0.5]
    return np.asarray(map_coordinates(image, place, order=1, mode="nearest"))


def estimate_at_own_points(
    patterns: Sequence[Array], mean: Array, base: Array, bandwidth: float, grid: Grid
) -> Callable[[Array], Array]:
    """Return the fixed kernel estimate from replicates of a pattern, to be asked for at their own points.

    A point adds its own kernel to the estimate there; with the expected sum of the others, from a known ``mean``
    (n_y, n_x), that is taken out on average. What varies as ``base`` does is not smoothed.
    """
    counts = np.sum([grid.counts(pattern) for pattern in patterns], axis=0).astype(np.float64)
    width, height = grid.cell_size
    own = np.outer(_own_share(grid.n_y, height, bandwidth), _own_share(grid.n_x, width, bandwidth))
    others = len(patterns) * smoothed(mean * grid.exposure, bandwidth, grid)
    expected = np.maximum(len(patterns) * smoothed(base * grid.exposure, bandwidth, grid), np.finfo(float).tiny)
    image = base * np.maximum(smoothed(counts, bandwidth, grid), own) / expected * others / (others + own)
    return lambda points: np.asarray(image.ravel()[grid.cell_of(points)])


def _own_share(n: int, step: float, bandwidth: float) -> Array:
    """Return what smoothing along an axis leaves of a count in its own cell: (n,)."""
    damped = np.exp(-0.5 * (bandwidth * np.pi * np.arange(n) / (step * n)) ** 2)
    return np.diag(idct(damped[:, None] * dct(np.eye(n), axis=0), axis=0))


def kernel_candidates(counts: Array, left_out: NDArray[np.int64], grid: Grid) -> tuple[list[tuple[str, float]], Array]:
    """Return names and estimates (candidate, chain, n_y, n_x) of all kernels, each integrating to 1.

    ``counts`` (chain, n_y, n_x) are those that each chain sees, ``left_out`` those that it does not: the bandwidth of
    the adaptive ones' pilot is the fixed one that is best there.
    """
    widths = bandwidths(grid)
    plain = _normalised(np.stack([fixed(counts, width, grid) for width in widths]), grid)
    tiny = 1e-3 / grid.window.area
    held = [float((left_out * np.log(np.maximum(each, tiny))).sum()) for each in plain]
    pilot = plain[int(np.argmax(held))]
    local = np.stack([adaptive(*pair, widths, grid) for pair in zip(counts, pilot, strict=True)], 1)
    names = [(kind, width) for kind in ("kernel", "adaptive kernel") for width in widths]
    return names, np.concatenate([plain, _normalised(local, grid)])


def _normalised(surfaces: Array, grid: Grid) -> Array:
    """Make surfaces integrate to 1; those that saw no points are constant."""
    total = (surfaces * grid.exposure).sum((-2, -1), keepdims=True)
    return np.asarray(np.where(total > 0.0, surfaces / np.where(total > 0.0, total, 1.0), 1.0 / grid.window.area))
