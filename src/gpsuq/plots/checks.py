"""Figures that check a fit: how outcomes fall under their predictive, and where the spread of parameters comes from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from scipy.stats import binom

from gpsuq.plots.style import COLORS, figure_style, plain

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_GROUP_COLORS = ("gps", "bayes", "good", "other", "warm", "light")
_GROUP_MARKERS = ("o", "s", "^", "D")


def pit_histogram(counts: Sequence[int], what: str) -> Figure:
    """Plot how many outcomes, called ``what``, fall into equal slices of their predictive, and what chance explains."""
    import matplotlib.pyplot as plt

    bins, total = len(counts), sum(counts)
    low, high = binom.ppf([0.005, 0.995], total, 1.0 / bins)
    with figure_style():
        figure, ax = plt.subplots(figsize=(5.6, 3.2))
        ax.axhspan(low, high, color=COLORS["data"], alpha=0.25, label="99% of what chance gives")
        ax.bar((np.arange(bins) + 0.5) / bins, counts, width=0.92 / bins, color=COLORS["gps"])
        ax.set(xlabel="probability of at most y under its predictive", ylabel=what, xlim=(0, 1))
        figure.legend(loc="outside upper center")
    return figure


def subgroup_scatter(
    x: Sequence[float], y: Sequence[float], subgroup: Sequence[int], x_name: str, y_name: str
) -> Figure:
    """Plot rows by one covariate and the target, with a colour and a marker for each subgroup."""
    import matplotlib.pyplot as plt

    across, up, number = np.asarray(x), np.asarray(y), np.asarray(subgroup)
    with figure_style():
        figure, ax = plt.subplots(figsize=(6.2, 4.0))
        for place, group in enumerate(np.unique(number)):
            chosen = number == group
            color, marker = COLORS[_GROUP_COLORS[place % len(_GROUP_COLORS)]], _GROUP_MARKERS[place % 4]
            ax.plot(across[chosen], up[chosen], marker, color=color, markersize=4, alpha=0.7, label=f"subgroup {group}")
        ax.set(xlabel=plain(x_name), ylabel=plain(y_name))
        if len(np.unique(number)) > 1:
            ax.legend()
    return figure


def spread_shares(summary: pd.DataFrame) -> Figure:
    """Plot for every parameter how much of its variance is heterogeneity and how much estimation uncertainty."""
    import matplotlib.pyplot as plt

    squares = summary[["heterogeneity_sd", "estimation_sd"]].fillna(0.0) ** 2
    total = squares.sum(axis=1).replace(0.0, 1.0)
    shares = squares.div(total, axis=0).iloc[::-1]
    with figure_style():
        figure, ax = plt.subplots(figsize=(6.2, 1.4 + 0.28 * len(shares)))
        names = [plain(name) for name in shares.index]
        ax.barh(names, shares["heterogeneity_sd"], color=COLORS["gps"], label="between observations (heterogeneity)")
        ax.barh(
            names,
            shares["estimation_sd"],
            left=shares["heterogeneity_sd"],
            color=COLORS["warm"],
            label="of estimation (more data would shrink it)",
        )
        ax.set(xlabel="share of the parameter's variance", xlim=(0, 1))
        ax.grid(axis="y", visible=False)
        figure.legend(loc="outside upper center", ncols=2)
    return figure
