"""Do intervals for counts in blocks cover? A Poisson process, and replicates of a log-Gaussian Cox process."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from gpsuq.datasets import log_gaussian_cox, simulated_pattern
from gpsuq.plots.style import COLORS, figure_style, save_figure
from gpsuq.poisson.estimator import GPSPoissonProcess
from gpsuq.spatial.grids import TILE
from gpsuq.spatial.patterns import PointPattern
from gpsuq.spatial.windows import Window
from paper.poisson import estimator
from paper.record import Asked

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Array = NDArray[np.float64]

_FEWEST = 20.0
_COX_REPLICATES = 20
_FRESH = 1_000_000  # added to the seed of what is held out


def blocks_of(model: GPSPoissonProcess, side: int) -> list[Window]:
    """Split the window into blocks of ``side`` x ``side`` cells."""
    x, y = (edges[::side] for edges in model.grid_.edges)
    return [Window.rectangle(x[i], x[i + 1], y[j], y[j + 1]) for j in range(len(y) - 1) for i in range(len(x) - 1)]


def covered(model: GPSPoissonProcess, fresh: list[PointPattern], side: int) -> tuple[int, int, float]:
    """Count the fresh blocks, of those with enough expected points, inside their intervals; and their mean width."""
    blocks = blocks_of(model, side)
    table = model.region_counts(blocks)
    enough = (table["mean"] >= _FEWEST).to_numpy()
    inside = 0
    for pattern in fresh:
        counts = np.array([block.contains(pattern.points).sum() for block in blocks])
        inside += int(((counts >= table["count_lower"]) & (counts <= table["count_upper"]))[enough].sum())
    width = (table["count_upper"] - table["count_lower"])[enough] / np.sqrt(table["mean"][enough])
    return inside, int(enough.sum()) * len(fresh), float(width.mean()) if enough.any() else float("nan")


def one_replicate(process: str, seed: int, n_steps: int | None, *, progress: bool = False) -> dict[str, Any]:
    """Fit one pattern (or the replicates of one process) and look where fresh counts fall."""
    if process == "poisson":
        train, fresh = [simulated_pattern("bumps", seed)], [simulated_pattern("bumps", seed + _FRESH)]
    else:
        train, fresh = (log_gaussian_cox(_COX_REPLICATES, number) for number in (seed, seed + _FRESH))
    model = estimator(seed, n_steps, progress=progress).fit([pattern.points for pattern in train], train[0].window)
    result: dict[str, Any] = {"process": process, "frequency": model.frequency_}
    loading = model.fit_.surfaces(model.grid_.nodes.reshape(-1, 2)).loading
    result["spread"] = float(np.sqrt(np.square(loading).sum(-1)).mean())
    for side in (TILE // 4, TILE // 2, TILE):
        inside, total, width = covered(model, fresh, side)
        result |= {f"inside_{side}": inside, f"blocks_{side}": total, f"width_{side}": width}
    return result


def run(asked: Asked) -> list[Path]:
    """Fit a Poisson pattern and a Cox process for every seed."""
    tasks = [(process, seed, asked.n_steps) for process in ("poisson", "cox") for seed in asked.seeds]
    results = summarise(asked.replicate(one_replicate, tasks))
    settings = {
        "seeds": asked.ends,
        "cox_replicates": _COX_REPLICATES,
        "fewest_expected": _FEWEST,
        "estimator": estimator(asked.seed, asked.n_steps).get_params(),
    }
    figure = save_figure(coverage_figure(results), asked.out / "block_counts.png")
    return [asked.write(settings, results), figure]


def summarise(table: pd.DataFrame) -> dict[str, Any]:
    """Return the share of blocks inside their intervals, by side and overall, with its standard error over seeds."""
    sides = (TILE // 4, TILE // 2, TILE)
    result: dict[str, Any] = {}
    for process, rows in table.groupby("process", sort=False):
        inside = rows[[f"inside_{side}" for side in sides]].to_numpy()
        blocks = rows[[f"blocks_{side}" for side in sides]].to_numpy()
        each = inside.sum(1) / blocks.sum(1)
        result[str(process)] = {
            "seeds": len(rows),
            "coverage": float(inside.sum() / blocks.sum()),
            "standard_error": float(each.std(ddof=1) / np.sqrt(len(each))) if len(each) > 1 else float("nan"),
            "coverage_by_side": {
                str(s): float(i / b) for s, i, b in zip(sides, inside.sum(0), blocks.sum(0), strict=True)
            },
            "blocks": int(blocks.sum()),
            "spread": {"mean": float(rows["spread"].mean()), "max": float(rows["spread"].max())},
            "interval_width_over_root_mean": {str(s): float(rows[f"width_{s}"].mean()) for s in sides},
        }
    return result


def coverage_figure(results: dict[str, Any]) -> Figure:
    """Draw coverage by the side of the blocks for both processes."""
    import matplotlib.pyplot as plt

    with figure_style():
        figure, ax = plt.subplots(figsize=(6, 4))
        ax.axhspan(0.92, 0.98, color=COLORS["good"], alpha=0.15, linewidth=0, label="0.92 to 0.98")
        for process, color, marker in (("poisson", "gps", "o"), ("cox", "bayes", "s")):
            by_side = results[process]["coverage_by_side"]
            sides = [int(side) for side in by_side]
            label = "Poisson process" if process == "poisson" else f"Cox process, {_COX_REPLICATES} replicates"
            ax.plot(sides, list(by_side.values()), marker=marker, color=COLORS[color], label=label)
        ax.set(xlabel="side of the block (cells)", ylabel="share of new counts inside 95% intervals", xscale="log")
        ax.set_xticks(sides, [str(side) for side in sides])
        ax.set_ylim(0.8, 1.0)
        ax.minorticks_off()
        ax.legend(loc="lower right")
    return figure
