"""Maps of a window: colours that end at its edge, contours, points, and a scale bar."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import shapely
from scipy.ndimage import distance_transform_edt

from gpsuq.plots.style import plain
from gpsuq.spatial.units import shown_length

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from gpsuq.spatial.grids import Grid
    from gpsuq.spatial.windows import Array, Window

_MOST_SHOWN = 5000
_INK = "#404040"
_TICKS = 4
_BAR = 0.3  # of the width, at most


def draw_window(ax: Axes, window: Window) -> None:
    """Outline a window, and set the shape and units of the axes, with a bar for scale where there is a unit."""
    from matplotlib.ticker import MaxNLocator

    for polygon in getattr(window.polygons, "geoms", [window.polygons]):
        for ring in (polygon.exterior, *polygon.interiors):
            ax.plot(*np.asarray(ring.coords).T, color=_INK, linewidth=0.8)
    multiple = "" if window.multiple == 1.0 else f"{window.multiple:g} "
    unit = "" if window.unit == "unit" else f" ({multiple}{plain(window.unit)})"
    ax.set(xlabel=f"x{unit}", ylabel=f"y{unit}", aspect="equal")
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_locator(MaxNLocator(_TICKS))
    ax.ticklabel_format(useOffset=False, style="plain")
    ax.grid(False)
    ax.margins(0.0)
    if window.unit != "unit":
        _draw_scale(ax, window)


def _draw_scale(ax: Axes, window: Window) -> None:
    """Draw a bar of round length below the window, with its length in a unit that suits it."""
    x_min, x_max, y_min, y_max = window.bounds
    shown = shown_length(window, (x_max - x_min) / 2.0)
    longest = _BAR * (x_max - x_min) * shown.factor
    size = 10.0 ** np.floor(np.log10(longest))
    length = max(step for step in (1.0, 2.0, 5.0) if step * size <= longest) * size
    gap, end = 0.04 * (y_max - y_min), x_max - length / shown.factor
    y = y_min - gap
    ax.set_ylim(bottom=y - gap)  # or the label would lie on the axis
    ax.plot([end, x_max], [y, y], color="black", linewidth=2.5, solid_capstyle="butt", clip_on=False)
    text = plain(f"{length:g} {shown.unit} ")
    ax.text(end, y, text, ha="right", va="center", fontsize=8)


def draw_points(ax: Axes, points: Array, **style: Any) -> None:
    """Scatter points; of very many, an even part."""
    shown = points[:: max(1, -(-len(points) // _MOST_SHOWN))]
    options: dict[str, Any] = {"marker": ".", "markersize": 2.5, "linestyle": "none"} | style
    ax.plot(shown[:, 0], shown[:, 1], **options)


def draw_surface(ax: Axes, grid: Grid, values: Array, label: str, **style: Any) -> None:
    """Show values (n_y, n_x) of a grid as colours up to the edge of the window, with a colour bar."""
    filled = without_gaps(values)
    options: dict[str, Any] = {"cmap": "viridis"} | style
    x_min, x_max, y_min, y_max = grid.window.bounds
    image = ax.imshow(
        filled, origin="lower", extent=(x_min, x_max, y_min, y_max), interpolation="bilinear", aspect="auto", **options
    )
    clip(ax, image, grid.window)
    beyond = "max" if "vmax" in style and np.nanmax(values) > style["vmax"] else "neither"
    ax.figure.colorbar(image, ax=ax, label=label, shrink=0.85, extend=beyond)
    draw_window(ax, grid.window)


def draw_contours(ax: Axes, grid: Grid, values: Array, levels: Any, **style: Any) -> None:
    """Draw lines where values (n_y, n_x) reach the levels (numbers, or how many), inside the window."""
    x, y = ((edge[1:] + edge[:-1]) / 2.0 for edge in grid.edges)
    clip(ax, ax.contour(x, y, without_gaps(values), levels, **style), grid.window)


def clip(ax: Axes, artist: Any, window: Window) -> None:
    """Cut what was drawn at the edge of a window."""
    from matplotlib.patches import PathPatch
    from matplotlib.path import Path

    rings = []
    for polygon in getattr(window.polygons, "geoms", [window.polygons]):
        turned = shapely.geometry.polygon.orient(polygon)  # holes go round the other way
        rings += [Path(np.asarray(ring.coords), closed=True) for ring in (turned.exterior, *turned.interiors)]
    artist.set_clip_path(PathPatch(Path.make_compound_path(*rings), transform=ax.transData))


def without_gaps(values: Array) -> Array:
    """Fill what is NaN with the nearest value, so that colours and contours reach the edge of a window."""
    nearest = distance_transform_edt(np.isnan(values), return_distances=False, return_indices=True)
    filled: Array = values[tuple(nearest)]
    return filled
