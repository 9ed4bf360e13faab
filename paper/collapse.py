"""Why outcomes of different draws are paired: Algorithm 1 read literally collapses to a point mass."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from torch.distributions import Distribution

from gpsuq.cli.demonstration import fit_scissors
from gpsuq.core.distances import MMD
from gpsuq.core.expectations import DRAW_DIM, Terms
from gpsuq.core.kernels import Gaussian, as_kernel
from gpsuq.core.observations import Batch
from gpsuq.datasets import scissors
from gpsuq.engine.chains import ChainPlan
from gpsuq.engine.progress import stage
from gpsuq.engine.settings import Algorithm, Algorithm1
from gpsuq.plots.style import COLORS, figure_style, save_figure
from paper.record import Asked
from paper.scissors import slope_metrics

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Array = NDArray[np.floating]


@dataclass(frozen=True)
class PairedWithinDraws(MMD):
    """The distance as Algorithm 1 prints it: both outcomes of a pair come from the same theta. Not for use."""

    def terms(self, predictive: Distribution, batch: Batch, n_outcomes: int | None = None) -> Terms:
        """Score each f(. given theta) by itself and average: the minimiser is a point mass."""
        kernel = as_kernel(self.kernel)
        outcomes = predictive.rsample((max(n_outcomes or 2, 2),))
        fit = -2.0 * kernel(outcomes, batch.y).mean((0, 1 + DRAW_DIM))
        pair = kernel(outcomes, outcomes.roll(1, 0)).mean((0, 1 + DRAW_DIM))
        return Terms(fit, pair)


def settings(n_steps: int) -> tuple[Algorithm, ChainPlan]:
    """Algorithm 1 with a larger gamma_0: at 0.01 both readings would need many more steps."""
    return Algorithm1(learning_rate=0.5, n_steps=n_steps, patience=None), ChainPlan(2, None, 0.0)


def run(asked: Asked) -> list[Path]:
    """Train Algorithm 1 on scissors with both pairings and show the slopes."""
    data = scissors(seed=asked.seed)
    algorithm, plan = settings(asked.n_steps or 6000)
    kernel = Gaussian()  # the paper's exp(-d^2)
    slopes, results = {}, {}
    for name, distance in (("within draws", PairedWithinDraws(kernel)), ("across draws", MMD(kernel))):
        options = {"n_chains": plan.n_chains, "reweight": None, "holdout": 0.0, "progress": asked.progress}
        with stage(f"paired {name}"):
            uq = fit_scissors(data, asked.seed, distance=distance, algorithm=algorithm, **options)
        slopes[name] = uq.draws(2000)["slope"].ravel()
        results[name] = slope_metrics(slopes[name]) | {"sd": float(slopes[name].std())}
    record = {"seed": asked.seed, "algorithm": algorithm, "chains": plan, "kernel": kernel}
    return [asked.write(record, results), save_figure(_figure(slopes), asked.out / "collapse.png")]


def _figure(slopes: dict[str, Array]) -> Figure:
    import matplotlib.pyplot as plt

    titles = {
        "within draws": "Algorithm 1 as printed:\npairs of outcomes of one draw",
        "across draws": "As built here:\npairs of outcomes of different draws",
    }
    with figure_style():
        figure, axes = plt.subplots(1, 2, figsize=(8, 3.2), sharex=True)
        for axis, (name, values), color in zip(axes, slopes.items(), (COLORS["bayes"], COLORS["gps"]), strict=True):
            axis.hist(values, bins=np.linspace(-1.6, 1.6, 81).tolist(), density=True, color=color)
            for truth in (-1.0, 1.0):
                axis.axvline(truth, color=COLORS["truth"], linestyle="--", linewidth=1)
            axis.set(xlabel="slope (dashed: truth)", ylabel="density", title=titles[name])
    return figure
