"""Boxplots of regression coefficients: the UQ distribution, its spread within chains, and others beside it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from gpsuq.core.summaries import largest
from gpsuq.plots.style import COLORS, figure_style, plain

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Array = NDArray[np.floating]

MOST_BOXES = 50
"""Coefficients in one figure."""


def coefficients(draws: Array, names: Sequence[str], *, truth: Any = None) -> Figure:
    """Plot boxes of the coefficients' draws (chain, draw, p): all of them, and the spread within chains beside.

    Of very many coefficients the largest are shown.

    >>> import numpy as np
    >>> from gpsuq.linear.plots import coefficients
    >>> draws = np.random.default_rng(0).normal([1.0, -1.0], 0.1, size=(4, 100, 2))
    >>> figure = coefficients(draws, ["age", "income"], truth=[1.0, -1.0])
    >>> [label.get_text() for label in figure.axes[0].get_xticklabels()]
    ['age', 'income']
    """
    import matplotlib.pyplot as plt

    n_all = len(names)
    if n_all > MOST_BOXES:
        chosen = largest(draws.mean((0, 1)), MOST_BOXES)
        draws, names = draws[..., chosen], [names[place] for place in chosen]
        truth = None if truth is None else np.asarray(truth)[chosen]
    with figure_style():
        figure, axis = plt.subplots(figsize=(max(4.0, 1.2 + 0.5 * len(names)), 3.6))
        _gps_boxes(axis, draws)
        _finish(axis, names, truth)
        axis.set_ylabel("coefficient" if n_all == len(names) else f"the {len(names)} largest of {n_all:,} coefficients")
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


def _gps_boxes(axis: Axes, draws: Array) -> None:
    p = draws.shape[-1]
    _boxes(axis, draws.reshape(-1, p), -0.18, 0.32, COLORS["gps"], "all chains and draws")
    # With the same mean for all chains, what is left is heterogeneity.
    within = draws - draws.mean(1, keepdims=True) + draws.mean((0, 1))
    _boxes(axis, within.reshape(-1, p), 0.18, 0.32, COLORS["light"], "within chains")


def _boxes(axis: Axes, draws: Array, shift: float, width: float, color: str, label: str) -> None:
    axis.boxplot(
        list(draws.T),
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


def _finish(axis: Axes, names: Sequence[str], truth: Any) -> None:
    if truth is not None:
        axis.plot(np.arange(len(names)), truth, "x", color="#CC0000", markersize=7, markeredgewidth=1.8, label="truth")
    axis.set_xticks(range(len(names)), [plain(name) for name in names], rotation=0 if max(map(len, names)) < 4 else 45)
    axis.set_xlim(-0.7, len(names) - 0.3)
    axis.grid(axis="x", visible=False)
