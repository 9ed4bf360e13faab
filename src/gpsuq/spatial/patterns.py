"""Point patterns: checked coordinates inside a window."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from gpsuq.errors import GPSError, warn
from gpsuq.spatial.foreign import plain_points
from gpsuq.spatial.windows import Array, Window, as_window, with_crs

_SHOWN = 5


@dataclass(frozen=True)
class PointPattern:
    """Points (n, 2) inside a window.

    >>> import numpy as np
    >>> from gpsuq.spatial import PointPattern, Window
    >>> pattern = PointPattern(np.array([[0.2, 0.3], [1.5, 0.9]]), Window.rectangle(0.0, 2.0, 0.0, 1.0))
    >>> len(pattern), pattern.window.area
    (2, 2.0)
    """

    points: Array
    window: Window

    def __len__(self) -> int:
        return len(self.points)


def point_pattern(
    points: Any, window: Any, *, outside: Literal["error", "drop"] = "error", least: int = 1
) -> PointPattern:
    """Check points (n, 2) against a window; those ``outside`` are an error, or dropped with a warning.

    Points of GeoPandas and pointpats are read, too; a window without a CRS takes over that of the points.

    >>> from gpsuq.spatial import point_pattern
    >>> len(point_pattern([[0.2, 0.3], [1.5, 0.9]], window=(0, 2, 0, 1)))
    2
    >>> point_pattern([[0.2, 0.3], [1.5, 0.9]], window=(0, 1, 0, 1))  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    gpsuq.errors.GPSError: 1 of 2 points lie outside the window (row 1); check units and axes, ...
    """
    window, coordinates = window_of(points, window), checked_points(points, least)
    if outside not in ("error", "drop"):
        raise GPSError(f'outside must be "error" or "drop", got {outside!r}')
    inside = window.contains(coordinates)
    if not inside.all():
        rows = (~inside).nonzero()[0]
        count = f"{len(rows)} of {len(coordinates)} points lie outside the window"
        if outside == "error":
            raise GPSError(
                f"{count} (row {_listed(rows)}); check units and axes, or leave them out with outside='drop' "
                "(--drop-outside)"
            )
        warn(f"{count} and were dropped")
        coordinates = checked_points(coordinates[inside], least)
    duplicates = len(coordinates) - len(np.unique(coordinates, axis=0))
    if duplicates:
        warn(
            f"{duplicates} points have the same coordinates as another: a Poisson process has no such points; check "
            "for rows entered twice or rounded coordinates"
        )
    return PointPattern(coordinates, window)


def window_of(points: Any, window: Any) -> Window:
    """Return the window of some points, in their CRS if they have one; raise where the two differ."""
    window = as_window(window)
    crs = getattr(points, "crs", None)
    return window if crs is None else with_crs(window, crs)


def checked_points(points: Any, least: int = 0) -> Array:
    """Return points as an array (n, 2) of finite float64, at least so many, or raise."""
    array = np.asarray(plain_points(points))
    if array.dtype.kind not in "biuf":
        raise GPSError(f"points must hold numbers, got {array.dtype}")
    if (array.ndim != 2 or array.shape[1] != 2) and (array.size or not least):
        raise GPSError(f"points must have shape (n, 2), x and y, got {array.shape}")
    if len(array) < least:
        raise GPSError("there are no points")
    array = array.astype(np.float64)
    bad = ~np.isfinite(array).all(1)
    if bad.any():
        raise GPSError(f"points have NaN or infinite coordinates in row {_listed(bad.nonzero()[0])}")
    return array


def points_inside(points: Any, window: Window) -> Array:
    """Return points to evaluate at, finite and inside the window, or raise; duplicates are welcome."""
    coordinates = checked_points(points)
    inside = window_of(points, window).contains(coordinates)
    if not inside.all():
        raise GPSError(f"{int((~inside).sum())} of {len(coordinates)} points lie outside the window")
    return coordinates


def _listed(rows: NDArray[np.intp]) -> str:
    more = f" and {len(rows) - _SHOWN} more" if len(rows) > _SHOWN else ""
    return ", ".join(str(row) for row in rows[:_SHOWN]) + more


def thin(points: Array, share: float, seed: int) -> tuple[Array, Array]:
    """Split points at random, each kept with probability ``share``: two independent patterns of a Poisson process.

    >>> import numpy as np
    >>> from gpsuq.spatial import thin
    >>> kept, left = thin(np.random.default_rng(0).random((1000, 2)), share=0.8, seed=0)
    >>> bool(750 < len(kept) < 850), len(kept) + len(left)
    (True, 1000)
    """
    if not 0.0 < share < 1.0:
        raise GPSError(f"share must be between 0 and 1, got {share}")
    kept = np.random.default_rng(seed).random(len(points)) < share
    return points[kept], points[~kept]
