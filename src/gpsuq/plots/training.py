"""How training went."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from gpsuq.plots.style import COLORS, figure_style

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def training_curve(losses: Sequence[float]) -> Figure:
    """Plot the mean loss of every epoch."""
    import matplotlib.pyplot as plt
    from matplotlib.ticker import MaxNLocator

    with figure_style():
        figure, ax = plt.subplots(figsize=(5.6, 2.8))
        ax.plot(range(1, len(losses) + 1), losses, color=COLORS["gps"], marker="o", markersize=3)
        ax.set(xlabel="epoch", ylabel="mean loss")
        ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    return figure
