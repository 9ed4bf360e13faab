"""Does the dimension of Z matter? The paper says not much: q against the distance to the truth, on scissors."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpsuq.cli.demonstration import fit_scissors
from gpsuq.core.generators import MLP
from gpsuq.datasets import scissors
from gpsuq.engine.progress import counting_bar
from gpsuq.plots.style import COLORS, figure_style, save_figure
from paper.record import Asked, mean_and_sd
from paper.scissors import slope_metrics

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DIMENSIONS = (1, 2, 4, 16, 64)


def run(asked: Asked) -> list[Path]:
    """Fit scissors with each noise dimension, everything else at its default."""
    rows: list[dict[str, Any]] = []
    with counting_bar(asked.progress, "fits", len(DIMENSIONS) * len(asked.seeds)) as advance:
        for q in DIMENSIONS:
            metrics: list[dict[str, float]] = []
            for seed in asked.seeds:
                uq = fit_scissors(scissors(seed=seed), seed, generator=MLP(noise_dim=q), algorithm=asked.algorithm)
                metrics.append(slope_metrics(uq.draws(4000)["slope"]))
                advance(len(rows) * len(asked.seeds) + len(metrics))
            rows.append({"q": q} | {name: mean_and_sd([m[name] for m in metrics]) for name in metrics[0]})
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
