"""Where and along what a fitted intensity misses the points: residual maps, quadrats, lurking variables, covariates."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from scipy.ndimage import gaussian_filter
from scipy.special import ndtri

from gpsuq.core.intervals import check_coverage
from gpsuq.errors import GPSError
from gpsuq.poisson.validation import cross_validated
from gpsuq.spatial.covariates import CovariateGrid
from gpsuq.spatial.grids import Grid
from gpsuq.spatial.rasters import Maps, as_covariates, coordinate_unit
from gpsuq.spatial.second_order import GlobalEnvelope, Summary, global_envelope, summary_function
from gpsuq.spatial.statistics import default_distances
from gpsuq.spatial.windows import Array

_CELLS = 4096
_FEWEST_EXPECTED = 5.0
_MOST_QUADRATS = 10  # a side
_SIMULATIONS = 999
_POINTS_HELD = 10.0  # by the kernel of a residual map
_PLACES = 100  # of a curve
_WIDE = 4.0  # standard deviations after which a Gaussian counts as zero

Intensity = Callable[[Array], Array]


@dataclass(frozen=True)
class Expected:
    """Points of some replicates, and how many a model expects in each cell of a grid, (n_y, n_x).

    >>> import numpy as np
    >>> from gpsuq.poisson.diagnostics import Expected
    >>> from gpsuq.spatial import Grid, Window
    >>> grid = Grid(Window.rectangle(0.0, 1.0, 0.0, 1.0), 2, 1)
    >>> expected = Expected.by(lambda s: 4.0 * s[:, 0], [np.array([[0.2, 0.5], [0.9, 0.1]])], grid)
    >>> expected.counts, expected.observed
    (array([[0.5, 1.5]]), array([[1., 1.]]))
    """

    grid: Grid
    points: Sequence[Array]
    counts: Array

    @classmethod
    def by(cls, intensity: Intensity, points: Sequence[Array], grid: Grid) -> Expected:
        """Ask a model for the expected counts of all replicates together."""
        counts = np.zeros(grid.inside.shape)
        counts[grid.inside] = intensity(grid.nodes[grid.inside]) * grid.exposure[grid.inside] * len(points)
        return cls(grid, points, counts)

    @property
    def observed(self) -> Array:
        """How many points there are in each cell, (n_y, n_x)."""
        return np.asarray(sum(self.grid.counts(pattern) for pattern in self.points), dtype=np.float64)


@dataclass(frozen=True)
class ResidualMap(Maps):
    """Observed less expected points around each place, made by ``residuals()`` of a fitted process.

    ``raw`` is their number per unit of area, ``pearson`` the same with each point weighted by one over the root of the
    intensity, ``z`` the raw one in standard deviations that chance alone would give. All are smoothed by a Gaussian of
    standard deviation ``bandwidth``.

    >>> import numpy as np
    >>> from gpsuq.poisson.diagnostics import Expected, residual_map
    >>> from gpsuq.spatial import Grid, Window
    >>> grid = Grid(Window.rectangle(0.0, 1.0, 0.0, 1.0), 16, 16)
    >>> found = residual_map(Expected.by(lambda s: np.full(len(s), 50.0), [np.full((1, 2), 0.5)], grid), bandwidth=0.1)
    >>> list(found.maps), found.unit
    (['raw', 'pearson', 'z'], 'raw: 1 / (unit)^2')
    """

    grid: Grid
    raw: Array
    pearson: Array
    z: Array
    bandwidth: float

    @property
    def maps(self) -> dict[str, Array]:
        return {"raw": self.raw, "pearson": self.pearson, "z": self.z}

    @property
    def unit(self) -> str:
        return f"raw: 1 / ({coordinate_unit(self.grid.window)})^2"


def residual_map(expected: Expected, bandwidth: float | None = None) -> ResidualMap:
    """Smooth what is observed less what is expected; by default so that the kernel holds some ten points.

    >>> import numpy as np
    >>> from gpsuq.poisson.diagnostics import Expected, residual_map
    >>> from gpsuq.spatial import Grid, Window
    >>> points = np.random.default_rng(0).random((200, 2)) ** [1.0, 2.0]  # more of them where y is low
    >>> grid = Grid.with_cells(Window.rectangle(0.0, 1.0, 0.0, 1.0), 1024)
    >>> found = residual_map(Expected.by(lambda s: np.full(len(s), 200.0), [points], grid))
    >>> bool(found.z[0].mean() > 2.0), bool(found.raw[-1].mean() < 0.0)
    (True, True)
    """
    grid, n = expected.grid, sum(map(len, expected.points))
    x_min, x_max, y_min, y_max = grid.window.bounds
    if bandwidth is None:
        bandwidth = min(
            np.sqrt(10.0 * grid.window.area / (4.0 * np.pi * max(n, 1))), 0.1 * max(x_max - x_min, y_max - y_min)
        )
    if not bandwidth > 0.0:
        raise GPSError(f"bandwidth must be positive, got {bandwidth}")
    sides = [bandwidth / size for size in reversed(grid.cell_size)]
    inside = grid.inside.astype(np.float64) * grid.exposure / np.prod(grid.cell_size)

    def smooth(values: Array, narrower: float = 1.0) -> Array:
        return np.asarray(gaussian_filter(values, [side * narrower for side in sides], mode="constant", truncate=_WIDE))

    edge = np.maximum(smooth(inside), 1e-12)
    area = np.prod(grid.cell_size)
    difference = expected.observed - expected.counts
    weight = np.sqrt(np.maximum(expected.counts, 1e-300) / np.maximum(grid.exposure, 1e-300))
    raw = smooth(difference) / edge / area
    pearson = smooth(np.where(grid.inside, difference / np.maximum(weight, 1e-150), 0.0)) / edge / area
    # The square of a Gaussian is one that is narrower by the root of two, times its value at zero over two.
    variance = smooth(expected.counts, np.sqrt(0.5)) * area / (4.0 * np.pi * bandwidth**2)
    z = smooth(difference) / np.sqrt(np.maximum(variance, 1e-300))
    raw, pearson, z = (np.where(grid.inside, each, np.nan) for each in (raw, pearson, z))
    return ResidualMap(grid, raw, pearson, z, float(bandwidth))


@dataclass(frozen=True)
class QuadratTest:
    """Counts in quadrats beside those expected: the chi squared statistic and its p-value, by simulation.

    The model was fitted to the same points: the p-value is then larger than it should be.

    >>> import numpy as np
    >>> from gpsuq.poisson.diagnostics import Expected, quadrat_test
    >>> from gpsuq.spatial import Grid, Window
    >>> grid = Grid(Window.rectangle(0.0, 1.0, 0.0, 1.0), 16, 16)
    >>> points = np.random.default_rng(0).random((40, 2))
    >>> list(quadrat_test(Expected.by(lambda s: np.full(len(s), 40.0), [points], grid)).table)
    ['x', 'y', 'area', 'observed', 'expected', 'residual']
    """

    statistic: float
    p_value: float
    table: pd.DataFrame


def quadrat_test(expected: Expected, seed: int = 0) -> QuadratTest:
    """Compare counts in quadrats, as many as expect five points each (at most 10 x 10), given their total.

    >>> import numpy as np
    >>> from gpsuq.poisson.diagnostics import Expected, quadrat_test
    >>> from gpsuq.spatial import Grid, Window
    >>> points = np.random.default_rng(0).random((200, 2)) ** [1.0, 2.0]
    >>> grid = Grid.with_cells(Window.rectangle(0.0, 1.0, 0.0, 1.0), 1024)
    >>> test = quadrat_test(Expected.by(lambda s: np.full(len(s), 200.0), [points], grid))
    >>> test.p_value, len(test.table)
    (0.001, 36)
    """
    grid, observed = expected.grid, expected.observed
    width, height = (n * size for n, size in zip((grid.n_x, grid.n_y), grid.cell_size, strict=True))
    most = max(1.0, expected.counts.sum() / _FEWEST_EXPECTED)
    across = int(np.clip(round(np.sqrt(most * width / height)), 1, min(_MOST_QUADRATS, grid.n_x)))
    along = int(np.clip(most // across, 1, min(_MOST_QUADRATS, grid.n_y)))
    rows, columns = (np.arange(n) * parts // n for n, parts in ((grid.n_y, along), (grid.n_x, across)))
    number = (rows[:, None] * across + columns)[grid.inside]
    names, number = np.unique(number, return_inverse=True)
    counted, mean = (np.bincount(number, each[grid.inside]) for each in (observed, expected.counts))
    x, y, area = (np.bincount(number, each) for each in (*grid.nodes[grid.inside].T, grid.exposure[grid.inside]))
    cells = np.bincount(number)
    mean = mean * (counted.sum() / mean.sum())
    simulated = np.random.default_rng(seed).multinomial(int(counted.sum()), mean / mean.sum(), _SIMULATIONS)
    statistics = (np.square(np.vstack([counted, simulated]) - mean) / mean).sum(1)
    table = pd.DataFrame({"x": x / cells, "y": y / cells, "area": area, "observed": counted, "expected": mean})
    table["residual"] = (counted - mean) / np.sqrt(mean)
    p_value = float((statistics >= statistics[0] * (1.0 - 1e-12)).mean())
    return QuadratTest(float(statistics[0]), p_value, table.set_axis(names))


def lurking(expected: Expected, covariate: CovariateGrid | str, coverage: float = 0.95) -> pd.DataFrame:
    """Return observed less expected points where a covariate (or "x", "y") is at most each value, with limits.

    Limits are those of a Poisson process with this intensity, at each value: a curve that leaves them asks for the
    covariate, or for another form of it.

    >>> import numpy as np
    >>> from gpsuq.poisson.diagnostics import Expected, lurking
    >>> from gpsuq.spatial import Grid, Window
    >>> points = np.random.default_rng(0).random((200, 2)) ** [1.0, 2.0]
    >>> grid = Grid.with_cells(Window.rectangle(0.0, 1.0, 0.0, 1.0), 1024)
    >>> curve = lurking(Expected.by(lambda s: np.full(len(s), 200.0), [points], grid), "y")
    >>> bool((curve["residual"] > curve["upper"]).mean() > 0.5)
    True
    """
    z = ndtri(0.5 + check_coverage(coverage) / 2.0)
    at = covariate_values(covariate)
    grid = expected.grid
    cells, points = at(grid.nodes[grid.inside]), at(np.concatenate(expected.points))
    values = np.quantile(cells, np.linspace(0.0, 1.0, _PLACES))
    order = np.argsort(cells)
    cumulative = np.concatenate([[0.0], np.cumsum(expected.counts[grid.inside][order])])
    below = cumulative[np.searchsorted(cells[order], values, side="right")]
    residual = np.searchsorted(np.sort(points), values, side="right") - below
    half = z * np.sqrt(below)
    return pd.DataFrame({"value": values, "residual": residual, "lower": -half, "upper": half})


def covariate_curve(expected: Expected, covariate: CovariateGrid | str, coverage: float = 0.95) -> pd.DataFrame:
    """Return how many times the expected points there are where a covariate has each value, with a band at each.

    Where ``expected`` is the intensity of a constant or any other model, the curve is what that model leaves to the
    covariate (Baddeley et al.'s rho): both densities over the covariate are smoothed alike and divided.

    >>> import numpy as np
    >>> from gpsuq.poisson.diagnostics import Expected, covariate_curve
    >>> from gpsuq.spatial import Grid, Window
    >>> points = np.random.default_rng(0).random((500, 2)) ** [1.0, 0.5]  # their density grows as y does
    >>> grid = Grid.with_cells(Window.rectangle(0.0, 1.0, 0.0, 1.0), 1024)
    >>> curve = covariate_curve(Expected.by(lambda s: np.full(len(s), 500.0), [points], grid), "y")
    >>> ((curve["lower"] < 2.0 * curve["value"]) & (2.0 * curve["value"] < curve["upper"])).mean() > 0.8
    np.True_
    """
    z = ndtri(0.5 + check_coverage(coverage) / 2.0)
    at = covariate_values(covariate)
    grid = expected.grid
    cells, points = at(grid.nodes[grid.inside]), at(np.concatenate(expected.points))
    weight = expected.counts[grid.inside]
    mean = float(weight @ cells / weight.sum())
    sd = float(np.sqrt(weight @ np.square(cells - mean) / weight.sum()))
    if not sd > 0.0:
        raise GPSError("the covariate is constant over the window: it has no curve")
    bandwidth = 0.9 * sd * max(len(points), 2) ** -0.2
    low, high = np.quantile(cells, [0.01, 0.99])
    values = np.linspace(low, high, _PLACES)

    def sums(at: Array, weights: Array, power: int) -> Array:
        kernel = np.exp(-0.5 * power * np.square((values[:, None] - at) / bandwidth))
        return np.asarray(kernel @ weights)

    base = sums(cells, weight, 1)
    ratio = sums(points, np.ones(len(points)), 1) / base
    # Where few points are, chance is that of the model's expectation.
    error = np.sqrt(np.maximum(sums(points, np.ones(len(points)), 2), sums(cells, weight, 2) * ratio)) / base
    lower, upper = np.maximum(ratio - z * error, 0.0), ratio + z * error
    return pd.DataFrame({"value": values, "ratio": ratio, "lower": lower, "upper": upper})


def covariate_values(covariate: CovariateGrid | str) -> Intensity:
    """Return what maps places to the values of a covariate."""
    if covariate in ("x", "y"):
        column = ("x", "y").index(str(covariate))
        return lambda points: points[:, column]
    if isinstance(covariate, str):
        raise GPSError(f'a covariate is "x", "y" or a grid of values, got {covariate!r}')
    return covariate.at


class Diagnosed:
    """What a fitted process says of its own misses; it has points, an intensity and covariates."""

    def residuals(self, bandwidth: float | None = None) -> ResidualMap:
        """Return maps of observed less expected points; see :func:`gpsuq.poisson.diagnostics.residual_map`."""
        return residual_map(self._expected(), bandwidth)

    def quadrat_test(self) -> QuadratTest:
        """Compare counts in quadrats with those expected; see :func:`gpsuq.poisson.diagnostics.quadrat_test`."""
        return quadrat_test(self._expected())

    def lurking(self, covariate: Any, coverage: float = 0.95) -> pd.DataFrame:
        """Return residuals along a covariate; see :func:`gpsuq.poisson.diagnostics.lurking`.

        ``covariate`` is "x", "y", the name of one in the fit, or anything that can be a covariate.
        """
        return lurking(self._expected(), self._covariate(covariate), coverage)

    def covariate_curve(self, covariate: Any, coverage: float = 0.95, *, relative: bool = False) -> pd.DataFrame:
        """Return how the intensity follows a covariate; see :func:`gpsuq.poisson.diagnostics.covariate_curve`.

        The curve is the ratio to a constant intensity, or with ``relative=True`` to the fitted one: then it is flat
        where the fit has taken up all of the covariate.
        """
        expected = self._expected()
        if not relative:
            grid = expected.grid
            n = sum(map(len, expected.points))
            expected = Expected(grid, expected.points, n * grid.exposure / grid.window.area)
        return covariate_curve(expected, self._covariate(covariate), coverage)

    def second_order(
        self,
        summary: Summary = "pcf",
        types: tuple[str, str] | None = None,
        *,
        n_simulations: int = 99,
        random_state: int | None = None,
    ) -> GlobalEnvelope:
        """Compare K, L or the pair correlation of the points with simulated patterns, at all distances at once.

        All are weighted by the fitted intensity. With two ``types`` of a fit with marks, it is that between them, and
        simulated points have types at random, with the probabilities of :meth:`relative_risk`.
        """
        model: Any = self
        size, window = len(model.points_), model.window_
        distances = default_distances(window)[1:]
        patterns = [*model.points_, *model.simulate(n_simulations * size, random_state)]
        curve = partial(summary_function, window=window, distances=distances, summary=summary)
        if types is None:
            curves = [curve(pattern, intensity=model.intensity) for pattern in patterns]
        else:
            risk = model.relative_risk()
            for name in types:
                risk.verdict(name)  # raises where there is no such type
            x, y = ((edge[1:] + edge[:-1]) / 2.0 for edge in risk.grid.edges)
            maps = dict(zip(risk.types, risk.probability, strict=True))
            chance = {name: CovariateGrid(name, x, y, values) for name, values in maps.items()}
            rng = np.random.default_rng(model._seed(random_state))
            labels = list(model.marks_)
            for pattern in patterns[size:]:
                shares = np.cumsum([chance[name].at(pattern) for name in risk.types], axis=0)
                labels.append(np.array(risk.types)[(rng.random(len(pattern)) * shares[-1] > shares).sum(0)])
            own, other = (lambda s, k=name: model.intensity(s) * chance[k].at(s) for name in types)
            curves = [
                curve(points[mine == types[0]], intensity=own, others=points[mine == types[1]], other_intensity=other)
                for points, mine in zip(patterns, labels, strict=True)
            ]
        means = np.stack(curves).reshape(-1, size, len(distances)).mean(1)
        return global_envelope(distances, means[0], means[1:], summary)

    def cross_validate(self, n_splits: int = 5) -> pd.DataFrame:
        """Return the log-likelihood per held-out point; see :func:`gpsuq.poisson.validation.cross_validated`."""
        model: Any = self
        covariates = model.fit_.locations.covariates
        return cross_validated(model, model.points_, model.window_, covariates, n_splits=n_splits, seed=model.seed_)

    def _expected(self) -> Expected:
        model: Any = self
        return Expected.by(model.intensity, model.points_, Grid.with_cells(model.window_, _CELLS))

    def _covariate(self, given: Any) -> CovariateGrid | str:
        model: Any = self
        known: dict[str, CovariateGrid] = {covariate.name: covariate for covariate in model.fit_.locations.covariates}
        if isinstance(given, str) and given in known:
            return known[given]
        return given if given in ("x", "y") else as_covariates([given], model.window_)[0]
