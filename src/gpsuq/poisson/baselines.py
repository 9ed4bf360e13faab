"""Usual models of an intensity: constant, log-linear in covariates, kernel density.

All share the interface of :class:`gpsuq.spatial.intensity.IntensityModel`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np
from scipy.ndimage import gaussian_filter
from scipy.special import ndtr
from sklearn.linear_model import PoissonRegressor

from gpsuq.errors import GPSError
from gpsuq.spatial.covariates import CovariateGrid
from gpsuq.spatial.grids import Grid
from gpsuq.spatial.intensity import IntensityModel
from gpsuq.spatial.patterns import PointPattern
from gpsuq.spatial.windows import Array

_CELLS = 1 << 14
_BLOCK = 1 << 22
_BANDWIDTHS = 24
_WIDE = 6.0  # standard deviations after which a Gaussian counts as zero


def _check_points(pattern: PointPattern) -> None:
    if len(pattern) == 0:
        raise GPSError("there are no points")


class HomogeneousIntensity(IntensityModel):
    """The same intensity everywhere: the number of points over the window's area.

    >>> import numpy as np
    >>> from gpsuq.poisson.baselines import HomogeneousIntensity
    >>> from gpsuq.spatial import point_pattern
    >>> pattern = point_pattern(np.random.default_rng(0).random((30, 2)), window=(0, 1, 0, 2))
    >>> model = HomogeneousIntensity(pattern)
    >>> model.intensity(np.array([[0.5, 0.5]])), model.integral(), round(model.log_likelihood(pattern.points), 3)
    (array([15.]), 30.0, 1.708)
    """

    def __init__(self, pattern: PointPattern) -> None:
        _check_points(pattern)
        self.pattern = pattern

    def intensity(self, points: Array) -> Array:
        return np.full(len(points), len(self.pattern) / self.pattern.window.area)

    def integral(self) -> float:
        return float(len(self.pattern))


class LogLinearIntensity(IntensityModel):
    """log lambda(s) = b_0 + b' covariates(s), by maximum likelihood on a fine grid.

    >>> import numpy as np
    >>> from gpsuq.poisson.baselines import LogLinearIntensity
    >>> from gpsuq.spatial import CovariateGrid, point_pattern
    >>> ends = np.array([0.0, 1.0])
    >>> east = CovariateGrid("east", ends, ends, np.array([[0.0, 1.0], [0.0, 1.0]]))
    >>> pattern = point_pattern(np.random.default_rng(0).random((100, 2)) ** [0.5, 1.0], window=(0, 1, 0, 1))
    >>> model = LogLinearIntensity(pattern, [east], n_cells=256)
    >>> left, right = model.intensity(np.array([[0.1, 0.5], [0.9, 0.5]]))
    >>> bool(model.coefficients[0] > 0.0), bool(left < right), round(model.integral())
    (True, True, 100)
    """

    def __init__(self, pattern: PointPattern, covariates: Sequence[CovariateGrid], n_cells: int = _CELLS) -> None:
        if not covariates:
            raise GPSError("a log-linear intensity needs covariates; without any, take HomogeneousIntensity")
        for covariate in covariates:
            covariate.check_covers(pattern.window)
        _check_points(pattern)
        self.covariates = covariates
        self.grid = Grid.with_cells(pattern.window, n_cells)
        exposure = self.grid.exposure[self.grid.inside]
        design = self._design(self.grid.nodes[self.grid.inside])
        # Cells are quadrature nodes; each point is one too, with its own covariates and (next to) no area.
        rows = np.concatenate([design, self._design(pattern.points)])
        tiny = 1e-9 * pattern.window.area / len(pattern)
        weight = np.concatenate([exposure, np.full(len(pattern), tiny)])
        rate = np.concatenate([np.zeros(len(design)), np.full(len(pattern), 1.0 / tiny)])
        self._center, self._scale = design.mean(0), design.std(0)
        self._scale = np.where(self._scale > 0, self._scale, 1.0)
        mean_rate = len(pattern) / pattern.window.area
        fit = PoissonRegressor(alpha=0.0, solver="newton-cholesky", max_iter=200, tol=1e-10).fit(
            (rows - self._center) / self._scale, rate / mean_rate, sample_weight=weight * mean_rate
        )
        self.coefficients = fit.coef_ / self._scale
        self.intercept = float(fit.intercept_ + np.log(mean_rate) - self._center @ self.coefficients)

    def _design(self, points: Array) -> Array:
        return np.column_stack([covariate.at(points) for covariate in self.covariates])

    def intensity(self, points: Array) -> Array:
        return np.asarray(np.exp(self.intercept + self._design(points) @ self.coefficients))

    def integral(self) -> float:
        inside = self.grid.inside
        return float(self.intensity(self.grid.nodes[inside]) @ self.grid.exposure[inside])


class KernelIntensity(IntensityModel):
    r"""Gaussian kernel estimate with edge correction, :math:`\sum_i \phi_h(s - s_i) / \int_W \phi_h(s - u)\,du`.

    The bandwidth h is chosen by likelihood cross-validation unless it is given: it maximises
    :math:`\sum_i \log \lambda_{-i}(s_i) - \int_W \lambda`.

    >>> import numpy as np
    >>> from gpsuq.poisson.baselines import KernelIntensity
    >>> from gpsuq.spatial import point_pattern
    >>> pattern = point_pattern(np.random.default_rng(0).random((100, 2)) ** [0.5, 1.0], window=(0, 1, 0, 1))
    >>> model = KernelIntensity(pattern, bandwidth=0.2)
    >>> left, right = model.intensity(np.array([[0.1, 0.5], [0.9, 0.5]]))
    >>> bool(left < right), bool(80.0 < model.integral() < 120.0)
    (True, True)
    """

    def __init__(self, pattern: PointPattern, bandwidth: float | None = None, n_cells: int = _CELLS) -> None:
        if bandwidth is not None and not bandwidth > 0.0:
            raise GPSError(f"bandwidth must be positive, got {bandwidth}")
        _check_points(pattern)
        self.pattern = pattern
        self.grid = Grid.with_cells(pattern.window, n_cells)
        self._counts = self.grid.counts(pattern.points).astype(np.float64)
        self.bandwidth = self._cross_validated() if bandwidth is None else float(bandwidth)

    def _cross_validated(self) -> float:
        x_min, x_max, y_min, y_max = self.pattern.window.bounds
        longest = max(x_max - x_min, y_max - y_min)
        smallest = max(1.5 * max(self.grid.cell_size), longest / 500)
        candidates = np.geomspace(smallest, longest, _BANDWIDTHS)
        scores = [self._left_out_likelihood(h) for h in candidates]
        best = int(np.argmax(scores))
        near = np.geomspace(candidates[max(0, best - 1)], candidates[min(_BANDWIDTHS - 1, best + 1)], 9)
        return float(near[np.argmax([self._left_out_likelihood(h) for h in near])])

    def _left_out_likelihood(self, bandwidth: float) -> float:
        points = self.pattern.points
        at_zero = 1.0 / (2.0 * np.pi * bandwidth**2)
        others = (self._sums(points, bandwidth) - at_zero) / self._edge(points, bandwidth)
        return float(np.log(np.maximum(others, np.finfo(float).tiny)).sum() - self._integral(bandwidth))

    def _sums(self, points: Array, bandwidth: float) -> Array:
        """Return the sum of kernels around the pattern's points, a block of points at a time."""
        events = self.pattern.points
        result = np.empty(len(points))
        step = max(1, _BLOCK // len(events))
        for start in range(0, len(points), step):
            block = points[start : start + step]
            squared = (block[:, None, 0] - events[:, 0]) ** 2 + (block[:, None, 1] - events[:, 1]) ** 2
            result[start : start + step] = np.exp(squared * (-0.5 / bandwidth**2)).sum(1)
        return result / (2.0 * np.pi * bandwidth**2)

    def _edge(self, points: Array, bandwidth: float) -> Array:
        """Return the mass of the kernel around each point that lies inside the window."""
        x_min, x_max, y_min, y_max = self.pattern.window.bounds
        if self.pattern.window.is_rectangle:
            x, y = points[:, 0], points[:, 1]
            across = ndtr((x_max - x) / bandwidth) - ndtr((x_min - x) / bandwidth)
            along = ndtr((y_max - y) / bandwidth) - ndtr((y_min - y) / bandwidth)
            return np.asarray(across * along)
        width, height = self.grid.cell_size
        smooth = self._smoothed(self.grid.exposure / (width * height), bandwidth)
        return np.maximum(smooth.ravel()[self.grid.cell_of(points)], np.finfo(float).tiny)

    def _smoothed(self, values: Array, bandwidth: float) -> Array:
        width, height = self.grid.cell_size
        sigma = bandwidth / height, bandwidth / width
        return np.asarray(gaussian_filter(values, sigma, mode="constant", truncate=_WIDE))

    def _integral(self, bandwidth: float) -> float:
        width, height = self.grid.cell_size
        sums = self._smoothed(self._counts, bandwidth) / (width * height)
        inside = self.grid.inside
        edge = self._edge(self.grid.nodes[inside], bandwidth)
        return float((sums[inside] / edge) @ self.grid.exposure[inside])

    def intensity(self, points: Array) -> Array:
        return self._sums(points, self.bandwidth) / self._edge(points, self.bandwidth)

    @cached_property
    def _total(self) -> float:
        return self._integral(self.bandwidth)

    def integral(self) -> float:
        return self._total
