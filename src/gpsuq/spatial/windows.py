"""The window of a point pattern: the region where points were looked for, a rectangle or polygons with holes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpsuq.errors import GPSError, needs
from gpsuq.files import parsed, read_bytes
from gpsuq.spatial.foreign import crs_and_unit, same_crs

with needs("points", "reading windows"):
    import shapely
    from shapely.errors import GEOSException
    from shapely.geometry import MultiPolygon, Polygon, mapping, shape
    from shapely.geometry.base import BaseGeometry

Array = NDArray[np.float64]

_MOST_BYTES = 1 << 28
_DEGREES = "degree", "degrees", "deg", "°"
_DAMAGE = ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError, GEOSException


@dataclass(frozen=True)
class Window:
    """A region of the plane with positive area; build one with :func:`as_window` or :meth:`rectangle`.

    One unit of the coordinates is ``multiple`` times ``unit``, such as 250 microns; areas and intensities are in the
    coordinates' own units, pages and figures in the ``unit``. ``crs`` names the coordinate reference system, if known.

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
    multiple: float = 1.0
    crs: str | None = None

    def __post_init__(self) -> None:
        geometry = self.polygons
        if self.unit.lower() in _DEGREES:
            raise GPSError(
                f"coordinates in degrees{'' if self.crs is None else f' ({self.crs})'} are no lengths; project points, "
                "window and covariates first, in GeoPandas with crs = points.estimate_utm_crs(); points.to_crs(crs)"
            )
        if not 0.0 < self.multiple < np.inf:
            raise GPSError(f"one coordinate must be a positive number of units, got {self.multiple}")
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
    def rectangle(
        cls, x_min: float, x_max: float, y_min: float, y_max: float, unit: str = "unit", multiple: float = 1.0
    ) -> Window:
        """Make a rectangle; both ends of each side belong to it."""
        if not np.isfinite([x_min, x_max, y_min, y_max]).all() or x_max <= x_min or y_max <= y_min:
            raise GPSError(
                f"the window has no area: x from {x_min} to {x_max}, y from {y_min} to {y_max}; each must increase"
            )
        return cls(shapely.box(x_min, y_min, x_max, y_max), unit, multiple)

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
        units = self.unit if self.multiple == 1.0 else [self.unit, self.unit, self.multiple]
        crs = {} if self.crs is None else {"crs": {"type": "name", "properties": {"name": self.crs}}}
        return {**mapping(self.polygons), "units": units, **crs}


def read_window(path: str | Path) -> Window:
    """Read a window from GeoJSON, or as spatstat has them: ``{"xrange": [...], "yrange": [...]}`` is a rectangle.

    ``"type": "polygonal"`` has its rings in ``bdry``, ``"mask"`` its pixels in ``m``, ``xcol`` and ``yrow``. ``units``
    are a name, or a name, its plural and how many of them one coordinate is.

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
    kind = _single(document.get("type", "rectangle" if "xrange" in document else None))
    inner = document["geometry"] if kind == "Feature" else {}
    return Window(_READERS.get(kind, _unknown)(document), *_units(inner | document))


def _units(document: dict[str, Any]) -> tuple[str, float, str | None]:
    """Return the unit of a document, how many of it one coordinate is, and the coordinate reference system."""
    named = str(document["crs"]["properties"]["name"]) if document.get("crs") else None
    units = document.get("units")
    if units is None:
        crs, unit = (None, "unit") if named is None else crs_and_unit(named)
        return unit, 1.0, crs
    parts = list(units.values()) if isinstance(units, dict) else units if isinstance(units, list) else [units]
    return str(_single(parts[0])), float(_single(parts[2])) if len(parts) > 2 else 1.0, named


def _single(value: Any) -> Any:
    """Take a value out of a list of one, in which R writes it."""
    return value[0] if isinstance(value, list) and len(value) == 1 else value


def _rectangle(document: dict[str, Any]) -> BaseGeometry:
    (x_min, x_max), (y_min, y_max) = document["xrange"], document["yrange"]
    return Window.rectangle(x_min, x_max, y_min, y_max).polygons


def _polygonal(document: dict[str, Any]) -> BaseGeometry:
    """Read spatstat's rings: those that go round anticlockwise are filled, the others are holes."""
    rings = [shapely.LinearRing(np.column_stack([ring["x"], ring["y"]]).astype(float)) for ring in document["bdry"]]
    filled, holes = ([shapely.Polygon(ring) for ring in rings if ring.is_ccw is way] for way in (True, False))
    return shapely.difference(shapely.union_all(filled), shapely.union_all(holes))


def _mask(document: dict[str, Any]) -> BaseGeometry:
    """Read spatstat's pixels: rows of y, columns of x."""
    x, y = (np.asarray(document[name], dtype=float) for name in ("xcol", "yrow"))
    row, column = np.asarray(document["m"], dtype=bool).nonzero()
    half_x, half_y = (float(np.diff(axis).mean()) / 2.0 for axis in (x, y))
    # Edges that neighbours share must be the same numbers, or slivers would lie between them.
    right, top = (np.append(axis - half, axis[-1] + half) for axis, half in ((x, half_x), (y, half_y)))
    return shapely.union_all(shapely.box(right[column], top[row], right[column + 1], top[row + 1]))


def _several(parts: Sequence[dict[str, Any]]) -> BaseGeometry:
    if not parts:
        raise GPSError("the window is empty")
    return shapely.union_all([_window(part).polygons for part in parts])


def _unknown(document: dict[str, Any]) -> BaseGeometry:
    kind = document.get("type")
    raise GPSError(f"a window of type {kind!r} is not known; use a rectangle, Polygon, MultiPolygon or polygonal")


_READERS: dict[Any, Callable[[dict[str, Any]], BaseGeometry]] = {
    "rectangle": _rectangle,
    "polygonal": _polygonal,
    "mask": _mask,
    "Polygon": lambda document: Window(shape(document)).polygons,
    "MultiPolygon": lambda document: Window(shape(document)).polygons,
    "Feature": lambda document: _window(document["geometry"]).polygons,
    "FeatureCollection": lambda document: _several(document["features"]),
    "GeometryCollection": lambda document: _several(document["geometries"]),
}


def as_window(window: Any) -> Window:
    """Read what a user passed as window: a Window, a polygon, (x_min, x_max, y_min, y_max), or a file.

    Polygons are those of shapely, GeoPandas (all rows together, with their CRS) and whatever has a
    ``__geo_interface__``.

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
    if hasattr(window, "__geo_interface__"):
        read = window_from_json(window.__geo_interface__)
        crs = getattr(window, "crs", None)
        return read if crs is None else with_crs(read, crs)
    try:
        numbers = [float(value) for value in window]
    except (TypeError, ValueError, OverflowError) as error:
        raise GPSError(f"a window must be a polygon, four numbers or a file, got {window!r}") from error
    if len(numbers) != 4:
        raise GPSError(f"a rectangle takes four numbers (x_min, x_max, y_min, y_max), got {len(numbers)}")
    x_min, x_max, y_min, y_max = numbers
    return Window.rectangle(x_min, x_max, y_min, y_max)


def with_crs(window: Window, crs: Any) -> Window:
    """Return a window in the CRS of something that came with it, or raise where it has another."""
    if window.crs is None:
        name, unit = crs_and_unit(crs)
        return replace(window, unit=unit if window.unit == "unit" else window.unit, crs=name)
    if not same_crs(window.crs, crs):
        raise GPSError(
            f"the window has the coordinate reference system {window.crs}, what goes with it {crs}; project one of "
            "them, in GeoPandas with to_crs"
        )
    return window
