"""How many draws and outcomes are enough? The paper says M = 10 and J = 5: a table over both, on scissors."""

from __future__ import annotations

import itertools
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import torch

from gpsuq.cli.demonstration import fit_scissors
from gpsuq.core.distances import MMD
from gpsuq.core.kernels import Gaussian
from gpsuq.core.observations import observations
from gpsuq.core.seeds import seeded
from gpsuq.datasets import scissors
from gpsuq.engine.progress import counting_bar, stage
from gpsuq.engine.scoring import PredictiveLoss
from gpsuq.engine.settings import Algorithm
from gpsuq.plots.style import COLORS, figure_style, save_figure
from gpsuq.uq.distribution import UQDistribution
from paper.record import Asked, mean_and_sd
from paper.scissors import PAPERS_WAY, slope_metrics

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DRAWS = (2, 5, 10, 50)
OUTCOMES: tuple[int | None, ...] = (1, 5, 25, None)

_REPEATS = 60
_DRAWN = 4000


def label(n_outcomes: int | None) -> str:
    """Return a name for a number of outcomes; None is the exact expectation."""
    return "exact" if n_outcomes is None else str(n_outcomes)


def gradient_noise(uq: UQDistribution, data: Any, n_draws: int, n_outcomes: int | None) -> tuple[float, float]:
    """Return the variance of the gradient (summed over parameters) and median seconds of a loss, forward and backward.

    The observations and the generator stay fixed, so that only draws and outcomes vary.
    """
    batch = observations(data.X, data.y).rows(torch.arange(Algorithm().batch_size))
    loss = PredictiveLoss(uq.generator, uq.model, MMD(Gaussian(14 * data.sigma**2)), 1.0)
    gradients, seconds = [], []
    for repeat in range(_REPEATS):
        started = time.perf_counter()
        with seeded(repeat, "gradient"):
            noise = torch.randn(uq.generator.n_chains, 1, n_draws, uq.generator.noise_dim)
            fit, pair, _ = loss(noise, batch.y, batch.x, batch.mask, batch.w, n_outcomes, False)
            uq.generator.zero_grad()
            (fit + pair).mean(1).sum().backward()
        seconds.append(time.perf_counter() - started)
        gradients.append(
            torch.cat([p.grad.flatten(1) for p in uq.generator.body.parameters() if p.grad is not None], 1)
        )
    variance = torch.stack(gradients).var(0).sum(1).mean()
    return float(variance), float(np.median(seconds))


def one_fit(
    n_draws: int, n_outcomes: int | None, seed: int, n_steps: int, *, progress: bool = False
) -> dict[str, float]:
    """Fit scissors with so many draws and outcomes, and measure the slopes."""
    algorithm = Algorithm(n_steps=n_steps, n_draws=n_draws, n_outcomes=n_outcomes)
    uq = fit_scissors(scissors(seed=seed), seed, algorithm=algorithm, progress=progress, **PAPERS_WAY)
    return slope_metrics(uq.draws(_DRAWN)["slope"])


def run(asked: Asked) -> list[Path]:
    """Measure gradient variance, time per step and final distance to the truth for every M and J."""
    base = asked.algorithm
    reference_data = scissors(seed=asked.seed)
    # Half-trained: where the gradient still has to move the generator.
    with stage("reference"):
        quarter = replace(base, n_steps=base.n_steps // 4)
        reference = fit_scissors(reference_data, asked.seed, algorithm=quarter, progress=asked.progress, **PAPERS_WAY)
    cells = list(itertools.product(DRAWS, OUTCOMES))
    # Times first, while nothing else has warmed up or cluttered the machine; then fits, seed by seed.
    noise: dict[tuple[int, int | None], tuple[float, float]] = {}
    with counting_bar(asked.progress, "gradients", len(cells)) as advance:
        for cell in cells:
            noise[cell] = gradient_noise(reference, reference_data, *cell)
            advance(len(noise))
    tasks = [(*cell, seed, base.n_steps) for seed in asked.seeds for cell in cells]
    fits = asked.replicate(one_fit, tasks)
    rows = [_row(cell, *noise[cell], fits[number :: len(cells)]) for number, cell in enumerate(cells)]
    settings = {"seeds": list(asked.seeds), "algorithm": base}
    return [asked.write(settings, {"table": rows}), save_figure(_figure(rows), asked.out / "draws.png")]


def _row(cell: tuple[int, int | None], variance: float, seconds: float, fits: pd.DataFrame) -> dict[str, Any]:
    return {
        "M": cell[0],
        "J": label(cell[1]),
        "gradient_variance": variance,
        "step_ms": round(1e3 * seconds, 2),
        "seeds_done": len(fits),
        **{name: mean_and_sd(fits[name].tolist()) for name in ("wasserstein1", "near_truth")},
    }


def _figure(rows: list[dict[str, Any]]) -> Figure:
    import matplotlib.pyplot as plt

    panels = (
        ("gradient_variance", "gradient variance", "log"),
        ("step_ms", "loss and gradient, ms", "linear"),
        ("wasserstein1", "final W1 to the truth", "linear"),
    )
    colors = (COLORS["bayes"], COLORS["warm"], COLORS["light"], COLORS["gps"])
    markers = ("o", "s", "^", "D")
    with figure_style():
        figure, axes = plt.subplots(1, 3, figsize=(11, 3.4))
        for axis, (key, title, scale) in zip(axes, panels, strict=True):
            for outcomes, color, marker in zip(map(label, OUTCOMES), colors, markers, strict=True):
                chosen = [row for row in rows if row["J"] == outcomes]
                values = [row[key]["mean"] if isinstance(row[key], dict) else row[key] for row in chosen]
                axis.plot(
                    [row["M"] for row in chosen],
                    values,
                    color=color,
                    marker=marker,
                    markersize=5,
                    label=f"J = {outcomes}",
                )
            axis.set(xscale="log", yscale=scale, xlabel="draws M", ylabel=title)
            axis.set_xticks(DRAWS, [str(m) for m in DRAWS])
            axis.minorticks_off()
        axes[0].legend()
    return figure
