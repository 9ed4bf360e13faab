"""Boxplots of regression coefficients: the UQ distribution, its spread within chains, and others beside it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from gpsuq.core.numbers import shown_number
from gpsuq.core.summaries import largest
from gpsuq.plots.style import COLORS, figure_style, plain, subplots

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Array = NDArray[np.floating]

MOST_BOXES = 30
"""Coefficients in one figure."""

_LONGEST_NAME = 28


def coefficients(
    draws: Array, names: Sequence[str], *, spread: Any = None, truth: Any = None, target: str = "the target"
) -> Figure:
    """Plot draws of the coefficients (chain, draw, p) on one axis: all of them, and the spread within chains below.

    ``spread`` is a standard deviation for each column: coefficients are then what the target changes by where a column
    changes by as much, the largest first, with their mean in the column's own unit beside them. Of very many the
    largest are shown.

    >>> import numpy as np
    >>> from gpsuq.linear.plots import coefficients
    >>> draws = np.random.default_rng(0).normal([1.0, -0.01], [0.1, 0.001], size=(4, 100, 2))
    >>> figure = coefficients(draws, ["age", "income"], spread=[10.0, 2000.0], target="price")
    >>> [label.get_text() for label in figure.axes[0].get_yticklabels()]
    ['income', 'age']
    >>> figure.axes[0].get_xlabel()
    'change of price for one standard deviation of the column'
    """
    means = draws.mean((0, 1))
    sizes = np.ones(len(names)) if spread is None else np.asarray(spread, dtype=float)
    chosen = largest(means * sizes, MOST_BOXES)
    order = chosen if spread is None else chosen[np.argsort(-np.abs(means * sizes)[chosen], kind="stable")]
    shown = [plain(names[place], _LONGEST_NAME) for place in order]
    with subplots(figsize=(6.8, max(2.4, 1.5 + 0.34 * len(order)))) as (figure, axis):
        _gps_boxes(axis, draws[..., order] * sizes[order], vertical=False)
        if truth is not None:
            _truth(axis, np.asarray(truth)[order] * sizes[order], vertical=False)
        axis.axvline(0.0, color=COLORS["data"], linewidth=1, zorder=0)
        axis.set_yticks(range(len(order)), shown)
        axis.set_ylim(len(order) - 0.4, -0.6)
        axis.grid(axis="y", visible=False)
        few = "" if len(order) == len(names) else f" (the {len(order)} largest of {len(names):,})"
        change = f"change of {plain(target)} for one standard deviation of the column"
        axis.set_xlabel(("coefficient" if spread is None else change) + few)
        if spread is not None:
            own = axis.secondary_yaxis("right")
            texts = [f"{shown_number(means[k])}  (sd {shown_number(sizes[k])})" for k in order]
            own.set_yticks(range(len(order)), texts)
            own.set_ylabel("mean coefficient, in units of its column")
        figure.legend(loc="outside upper center", ncols=1)
    return figure


def boxplot_comparison(gps: Array, posterior: Array, truth: Array, title: str) -> Figure:
    """Plot GPS draws (chain, draw, p) left, posterior draws (draw, p) right, the true coefficients as crosses."""
    import matplotlib.pyplot as plt

    names = [str(j + 1) for j in range(len(truth))]
    with figure_style():
        figure, (left, right) = plt.subplots(1, 2, figsize=(12, 3.8), sharey=True)
        _gps_boxes(left, gps)
        _boxes(right, posterior, 0.0, 0.6, COLORS["bayes"], "posterior")
        for axis, name in ((left, "UQ distribution (GPS)"), (right, "Bayesian posterior")):
            _finish(axis, names, truth)
            axis.set(xlabel="coefficient", ylabel="value", title=f"{name}: {title}")
        entries: dict[str, Any] = {}
        for axis in (left, right):
            handles, labels = axis.get_legend_handles_labels()
            entries |= dict(zip(labels, handles, strict=True))
        figure.legend(list(entries.values()), list(entries), loc="outside lower center", ncols=len(entries))
        right.yaxis.set_tick_params(labelleft=True)
    return figure


def _gps_boxes(axis: Axes, draws: Array, *, vertical: bool = True) -> None:
    p = draws.shape[-1]
    _boxes(axis, draws.reshape(-1, p), -0.18, 0.32, COLORS["gps"], "all chains and draws", vertical=vertical)
    # With the same mean for all chains, what is left is heterogeneity.
    within = draws - draws.mean(1, keepdims=True) + draws.mean((0, 1))
    _boxes(axis, within.reshape(-1, p), 0.18, 0.32, COLORS["light"], "within chains", vertical=vertical)


def _boxes(
    axis: Axes, draws: Array, shift: float, width: float, color: str, label: str, *, vertical: bool = True
) -> None:
    axis.boxplot(
        list(draws.T),
        orientation="vertical" if vertical else "horizontal",
        positions=(np.arange(draws.shape[1]) + shift).tolist(),
        widths=width,
        whis=(2.5, 97.5),
        showfliers=False,
        patch_artist=True,
        manage_ticks=False,
        boxprops={"facecolor": color, "edgecolor": color, "alpha": 0.75},
        whiskerprops={"color": color},
        capprops={"color": color},
        medianprops={"color": "white"},
    )
    axis.plot([], [], color=color, linewidth=6, alpha=0.75, label=f"{label} (50% and 95%)")


def _truth(axis: Axes, values: Array, *, vertical: bool = True) -> None:
    places = np.arange(len(values))
    across, up = (places, values) if vertical else (values, places)
    axis.plot(across, up, "x", color="#CC0000", markersize=7, markeredgewidth=1.8, label="truth")


def _finish(axis: Axes, names: Sequence[str], truth: Any) -> None:
    _truth(axis, np.asarray(truth))
    axis.set_xticks(range(len(names)), names)
    axis.set_xlim(-0.7, len(names) - 0.3)
    axis.grid(axis="x", visible=False)
