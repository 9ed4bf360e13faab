"""Covariates of a point pattern: values on a grid, interpolated bilinearly."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from gpsuq.errors import GPSError
from gpsuq.files import MOST_TEXT, parsed, read_bytes
from gpsuq.spatial.foreign import same_crs
from gpsuq.spatial.windows import Array, Window


@dataclass(frozen=True)
class CovariateGrid:
    """Values (row of y, column of x) at the crossings of ``x`` and ``y``, both increasing.

    >>> import numpy as np
    >>> from gpsuq.spatial import CovariateGrid, Window
    >>> ends = np.array([0.0, 1.0])
    >>> elevation = CovariateGrid("elevation", x=ends, y=ends, values=np.array([[0.0, 10.0], [20.0, 30.0]]))
    >>> elevation.at(np.array([[1.0, 0.0], [0.5, 0.5]]))
    array([10., 15.])
    >>> elevation.around(Window.rectangle(0.0, 0.5, 0.0, 0.5)).x  # what a window needs of it
    array([0., 1.])
    >>> elevation.check_covers(Window.rectangle(0.0, 3.0, 0.0, 1.0))  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    gpsuq.errors.GPSError: covariate 'elevation' does not cover the window: ...
    """

    name: str
    x: Array
    y: Array
    values: Array
    crs: str | None = None

    def __post_init__(self) -> None:
        for axis, label in ((self.x, "x"), (self.y, "y")):
            if axis.ndim != 1 or len(axis) < 2 or not (np.diff(axis) > 0).all() or not np.isfinite(axis).all():
                raise GPSError(f"covariate {self.name!r}: {label} must hold at least two increasing, finite numbers")
        if self.values.shape != (len(self.y), len(self.x)):
            raise GPSError(
                f"covariate {self.name!r} has values of shape {self.values.shape} for {len(self.y)} rows of y and "
                f"{len(self.x)} columns of x"
            )

    def at(self, points: Array) -> Array:
        """Interpolate at points (n, 2), which must lie on the grid, between those corners that are not NaN."""
        column, right = _bracket(self.x, points[:, 0])
        row, above = _bracket(self.y, points[:, 1])
        total, weight = np.zeros(len(points)), np.zeros(len(points))
        for up, vertical in ((0, 1.0 - above), (1, above)):
            for over, horizontal in ((0, 1.0 - right), (1, right)):
                value, share = self.values[row + up, column + over], vertical * horizontal
                known = ~np.isnan(value)
                total[known] += share[known] * value[known]
                weight[known] += share[known]
        result: Array = np.divide(total, weight, out=np.full(len(points), np.nan), where=weight > 0.0)
        return result

    def around(self, window: Window) -> CovariateGrid:
        """Return the part of the grid that a window needs."""
        x_min, x_max, y_min, y_max = window.bounds
        columns, rows = (_reaching(*part) for part in ((self.x, x_min, x_max), (self.y, y_min, y_max)))
        return replace(self, x=self.x[columns], y=self.y[rows], values=self.values[rows, columns])

    def check_covers(self, window: Window) -> None:
        """Raise where the grid ends more than half a pixel before the window does, or has another CRS."""
        if self.crs is not None and window.crs is not None and not same_crs(self.crs, window.crs):
            raise GPSError(f"covariate {self.name!r} has another CRS than the window, {window.crs}: reproject it first")
        x_min, x_max, y_min, y_max = window.bounds
        for axis, low, high in ((self.x, x_min, x_max), (self.y, y_min, y_max)):
            # Values may belong to the middles of pixels, half a pixel from the edge.
            slack = 0.5 * np.diff(axis).max() * (1.0 + 1e-9)
            if axis[0] > low + slack or axis[-1] < high - slack:
                raise GPSError(
                    f"covariate {self.name!r} does not cover the window: it spans x {self.x[0]:g} to {self.x[-1]:g}, y "
                    f"{self.y[0]:g} to {self.y[-1]:g}, the window x {x_min:g} to {x_max:g}, y {y_min:g} to {y_max:g}"
                )


def _reaching(axis: Array, low: float, high: float) -> slice:
    """Return the part of an axis that holds an interval, with a value beyond each of its ends where there is one."""
    first = max(0, int(np.searchsorted(axis, low, side="right")) - 1)
    last = min(len(axis), int(np.searchsorted(axis, high, side="left")) + 1)
    return slice(min(first, len(axis) - 2), max(last, first + 2))


def _bracket(axis: Array, values: Array) -> tuple[NDArray[np.intp], Array]:
    """Return the lower neighbour of each value on an axis, and how far it is to the next, 0 to 1."""
    lower = np.clip(np.searchsorted(axis, values, side="right") - 1, 0, len(axis) - 2)
    share = (values - axis[lower]) / (axis[lower + 1] - axis[lower])
    return lower, np.clip(share, 0.0, 1.0)


def read_covariate(path: str | Path, name: str | None = None) -> CovariateGrid:
    r"""Read ``NAME.grid.csv`` (rows are y, no header) with its axes from ``NAME.grid.json`` (``xcol`` and ``yrow``).

    >>> import tempfile
    >>> from pathlib import Path
    >>> from gpsuq.spatial import read_covariate
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "elevation.grid.csv")
    ...     _ = path.write_text("0,10,20\n30,40,50")
    ...     _ = path.with_suffix(".json").write_text('{"xcol": [0, 1, 2], "yrow": [0, 1]}')
    ...     read_covariate(path).values.shape
    (2, 3)
    """
    path = Path(path)
    axes = path.with_suffix(".json")
    for file in (path, axes):
        if not file.is_file():
            raise GPSError(f"there is no file {file}: a covariate is a CSV of values and a JSON with xcol and yrow")
    try:
        values = pd.read_csv(path, header=None).to_numpy(dtype=np.float64)
        document = parsed(read_bytes(axes, most=MOST_TEXT))
        x, y = (np.asarray(document[key], dtype=np.float64) for key in ("xcol", "yrow"))
    except (OSError, ValueError, LookupError, TypeError, OverflowError) as error:
        raise GPSError(f"{path} cannot be read as a covariate grid: {error}") from error
    return CovariateGrid(name or path.name.split(".")[-3 if path.name.endswith(".grid.csv") else 0], x, y, values)
