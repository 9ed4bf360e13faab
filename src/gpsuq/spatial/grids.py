"""A grid over a window: counts of points in cells, with the area of each cell that lies inside as exposure."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import shapely
from numpy.typing import NDArray
from scipy.spatial import cKDTree

from gpsuq.errors import GPSError
from gpsuq.spatial.windows import Array, Window

TILE = 16
"""Cells along the side of a tile; grids have whole tiles, and scores are taken on blocks of up to this side."""

_MOST_CELLS = 1 << 20
_FEWEST, _MOST, _PER_POINT = 1024, 8192, 4.0


def cells_for(n_points: int) -> int:
    """Return how many cells to take: four for each point, at least 32 x 32, at most 8,192.

    Cells so small hold one point at most where points are few; more points than cells only sharpen the counts, so that
    the cost of a fit does not grow with them.

    >>> from gpsuq.spatial import cells_for
    >>> cells_for(10), cells_for(500), cells_for(1_000_000)
    (1024, 2000, 8192)
    """
    return int(min(_MOST, max(_FEWEST, _PER_POINT * n_points)))


@dataclass(frozen=True)
class Grid:
    """``n_y`` rows of ``n_x`` cells over the bounding box of a window; row 0 is the lowest.

    >>> import numpy as np
    >>> from gpsuq.spatial import Grid, Window
    >>> grid = Grid(Window.rectangle(0.0, 2.0, 0.0, 1.0), n_x=2, n_y=1)
    >>> grid.counts(np.array([[0.2, 0.3], [0.9, 0.1], [1.5, 0.9]])), grid.exposure, grid.inside
    (array([[2, 1]]), array([[1., 1.]]), array([[ True,  True]]))
    >>> grid.cell_size, grid.edges[0].tolist(), grid.nodes[0].tolist()
    ((1.0, 1.0), [0.0, 1.0, 2.0], [[0.5, 0.5], [1.5, 0.5]])
    >>> grid.cell_of(np.array([[1.5, 0.9]])), grid.overlap(Window.rectangle(0.5, 1.0, 0.0, 1.0))
    (array([1]), (array([0]), array([0.5])))
    >>> fine = Grid.with_cells(grid.window, 512)
    >>> fine.n_x, fine.n_y
    (32, 16)
    """

    window: Window
    n_x: int
    n_y: int

    def __post_init__(self) -> None:
        if self.n_x < 1 or self.n_y < 1:
            raise GPSError(f"a grid needs at least one cell each way, got {self.n_x} x {self.n_y}")
        if self.n_x * self.n_y > _MOST_CELLS:
            raise GPSError(
                f"a grid of {self.n_x} x {self.n_y} cells is too fine: at most {_MOST_CELLS:,} cells fit in memory"
            )

    @classmethod
    def with_cells(cls, window: Window, n_cells: int) -> Grid:
        """Cover a window by about ``n_cells`` cells, as square as whole tiles allow."""
        if n_cells < 1:
            raise GPSError(f"n_cells must be at least 1, got {n_cells}")
        x_min, x_max, y_min, y_max = window.bounds
        width, height = x_max - x_min, y_max - y_min
        n_tiles = max(1.0, n_cells / TILE**2)
        across = max(1, round(math.sqrt(n_tiles * min(width / height, n_tiles))))
        along = max(1, round(math.sqrt(n_tiles * min(height / width, n_tiles))))
        return cls(window, TILE * across, TILE * along)

    @property
    def cell_size(self) -> tuple[float, float]:
        """Width and height of a cell."""
        x_min, x_max, y_min, y_max = self.window.bounds
        return (x_max - x_min) / self.n_x, (y_max - y_min) / self.n_y

    @property
    def edges(self) -> tuple[Array, Array]:
        """Limits of the columns and of the rows."""
        x_min, x_max, y_min, y_max = self.window.bounds
        return np.linspace(x_min, x_max, self.n_x + 1), np.linspace(y_min, y_max, self.n_y + 1)

    @cached_property
    def _pieces(self) -> tuple[Array, Array]:
        """Area inside the window and a point there for every cell: (n_y, n_x) and (n_y, n_x, 2)."""
        x, y = self.edges
        low_x, low_y = np.meshgrid(x[:-1], y[:-1])
        high_x, high_y = np.meshgrid(x[1:], y[1:])
        area = (high_x - low_x) * (high_y - low_y)
        nodes = np.stack([(low_x + high_x) / 2.0, (low_y + high_y) / 2.0], -1)
        if self.window.is_rectangle:
            return area, nodes
        boxes = shapely.box(low_x, low_y, high_x, high_y)
        cut = ~shapely.contains_properly(self.window.polygons, boxes)
        inside = shapely.intersection(boxes[cut], self.window.polygons)
        area[cut] = shapely.area(inside)
        seen = area[cut] > 0.0
        partial = nodes[cut]
        partial[seen] = shapely.get_coordinates(shapely.centroid(inside[seen]))
        nodes[cut] = partial
        return area, nodes

    @property
    def exposure(self) -> Array:
        """Area of each cell inside the window, (n_y, n_x); the sum is the window's area."""
        return self._pieces[0]

    @property
    def nodes(self) -> Array:
        """The centroid of what each cell has inside the window, (n_y, n_x, 2)."""
        return self._pieces[1]

    @cached_property
    def inside(self) -> NDArray[np.bool_]:
        """Whether a cell has any area inside the window, (n_y, n_x)."""
        return self.exposure > 0.0

    def cell_of(self, points: Array) -> NDArray[np.intp]:
        """Return the number of each point's cell, row by row; one on the window's edge is in a cell that has area."""
        x_min, _, y_min, _ = self.window.bounds
        width, height = self.cell_size
        column = np.clip(((points[:, 0] - x_min) / width).astype(np.intp), 0, self.n_x - 1)
        row = np.clip(((points[:, 1] - y_min) / height).astype(np.intp), 0, self.n_y - 1)
        cell = row * self.n_x + column
        astray = ~self.inside.ravel()[cell]
        if astray.any():
            exposed = self.inside.ravel().nonzero()[0]
            nearest = cKDTree(self.nodes.reshape(-1, 2)[exposed]).query(points[astray])[1]
            cell[astray] = exposed[nearest]
        return cell

    def counts(self, points: Array) -> NDArray[np.int64]:
        """Count the points in every cell, (n_y, n_x)."""
        return np.bincount(self.cell_of(points), minlength=self.n_x * self.n_y).reshape(self.n_y, self.n_x)

    @cached_property
    def _tree(self) -> shapely.STRtree:
        """The cells that have area inside the window, as boxes."""
        x, y = self.edges
        row, column = self.inside.nonzero()
        return shapely.STRtree(shapely.box(x[column], y[row], x[column + 1], y[row + 1]))

    def overlap(self, region: Window) -> tuple[NDArray[np.intp], Array]:
        """Return the cells that share area with a region inside the window, and that area of each.

        Cells are counted among those that have area inside the window: they index ``nodes[inside]``.
        """
        shape = region.polygons
        if not self.window.is_rectangle:
            shape = shapely.intersection(shape, self.window.polygons)
        touched = self._tree.query(shape, predicate="intersects")
        area = shapely.area(shapely.intersection(self._tree.geometries[touched], shape))
        whole = area >= (1.0 - 1e-12) * np.prod(self.cell_size)
        seen = area > 0.0
        return touched[seen], np.where(whole, self.exposure[self.inside][touched], area)[seen]
