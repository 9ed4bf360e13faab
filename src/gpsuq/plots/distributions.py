"""Marginals and pairs of columns of draws."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from gpsuq.plots.style import COLORS, plain, subplots

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_SHOWN_POINTS = 1500


def _range(values: Any) -> tuple[float, float]:
    """Return the limits of an axis that holds 99% of the draws: a few far ones would squeeze the rest."""
    low, high = np.quantile(values, [0.005, 0.995])
    margin = 0.08 * (high - low) or 0.5 * max(abs(low), 1e-12)
    return low - margin, high + margin


def marginals(table: pd.DataFrame) -> Figure:
    """Plot a histogram of every column of draws that are indexed by chain and draw.

    All chains are pooled, and each has a thin outline: outlines that agree mean that the law is well determined; where
    they differ, the difference is estimation uncertainty.

    >>> import numpy as np, pandas as pd
    >>> from gpsuq.plots.distributions import marginals
    >>> index = pd.MultiIndex.from_product([range(2), range(50)], names=["chain", "draw"])
    >>> table = pd.DataFrame(np.random.default_rng(0).normal(size=(100, 2)), index, ["loc", "scale"])
    >>> [axis.get_xlabel() for axis in marginals(table).axes]
    ['loc', 'scale']
    """
    n_columns = min(3, table.shape[1])
    n_rows = -(-table.shape[1] // n_columns)
    with subplots(n_rows, n_columns, figsize=(3.6 * n_columns, 2.7 * n_rows), squeeze=False) as (figure, axes):
        for axis, name in zip(axes.flat, table, strict=False):
            limits = _range(table[name])
            options: dict[str, Any] = {"bins": np.linspace(*limits, 50).tolist(), "density": True}
            axis.hist(table[name], color=COLORS["light"], alpha=0.7, label="all chains", **options)
            for number, (_, chain) in enumerate(table[name].groupby(level="chain")):
                label = "one chain" if number == 0 else None
                axis.hist(chain, histtype="step", color=COLORS["gps"], linewidth=0.8, label=label, **options)
            axis.set(xlabel=plain(name), ylabel="density", xlim=limits)
        axes.flat[0].legend()
        for axis in axes.flat[table.shape[1] :]:
            axis.set_visible(False)
    return figure


def pairs(table: pd.DataFrame) -> Figure:
    """Plot every pair of columns of draws as points, with their marginals on the diagonal.

    >>> import numpy as np, pandas as pd
    >>> from gpsuq.plots.distributions import pairs
    >>> len(pairs(pd.DataFrame(np.random.default_rng(0).normal(size=(100, 2)))).axes)  # two rows of two
    4
    """
    names = list(table)
    shown = table.iloc[:: max(1, len(table) // _SHOWN_POINTS)]
    limits = [_range(table[name]) for name in names]
    size = max(4.0, 2.3 * len(names))
    with subplots(len(names), len(names), figsize=(size, size), squeeze=False) as (figure, axes):
        for (row, column), axis in np.ndenumerate(axes):
            if column > row:
                axis.set_visible(False)
                continue
            across, up = names[column], names[row]
            axis.set_xlim(limits[column])
            if row == column:
                bins = np.linspace(*limits[column], 40).tolist()
                axis.hist(table[across], bins=bins, density=True, color=COLORS["light"])
            else:
                axis.plot(shown[across], shown[up], ".", color=COLORS["gps"], markersize=3, alpha=0.35)
                axis.set_ylim(limits[row])
            if row == len(names) - 1:
                axis.set_xlabel(plain(across))
            if column == 0:
                axis.set_ylabel("density" if row == 0 else plain(up))
    return figure
