"""Figures that judge a fit: its training, outcomes under their predictive, the sources of the parameters' spread."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.stats import binom

from gpsuq.plots.style import COLORS, plain, subplots

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST_BARS = 300
"""Rows whose interval is drawn."""

_SMOOTHED_OVER = 50  # parts of the training whose steps are averaged: a single step's score is noisy
_GROUP_COLORS = ("gps", "bayes", "good", "other", "warm", "light")
_GROUP_MARKERS = ("o", "s", "^", "D")


def training_curve(losses: Sequence[float]) -> Figure:
    """Plot the mean loss of every epoch."""
    with subplots(figsize=(5.6, 2.8)) as (figure, ax):
        ax.plot(range(1, len(losses) + 1), losses, color=COLORS["gps"], marker="o", markersize=3)
        ax.set(xlabel="epoch", ylabel="mean loss")
        ax.locator_params(axis="x", integer=True)
    return figure


def score_curves(
    scores: NDArray[np.floating], evaluated_at: Sequence[int], held_out: NDArray[np.floating] | None
) -> Figure:
    """Plot the training score (step, chain), averaged over neighbouring steps, and the mean held-out score."""
    width = max(1, len(scores) // _SMOOTHED_OVER)
    n_parts = len(scores) // width
    smooth = scores[: n_parts * width].reshape(n_parts, width, -1).mean(1)
    steps = width * (np.arange(n_parts) + 0.5)
    with subplots(figsize=(6.2, 3.4)) as (figure, ax):
        lines = ax.plot(steps, smooth, color=COLORS["light"], linewidth=0.8)
        lines[0].set_label("one chain")
        ax.plot(steps, smooth.mean(1), color=COLORS["gps"], linewidth=2.0, label="mean of the chains")
        if held_out is not None:
            mean = held_out.mean(1)
            ax.plot(evaluated_at, mean, "s--", color=COLORS["bayes"], markersize=3, label="on held-out observations")
        ax.set(xlabel="step", ylabel="score (lower is better)")
        ax.legend()
    return figure


def pit_histogram(counts: Sequence[int], what: str) -> Figure:
    """Plot how many outcomes, called ``what``, fall into equal slices of their predictive, and what chance explains."""
    bins, total = len(counts), sum(counts)
    low, high = binom.ppf([0.005, 0.995], total, 1.0 / bins)
    with subplots(figsize=(5.6, 3.2)) as (figure, ax):
        ax.axhspan(low, high, color=COLORS["data"], alpha=0.25, label="99% of what chance gives")
        ax.bar((np.arange(bins) + 0.5) / bins, counts, width=0.92 / bins, color=COLORS["gps"])
        ax.set(xlabel="probability of at most y under its predictive", ylabel=what, xlim=(0, 1))
        figure.legend(loc="outside upper center")
    return figure


def some_points(n: int) -> NDArray[np.int64]:
    """Return which of n rows figures of single rows show: all, or of very many some."""
    return np.random.default_rng(0).permutation(n)[:MOST_BARS]


def observed_and_predicted(
    y: Any, predicted: Any, lower: Any, upper: Any, *, target: str = "y", coverage: float = 0.9
) -> Figure:
    """Plot observed outcomes against the mean of their predictive, with an interval for each row.

    Outcomes outside their interval have a colour and a marker of their own. Of very many rows some are shown.

    >>> from gpsuq.plots.diagnostics import observed_and_predicted
    >>> figure = observed_and_predicted([1.0, 9.0], [1.5, 4.0], [0.0, 3.0], [2.0, 5.0], target="price")
    >>> figure.axes[0].get_ylabel()
    'observed price'
    """
    columns = [np.asarray(values, dtype=np.float64) for values in (y, predicted, lower, upper)]
    some = some_points(len(columns[0]))
    seen, mean, low, high = (values[some] for values in columns)
    outside = (seen < low) | (seen > high)
    with subplots(figsize=(6.2, 4.4)) as (figure, ax):
        ax.vlines(mean, low, high, color=COLORS["light"], alpha=0.45, linewidth=1.2, label=f"{coverage:.0%} interval")
        ends = [float(mean.min()), float(mean.max())]
        ax.plot(ends, ends, color=COLORS["truth"], linewidth=1.0, linestyle="--", label="observed = predicted")
        ax.plot(mean[~outside], seen[~outside], "o", color=COLORS["gps"], markersize=3.5, label="inside")
        ax.plot(mean[outside], seen[outside], "D", color=COLORS["bayes"], markersize=4.5, label="outside")
        ax.set(xlabel=f"predicted {plain(target)} (mean)", ylabel=f"observed {plain(target)}")
        figure.legend(loc="outside upper center", ncols=4)
    return figure


def subgroup_scatter(
    x: Sequence[float], y: Sequence[float], subgroup: Sequence[int], x_name: str, y_name: str
) -> Figure:
    """Plot rows by one covariate and the target, with a colour and a marker for each subgroup."""
    across, up, number = np.asarray(x), np.asarray(y), np.asarray(subgroup)
    groups = np.unique(number)
    with subplots(figsize=(6.2, 4.0)) as (figure, ax):
        for place, group in enumerate(groups):
            chosen = number == group
            color, marker = COLORS[_GROUP_COLORS[place % len(_GROUP_COLORS)]], _GROUP_MARKERS[place % 4]
            ax.plot(across[chosen], up[chosen], marker, color=color, markersize=4, alpha=0.7, label=f"subgroup {group}")
        ax.set(xlabel=plain(x_name), ylabel=plain(y_name))
        if len(groups) > 1:
            ax.legend()
    return figure


def spread_shares(summary: pd.DataFrame) -> Figure:
    """Plot for every parameter how much of its variance is heterogeneity and how much estimation uncertainty."""
    squares = summary[["heterogeneity_sd", "estimation_sd"]].fillna(0.0) ** 2
    shares = squares.div(squares.sum(axis=1).replace(0.0, 1.0), axis=0).iloc[::-1]
    within, between = shares["heterogeneity_sd"], shares["estimation_sd"]
    names = [plain(name) for name in shares.index]
    with subplots(figsize=(6.2, 1.4 + 0.28 * len(shares))) as (figure, ax):
        ax.barh(names, within, color=COLORS["gps"], label="between observations (heterogeneity)")
        ax.barh(names, between, left=within, color=COLORS["warm"], label="of estimation (more data would shrink it)")
        ax.set(xlabel="share of the parameter's variance", xlim=(0, 1))
        ax.grid(axis="y", visible=False)
        figure.legend(loc="outside upper center", ncols=2)
    return figure
