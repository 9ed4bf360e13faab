"""How training went."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from gpsuq.plots.style import COLORS, figure_style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_SMOOTHED_OVER = 50  # parts of the training whose steps are averaged: a single step's score is noisy


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


def score_curves(
    scores: NDArray[np.floating], evaluated_at: Sequence[int], held_out: NDArray[np.floating] | None
) -> Figure:
    """Plot the training score (step, chain), averaged over neighbouring steps, and the mean held-out score."""
    import matplotlib.pyplot as plt

    width = max(1, len(scores) // _SMOOTHED_OVER)
    n_parts = len(scores) // width
    smooth = scores[: n_parts * width].reshape(n_parts, width, -1).mean(1)
    steps = width * (np.arange(n_parts) + 0.5)
    with figure_style():
        figure, ax = plt.subplots(figsize=(6.2, 3.4))
        for number, chain in enumerate(smooth.T):
            ax.plot(steps, chain, color=COLORS["light"], linewidth=0.8, label="one chain" if number == 0 else None)
        ax.plot(steps, smooth.mean(1), color=COLORS["gps"], linewidth=2.0, label="mean of the chains")
        if held_out is not None:
            mean = held_out.mean(1)
            ax.plot(evaluated_at, mean, "s--", color=COLORS["bayes"], markersize=3, label="on held-out observations")
        ax.set(xlabel="step", ylabel="score (lower is better)")
        ax.legend()
    return figure
