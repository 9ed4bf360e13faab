"""Objects of other libraries as coordinates: GeoPandas and pointpats, known by their looks."""

from __future__ import annotations

from typing import Any

import numpy as np

from gpsuq.errors import GPSError, needs

with needs("points", "a point pattern"):
    import shapely


def plain_points(points: Any) -> Any:
    """Return the coordinates of GeoPandas' points, or of an object that holds ``points``; all else as it is."""
    if hasattr(points, "geometry"):
        geometry = np.asarray(points.geometry)
        kinds = {getattr(shape, "geom_type", "nothing") for shape in geometry} - {"Point"}
        if kinds or shapely.is_empty(geometry).any():
            found = ", ".join(sorted(kinds)) or "an empty point"
            raise GPSError(f"points must be single points, found {found}: use explode(), dropna() or centroid first")
        return shapely.get_coordinates(geometry)
    if hasattr(points, "points"):
        return np.asarray(points.points)
    return points


def crs_and_unit(crs: Any) -> tuple[str, str]:
    """Return a CRS as text, and the unit of its coordinates.

    ``crs`` is what ``pyproj`` takes: one of its own, a code such as "EPSG:32633", or well-known text.
    """
    with needs("geo", "a coordinate reference system"):
        import pyproj  # only where there is a CRS
    try:
        known = pyproj.CRS.from_user_input(crs)
    except pyproj.exceptions.CRSError as error:
        raise GPSError(f"the coordinate reference system {crs!r} is not known: {error}") from error
    return known.to_string(), next((axis.unit_name for axis in known.axis_info), "unit")


def same_crs(one: Any, other: Any) -> bool:
    """Whether two coordinate reference systems are the same."""
    if str(one) == str(other):
        return True
    with needs("geo", "comparing coordinate reference systems"):
        import pyproj  # only where there is a CRS
    return bool(pyproj.CRS.from_user_input(one) == pyproj.CRS.from_user_input(other))
