"""The window of a point pattern: the region where points were looked for, a rectangle or polygons with holes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpsuq.errors import GPSError, needs
from gpsuq.files import parsed, read_bytes

with needs("points", "reading windows"):
    import shapely
    from shapely.errors import GEOSException
    from shapely.geometry import MultiPolygon, Polygon, mapping, shape
    from shapely.geometry.base import BaseGeometry

Array = NDArray[np.float64]

_MOST_BYTES = 1 << 28
_DAMAGE = ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError, GEOSException


@dataclass(frozen=True)
class Window:
    """A region of the plane with positive area; build one with :func:`as_window` or :meth:`rectangle`.

    >>> import numpy as np
    >>> from gpsuq.spatial import Window
    >>> window = Window.rectangle(0.0, 2.0, 0.0, 1.0, unit="km")
    >>> window.area, window.unit, window.bounds, window.is_rectangle, window.to_json()["type"]
    (2.0, 'km', (0.0, 2.0, 0.0, 1.0), True, 'Polygon')
    >>> window.contains(np.array([[1.5, 0.5], [0.5, 1.5]]))
    array([ True, False])
    """

    polygons: BaseGeometry
    unit: str = "unit"

    def __post_init__(self) -> None:
        geometry = self.polygons
        if not isinstance(geometry, (Polygon, MultiPolygon)):
            raise GPSError(f"a window must be a polygon or several, got {type(geometry).__name__}")
        if geometry.is_empty:
            raise GPSError("the window is empty")
        if not np.isfinite(shapely.get_coordinates(geometry)).all():
            raise GPSError("the window has corners that are NaN or infinite")
        if not geometry.is_valid:
            reason = shapely.is_valid_reason(geometry)
            raise GPSError(f"the window is not a valid polygon: {reason}; mend it, for example with shapely.make_valid")
        if not 0.0 < geometry.area < np.inf:
            raise GPSError("the window has no area, or one too large for a number: check its units")
        shapely.prepare(geometry)

    @classmethod
    def rectangle(cls, x_min: float, x_max: float, y_min: float, y_max: float, unit: str = "unit") -> Window:
        """Make a rectangle; both ends of each side belong to it."""
        if not np.isfinite([x_min, x_max, y_min, y_max]).all() or x_max <= x_min or y_max <= y_min:
            raise GPSError(
                f"the window has no area: x from {x_min} to {x_max}, y from {y_min} to {y_max}; each must increase"
            )
        return cls(shapely.box(x_min, y_min, x_max, y_max), unit)

    @property
    def bounds(self) -> tuple[float, float, float, float]:
        """Smallest and largest x, smallest and largest y."""
        x_min, y_min, x_max, y_max = self.polygons.bounds
        return x_min, x_max, y_min, y_max

    @property
    def area(self) -> float:
        """Area in squared units."""
        return float(self.polygons.area)

    @cached_property
    def is_rectangle(self) -> bool:
        """Whether the window fills its bounding box."""
        x_min, x_max, y_min, y_max = self.bounds
        return bool(self.area >= (1.0 - 1e-12) * (x_max - x_min) * (y_max - y_min))

    def contains(self, points: Array) -> NDArray[np.bool_]:
        """Whether each point (n, 2) lies in the window or on its edge."""
        x, y = points[:, 0], points[:, 1]
        if self.is_rectangle:
            x_min, x_max, y_min, y_max = self.bounds
            return (x >= x_min) & (x <= x_max) & (y >= y_min) & (y <= y_max)
        inside: NDArray[np.bool_] = shapely.intersects_xy(self.polygons, x, y)
        return inside

    def to_json(self) -> dict[str, Any]:
        """Return the window as GeoJSON."""
        return {**mapping(self.polygons), "units": self.unit}


def read_window(path: str | Path) -> Window:
    """Read a window from GeoJSON or from ``{"xrange": [...], "yrange": [...]}``, a rectangle.

    >>> import tempfile
    >>> from pathlib import Path
    >>> from gpsuq.spatial import read_window
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "window.json")
    ...     _ = path.write_text('{"type": "rectangle", "xrange": [0, 2], "yrange": [0, 1], "units": "km"}')
    ...     read_window(path).bounds
    (0.0, 2.0, 0.0, 1.0)
    """
    path = Path(path)
    if not path.is_file():
        raise GPSError(f"there is no file {path}")
    try:
        document = parsed(read_bytes(path, most=_MOST_BYTES))
    except (OSError, ValueError) as error:
        raise GPSError(f"{path} cannot be read as JSON: {error}") from error
    return window_from_json(document, str(path))


def window_from_json(document: Any, name: str = "this document") -> Window:
    """Read a window from a JSON document: a rectangle, a geometry, a feature or a collection of features."""
    try:
        return _window(document)
    except _DAMAGE as error:
        raise GPSError(f"{name} cannot be read as a window: {error}") from error


def _window(document: dict[str, Any]) -> Window:
    kind = document.get("type", "rectangle" if "xrange" in document else None)
    units = document.get("units", "unit")
    unit = str(units[0] if isinstance(units, list) else units)
    if kind == "rectangle":
        (x_min, x_max), (y_min, y_max) = document["xrange"], document["yrange"]
        return Window.rectangle(x_min, x_max, y_min, y_max, unit)
    if kind == "Feature":
        return _window(document["geometry"])
    if kind in ("FeatureCollection", "GeometryCollection"):
        parts = document["features" if kind == "FeatureCollection" else "geometries"]
        if not parts:
            raise GPSError("the window is empty")
        return Window(shapely.union_all([_window(part).polygons for part in parts]), unit)
    if kind not in ("Polygon", "MultiPolygon"):
        raise GPSError(f"a window of type {kind!r} is not known; use a rectangle, Polygon or MultiPolygon")
    return Window(shape(document), unit)


def as_window(window: Any) -> Window:
    """Read what a user passed as window: a Window, a shapely polygon, (x_min, x_max, y_min, y_max), or a file.

    >>> from shapely import Polygon
    >>> from gpsuq.spatial import as_window
    >>> as_window((0, 2, 0, 1)).area, as_window(Polygon([(0, 0), (2, 0), (0, 1)])).area
    (2.0, 1.0)
    """
    if isinstance(window, Window):
        return window
    if isinstance(window, BaseGeometry):
        return Window(window)
    if isinstance(window, (str, Path)):
        return read_window(window)
    if isinstance(window, dict):
        return window_from_json(window)
    try:
        numbers = [float(value) for value in window]
    except (TypeError, ValueError, OverflowError) as error:
        raise GPSError(f"a window must be a polygon, four numbers or a file, got {window!r}") from error
    if len(numbers) != 4:
        raise GPSError(f"a rectangle takes four numbers (x_min, x_max, y_min, y_max), got {len(numbers)}")
    x_min, x_max, y_min, y_max = numbers
    return Window.rectangle(x_min, x_max, y_min, y_max)
