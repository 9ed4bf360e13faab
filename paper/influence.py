"""What one observation can do: its response is moved to infinity, and the mean coefficients are watched."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from gpsuq.datasets import correlated
from gpsuq.errors import GPSWarning
from gpsuq.plots.style import COLORS, figure_style, save_figure
from paper.linear import estimator
from paper.record import Asked
from paper.robust import least_squares

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOVES = (0.0, 3.0, 10.0, 30.0, 100.0, 1e4, 1e8)


def one_fit(seed: int, move: float, n_steps: int | None, *, progress: bool = False) -> dict[str, Any]:
    """Move the response of the observation with the largest leverage up by ``move`` noise standard deviations."""
    data = correlated(seed=seed)
    row = int(np.square(data.X).sum(1).argmax())
    y = data.y.copy()
    y[row] += move
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", GPSWarning)
        gps = estimator(seed, n_steps, progress=progress).fit(data.X, y)
    return {
        "seed": seed,
        "move": move,
        "gps": gps.coef_.tolist(),
        "standard_error": gps.summary()["estimation_sd"].to_numpy()[:-2].tolist(),
        "least_squares": least_squares(data.X, y).tolist(),
    }


def run(asked: Asked) -> list[Path]:
    """Run all moves for every seed."""
    table = asked.replicate(one_fit, [(seed, move, asked.n_steps) for seed in asked.seeds for move in MOVES])
    shifts = []
    for seed, group in table.groupby("seed"):
        start = group[group["move"] == 0.0].iloc[0]
        error = np.asarray(start["standard_error"])  # of the fit without the outlier
        for _, row in group.iterrows():
            for name in ("gps", "least_squares"):
                shift = np.abs(np.asarray(row[name]) - np.asarray(start[name])) / error
                shifts.append({"seed": seed, "move": row["move"], "method": name, "largest": shift.max()})
    moved = pd.DataFrame(shifts)
    results = {
        str(method): {
            f"{move:g}": {"mean": values.mean(), "highest": values.max()}
            for move, values in group.groupby("move")["largest"]
        }
        for method, group in moved.groupby("method")
    }
    settings = {"seeds": asked.ends, "moves": MOVES, "estimator": estimator(asked.seed, asked.n_steps)}
    return [asked.write(settings, results), save_figure(figure(moved), asked.out / "influence.png")]


def figure(moved: pd.DataFrame) -> Figure:
    """Draw the largest shift of a mean coefficient, in standard errors, against the distance of the observation."""
    import matplotlib.pyplot as plt

    with figure_style():
        chart, axis = plt.subplots(figsize=(6.5, 4))
        for method, label, color, marker in (
            ("gps", "GPS", COLORS["gps"], "o"),
            ("least_squares", "least squares", COLORS["bayes"], "s"),
        ):
            highest = moved[(moved["method"] == method) & (moved["move"] > 0)].groupby("move")["largest"].max()
            axis.plot(highest.index, highest, color=color, marker=marker, label=label)
        axis.axhline(1.0, color=COLORS["truth"], linestyle="--", linewidth=1)
        axis.annotate("one standard error", (moved["move"].max(), 1.0), (-4, 4), textcoords="offset points", ha="right")
        axis.set(
            xscale="log",
            yscale="log",
            xlabel="distance by which one response was moved, noise standard deviations",
            ylabel="largest shift of a coefficient,\nstandard errors (worst seed)",
            title="Influence of one observation",
        )
        axis.legend()
    return chart
