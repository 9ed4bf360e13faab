r"""A stationary log-Gaussian Cox process fitted to one pattern: what counts would be in another realisation.

:math:`\log \lambda(s) = \mu(s) + Y(s)` with a Gaussian field of covariance :math:`\sigma^2 \exp(-r / \phi)`. Its K
function is :math:`2 \pi \int_0^r u \exp(\sigma^2 e^{-u / \phi}) du`; variance and length are those whose K, to the
power 1/4, is closest to the pattern's (minimum contrast).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize

from gpsuq.spatial.grids import Grid
from gpsuq.spatial.simulation import Intensity
from gpsuq.spatial.statistics import default_distances, l_function
from gpsuq.spatial.windows import Array, Window

_POWER = 0.25
_MOST_VARIANCE = 4.0
_STEPS = 400  # of the integral


@dataclass(frozen=True)
class StationaryField:
    """Variance and correlation length of the logarithm of an intensity."""

    variance: float
    length: float

    def draws(self, grid: Grid, n: int, rng: np.random.Generator) -> Array:
        """Draw exp(Y) with mean 1 on the cells of a grid: (n, n_y, n_x).

        Fields on a torus of twice the grid each way; what the covariance lacks to be one on the torus is cut off.
        """
        width, height = grid.cell_size
        shape = 2 * grid.n_y, 2 * grid.n_x
        along, across = (
            np.minimum(np.arange(size), size - np.arange(size)) * step
            for size, step in zip(shape, (height, width), strict=True)
        )
        covariance = self.variance * np.exp(-np.hypot(along[:, None], across) / self.length)
        power = np.maximum(np.fft.fft2(covariance).real, 0.0)
        root = np.sqrt(power / np.prod(shape))
        result = np.empty((n, grid.n_y, grid.n_x))
        for first in range(0, n, 2):  # real and imaginary part are two independent fields
            noise = rng.standard_normal(shape) + 1j * rng.standard_normal(shape)
            field = np.fft.fft2(root * noise)[: grid.n_y, : grid.n_x]
            result[first : first + 2] = np.stack([field.real, field.imag])[: n - first]
        return np.asarray(np.exp(result - power.mean() / 2.0))


def fit_stationary(patterns: Sequence[Array], window: Window, intensity: Intensity | None) -> StationaryField:
    """Fit the field by minimum contrast; the intensity is the constant, or what covariates explain."""
    distances = default_distances(window)
    some = [pattern for pattern in patterns if len(pattern) > 1]
    if not some:
        return StationaryField(0.0, float(distances[-1]))
    found = np.pi * np.mean([l_function(one, window, distances, intensity=intensity) for one in some], 0) ** 2
    at = np.linspace(0.0, distances[-1], _STEPS)

    def expected(logs: Array) -> Array:
        inner = at * np.exp(np.exp(logs[0]) * np.exp(-at / np.exp(logs[1])))
        integral = np.concatenate([[0.0], np.cumsum((inner[1:] + inner[:-1]) / 2.0 * np.diff(at))])
        return np.asarray(2.0 * np.pi * np.interp(distances, at, integral))

    def contrast(logs: Array) -> float:
        return float(np.square(expected(logs) ** _POWER - found**_POWER).sum())

    bounds = [(np.log(1e-3), np.log(_MOST_VARIANCE)), (np.log(distances[1]), np.log(2.0 * distances[-1]))]
    starts = [np.log([0.5, share * distances[-1]]) for share in (0.1, 0.4)]
    best = min(
        (minimize(contrast, start, bounds=bounds, method="L-BFGS-B") for start in starts), key=lambda one: one.fun
    )
    return StationaryField(float(np.exp(best.x[0])), float(np.exp(best.x[1])))
