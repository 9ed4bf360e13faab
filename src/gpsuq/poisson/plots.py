"""Figures of point patterns and their intensities."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from gpsuq.plots.style import COLORS, figure_style, plain
from gpsuq.spatial.units import Shown, shown_density, shown_length

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from gpsuq.poisson.intensity import IntensitySurface
    from gpsuq.spatial.grids import Grid
    from gpsuq.spatial.statistics import Envelope
    from gpsuq.spatial.windows import Array, Window

_MOST_SHOWN = 5000
_MOST_RELATIVE = 1.0


def draw_window(ax: Axes, window: Window) -> None:
    """Outline a window, and set the shape and units of the axes."""
    for polygon in getattr(window.polygons, "geoms", [window.polygons]):
        for ring in (polygon.exterior, *polygon.interiors):
            ax.plot(*np.asarray(ring.coords).T, color="#404040", linewidth=0.8)
    multiple = "" if window.multiple == 1.0 else f"{window.multiple:g} "
    unit = "" if window.unit == "unit" else f" ({multiple}{plain(window.unit)})"
    ax.set(xlabel=f"x{unit}", ylabel=f"y{unit}", aspect="equal")
    ax.grid(False)


def draw_points(ax: Axes, points: Array, **style: Any) -> None:
    """Scatter points; of very many, an even part."""
    shown = points[:: max(1, -(-len(points) // _MOST_SHOWN))]
    options: dict[str, Any] = {"marker": ".", "markersize": 2.5, "linestyle": "none"} | style
    ax.plot(shown[:, 0], shown[:, 1], **options)


def draw_surface(ax: Axes, grid: Grid, values: Array, label: str, **style: Any) -> None:
    """Show values (n_y, n_x) of a grid as colours, with a colour bar."""
    x, y = grid.edges
    options: dict[str, Any] = {"cmap": "viridis", "rasterized": True} | style
    mesh = ax.pcolormesh(x, y, np.ma.masked_invalid(values), **options)
    beyond = "max" if "vmax" in style and np.nanmax(values) > style["vmax"] else "neither"
    ax.figure.colorbar(mesh, ax=ax, label=label, shrink=0.85, extend=beyond)
    draw_window(ax, grid.window)


def draw_intensity(ax: Axes, surface: IntensitySurface) -> None:
    """Show the mean intensity in a unit that suits it."""
    shown = shown_density(surface.grid.window, float(np.nanmean(surface.mean)))
    draw_surface(ax, surface.grid, shown.factor * surface.mean, plain(shown.unit))
    ax.set_title("mean intensity")


def draw_relative_uncertainty(ax: Axes, grid: Grid, relative: Array, title: str = "relative uncertainty") -> None:
    """Show standard deviation / mean, up to 1: beyond that hardly anything is known."""
    draw_surface(ax, grid, relative, "standard deviation / mean", cmap="magma", vmin=0.0, vmax=_MOST_RELATIVE)
    ax.set_title(title)


def draw_envelope(ax: Axes, envelope: Envelope, window: Window | None = None) -> None:
    """Show L(r) - r of a pattern between the extremes of simulated ones, in the unit of the window."""
    shown = Shown(1.0, "") if window is None else shown_length(window, envelope.distances[-1])
    r = shown.factor * envelope.distances
    lower, upper, observed = (shown.factor * of - r for of in (envelope.lower, envelope.upper, envelope.observed))
    ax.fill_between(r, lower, upper, color=COLORS["light"], alpha=0.4, linewidth=0, label="simulations")
    ax.plot(r, observed, color=COLORS["bayes"], label="observed")
    ax.axhline(0.0, color="#404040", linewidth=0.8)
    ax.set(xlabel=plain(shown.labelled("distance r")), ylabel=plain(shown.labelled("L(r) - r")))
    ax.set_title(f"p = {envelope.p_value:.2f}", loc="right", fontsize=9)
    ax.legend()


def envelope(result: Envelope, window: Window | None = None) -> Figure:
    """Plot the L function of a pattern beside those of simulated ones.

    >>> import numpy as np
    >>> from gpsuq.poisson.plots import envelope
    >>> from gpsuq.spatial import Envelope, Window
    >>> one = np.ones(3)
    >>> result = Envelope(np.array([0.0, 0.1, 0.2]), 0.15 * one, 0.05 * one, 0.1 * one, 0.08 * one, p_value=0.025)
    >>> envelope(result, Window.rectangle(0.0, 1.0, 0.0, 1.0, unit="km")).axes[0].get_xlabel()
    'distance r (m)'
    """
    import matplotlib.pyplot as plt

    with figure_style():
        figure, ax = plt.subplots(figsize=(6, 4))
        draw_envelope(ax, result, window)
    return figure


def intensity(surface: IntensitySurface, points: Array) -> Figure:
    """Plot the points, the mean intensity and its relative standard deviation.

    >>> import numpy as np
    >>> from gpsuq.poisson.intensity import IntensitySurface
    >>> from gpsuq.poisson.plots import intensity
    >>> from gpsuq.spatial import Grid, Window
    >>> mean = np.full((4, 4), 30.0)
    >>> surface = IntensitySurface(Grid(Window.rectangle(0.0, 1.0, 0.0, 1.0), 4, 4), mean, sd=0.2 * mean, quantiles={})
    >>> [ax.get_title() for ax in intensity(surface, np.random.default_rng(0).random((30, 2))).axes[:3]]
    ['30 points', 'mean intensity', 'relative uncertainty']
    """
    return intensity_parts(surface, points, {"relative uncertainty": surface.sd / surface.mean})


def intensity_parts(surface: IntensitySurface, points: Array, relative: Mapping[str, Array]) -> Figure:
    """Plot the points, the mean intensity, and a map of every relative standard deviation, by its title."""
    import matplotlib.pyplot as plt

    x_min, x_max, y_min, y_max = surface.grid.window.bounds
    ratio = (y_max - y_min) / (x_max - x_min)
    count = 2 + len(relative)
    with figure_style():
        if ratio < 0.75:  # wide windows below each other
            figure, axes = plt.subplots(count, 1, figsize=(7.5, count * (7.0 * ratio + 0.9)), layout="compressed")
        else:
            shape = (1, 3) if count == 3 else (-(-count // 2), 2)
            size = 4.5 * shape[1], shape[0] * ((4.2 if count == 3 else 3.4) * ratio + 0.6)
            figure, axes = plt.subplots(*shape, figsize=size, layout="compressed")
        first, second, *others = axes.flat
        draw_points(first, points, color=COLORS["gps"])
        draw_window(first, surface.grid.window)
        first.set_title(f"{len(points):,} points")
        draw_intensity(second, surface)
        for ax, (title, values) in zip(others, relative.items(), strict=True):
            draw_relative_uncertainty(ax, surface.grid, values, title)
    return figure
