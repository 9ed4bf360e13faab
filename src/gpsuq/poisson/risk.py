"""Types of points: where each is more or less likely than overall, and how sure that is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from gpsuq.core.intervals import check_coverage
from gpsuq.errors import GPSError, listed
from gpsuq.poisson.plots import relative_risk_maps
from gpsuq.spatial.fields import TypeField, fit_types, labelling_p_value
from gpsuq.spatial.grids import Grid
from gpsuq.spatial.patterns import PointPattern, checked_points, point_pattern, points_inside
from gpsuq.spatial.rasters import Maps
from gpsuq.spatial.windows import Array, Window

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_CELLS = 4096
_DRAWS = 640
_NUMBERS = 1 << 24  # held at once
_MOST_TYPES = 20


@dataclass(frozen=True)
class RelativeRisk(Maps):
    """The probability that a point here is of each type, made by :func:`relative_risk`.

    ``probability``, ``lower`` and ``upper`` are maps (type, n_y, n_x); ``shares`` are those of the types in all points.
    ``p_value`` is that of the test of random labelling: small where types are not the same everywhere.

    >>> import numpy as np
    >>> from gpsuq.poisson.risk import relative_risk
    >>> rng = np.random.default_rng(0)
    >>> points = rng.random((300, 2))
    >>> species = np.where(rng.random(300) < 0.2 + 0.6 * points[:, 0], "oak", "pine")
    >>> risk = relative_risk(points, species, window=(0, 1, 0, 1))
    >>> risk.types, risk.p_value
    (('oak', 'pine'), 0.005)
    >>> west, east = risk.at([[0.1, 0.5], [0.9, 0.5]])["oak"]
    >>> bool(west < 0.4), bool(east > 0.6)
    (True, True)

    Where oaks are surely more likely than overall (1) and surely less (-1), and how many there are to a pine:

    >>> risk.verdict("oak").shape, bool(risk.verdict("oak")[:, -1].all())
    ((64, 64), True)
    >>> median, lower, upper = risk.ratio("oak", "pine")
    >>> figure = risk.plot()

    Maps leave as those of an intensity do (``to_xarray()``, ``to_geopandas()``, ``write("risk.tif")``):

    >>> list(risk.maps), risk.unit
    (['oak', 'oak lower', 'oak upper', 'pine', 'pine lower', 'pine upper'], '1')
    """

    grid: Grid
    types: tuple[str, ...]
    shares: Array
    probability: Array
    lower: Array
    upper: Array
    coverage: float
    p_value: float
    field: TypeField
    seed: int

    @property
    def maps(self) -> dict[str, Array]:
        parts = {"": self.probability, " lower": self.lower, " upper": self.upper}
        return {f"{name}{part}": maps[k] for k, name in enumerate(self.types) for part, maps in parts.items()}

    @property
    def unit(self) -> str:
        return "1"

    def at(self, points: Any) -> pd.DataFrame:
        """Return the probability of each type at points (n, 2) in the window."""
        mean = self.field.draws(points_inside(points, self.grid.window), _DRAWS, self.seed).mean(0)
        return pd.DataFrame(mean, columns=list(self.types))

    def verdict(self, name: str) -> NDArray[np.int64]:
        """Return 1 where the interval of a type lies above its overall share, -1 where below, 0 elsewhere."""
        k = self._number(name)
        with np.errstate(invalid="ignore"):
            return np.where(self.lower[k] > self.shares[k], 1, np.where(self.upper[k] < self.shares[k], -1, 0))

    def ratio(self, case: str, control: str) -> tuple[Array, Array, Array]:
        """Return maps of the intensity of one type over that of another: median, lower and upper bound."""
        a, b = self._number(case), self._number(control)
        tail = (1.0 - self.coverage) / 2.0
        maps = np.full((3, *self.grid.inside.shape), np.nan)
        for cells, draws in _draws(self.field, self.grid, len(self.types), self.seed):
            maps[:, cells[0], cells[1]] = np.quantile(draws[..., a] / draws[..., b], [0.5, tail, 1.0 - tail], axis=0)
        return maps[0], maps[1], maps[2]

    def plot(self) -> Figure:
        """Plot a map for each type; see :func:`gpsuq.poisson.plots.relative_risk_maps`."""
        shares = dict(zip(self.types, self.shares, strict=True))
        return relative_risk_maps(self.grid, shares, self.probability, self.lower, self.upper)

    def _number(self, name: str) -> int:
        if name not in self.types:
            raise GPSError(f"there is no type {name!r}; the types are {listed(self.types)}")
        return self.types.index(name)


def relative_risk(
    points: Any, marks: Any, window: Any, *, coverage: float = 0.95, n_cells: int = _CELLS, random_state: int = 0
) -> RelativeRisk:
    """Estimate the probability of each type of point over a window, with intervals at every place.

    Types are modelled given the places (:mod:`gpsuq.spatial.fields`): whatever the intensity of all points is, it
    cancels. Points must not attract or repel each other by type; intervals are too narrow if they do.

    Parameters
    ----------
    points, window
        As in :meth:`gpsuq.GPSPoissonProcess.fit`, for one pattern.
    marks
        The type of each point, or of GeoPandas the name of its column.
    coverage
        Of the intervals at each place.

    Examples
    --------
    >>> import numpy as np
    >>> from gpsuq.poisson.risk import relative_risk
    >>> points = np.random.default_rng(0).random((100, 2))
    >>> risk = relative_risk(points, points[:, 0] < 0.5, window=(0, 1, 0, 1), n_cells=256)
    >>> risk.types, risk.verdict("True")[8, [0, -1]]
    (('False', 'True'), array([ 1, -1]))
    """
    pattern = point_pattern(points, window)
    (types,) = marks_inside([points], marks, pattern.window)
    return risk_of_types(pattern, types, coverage, n_cells, random_state)


def risk_of_types(
    pattern: PointPattern, types: NDArray[np.str_], coverage: float, n_cells: int = _CELLS, random_state: int = 0
) -> RelativeRisk:
    """Estimate as :func:`relative_risk` does, from points and types that were checked."""
    tail = (1.0 - check_coverage(coverage)) / 2.0
    names, numbers = np.unique(types, return_inverse=True)
    if not 2 <= len(names) <= _MOST_TYPES:
        raise GPSError(f"marks must name 2 to {_MOST_TYPES} types, got {len(names)}: {listed(names, 5)}")
    grid = Grid.with_cells(pattern.window, n_cells)
    counts = np.stack([grid.counts(pattern.points[numbers == k])[grid.inside] for k in range(len(names))], 1)
    seen = counts.sum(1) > 0
    field = fit_types(grid.nodes[grid.inside][seen], counts[seen], pattern.window)
    maps = np.full((3, len(names), *grid.inside.shape), np.nan)
    for cells, draws in _draws(field, grid, len(names), random_state):
        found = np.concatenate([draws.mean(0)[None], np.quantile(draws, [tail, 1.0 - tail], axis=0)])
        maps[:, :, cells[0], cells[1]] = found.swapaxes(1, 2)
    p_value = labelling_p_value(pattern.points, numbers, pattern.window, random_state)
    shares = np.bincount(numbers) / len(numbers)
    mean, lower, upper = maps
    return RelativeRisk(
        grid, tuple(map(str, names)), shares, mean, lower, upper, coverage, p_value, field, random_state
    )


def marks_inside(patterns: Sequence[Any], marks: Any, window: Window) -> list[NDArray[np.str_]]:
    """Return the types of the points of each pattern as text, of those that lie in the window."""
    several = isinstance(marks, str) or len(patterns) == 1
    given = [marks] * len(patterns) if several else list(marks)
    if len(given) != len(patterns):
        raise GPSError(f"there are {len(patterns)} patterns and marks of {len(given)}")
    found = []
    for points, mine in zip(patterns, given, strict=True):
        coordinates, types = checked_points(points), _marks(points, mine)
        if len(types) != len(coordinates):
            raise GPSError(f"there are {len(coordinates)} points and {len(types)} marks")
        found.append(types[window.contains(coordinates)])
    return found


def _marks(points: Any, marks: Any) -> NDArray[np.str_]:
    if isinstance(marks, str):
        if marks not in getattr(points, "columns", ()):
            raise GPSError(f"marks must be one for each point, or the name of a column; there is no column {marks!r}")
        marks = points[marks]
    given = pd.Series(np.asarray(marks).ravel())
    if given.isna().any():
        raise GPSError(f"marks are missing in row {listed(given.isna().to_numpy().nonzero()[0], 5)}")
    return np.asarray(given.astype(str), dtype=np.str_)


def _draws(field: TypeField, grid: Grid, n_types: int, seed: int) -> Iterator[tuple[tuple[Any, Any], Array]]:
    """Yield rows and columns of some cells and draws of the probabilities there, until all are done."""
    rows, columns = grid.inside.nonzero()
    parts = -(-len(rows) * _DRAWS * n_types // _NUMBERS)
    for part in np.array_split(np.arange(len(rows)), parts):
        cells = rows[part], columns[part]
        yield cells, field.draws(grid.nodes[cells], _DRAWS, seed)
