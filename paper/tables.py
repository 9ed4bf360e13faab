"""Four real tables with the default settings: subgroups, leverage, growing spread, repeated measures."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from gpsuq.datasets import regression_table
from gpsuq.engine.progress import stage
from gpsuq.errors import GPSWarning
from gpsuq.linear.estimator import GPSLinearRegression
from gpsuq.plots.style import COLORS, figure_style, save_figure
from paper.linear import estimator
from paper.record import Asked
from paper.robust import least_squares

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class RealTable:
    """A table of one covariate, what is known about it, and how to name its axes."""

    file: str
    x: str
    y: str
    labels: tuple[str, str]
    title: str
    reference: dict[str, float]
    groups: str | None = None


TABLES: dict[str, RealTable] = {
    "tonedata": RealTable(
        "mixtools_tonedata",
        "stretchratio",
        "tuned",
        ("stretch ratio", "tuned ratio"),
        "Tone perception: two ways to tune",
        {"slope 1": 0.0425, "slope 2": 0.992, "weight 1": 0.698, "sd 1": 0.046, "sd 2": 0.133},
    ),
    "starsCYG": RealTable(
        "robustbase_starsCYG",
        "log.Te",
        "log.light",
        ("log temperature", "log light intensity"),
        "Star cluster CYG OB1: four giants",
        {"MM slope": 2.253, "least squares slope": -0.413},
    ),
    "engel": RealTable(
        "statsmodels_engel",
        "income",
        "foodexp",
        ("household income", "food expenditure"),
        "Engel's households: spread grows with income",
        {},
    ),
    "sleepstudy": RealTable(
        "lme4_sleepstudy",
        "Days",
        "Reaction",
        ("days of sleep deprivation", "reaction time, ms"),
        "Sleep study: a slope for each of 18 subjects",
        {},
        groups="Subject",
    ),
}


def fit_table(
    name: str, seed: int, n_steps: int | None, *, progress: bool = False
) -> tuple[GPSLinearRegression, pd.DataFrame, list[str]]:
    """Fit one table with default settings; return the fit, the table and the messages of warnings."""
    known = TABLES[name]
    table = regression_table(known.file)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", GPSWarning)
        model = estimator(seed, n_steps, progress=progress)
        model.fit(table[[known.x]], table[known.y], groups=None if known.groups is None else table[known.groups])
    return model, table, [str(w.message) for w in caught if issubclass(w.category, GPSWarning)]


def mixed_model(table: pd.DataFrame, known: RealTable) -> dict[str, float]:
    """Fit a linear mixed model with a Normal intercept and slope for each group, by restricted maximum likelihood."""
    if known.groups is None:
        return {}
    from statsmodels.regression.mixed_linear_model import MixedLM

    design = np.column_stack([np.ones(len(table)), table[known.x]])
    fit = MixedLM(table[known.y].to_numpy(), design, table[known.groups].to_numpy(), exog_re=design).fit()
    return {
        "mixed model slope": float(fit.fe_params[1]),
        "mixed model slope error": float(fit.bse_fe[1]),
        "mixed model slope sd": float(np.sqrt(np.asarray(fit.cov_re)[1, 1])),
        "mixed model sigma": float(np.sqrt(fit.scale)),
    }


def run(asked: Asked) -> list[Path]:
    """Fit the four tables, draw each, and write down what was found beside what is known."""
    results: dict[str, Any] = {}
    files = []
    for name, known in TABLES.items():
        with stage(name):
            model, table, messages = fit_table(name, asked.seed, asked.n_steps, progress=asked.progress)
        rows = model.explain_rows(table[[known.x]], table[known.y])
        interval = model.predict_interval(table[[known.x]]).to_numpy()
        y = table[known.y].to_numpy()
        results[name] = {
            "reference": known.reference | mixed_model(table, known),
            "least_squares_slope": float(least_squares(table[[known.x]].to_numpy(float), y)[0]),
            "heterogeneous": model.heterogeneous_,
            "spread_path": None if model.spread_path_ is None else model.spread_path_.reset_index().to_dict("list"),
            "summary": model.summary().to_dict("index"),
            "subgroups": rows.groupby("subgroup")
            .median()
            .assign(rows=rows["subgroup"].value_counts())
            .to_dict("index"),
            "most_outlying_rows": (rows["outlier_score"].nlargest(6).index + 1).tolist(),
            "in_sample_prediction_coverage": float(((interval[:, 0] < y) & (y < interval[:, 1])).mean()),
            "warnings": messages,
        }
        files.append(save_figure(figure(name, model, table, rows), asked.out / f"{name}.png"))
    settings = {"seed": asked.seed, "estimator": estimator(asked.seed, asked.n_steps)}
    return [asked.write(settings, results), *files]


def figure(name: str, model: GPSLinearRegression, table: pd.DataFrame, rows: pd.DataFrame) -> Figure:
    """Draw the data with lines of the UQ distribution and the prediction interval, and the law of the slope."""
    import matplotlib.pyplot as plt

    known = TABLES[name]
    with figure_style():
        chart, (left, right) = plt.subplots(1, 2, figsize=(11, 4))
        _lines(left, model, table, known)
        colors = [COLORS["data"], COLORS["bayes"], COLORS["good"], COLORS["other"]]
        subgroups = sorted(rows["subgroup"].unique())
        for number, subgroup in enumerate(subgroups):
            some = table[(rows["subgroup"] == subgroup).to_numpy()]
            label = "data" if len(subgroups) == 1 else f"data, subgroup {subgroup}"
            left.plot(some[known.x], some[known.y], ".", color=colors[number % 4], markersize=6, label=label)
        left.set(xlabel=known.labels[0], ylabel=known.labels[1], title=known.title)
        left.legend(fontsize=8)
        _law_of_slope(right, model, known)
    return chart


def _lines(axis: Axes, model: GPSLinearRegression, table: pd.DataFrame, known: RealTable) -> None:
    grid = pd.DataFrame({known.x: np.linspace(table[known.x].min(), table[known.x].max(), 60)})
    interval = model.predict_interval(grid)
    axis.fill_between(
        grid[known.x], interval["lower"], interval["upper"], color=COLORS["light"], alpha=0.25, label="95% prediction"
    )
    for number, (_, draw) in enumerate(model.sample_parameters(60).iterrows()):
        line = draw["intercept"] + draw[known.x] * grid[known.x]
        label = "lines drawn from the UQ distribution" if number == 0 else None
        axis.plot(grid[known.x], line, color=COLORS["gps"], linewidth=0.6, alpha=0.4, label=label)
    low, high = table[known.y].min(), table[known.y].max()
    margin = 0.15 * (high - low)
    axis.set_ylim(low - margin, high + margin)


def _law_of_slope(axis: Axes, model: GPSLinearRegression, known: RealTable) -> None:
    """Draw the law of slopes that differ, or how well the one slope of all rows is known."""
    labels = {"xlabel": f"slope of {known.labels[1]} on {known.labels[0]}"}
    if model.heterogeneous_:
        slopes = model.draws_["slope"][..., 0].ravel()
        low, high = np.quantile(slopes, [0.01, 0.99])
        margin = 0.15 * (high - low)
        bins = np.linspace(low - margin, high + margin, 60).tolist()
        axis.hist(slopes, bins=bins, density=True, color=COLORS["light"])
        axis.set(**labels, ylabel="density", title="Law of the slope")
    else:
        lower, upper = model.summary().loc[[known.x], ["mean_lower", "mean_upper"]].to_numpy()[0]
        axis.axvspan(lower, upper, color=COLORS["light"], alpha=0.5, label="95% interval")
        axis.set(**labels, yticks=[], title="One slope for all rows")
    for number, (name, value) in enumerate((k, v) for k, v in known.reference.items() if "slope" in k):
        style = ("--", ":")[number % 2]
        axis.axvline(value, color=COLORS["truth"], linestyle=style, linewidth=1.2, label=f"published: {name} {value:g}")
    axis.axvline(model.coef_[0], color=COLORS["gps"], linewidth=1.5, label=f"mean {model.coef_[0]:.3g}")
    axis.legend(fontsize=8)
