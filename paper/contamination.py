"""How the error of the coefficients grows with contamination, and under heavy tails, against other regressions."""

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
from paper.robust import ROBUST, least_squares

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SETTINGS: dict[str, dict[str, Any]] = {
    "0%": {},
    "5%": {"contamination": 0.05},
    "10%": {"contamination": 0.1},
    "20%": {"contamination": 0.2},
    "t, 2 df": {"tails": 2.0},
}
_STYLE = {
    "GPS": (COLORS["gps"], "o"),
    "posterior": (COLORS["bayes"], "s"),
    "Huber": (COLORS["good"], "^"),
    "Tukey": (COLORS["other"], "D"),
    "LAD": (COLORS["warm"], "v"),
    "RANSAC": (COLORS["data"], "P"),
}


def one_replicate(setting: str, seed: int, n_steps: int | None, *, progress: bool = False) -> dict[str, Any]:
    """Simulate, fit every method, and return each one's squared error of the coefficient vector."""
    data = correlated(seed=seed, **SETTINGS[setting])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", GPSWarning)
        estimates = {"GPS": estimator(seed, n_steps, progress=progress).fit(data.X, data.y).coef_}
    estimates["posterior"] = least_squares(data.X, data.y)
    estimates |= {name: function(data.X, data.y) for name, function in ROBUST.items()}
    errors = {name: float(np.square(value - data.theta[0]).sum()) for name, value in estimates.items()}
    return {"setting": setting, "seed": seed} | errors


def run(asked: Asked) -> list[Path]:
    """Run every setting for every seed."""
    tasks = [(setting, seed, asked.n_steps) for setting in SETTINGS for seed in asked.seeds]
    table = asked.replicate(one_replicate, tasks).drop(columns="seed")
    groups = table.groupby("setting", sort=False)
    results = {
        str(setting): {
            name: {"mean": group[name].mean(), "standard_error": group[name].sem(), "median": group[name].median()}
            for name in _STYLE
        }
        for setting, group in groups
    }
    settings = {"seeds": asked.ends, "settings": SETTINGS, "estimator": estimator(asked.seed, asked.n_steps)}
    return [asked.write(settings, results), save_figure(figure(groups.median()), asked.out / "contamination.png")]


def figure(medians: pd.DataFrame) -> Figure:
    """Draw the median squared error of every method in every setting, on a logarithmic scale."""
    import matplotlib.pyplot as plt

    with figure_style():
        chart, axis = plt.subplots(figsize=(8, 4.2))
        shares = np.arange(len(medians) - 1)
        for number, (name, (color, marker)) in enumerate(_STYLE.items()):
            shift = 0.06 * (number - 2.5)
            axis.plot(shares + shift, medians[name].iloc[:-1], color=color, marker=marker, label=name, linewidth=1.2)
            axis.plot(len(shares) + shift, medians[name].iloc[-1], color=color, marker=marker)
        axis.set_yscale("log")
        axis.set_xticks(range(len(medians)), [*medians.index[:-1], "Student t,\n2 df, no outliers"])
        axis.set(
            xlabel="share of responses with a Cauchy(3) error added",
            ylabel="squared error of the 20 coefficients\n(median over replicates)",
            title="Contaminated and heavy-tailed regressions, n = 200, p = 20",
        )
        axis.legend(ncols=3)
    return chart
