"""Simulation of a Poisson process by thinning (Lewis and Shedler), with a bound that is never silently exceeded."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from gpsuq.errors import GPSError
from gpsuq.spatial.grids import Grid
from gpsuq.spatial.windows import Array, Window

Intensity = Callable[[Array], Array]

_MARGIN = 1.25
_RESTARTS = 50
_MOST_POINTS = 50_000_000
_BOUND_CELLS = 4096


def simulate_poisson(
    intensity: Intensity,
    window: Window,
    rng: np.random.Generator,
    *,
    grid: Grid | None = None,
    bound: Array | None = None,
) -> Array:
    """Draw one pattern of a Poisson process with the given intensity: (n, 2).

    Candidates come from a process that is constant on every cell of ``grid`` and lies above the intensity; each is kept
    with probability intensity / bound. Without a ``bound`` (n_y, n_x), one is looked for at the corners and the middle
    of every cell. Where a candidate shows that it was too low, the bound of that cell is raised and the whole pattern
    drawn again, so that none comes from a bound that failed. (A peak far narrower than a cell can escape every
    candidate: the grid must be finer than the features of the intensity.)

    >>> import numpy as np
    >>> from gpsuq.spatial import Window, simulate_poisson
    >>> window = Window.rectangle(0.0, 1.0, 0.0, 1.0)
    >>> points = simulate_poisson(lambda s: 800.0 * s[:, 0], window, np.random.default_rng(0))  # 400 expected
    >>> bool(320 < len(points) < 480), round(float(points[:, 0].mean()), 1)  # the mean of x is 2/3
    (True, 0.7)
    """
    grid = Grid.with_cells(window, _BOUND_CELLS) if grid is None else grid
    if grid.window is not window and grid.window.polygons != window.polygons:
        raise GPSError("the grid of a bound must cover the same window")
    limit = bound_from(intensity(bound_places(grid)), grid) if bound is None else np.array(bound, dtype=np.float64)
    if limit.shape != (grid.n_y, grid.n_x) or not np.isfinite(limit).all() or (limit < 0).any():
        raise GPSError("the bound of an intensity must be finite, not negative, one number per cell")
    for _ in range(_RESTARTS):
        points, cell = _candidates(limit, grid, rng)
        value = intensity(points) if len(points) else np.zeros(0)
        if not np.isfinite(value).all() or (value < 0).any():
            raise GPSError("the intensity is negative, NaN or infinite somewhere in the window")
        exceeded = value > limit.ravel()[cell]
        if not exceeded.any():
            return points[rng.random(len(points)) * limit.ravel()[cell] < value]
        limit = limit.copy()
        np.maximum.at(limit.reshape(-1), cell[exceeded], 2.0 * value[exceeded])
    raise GPSError("no bound was found for the intensity: it may be unbounded; pass a finer grid")


def bound_places(grid: Grid) -> Array:
    """Return the places where a bound is looked for: the corners of all cells, then their middles, (n, 2)."""
    x, y = grid.edges
    return np.concatenate([np.stack(np.meshgrid(x, y), -1).reshape(-1, 2), grid.nodes.reshape(-1, 2)])


def bound_from(values: Array, grid: Grid) -> Array:
    """Guess a bound of each cell from values at :func:`bound_places`: a margin over the highest of its own."""
    n_corners = (grid.n_x + 1) * (grid.n_y + 1)
    corner = np.nan_to_num(values[:n_corners], nan=0.0).reshape(grid.n_y + 1, grid.n_x + 1)
    middle = np.where(grid.inside, values[n_corners:].reshape(grid.n_y, grid.n_x), 0.0)
    highest: Array = np.maximum.reduce([corner[:-1, :-1], corner[1:, :-1], corner[:-1, 1:], corner[1:, 1:], middle])
    return _MARGIN * highest


def _candidates(limit: Array, grid: Grid, rng: np.random.Generator) -> tuple[Array, NDArray[np.intp]]:
    """Draw points of the bounding process inside the window; return them with the cell of each."""
    width, height = grid.cell_size
    mean = np.where(grid.inside, limit * width * height, 0.0).ravel()
    if mean.sum() > _MOST_POINTS:
        raise GPSError(f"the intensity asks for some {mean.sum():.3g} points: too many to simulate")
    cell = np.repeat(np.arange(len(mean)), rng.poisson(mean))
    x, y = grid.edges
    row, column = np.divmod(cell, grid.n_x)
    points = np.column_stack([x[column] + width * rng.random(len(cell)), y[row] + height * rng.random(len(cell))])
    inside = grid.window.contains(points)
    return points[inside], cell[inside]
