"""Scissors, section 3.1: half the observations have slope 1, half -1; least squares and the posterior see 0."""

from __future__ import annotations

import time
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpsuq.cli.demonstration import fit_scissors, three_panels
from gpsuq.core.distances import MMD
from gpsuq.core.generators import MLP
from gpsuq.core.models import linear_regression
from gpsuq.datasets import Regression, scissors
from gpsuq.engine.parallel import independent
from gpsuq.engine.progress import stage
from gpsuq.engine.settings import Algorithm
from gpsuq.gps import GPS
from gpsuq.linear.baselines import BayesianLinearPosterior
from gpsuq.linear.estimator import DEFAULT_STEPS, GPSLinearRegression
from gpsuq.plots.style import save_figure
from gpsuq.uq.distribution import UQDistribution
from paper.record import Asked, mean_and_sd

Array = NDArray[np.floating]

_DRAWS = 4000

PAPERS_WAY: dict[str, Any] = {"distance": MMD(), "n_chains": 4}  # eq. (3); the library's default is the log score


def slope_metrics(slopes: Array) -> dict[str, float]:
    """Compare draws of the slope with the truth, -1 or 1 with probability one half each."""
    ordered = np.sort(slopes.ravel())
    truth = np.where(np.arange(len(ordered)) < len(ordered) / 2, -1.0, 1.0)
    return {
        "near_truth": float((np.abs(np.abs(ordered) - 1.0) <= 0.25).mean()),
        "positive": float((ordered > 0).mean()),
        "wasserstein1": float(np.abs(ordered - truth).mean()),
    }


def one_replicate(
    seed: int, algorithm: Algorithm, *, progress: bool = False
) -> tuple[Regression, UQDistribution, BayesianLinearPosterior, dict[str, float]]:
    """Simulate, fit both ways and measure."""
    data = scissors(seed=seed)
    started = time.perf_counter()
    uq = fit_scissors(data, seed, algorithm=algorithm, progress=progress, **PAPERS_WAY)
    seconds = time.perf_counter() - started
    draws = uq.draws(_DRAWS)
    posterior = BayesianLinearPosterior(fit_intercept=False).fit(data.X, data.y)
    metrics = slope_metrics(draws["slope"]) | {
        "sigma_median": float(np.median(draws["sigma"])),
        "posterior_mean": float(posterior.mean[0]),
        "posterior_sd": float(posterior.sd[0]),
        "fit_seconds": round(seconds, 1),
    }
    return data, uq, posterior, metrics | _estimator_metrics(data, seed, algorithm.n_steps, progress=progress)


def _named(seed: int, asked: Asked) -> tuple[Regression, UQDistribution, BayesianLinearPosterior, dict[str, float]]:
    """Run one replicate; its bars tell the seed where there are several."""
    with stage(f"seed {seed}") if len(asked.seeds) > 1 else nullcontext():
        return one_replicate(seed, asked.algorithm, progress=asked.progress)


def _estimator_metrics(data: Regression, seed: int, n_steps: int, *, progress: bool) -> dict[str, float]:
    """Measure the same for ``GPSLinearRegression``, which also predicts fresh observations."""
    started = time.perf_counter()
    model = GPSLinearRegression(random_state=seed, n_steps=min(n_steps, DEFAULT_STEPS), progress=progress)
    model.fit(data.X, data.y)
    seconds = time.perf_counter() - started
    fresh = scissors(seed=10_000 + seed)
    interval = model.predict_interval(fresh.X).to_numpy()
    metrics = slope_metrics(model.draws_["slope"]) | {
        "sigma_median": float(np.median(model.draws_["sigma"])),
        "prediction_coverage": float(((interval[:, 0] < fresh.y) & (fresh.y < interval[:, 1])).mean()),
        "spread_weight": model.spread_weight_,
        "fit_seconds": round(seconds, 1),
    }
    return {f"estimator_{name}": value for name, value in metrics.items()}


def run(asked: Asked) -> list[Path]:
    """Run the experiment for every seed; the figures are those of the first."""
    found = independent(_named, [(seed, asked) for seed in asked.seeds], bar="seeds" if asked.progress else None)
    data, uq, posterior, _ = found[0]
    figures = [
        save_figure(three_panels(data, posterior, uq), asked.out / "scissors.png"),
        save_figure(uq.plot_marginals(), asked.out / "marginals.png"),
    ]
    per_seed = {str(seed): metrics for seed, (*_, metrics) in zip(asked.seeds, found, strict=True)}
    names = list(next(iter(per_seed.values())))
    results = {
        "over_seeds": {name: mean_and_sd([m[name] for m in per_seed.values()]) for name in names},
        "per_seed": per_seed,
    }
    gps = GPS(linear_regression(intercept=False), MLP(), algorithm=asked.algorithm, **PAPERS_WAY)
    settings = {
        "seeds": list(asked.seeds),
        "n": len(data.y),
        "algorithm": gps.algorithm,
        "generator": gps.generator,
        "distance": gps.distance,
        "chains": gps.plan,
    }
    return [asked.write(settings, results), *figures]
