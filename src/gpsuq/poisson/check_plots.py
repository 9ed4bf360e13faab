"""Figures of what a fitted intensity misses, and of how it follows covariates."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gpsuq.plots.style import COLORS, figure_style, plain, subplots
from gpsuq.poisson.maps import draw_contours, draw_points, draw_surface
from gpsuq.poisson.plots import panels
from gpsuq.spatial.units import shown_length

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from gpsuq.poisson.diagnostics import ResidualMap
    from gpsuq.spatial.second_order import GlobalEnvelope
    from gpsuq.spatial.windows import Array, Window

_INK = "#404040"
_NEUTRAL = {"ratio": 1.0, "residual": 0.0}
_SURPRISING = 2.0  # standard deviations


def residuals(result: ResidualMap, points: Array) -> Figure:
    """Plot residuals in standard deviations, with lines at two of them: solid where more points lie than expected.

    >>> import numpy as np
    >>> from gpsuq.poisson.check_plots import residuals
    >>> from gpsuq.poisson.diagnostics import Expected, residual_map
    >>> from gpsuq.spatial import Grid, Window
    >>> points = np.random.default_rng(0).random((200, 2)) ** [1.0, 2.0]
    >>> grid = Grid.with_cells(Window.rectangle(0.0, 1.0, 0.0, 1.0), 1024)
    >>> found = residual_map(Expected.by(lambda s: np.full(len(s), 200.0), [points], grid))
    >>> residuals(found, points).axes[0].get_title()
    'observed less expected points'
    """
    with figure_style():
        figure, (ax,) = panels(result.grid.window, 1)
        most = max(3.0, float(np.ceil(np.nanmax(np.abs(result.z)))))
        draw_surface(ax, result.grid, result.z, "standard deviations", cmap="PuOr_r", vmin=-most, vmax=most)
        for level, style in ((_SURPRISING, "solid"), (-_SURPRISING, "dashed")):
            if np.nanmin(result.z) < level < np.nanmax(result.z):
                draw_contours(ax, result.grid, result.z, [level], colors="black", linewidths=1.0, linestyles=style)
        draw_points(ax, points, color=_INK, markersize=1.5)
        ax.set_title("observed less expected points")
    return figure


def curve(table: pd.DataFrame, name: str, unit: str = "intensity") -> Figure:
    """Plot what ``lurking``, ``covariate_curve`` or ``partial_effect`` returned along a covariate, with its limits.

    ``unit`` is that of the intensity in a partial effect.

    >>> import pandas as pd
    >>> from gpsuq.poisson.check_plots import curve
    >>> table = pd.DataFrame({"value": [0.0, 1.0], "ratio": [0.5, 1.5], "lower": [0.3, 1.2], "upper": [0.7, 1.8]})
    >>> curve(table, "elevation").axes[0].get_xlabel()
    'elevation'
    """
    labels = {"ratio": "times the expected intensity", "residual": "observed less expected, up to here", "mean": unit}
    (shown,) = labels.keys() & set(table)
    with subplots(figsize=(6, 4)) as (figure, ax):
        ax.fill_between(table["value"], table["lower"], table["upper"], color=COLORS["light"], alpha=0.4, linewidth=0)
        ax.plot(table["value"], table[shown], color=COLORS["gps"])
        if shown in _NEUTRAL:
            ax.axhline(_NEUTRAL[shown], color=_INK, linewidth=0.8)
        ax.set(xlabel=plain(name), ylabel=plain(labels[shown]))
    return figure


def second_order(result: GlobalEnvelope, window: Window | None = None) -> Figure:
    """Plot K, L less r, or the pair correlation, in the envelope of simulated patterns.

    >>> import numpy as np
    >>> from gpsuq.poisson.check_plots import second_order
    >>> from gpsuq.spatial.second_order import global_envelope
    >>> r = np.linspace(0.1, 0.3, 3)
    >>> result = global_envelope(r, r, np.random.default_rng(0).normal(r, 0.1, (39, 3)), "L")
    >>> second_order(result).axes[0].get_ylabel()
    'L(r) - r'
    """
    r, unit = result.distances, ""
    factor = 1.0
    if window is not None:
        shown = shown_length(window, float(r[-1]))
        factor, unit = shown.factor, f" ({plain(shown.unit)})" if shown.unit else ""
    power, less, what = {"K": (2, 0.0, "K(r)"), "L": (1, 1.0, "L(r) - r"), "pcf": (0, 0.0, "pair correlation g(r)")}[
        result.summary
    ]
    lower, upper, observed, mean = (
        factor**power * (each - less * r) for each in (result.lower, result.upper, result.observed, result.mean)
    )
    with subplots(figsize=(6, 4)) as (figure, ax):
        band = {"color": COLORS["light"], "alpha": 0.4, "linewidth": 0, "label": "95% of simulated curves"}
        ax.fill_between(factor * r, lower, upper, **band)
        ax.plot(factor * r, mean, color=_INK, linewidth=0.8)
        ax.plot(factor * r, observed, color=COLORS["bayes"], label="observed")
        ax.set(xlabel=f"distance r{unit}", ylabel=what + (unit if power == 1 else ""))
        ax.set_title(f"p = {result.p_value:.2g}", loc="right", fontsize=9)
        ax.legend()
    return figure
