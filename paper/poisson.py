"""Spatial Poisson processes, section 3.2: known intensities found again, beside a kernel density estimate."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from gpsuq.datasets.patterns import INTENSITIES, UNIT_SQUARE, simulated_pattern
from gpsuq.engine.progress import stage
from gpsuq.plots.style import COLORS, figure_style, save_figure
from gpsuq.poisson.baselines import KernelIntensity
from gpsuq.poisson.estimator import DEFAULT_STEPS, GPSPoissonProcess
from gpsuq.poisson.maps import draw_points, draw_surface, draw_window
from gpsuq.spatial.grids import Grid
from paper.linear import ratio_of_means
from paper.record import Asked

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Array = NDArray[np.float64]

_SURFACE_DRAWS = 1000


def estimator(seed: int, n_steps: int | None, *, progress: bool = False) -> GPSPoissonProcess:
    """Return the estimator with default settings."""
    steps = DEFAULT_STEPS if n_steps is None else n_steps
    return GPSPoissonProcess(random_state=seed, n_steps=steps, progress=progress)


def relative_error(estimate: Array, truth: Array) -> float:
    """Return the relative L2 error over the cells of a grid."""
    return float(np.sqrt(np.square(estimate - truth).sum() / np.square(truth).sum()))


def one_replicate(name: str, seed: int, n_steps: int | None, *, progress: bool = False) -> dict[str, Any]:
    """Simulate a pattern, fit GPS and the kernel estimate, and measure both against the truth."""
    pattern = simulated_pattern(name, seed)
    nodes = Grid(UNIT_SQUARE, 128, 128).nodes.reshape(-1, 2)
    truth = INTENSITIES[name](nodes)
    started = time.perf_counter()
    gps = estimator(seed, n_steps, progress=progress).fit(pattern.points, pattern.window)
    seconds = time.perf_counter() - started
    kernel = KernelIntensity(pattern)
    return {
        "intensity": name,
        "points": len(pattern),
        "error_gps": relative_error(gps.intensity(nodes), truth),
        "error_kernel": relative_error(kernel.intensity(nodes), truth),
        "bandwidth": kernel.bandwidth,
        "frequency": gps.frequency_,
        "integral": gps.integral(),
        "fit_seconds": round(seconds, 1),
    }


def run(asked: Asked) -> list[Path]:
    """Run all intensities for every seed; the figure is that of two bumps and the first seed."""
    tasks = [(name, seed, asked.n_steps) for name in INTENSITIES for seed in asked.seeds]
    table = asked.replicate(one_replicate, tasks)
    with stage("figure"):
        figure = four_panels("bumps", asked.seed, asked.n_steps, progress=asked.progress)
        path = save_figure(figure, asked.out / "poisson.png")
    settings = {"seeds": asked.ends, "estimator": estimator(asked.seed, asked.n_steps).get_params()}
    return [asked.write(settings, summarise(table)), path]


def summarise(table: pd.DataFrame) -> dict[str, Any]:
    """Return means over seeds with standard errors for each intensity, and the ratio of the errors."""
    result: dict[str, Any] = {}
    for name, rows in table.groupby("intensity", sort=False):
        numbers = rows.drop(columns="intensity")
        result[str(name)] = {
            "replicates": len(rows),
            "error_gps_over_kernel": ratio_of_means(rows["error_gps"], rows["error_kernel"]),
            "over_replicates": {
                column: {"mean": values.mean(), "standard_error": values.sem(), "max": values.max()}
                for column, values in numbers.items()
            },
            "frequencies": {str(k): int(v) for k, v in rows["frequency"].value_counts().sort_index().items()},
        }
    return result


def four_panels(name: str, seed: int, n_steps: int | None, *, progress: bool = False) -> Figure:
    """Draw the paper's figure: simulated and observed points, mean against truth, true and mean surface."""
    import matplotlib.pyplot as plt

    pattern = simulated_pattern(name, seed)
    gps = estimator(seed, n_steps, progress=progress).fit(pattern.points, pattern.window)
    simulated = gps.simulate(1)[0]
    grid = gps.grid_
    nodes = grid.nodes.reshape(-1, 2)
    truth = INTENSITIES[name](nodes)
    mean = gps.sample_intensity(nodes, _SURFACE_DRAWS).mean(0)
    low, high = 0.0, float(max(truth.max(), mean.max()))
    with figure_style():
        figure, axes = plt.subplots(2, 2, figsize=(10, 8.6), layout="compressed")
        draw_points(
            axes[0, 0],
            pattern.points,
            color=COLORS["bayes"],
            marker="+",
            markersize=5,
            label=f"observed, {len(pattern)}",
        )
        draw_points(
            axes[0, 0],
            simulated,
            color=COLORS["truth"],
            marker="x",
            markersize=3.5,
            label=f"simulated, {len(simulated)}",
        )
        draw_window(axes[0, 0], pattern.window)
        axes[0, 0].legend(loc="upper left", bbox_to_anchor=(0.0, 1.12), ncols=2)
        axes[0, 1].plot(truth, mean, linestyle="none", marker=".", markersize=2, color=COLORS["gps"])
        axes[0, 1].plot([low, high], [low, high], color=COLORS["truth"], linewidth=1)
        axes[0, 1].set(xlabel="true intensity", ylabel=f"mean intensity over {_SURFACE_DRAWS:,} draws")
        for ax, values, title in (
            (axes[1, 0], truth, "true intensity"),
            (axes[1, 1], mean, f"mean over {_SURFACE_DRAWS:,} draws"),
        ):
            draw_surface(ax, grid, values.reshape(grid.n_y, grid.n_x), "points per unit of area", vmin=low, vmax=high)
            ax.set_title(title)
    return figure
