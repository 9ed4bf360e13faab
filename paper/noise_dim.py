"""Does the dimension of Z matter? The paper says not much: q against the distance to the truth, on scissors."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpsuq.cli.demonstration import fit_scissors
from gpsuq.core.generators import MLP
from gpsuq.datasets import scissors
from gpsuq.engine.settings import Algorithm
from gpsuq.plots.style import COLORS, figure_style, save_figure
from paper.record import Asked, mean_and_sd
from paper.scissors import PAPERS_WAY, slope_metrics

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DIMENSIONS = (1, 2, 4, 16, 64)


def one_fit(q: int, seed: int, n_steps: int, *, progress: bool = False) -> dict[str, float]:
    """Fit scissors with a noise dimension and measure the slopes, everything else at its default."""
    generator, algorithm = MLP(noise_dim=q), Algorithm(n_steps=n_steps)
    uq = fit_scissors(
        scissors(seed=seed), seed, generator=generator, algorithm=algorithm, progress=progress, **PAPERS_WAY
    )
    return {"q": q} | slope_metrics(uq.draws(4000)["slope"])


def run(asked: Asked) -> list[Path]:
    """Fit scissors with each noise dimension."""
    n_steps = asked.algorithm.n_steps
    table = asked.replicate(one_fit, [(q, seed, n_steps) for q in DIMENSIONS for seed in asked.seeds])
    rows = [
        {"q": q} | {str(name): mean_and_sd(part[name].tolist()) for name in part if name != "q"}
        for q, part in table.groupby("q")
    ]
    settings = {"seeds": list(asked.seeds), "algorithm": asked.algorithm, "generator": MLP()}
    return [asked.write(settings, {"table": rows}), save_figure(_figure(rows), asked.out / "noise_dim.png")]


def _figure(rows: list[dict[str, Any]]) -> Figure:
    import matplotlib.pyplot as plt

    with figure_style():
        figure, axes = plt.subplots(1, 2, figsize=(8, 3.2))
        panels = (("wasserstein1", "W1 to the truth"), ("near_truth", "share within 0.25 of the truth"))
        for axis, (key, title) in zip(axes, panels, strict=True):
            means, sds = ([row[key][part] for row in rows] for part in ("mean", "sd"))
            axis.errorbar([row["q"] for row in rows], means, yerr=sds, color=COLORS["gps"], marker="o", capsize=3)
            axis.set(xscale="log", xlabel="dimension of Z (q)", ylabel=title)
            axis.set_xticks(DIMENSIONS, [str(q) for q in DIMENSIONS])
            axis.minorticks_off()
        axes[0].set_ylim(bottom=0)
    return figure
