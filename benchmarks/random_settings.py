"""Random settings of every estimator on small random data: finite results, or an error of gpsuq's own.

``python benchmarks/random_settings.py --trials 1000`` draws arguments from what each of them allows, ends included,
where the cost of a fit permits. Data have few rows, constant and repeated columns, heavy tails, scales from 1e-300 to
1e300, and sometimes what no fit can take. ``--show ESTIMATOR NUMBER`` repeats one trial.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from common import outcome_of, write
from torch import nn
from torch.distributions import Normal, Poisson, StudentT

import gpsuq
from gpsuq import MLP, Algorithm, Recipe
from gpsuq.classify.baselines import DropoutClassifier, EnsembleClassifier, PlainClassifier
from gpsuq.engine.settings import OPTIMIZERS, SCHEDULES

SECONDS = 60.0
Draw = np.random.Generator


def pick(rng: Draw, *values: Any) -> Any:
    return values[rng.integers(len(values))]


def wide(rng: Draw, digits: float) -> float:
    """Return a positive number between 10^-digits and 10^digits."""
    return float(10.0 ** rng.uniform(-digits, digits))


def column(rng: Draw, n: int) -> np.ndarray:
    """Return n numbers of some kind or other."""
    values = pick(
        rng,
        rng.normal(size=n),
        rng.normal(size=n),
        np.full(n, rng.normal()),
        rng.integers(0, 3, n).astype(float),
        rng.standard_cauchy(n),
        np.exp(10.0 * rng.normal(size=n)),
        np.arange(n, dtype=float),
    )
    if rng.random() < 0.3:
        values = values * wide(rng, pick(rng, 3, 3, 10, 30, 100, 300))
    if rng.random() < 0.1:
        values = values + wide(rng, 12)
    if rng.random() < 0.01:
        values = values.copy()
        values[rng.integers(n)] = pick(rng, np.nan, np.inf, 1e308, 5e-324)
    return np.asarray(values)


def table(rng: Draw) -> np.ndarray:
    n, p = int(pick(rng, *(rng.random() < 0.1) * (1, 2), 3, 5, 8, 20, 40, 60)), int(pick(rng, 1, 1, 2, 3, 6, 30))
    columns = [column(rng, n) for _ in range(p)]
    if rng.random() < 0.1:
        columns[-1] = columns[0]
    return np.stack(columns, 1)


def seed(rng: Draw) -> Any:
    return pick(rng, 0, 1, 2**31, 2**40, None, np.random.RandomState(0))


def generator(rng: Draw) -> MLP:
    hidden = pick(rng, (), (1,), (4,), (8, 8), (2, 2, 2))
    return MLP(hidden=hidden, noise_dim=pick(rng, 1, 2, 5), activation=pick(rng, "relu", "tanh"))


def check_finite(*results: Any) -> None:
    for result in results:
        if not np.isfinite(np.asarray(result, dtype=float)).all():
            raise FloatingPointError("a result is not finite")


def linear(rng: Draw) -> None:
    X = table(rng)
    n = len(X)
    y = pick(rng, column(rng, n), X.sum(1) + 0.1 * rng.normal(size=n), X[:, 0])
    intercept = pick(rng, True, True, False)
    model = gpsuq.GPSLinearRegression(
        fit_intercept=intercept,
        random_intercept=pick(rng, "auto", False, intercept),
        spread_weight=pick(rng, "auto", "auto", 0.0, -1.0, wide(rng, 8)),
        n_chains=pick(rng, 1, 2, 3, 20),
        n_steps=pick(rng, 1, 2, 5),
        n_draws=pick(rng, 2, 3, 8),
        batch_size=pick(rng, 1, 2, 10, 10**9),
        generator=pick(rng, None, generator(rng)),
        random_state=seed(rng),
    )
    weights = pick(rng, None, None, rng.exponential(size=n), rng.integers(0, 3, n), np.full(n, wide(rng, 30)))
    alike = weights is None or np.ptp(weights) == 0  # as all rows of a group must be
    groups = pick(rng, None, np.arange(n) // 3, rng.integers(0, 4, n)) if alike else None
    model.fit(X, y, weights, groups=groups)
    check_finite(model.predict(X), model.predict_interval(X, pick(rng, 1e-6, 0.5, 0.95, 1 - 1e-9)))
    check_finite(model.sample_parameters(5), model.summary()["mean"])


def poisson(rng: Draw) -> None:
    n, scale = (
        int(pick(rng, *(rng.random() < 0.1) * (0, 1), 2, 5, 30, 200)),
        pick(rng, 1.0, 1.0, wide(rng, 6), wide(rng, 140)),
    )
    sides = scale * np.array([1.0, pick(rng, 1.0, 1e-3, 50.0)])
    points = pick(rng, rng.random((n, 2)), np.full((n, 2), 0.5), rng.beta(0.05, 0.05, (n, 2))) * sides
    model = gpsuq.GPSPoissonProcess(
        n_cells=pick(rng, None, 1, 4, 64),
        frequency=pick(rng, "auto", 0.0, 1.0, wide(rng, 6)),
        n_chains=pick(rng, 2, 3),
        n_steps=pick(rng, 1, 3),
        n_draws=pick(rng, 2, 5),
        batch_size=pick(rng, 1, 4, 10**9),
        waves=pick(rng, 1, 8),
        hidden=pick(rng, (1,), (4, 4), (3, 1, 3)),
        noise_dim=pick(rng, 1, 3),
        outside=pick(rng, "error", "drop"),
        random_state=seed(rng),
    )
    model.fit(points, (0.0, sides[0], 0.0, sides[1]))
    check_finite(model.integral(), model.sample_intensity(points[:5], 3), model.surface().mean)


def recipe(rng: Draw) -> Recipe:
    return Recipe(
        epochs=pick(rng, 1, 2, 5),
        batch_size=pick(rng, 2, 3, 10, 10**9),
        n_draws=pick(rng, 2, 3, 10),
        n_outcomes=pick(rng, None, None, 2, 5),
        learning_rate=pick(rng, 0.05, wide(rng, 3), wide(rng, 12)),
        momentum=pick(rng, 0.0, 0.9, 0.999),
        schedule=pick(rng, *SCHEDULES),
        weight_decay=pick(rng, 0.0, 5e-4, 0.999),
        sum_over_draws=pick(rng, True, False),
    )


def classifier(rng: Draw) -> None:
    X = table(rng)
    n, p = X.shape
    y = pick(rng, rng.integers(0, 2, n), X[:, 0] > 0, np.array(["a", "b", "ü"])[rng.integers(0, 3, n)], np.arange(n))
    outputs = len(np.unique(y))
    rate = pick(rng, 0.0, 0.2, 0.5, 1.0)

    def network() -> nn.Module:
        return nn.Sequential(nn.Linear(p, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Dropout(rate), nn.Linear(6, outputs))

    common: dict[str, Any] = {"recipe": recipe(rng), "random_state": seed(rng)}
    kind = pick(rng, "gps", "gps", "gps", "plain", "dropout", "ensemble")
    if kind == "gps":
        mine = pick(rng, True, False)
        model: Any = gpsuq.GPSClassifier(
            network if mine else None,
            pick(rng, None, "0", "4", ["0", "4"]) if mine else None,
            ratio=pick(rng, 1e-9, 0.5, 20.0),
            spread_weight=pick(rng, 0.05, 0.0, -1.0, wide(rng, 6), "auto"),
            off_data_spread=pick(rng, 0.0, 0.05, 1.0 - 1e-9),
            off_data_patch="box" if rng.random() < 0.02 else None,
            features=pick(rng, "learn", "learn", "keep") if mine else "learn",
            **common,
        )
    elif kind == "ensemble":
        model = EnsembleClassifier(pick(rng, None, network), n_members=2, **common)
    else:
        model = (PlainClassifier if kind == "plain" else DropoutClassifier)(pick(rng, network, network()), **common)
    model.fit(X, y)
    found = model.uncertainty(X, pick(rng, 1, 2, 50), error_rate=pick(rng, None, 1e-9, 0.1, 0.999))
    check_finite(model.predict_proba(X), found.uqc, found.mean)


def location(theta: torch.Tensor, scale: torch.Tensor) -> Normal:
    return Normal(theta, scale)


def heavy(theta: torch.Tensor, scale: torch.Tensor) -> StudentT:
    return StudentT(3.0, theta, scale)


def line(x: torch.Tensor, slope: torch.Tensor, scale: torch.Tensor) -> Normal:
    return Normal((x * slope).sum(-1), scale)


def gps(rng: Draw) -> None:
    X = table(rng)
    n = len(X)
    kind = pick(rng, "normal", "student", "line", "counts")
    y = rng.poisson(pick(rng, 0.1, 3.0, 1e4), n).astype(float) if kind == "counts" else column(rng, n)
    if kind == "counts":
        model = gpsuq.ObservationModel(Poisson, rate=gpsuq.Rate())
    elif kind == "line":
        model = gpsuq.ObservationModel(line, slope=gpsuq.Slope(), scale=gpsuq.Scale())
    else:
        function = location if kind == "normal" else heavy
        model = gpsuq.ObservationModel(function, theta=gpsuq.Location(), scale=gpsuq.Scale())
    bandwidth = pick(rng, "auto", wide(rng, 2), wide(rng, 30))
    kernel = pick(rng, gpsuq.Gaussian(), gpsuq.Laplace(), gpsuq.Energy(), gpsuq.AdaptiveGaussian())
    if bandwidth != "auto":
        kernel = pick(rng, gpsuq.Gaussian(bandwidth), gpsuq.Laplace(bandwidth))
    algorithm = Algorithm(
        n_steps=pick(rng, 1, 3, 10),
        batch_size=pick(rng, 1, 5, 10**9),
        n_draws=pick(rng, 2, 5, 20),
        n_outcomes=pick(rng, None, 2, 3),
        optimizer=pick(rng, *OPTIMIZERS),
        learning_rate=pick(rng, 5e-3, wide(rng, 3), wide(rng, 12)),
        schedule=pick(rng, *SCHEDULES),
        shared_noise=pick(rng, True, False),
        sum_over_draws=pick(rng, True, False),
        clip=pick(rng, None, 10.0, wide(rng, 9)),
        evaluate_every=pick(rng, None, 1, 50),
        patience=pick(rng, None, 1),
        clearly=pick(rng, 0.0, 2.5),
    )
    score = gpsuq.MMD(kernel, n_pairs=pick(rng, None, 1, 2))
    distance = pick(rng, score, score, gpsuq.EnergyDistance(), gpsuq.SlicedWasserstein())
    sliced = isinstance(distance, gpsuq.SlicedWasserstein)
    trained = gpsuq.GPS(
        model,
        pick(rng, None, generator(rng)),
        distance,
        algorithm=algorithm,
        n_chains=pick(rng, 1, 2, 4),
        reweight=None if sliced else pick(rng, "bootstrap", None),
        holdout=0.0 if sliced else pick(rng, 0.0, 0.1, 0.5),
        spread_weight=pick(rng, 0.0, 1.0, wide(rng, 6)),
        seed=pick(rng, 0, 1, 2**40),
    ).fit(*((X, y) if kind == "line" else (y,)))
    check_finite(*trained.draws(5).values(), trained.summary()["mean"])


ESTIMATORS: dict[str, Callable[[Draw], None]] = {
    "GPS": gps,
    "GPSLinearRegression": linear,
    "GPSPoissonProcess": poisson,
    "classifiers": classifier,
}


def trial(name: str, number: int) -> Callable[[], None]:
    return lambda: ESTIMATORS[name](np.random.default_rng([1, *name.encode(), number]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=1000)
    parser.add_argument("--only", nargs="*", default=list(ESTIMATORS))
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"))
    parser.add_argument("--show", nargs=2)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    if options.show:
        trial(options.show[0], int(options.show[1]))()
        return
    rows: dict[str, Any] = {}
    for name in options.only:
        found: Counter[str] = Counter()
        examples: dict[str, int] = {}
        seconds = []
        for number in range(-(-options.trials // len(options.only))):
            started = time.perf_counter()
            outcome = outcome_of(trial(name, number), SECONDS)
            seconds.append(time.perf_counter() - started)
            found[outcome] += 1
            examples.setdefault(outcome, number)
        other = {what: {"count": found[what], "example": examples[what]} for what in found.keys() - {"done", "refused"}}
        rows[name] = {"trials": len(seconds), "finite": found["done"], "refused": found["refused"], "other": other}
        rows[name] |= {"seconds, median": round(float(np.median(seconds)), 3), "seconds, most": round(max(seconds), 2)}
        print(name, rows[name], flush=True)
    write(options.out, "random_settings", f"python benchmarks/random_settings.py --trials {options.trials}", rows)


if __name__ == "__main__":
    main()
