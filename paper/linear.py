"""Outliers and the classical case, section 3.1: twenty coefficients, 200 observations, against the posterior."""

from __future__ import annotations

import time
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from gpsuq.datasets import correlated
from gpsuq.engine.progress import stage
from gpsuq.errors import GPSWarning
from gpsuq.linear.baselines import BayesianLinearPosterior
from gpsuq.linear.estimator import DEFAULT_STEPS, GPSLinearRegression
from gpsuq.linear.plots import boxplot_comparison
from gpsuq.plots.style import save_figure
from paper.record import Asked
from paper.robust import ROBUST

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Array = NDArray[np.floating]
Design = Literal["outliers", "classical"]

CONTAMINATION: dict[Design, float] = {"outliers": 0.05, "classical": 0.0}
_FRESH = 1000


def estimator(seed: int, n_steps: int | None, *, progress: bool = False) -> GPSLinearRegression:
    """Return the estimator with default settings."""
    steps = DEFAULT_STEPS if n_steps is None else n_steps
    return GPSLinearRegression(random_state=seed, n_steps=steps, progress=progress)


def one_replicate(design: Design, seed: int, n_steps: int | None, *, progress: bool = False) -> dict[str, Any]:
    """Simulate, fit GPS, the posterior and Tukey's biweight, and measure all against the truth."""
    data = correlated(contamination=CONTAMINATION[design], seed=seed)
    theta = data.theta[0]
    started = time.perf_counter()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", GPSWarning)
        gps = estimator(seed, n_steps, progress=progress).fit(data.X, data.y)
    seconds = time.perf_counter() - started
    posterior = BayesianLinearPosterior().fit(data.X, data.y)
    intervals = {
        "gps": gps.summary().loc[:, ["mean_lower", "mean_upper"]].to_numpy()[: len(theta)].T,
        "posterior": posterior.interval()[:, : len(theta)],
    }
    result: dict[str, Any] = {
        "error_gps": _squared_error(gps.coef_, theta),
        "error_posterior": _squared_error(posterior.mean[: len(theta)], theta),
        "error_tukey": _squared_error(ROBUST["Tukey"](data.X, data.y), theta),
    }
    for name, (lower, upper) in intervals.items():
        result[f"coverage_{name}"] = float(((lower < theta) & (theta < upper)).mean())
        result[f"width_{name}"] = float(np.median(upper - lower))
    fresh = correlated(_FRESH, contamination=CONTAMINATION[design], theta=theta, seed=10_000_000 + seed)
    for name, interval in (
        ("gps", gps.predict_interval(fresh.X).to_numpy().T),
        ("posterior", posterior.predict_interval(fresh.X)),
    ):
        result[f"prediction_coverage_{name}"] = float(((interval[0] < fresh.y) & (fresh.y < interval[1])).mean())
        result[f"prediction_width_{name}"] = float(np.median(interval[1] - interval[0]))
    summary = gps.summary()
    return result | {
        "sigma": float(summary["median"]["sigma"]),
        "heterogeneity_sd": float(summary["heterogeneity_sd"].iloc[: len(theta)].mean()),
        "spread_weight": gps.spread_weight_,
        "warnings": len(caught),
        "fit_seconds": round(seconds, 2),
    }


def _squared_error(estimate: Array, truth: Array) -> float:
    return float(np.square(estimate - truth).sum())


def run(asked: Asked) -> list[Path]:
    """Run the design that the experiment is named after, for every seed; the figure is that of the first."""
    design = cast(Design, asked.name)
    table = asked.replicate(one_replicate, [(design, seed, asked.n_steps) for seed in asked.seeds])
    settings = {
        "seeds": asked.ends,
        "design": {"n": 200, "p": 20, "contamination": CONTAMINATION[design]},
        "estimator": estimator(asked.seed, asked.n_steps).get_params(),
    }
    with stage("figure"):
        figure = comparison_figure(design, asked.seed, asked.n_steps, progress=asked.progress)
        path = save_figure(figure, asked.out / f"{design}.png")
    return [asked.write(settings, summarise(table)), path]


def summarise(table: pd.DataFrame) -> dict[str, Any]:
    """Return means over replicates with standard errors, and paired ratios of methods."""
    columns = {
        name: {"mean": table[name].mean(), "standard_error": table[name].sem(), "median": table[name].median()}
        for name in table
    }
    ratios = {
        "error_gps_over_tukey": ratio_of_means(table["error_gps"], table["error_tukey"]),
        "error_gps_over_posterior": ratio_of_means(table["error_gps"], table["error_posterior"]),
        "median_error_gps_over_posterior": float(table["error_gps"].median() / table["error_posterior"].median()),
        "median_width_gps_over_posterior": float((table["width_gps"] / table["width_posterior"]).median()),
    }
    return {"replicates": len(table), "ratios": ratios, "over_replicates": columns}


def ratio_of_means(a: pd.Series, b: pd.Series) -> dict[str, float]:
    """Return the mean of a over the mean of b, paired, with its standard error by the delta method."""
    over, under = a.to_numpy(dtype=float), b.to_numpy(dtype=float)
    ratio = over.mean() / under.mean()
    error = (over - ratio * under).std(ddof=1) / np.sqrt(len(over)) / under.mean() if len(over) > 1 else np.nan
    return {"ratio": float(ratio), "standard_error": float(error)}


def comparison_figure(design: Design, seed: int, n_steps: int | None, *, progress: bool = False) -> Figure:
    """Draw one row of the paper's figure 3: coefficients under GPS (left) and the Bayesian posterior (right)."""
    data = correlated(contamination=CONTAMINATION[design], seed=seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", GPSWarning)
        gps = estimator(seed, n_steps, progress=progress).fit(data.X, data.y)
    posterior = BayesianLinearPosterior().fit(data.X, data.y).sample_parameters(4000)
    names = list(posterior.columns[:20])
    title = "5% Cauchy outliers" if design == "outliers" else "no outliers"
    return boxplot_comparison(gps.draws_["slope"], posterior[names].to_numpy(), data.theta[0], title)
