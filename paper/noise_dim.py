"""Does the dimension of Z matter? The paper says not much: q against the distance to the truth, on scissors."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpsuq.cli.demonstration import fit_scissors
from gpsuq.core.generators import MLP
from gpsuq.datasets import scissors
from gpsuq.engine.progress import counting_bar
from gpsuq.plots.style import COLORS, figure_style, save_figure
from paper.record import algorithm_with, command_line, mean_and_sd, prepare, write_metrics
from paper.scissors import slope_metrics

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DIMENSIONS = (1, 2, 4, 16, 64)


def run(
    seed: int,
    replicates: int,
    out: Path,
    *,
    n_steps: int | None = None,
    force: bool = False,
    progress: bool = False,
) -> list[Path]:
    """Fit scissors with each noise dimension, everything else at its default."""
    prepare(out, force=force)
    started = time.perf_counter()
    algorithm = algorithm_with(n_steps)
    rows: list[dict[str, Any]] = []
    with counting_bar(progress, "fits", len(DIMENSIONS) * replicates) as advance:
        for q in DIMENSIONS:
            metrics: list[dict[str, float]] = []
            for number in range(seed, seed + replicates):
                uq = fit_scissors(scissors(seed=number), number, generator=MLP(noise_dim=q), algorithm=algorithm)
                metrics.append(slope_metrics(uq.draws(4000)["slope"]))
                advance(len(rows) * replicates + len(metrics))
            rows.append({"q": q} | {name: mean_and_sd([m[name] for m in metrics]) for name in metrics[0]})
    command = command_line("noise-dim", out, seed=seed, replicates=replicates, steps=n_steps)
    settings = {"seeds": list(range(seed, seed + replicates)), "algorithm": algorithm, "generator": MLP()}
    path = write_metrics(out, command, settings=settings, results={"table": rows}, started=started)
    return [path, save_figure(_figure(rows), out / "noise_dim.png")]


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
