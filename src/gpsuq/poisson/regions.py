"""Regions whose points are counted: one or many, of any kind that can be a window."""

from __future__ import annotations

from numbers import Real
from pathlib import Path
from typing import Any

import pandas as pd

from gpsuq.spatial.windows import Window, as_window, with_crs


def read_regions(regions: Any, window: Window) -> tuple[list[Window], pd.Index]:
    """Read one region or several, with their names; raise where their CRS is not that of the window.

    >>> from gpsuq.poisson.regions import read_regions
    >>> from gpsuq.spatial import Window
    >>> square = Window.rectangle(0.0, 1.0, 0.0, 1.0)
    >>> shapes, names = read_regions([(0, 0.5, 0, 0.5), (0.5, 1, 0, 1)], square)
    >>> [shape.area for shape in shapes], list(names)
    ([0.25, 0.5], [0, 1])
    """
    if hasattr(regions, "geometry"):  # a row of GeoPandas is a region
        if regions.crs is not None:
            with_crs(window, regions.crs)
        return [as_window(shape) for shape in regions.geometry], pd.Index(regions.index)
    single = isinstance(regions, (Window, str, Path, dict)) or hasattr(regions, "geom_type")
    single = single or (len(regions) == 4 and all(isinstance(value, Real) for value in regions))
    shapes = [as_window(region) for region in ([regions] if single else regions)]
    for shape in shapes:
        if shape.crs is not None:
            with_crs(window, shape.crs)
    return shapes, pd.RangeIndex(len(shapes))
