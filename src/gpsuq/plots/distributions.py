"""Marginals and pairs of the parameters of a UQ distribution."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from gpsuq.errors import GPSError
from gpsuq.plots.style import COLORS, figure_style, plain

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from gpsuq.uq import UQDistribution

_MOST_MARGINALS = 24
_MOST_PAIRS = 6
_SHOWN_POINTS = 1500


def _columns(uq: UQDistribution, parameters: Sequence[str] | None, n_draws: int, most: int) -> pd.DataFrame:
    table = uq.columns(n_draws)
    if parameters is None:
        # What does not vary with the noise is one value per chain: nothing to see.
        shared = uq.generator.parameter_map.names(random=False)
        table = table[[column for column in table if str(column).split("[")[0] not in shared]]
    else:
        unknown = [name for name in parameters if name not in table]
        if unknown:
            raise GPSError(f"no parameters named {unknown}; there are {list(table)}")
        table = table[list(parameters)]
    if table.shape[1] > most:
        raise GPSError(f"{table.shape[1]} parameters are too many for one figure; choose at most {most} by parameters=")
    return table


def _range(values: Any) -> tuple[float, float]:
    """Show what holds 99% of the draws: a few far ones would squeeze the rest."""
    low, high = np.quantile(values, [0.005, 0.995])
    margin = 0.08 * (high - low) or 0.5 * max(abs(low), 1e-12)
    return low - margin, high + margin


def marginals(uq: UQDistribution, *, parameters: Sequence[str] | None = None, n_draws: int = 2000) -> Figure:
    """Plot a histogram of every parameter, all chains pooled, with one thin outline for each chain.

    Outlines that agree mean that the law is well determined; where they differ, the difference is estimation
    uncertainty.

    Examples
    --------
    >>> import numpy as np
    >>> from gpsuq import GPS, Algorithm
    >>> from gpsuq.models import normal_location
    >>> from gpsuq.plots import marginals
    >>> y = np.random.default_rng(0).normal(size=50)
    >>> uq = GPS(normal_location(), algorithm=Algorithm(n_steps=100), n_chains=2).fit(y)
    >>> figure = marginals(uq)
    >>> [ax.get_xlabel() for ax in figure.axes]
    ['loc', 'scale']
    """
    return table_marginals(_columns(uq, parameters, n_draws, _MOST_MARGINALS))


def table_marginals(table: pd.DataFrame) -> Figure:
    """Plot a histogram of every column of draws that are indexed by chain and draw."""
    import matplotlib.pyplot as plt

    n_columns = min(3, table.shape[1])
    n_rows = -(-table.shape[1] // n_columns)
    with figure_style():
        figure, axes = plt.subplots(n_rows, n_columns, figsize=(3.6 * n_columns, 2.7 * n_rows), squeeze=False)
        for axis, name in zip(axes.flat, table, strict=False):
            limits = _range(table[name])
            bins = np.linspace(*limits, 50).tolist()
            axis.hist(table[name], bins=bins, density=True, color=COLORS["light"], alpha=0.7, label="all chains")
            for number, (_, chain) in enumerate(table[name].groupby(level="chain")):
                label = "one chain" if number == 0 else None
                axis.hist(
                    chain, bins=bins, density=True, histtype="step", color=COLORS["gps"], linewidth=0.8, label=label
                )
            axis.set(xlabel=plain(name), ylabel="density", xlim=limits)
        axes.flat[0].legend()
        for axis in axes.flat[table.shape[1] :]:
            axis.set_visible(False)
    return figure


def pairs(uq: UQDistribution, *, parameters: Sequence[str] | None = None, n_draws: int = 1000) -> Figure:
    """Plot every pair of parameters as points, with their marginals on the diagonal.

    >>> import numpy as np
    >>> from gpsuq import GPS, Algorithm
    >>> from gpsuq.models import normal_location
    >>> from gpsuq.plots import pairs
    >>> y = np.random.default_rng(0).normal(size=50)
    >>> uq = GPS(normal_location(), algorithm=Algorithm(n_steps=100), n_chains=2).fit(y)
    >>> figure = pairs(uq, parameters=["loc", "scale"])
    >>> len(figure.axes)  # two rows of two
    4
    """
    return table_pairs(_columns(uq, parameters, n_draws, _MOST_PAIRS))


def table_pairs(table: pd.DataFrame) -> Figure:
    """Plot every pair of columns of draws."""
    import matplotlib.pyplot as plt

    names = list(table)
    shown = table.iloc[:: max(1, len(table) // _SHOWN_POINTS)]
    with figure_style():
        size = max(4.0, 2.3 * len(names))
        figure, axes = plt.subplots(len(names), len(names), figsize=(size, size), squeeze=False)
        for row, vertical in enumerate(names):
            for column, horizontal in enumerate(names):
                axis = axes[row, column]
                if column > row:
                    axis.set_visible(False)
                    continue
                axis.set_xlim(_range(table[horizontal]))
                if row == column:
                    bins = np.linspace(*_range(table[horizontal]), 40).tolist()
                    axis.hist(table[horizontal], bins=bins, density=True, color=COLORS["light"])
                else:
                    axis.plot(shown[horizontal], shown[vertical], ".", color=COLORS["gps"], markersize=3, alpha=0.35)
                    axis.set_ylim(_range(table[vertical]))
                if row == len(names) - 1:
                    axis.set_xlabel(plain(horizontal))
                if column == 0:
                    axis.set_ylabel("density" if row == 0 else plain(vertical))
    return figure
