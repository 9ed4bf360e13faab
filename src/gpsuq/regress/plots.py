"""Figures of a regression: the predictive at single rows, and how it changes with a column."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from gpsuq.plots.style import COLORS, plain, subplots

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_PER_ROW = 2
_LONGEST_LABEL = 14


def density_strips(strips: Sequence[Mapping[str, Any]], *, target: str = "y") -> Figure:
    """Plot the predictive density at single rows below each other, each as high as the others, with what was observed.

    A strip has a ``name``, values ``at`` which the ``density`` is known, whether it ``counts``, and ``observed`` (or
    None); :func:`gpsuq.regress.report.predictive_strips` makes them of a fit.

    >>> from gpsuq.regress.plots import density_strips
    >>> strip = {"name": "row 1", "at": [0.0, 1.0, 2.0], "density": [0.1, 0.8, 0.1], "counts": False, "observed": 1.2}
    >>> figure = density_strips([strip], target="price")
    >>> [label.get_text() for label in figure.axes[0].get_yticklabels()]
    ['row 1']
    """
    with subplots(figsize=(6.2, 1.2 + 0.55 * len(strips))) as (figure, ax):
        for place, strip in enumerate(strips):
            _strip(ax, len(strips) - 1.0 - place, strip)
        ax.set_yticks(np.arange(len(strips)) + 0.0, [plain(strip["name"]) for strip in reversed(strips)])
        ax.set(xlabel=plain(target), ylim=(-0.15, len(strips)))
        ax.grid(axis="y", visible=False)
        seen = [strip["observed"] for strip in strips]
        if any(value is not None for value in seen):
            ax.plot([], [], "D", color=COLORS["bayes"], markersize=5, label="observed")
        density = "probability" if any(strip["counts"] for strip in strips) else "density"
        ax.fill_between([], [], color=COLORS["light"], label=f"predictive {density}, scaled to one height")
        figure.legend(loc="outside upper center", ncols=2)
    return figure


def _strip(ax: Axes, base: float, strip: Mapping[str, Any]) -> None:
    at, density = np.asarray(strip["at"], dtype=float), np.asarray(strip["density"], dtype=float)
    height = 0.85 * density / max(float(density.max()), 1e-300)
    if strip["counts"]:
        ax.bar(at, height, bottom=base, width=0.8, color=COLORS["light"])
    else:
        ax.fill_between(at, base, base + height, color=COLORS["light"])
        ax.plot(at, base + height, color=COLORS["gps"], linewidth=1.2)
    ax.axhline(base, color=COLORS["data"], linewidth=0.6)
    if strip["observed"] is not None:
        ax.plot([strip["observed"]], [base], "D", color=COLORS["bayes"], markersize=5, clip_on=False)


def effect_curves(effects: Sequence[pd.DataFrame], *, target: str = "y") -> Figure:
    """Plot how the predictive changes with each of some columns: its median, its middle half, and 90% of it.

    :func:`gpsuq.regress.effects.effect` makes one of each column. Texts stand beside each other.

    >>> import pandas as pd
    >>> from gpsuq.regress.plots import effect_curves
    >>> quantiles = [[0.0, 1.0, 2.0, 3.0, 4.0], [1.0, 2.0, 3.0, 4.0, 5.0]]
    >>> levels = [0.05, 0.25, 0.5, 0.75, 0.95]
    >>> age = pd.DataFrame(quantiles, index=pd.Index([20.0, 30.0], name="age"), columns=levels)
    >>> site = pd.DataFrame(quantiles, index=pd.Index(["north", "south"], name="site"), columns=levels)
    >>> [ax.get_xlabel() for ax in effect_curves([age, site], target="price").axes]
    ['age', 'site']
    """
    across = min(_PER_ROW, len(effects))
    down = -(-len(effects) // across)
    with subplots(down, across, figsize=(4.2 * across, 0.5 + 2.9 * down), squeeze=False, sharey=True) as (figure, axes):
        for ax, quantiles in zip(axes.flat, effects, strict=False):
            (_curve if pd.api.types.is_numeric_dtype(quantiles.index) else _boxes)(ax, quantiles)
            ax.set_xlabel(plain(quantiles.index.name))
            ax.yaxis.set_tick_params(labelleft=True)
        for ax in axes[:, 0]:
            ax.set_ylabel(plain(target))
        for ax in axes.flat[len(effects) :]:
            ax.remove()
        for label, color, width in (
            ("90% of outcomes", COLORS["light"], 8.0),
            ("half of them", COLORS["gps"], 8.0),
            ("median", COLORS["bayes"], 2.0),
        ):
            axes[0, 0].plot([], [], color=color, linewidth=width, alpha=1.0 if width < 8.0 else 0.45, label=label)
        handles, labels = axes[0, 0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside upper center", ncols=3)
    return figure


def _curve(ax: Axes, quantiles: pd.DataFrame) -> None:
    at, (lowest, low, middle, high, highest) = quantiles.index.to_numpy(dtype=float), quantiles.to_numpy().T
    ax.fill_between(at, lowest, highest, color=COLORS["light"], alpha=0.35, linewidth=0)
    ax.fill_between(at, low, high, color=COLORS["gps"], alpha=0.35, linewidth=0)
    ax.plot(at, middle, color=COLORS["bayes"], linewidth=2.0, marker="o" if len(at) < 10 else "", markersize=3)


def _boxes(ax: Axes, quantiles: pd.DataFrame) -> None:
    at, (lowest, low, middle, high, highest) = np.arange(len(quantiles)), quantiles.to_numpy().T
    ax.bar(at, highest - lowest, bottom=lowest, width=0.5, color=COLORS["light"], alpha=0.35)
    ax.bar(at, high - low, bottom=low, width=0.5, color=COLORS["gps"], alpha=0.35)
    ax.hlines(middle, at - 0.25, at + 0.25, color=COLORS["bayes"], linewidth=2.0)
    names = [plain(value, _LONGEST_LABEL) for value in quantiles.index]
    ax.set_xticks(at, names, rotation=0 if sum(map(len, names)) < 30 else 45)
    ax.set_xlim(-0.6, len(at) - 0.4)
    ax.grid(axis="x", visible=False)
