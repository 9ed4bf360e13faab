"""Figures of point patterns and their intensities."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from gpsuq.plots.style import COLORS, figure_style, plain
from gpsuq.poisson.maps import draw_contours, draw_points, draw_surface, draw_window
from gpsuq.spatial.units import Shown, shown_density, shown_length

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from gpsuq.poisson.intensity import IntensitySurface
    from gpsuq.spatial.grids import Grid
    from gpsuq.spatial.statistics import Envelope
    from gpsuq.spatial.windows import Array, Window

_MOST_RELATIVE = 1.0


def draw_intensity(ax: Axes, surface: IntensitySurface) -> None:
    """Show the mean intensity in a unit that suits it."""
    shown = shown_density(surface.grid.window, float(np.nanmean(surface.mean)))
    draw_surface(ax, surface.grid, shown.factor * surface.mean, plain(shown.unit), contours=5)
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
    ax.set_title(envelope.shown, loc="right", fontsize=9)
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
    with figure_style():
        figure, axes = panels(surface.grid.window, 2 + len(relative))
        first, second, *others = axes
        draw_points(first, points, color=COLORS["gps"])
        draw_window(first, surface.grid.window)
        first.set_title(f"{len(points):,} points")
        draw_intensity(second, surface)
        for ax, (title, values) in zip(others, relative.items(), strict=True):
            draw_relative_uncertainty(ax, surface.grid, values, title)
    return figure


def relative_risk_maps(
    grid: Grid, shares: Mapping[str, float], probability: Array, lower: Array, upper: Array
) -> Figure:
    """Plot how many times as likely as overall each type is, with lines around where that is sure.

    ``probability`` and its bounds are maps (type, n_y, n_x). Of two types the second is the rest: only the first is
    shown.
    """
    from matplotlib.lines import Line2D

    names = list(shares)[: 1 if len(shares) == 2 else None]
    with figure_style():
        figure, axes = panels(grid.window, len(names))
        for number, (ax, name) in enumerate(zip(axes, names, strict=True)):
            share = shares[name]
            times = np.log2(probability[number] / share)
            most = max(1.0, float(np.ceil(np.nanmax(np.abs(times)))))
            draw_surface(ax, grid, times, "", cmap="PuOr_r", vmin=-most, vmax=most)
            bar, ticks = ax.images[0].colorbar, sorted({-most, -1.0, 0.0, 1.0, most})
            assert bar is not None
            bar.set_ticks(ticks, labels=[f"{2.0**tick:.3g}" for tick in ticks])
            bar.set_label("times the overall share")
            for bound, style in ((lower, "solid"), (upper, "dashed")):
                if np.nanmin(bound[number]) < share < np.nanmax(bound[number]):
                    draw_contours(ax, grid, bound[number], [share], colors="black", linestyles=style)
            ax.set_title(plain(f"{name} ({share:.0%} of all)"))
        more, less = Line2D([], [], color="black"), Line2D([], [], color="black", linestyle="dashed")
        figure.legend([more, less], ["surely more likely", "surely less likely"], loc="outside lower center", ncols=2)
    return figure


def panels(window: Window, count: int) -> tuple[Figure, list[Axes]]:
    """Open a figure with so many maps of a window, beside each other as far as its shape allows."""
    import matplotlib.pyplot as plt

    x_min, x_max, y_min, y_max = window.bounds
    ratio = (y_max - y_min) / (x_max - x_min)
    across = 1 if ratio < 0.4 or count == 1 else 2 if ratio < 0.75 or count in (2, 4) else 3
    width = {1: 7.5, 2: 5.2, 3: 4.5}[across]
    along = -(-count // across)
    size = across * width, along * (min(0.8 * width * ratio, 7.0) + 0.9)
    figure, axes = plt.subplots(along, across, figsize=size, layout="compressed", squeeze=False)
    for empty in axes.flat[count:]:
        empty.set_axis_off()
    return figure, list(axes.flat[:count])
