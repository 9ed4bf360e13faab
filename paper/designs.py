"""Twenty-four designs that a table of ordinary data might follow, beside the tools that people use today."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from gpsuq.errors import GPSWarning
from gpsuq.linear.estimator import GPSLinearRegression
from paper.peers import PEERS, fit_quietly, interval_score
from paper.record import Asked

Array = NDArray[np.floating]
Draw = Callable[[Array, np.random.Generator], Array]

COVERAGE = 0.9
_FRESH = 1000
_OUTCOMES = 4000
_LAW_DRAWS = 4000


@dataclass(frozen=True)
class Design:
    """How rows come about: columns (n, p), slopes of rows (n, p), and what is added to x' theta (n,).

    ``mean`` are the mean slopes, None where the truth is no line; ``differs`` says whether slopes differ between rows,
    None where noise changes with x, which is neither; ``bad`` rows follow nothing, and are not predicted.
    """

    n: int
    columns: Callable[[int, np.random.Generator], Array]
    slopes: Draw
    noise: Draw
    mean: tuple[float, ...] | None
    differs: bool | None
    bad: Callable[[Array, Array, np.random.Generator], None] | None = None
    groups: int = 1  # rows of one subject, who share slopes

    def sample(self, n: int, rng: np.random.Generator, *, spoil: bool) -> tuple[Array, Array, Array]:
        """Draw rows: columns, targets, slopes."""
        X = self.columns(n, rng)
        theta = self.slopes(X[:: self.groups], rng).repeat(self.groups, axis=0)
        y = 1.0 + (X * theta).sum(1) + self.noise(X, rng)
        if spoil and self.bad is not None:
            self.bad(X, y, rng)
        return X, y, theta

    def subjects(self) -> NDArray[np.intp] | None:
        """Return the subject of every row that is fitted; None where rows are independent."""
        return None if self.groups == 1 else np.arange(self.n) // self.groups

    def outcomes(self, X: Array, rng: np.random.Generator) -> Array:
        """Draw what could have been observed at rows of X, (outcome, n)."""
        draws = (1.0 + (X * self.slopes(X, rng)).sum(1) + self.noise(X, rng) for _ in range(_OUTCOMES))
        return np.stack(list(draws))


def _normal(p: int) -> Callable[[int, np.random.Generator], Array]:
    return lambda n, rng: rng.standard_normal((n, p))


def _same(*slopes: float) -> Draw:
    return lambda X, rng: np.tile(np.asarray(slopes), (len(X), 1))


def _spread(mean: Array, root: Array) -> Draw:
    return lambda X, rng: mean + rng.standard_normal((len(X), len(mean))) @ root.T


def _kinds(slopes: Array, shares: tuple[float, ...]) -> Draw:
    return lambda X, rng: slopes[rng.choice(len(shares), len(X), p=shares)]


def _gaussian(sd: float) -> Draw:
    return lambda X, rng: sd * rng.standard_normal(len(X))


def _dummies(n: int, rng: np.random.Generator) -> Array:
    category = rng.integers(0, 4, n)
    return np.column_stack([category == level for level in (1, 2, 3)] + [rng.standard_normal((n, 2))]).astype(float)


def _treatment(n: int, rng: np.random.Generator) -> Array:
    return np.column_stack([rng.integers(0, 2, n), rng.standard_normal((n, 3))]).astype(float)


def _cauchy_share(X: Array, rng: np.random.Generator) -> Array:
    noise = rng.standard_normal(len(X))
    wild = rng.random(len(X)) < 0.05
    return np.where(wild, 3.0 * rng.standard_cauchy(len(X)), noise)


def _far_corner(X: Array, y: Array, rng: np.random.Generator) -> None:
    """Put 13% of the rows into a far corner with a wrong response, and 5% with the right one behind it."""
    bad, good = round(0.13 * len(y)), round(0.05 * len(y))
    X[:bad] = 8.0 + 0.5 * rng.standard_normal((bad, X.shape[1]))
    y[:bad] = 12.0 + 0.3 * rng.standard_normal(bad)
    X[bad : bad + good] = 9.0 + 0.5 * rng.standard_normal((good, X.shape[1]))
    y[bad : bad + good] = 1.0 + X[bad : bad + good] @ np.array([0.1, 0.05, -0.05]) + 0.3 * rng.standard_normal(good)


def _bimodal(X: Array, rng: np.random.Generator) -> Array:
    slopes = np.ones((len(X), 10))
    slopes[:, 0] = rng.choice([-1.0, 1.0], len(X))
    return slopes


def _varying_effect(X: Array, rng: np.random.Generator) -> Array:
    slopes = np.ones((len(X), 4))
    slopes[:, 0] += 1.5 * rng.standard_normal(len(X))
    return slopes


def _rare(X: Array, rng: np.random.Generator) -> Array:
    slopes = np.ones((len(X), 3))
    slopes[rng.random(len(X)) < 0.1, 0] = -3.0
    return slopes


_CORRELATED = np.linalg.cholesky(np.array([[1.0, 0.8], [0.8, 1.0]]))

DESIGNS: dict[str, Design] = {
    "normal": Design(200, _normal(5), _same(0, 0.5, 1, 1.5, 2), _gaussian(1.0), (0, 0.5, 1, 1.5, 2), False),
    "laplace": Design(300, _normal(10), _same(*[1.0] * 10), lambda X, rng: rng.laplace(size=len(X)), (1,) * 10, False),
    "t3": Design(300, _normal(5), _same(*[1.0] * 5), lambda X, rng: rng.standard_t(3, len(X)), (1,) * 5, False),
    "skewed": Design(
        300, _normal(5), _same(*[1.0] * 5), lambda X, rng: rng.exponential(size=len(X)) - 1.0, (1,) * 5, False
    ),
    "dummies": Design(300, _dummies, _same(1, 2, -1, 1, 0.5), _gaussian(1.0), (1, 2, -1, 1, 0.5), False),
    "quadratic": Design(
        300, _normal(3), _same(1, 1, 1), lambda X, rng: rng.standard_normal(len(X)) + X[:, 0] ** 2 - 1.0, None, False
    ),
    "many columns": Design(500, _normal(20), _same(*[1.0] * 20), _gaussian(1.0), (1,) * 20, False),
    "wild values": Design(500, _normal(20), _same(*[1.0] * 20), _cauchy_share, (1,) * 20, False),
    "far corner": Design(
        150, _normal(3), _same(0.1, 0.05, -0.05), _gaussian(0.3), (0.1, 0.05, -0.05), False, bad=_far_corner
    ),
    "noise grows": Design(
        400,
        _normal(8),
        _same(*[1.0] * 8),
        lambda X, rng: np.exp(0.7 * X[:, 0]) * rng.standard_normal(len(X)),
        (1,) * 8,
        None,
    ),
    "scissors": Design(
        1000,
        lambda n, rng: rng.uniform(-2.0, 2.0, (n, 1)),
        _kinds(np.array([[-1.0], [1.0]]), (0.5, 0.5)),
        _gaussian(0.2),
        (0,),
        True,
    ),
    "random": Design(1000, _normal(3), _spread(np.ones(3), np.eye(3)), _gaussian(0.5), (1,) * 3, True),
    "random of five": Design(2000, _normal(5), _spread(np.ones(5), np.eye(5)), _gaussian(0.5), (1,) * 5, True),
    "correlated": Design(1000, _normal(2), _spread(np.ones(2), _CORRELATED), _gaussian(0.5), (1, 1), True),
    "one of ten": Design(1000, _normal(10), _bimodal, _gaussian(0.5), (0, *[1] * 9), True),
    "three slopes": Design(
        1000, _normal(1), _kinds(np.array([[0.0], [2.0], [-3.0]]), (0.6, 0.3, 0.1)), _gaussian(0.3), (0.3,), True
    ),
    "small spread": Design(200, _normal(1), _spread(np.ones(1), 0.9 * np.eye(1)), _gaussian(0.5), (1,), True),
    "treatment": Design(500, _treatment, _varying_effect, _gaussian(0.7), (1,) * 4, True),
    "rare": Design(1000, _normal(3), _rare, _gaussian(0.5), (0.6, 1, 1), True),
    "groups": Design(480, _normal(2), _spread(np.ones(2), 0.7 * np.eye(2)), _gaussian(1.0), (1, 1), True, groups=8),
    "few normal": Design(20, _normal(5), _same(*[1.0] * 5), _gaussian(1.0), (1,) * 5, False),
    "few laplace": Design(25, _normal(3), _same(*[1.0] * 3), lambda X, rng: rng.laplace(size=len(X)), (1,) * 3, False),
    "few t3": Design(40, _normal(3), _same(*[1.0] * 3), lambda X, rng: rng.standard_t(3, len(X)), (1,) * 3, False),
    "few skewed": Design(
        60, _normal(3), _same(*[1.0] * 3), lambda X, rng: rng.exponential(size=len(X)) - 1.0, (1,) * 3, False
    ),
}


def wasserstein(draws: Array, truth: Array) -> float:
    """Wasserstein-1 distance of two samples (m, p) of slopes, in the mean over the slopes."""
    levels = (np.arange(500) + 0.5) / 500
    distances = [
        np.abs(np.quantile(a, levels) - np.quantile(b, levels)).mean() for a, b in zip(draws.T, truth.T, strict=True)
    ]
    return float(np.mean(distances))


def fit_design(name: str, seed: int) -> tuple[GPSLinearRegression, Array, Array, np.random.Generator]:
    """Draw a data set and fit it with default settings; return the model, the data, and the generator after them."""
    design = DESIGNS[name]
    rng = np.random.default_rng([seed, sum(map(ord, name))])
    X, y, _ = design.sample(design.n, rng, spoil=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", GPSWarning)
        return GPSLinearRegression(random_state=seed).fit(X, y, groups=design.subjects()), X, y, rng


def mean_coverage(model: GPSLinearRegression, mean: tuple[float, ...]) -> float:
    """Return the share of mean slopes that lie in their 95% intervals."""
    lower, upper = model.summary().iloc[: len(mean)][["mean_lower", "mean_upper"]].to_numpy().T
    return float(((lower < np.asarray(mean)) & (upper > np.asarray(mean))).mean())


def one_replicate(name: str, seed: int, *, progress: bool = False) -> dict[str, Any]:
    """Draw a data set, fit GPS and its peers with their defaults, and measure all on fresh rows."""
    design = DESIGNS[name]
    started = time.perf_counter()
    model, X, y, rng = fit_design(name, seed)
    result: dict[str, Any] = {"design": name, "seed": seed, "seconds GPS": time.perf_counter() - started}
    groups = design.subjects()
    fresh, target, _ = design.sample(_FRESH, rng, spoil=False)
    truth = design.slopes(rng.standard_normal((_LAW_DRAWS, X.shape[1])), rng)
    _measure(result, "GPS", model.predict_interval(fresh, COVERAGE).to_numpy().T, target)
    slopes = model.draws_["slope"].reshape(-1, X.shape[1])
    result |= {"differ": model.heterogeneous_, "law": model.law_, "wasserstein GPS": wasserstein(slopes, truth)}
    result["findings"] = [finding.code for finding in model.findings_]
    if design.mean is not None:
        result["mean coverage"] = mean_coverage(model, design.mean)
        result["error GPS"] = float(np.square(model.coef_ - np.asarray(design.mean)).sum())
    if design.bad is not None:
        flagged = model.explain_rows(X, y)["outlier"].to_numpy()
        bad = np.arange(len(y)) < round(0.13 * len(y))
        result |= {"bad rows flagged": float(flagged[bad].mean()), "good rows flagged": float(flagged[~bad].mean())}
    peers = PEERS if groups is None else PEERS | {"mixed model": lambda: MixedModel(groups)}
    for peer, make in peers.items():
        started = time.perf_counter()
        fitted = fit_quietly(make, X, y)
        result[f"seconds {peer}"] = time.perf_counter() - started
        if fitted is None:  # it failed, and has no numbers
            continue
        _measure(result, peer, fitted.interval(fresh, COVERAGE), target)
        if hasattr(fitted, "sample_slopes"):
            drawn = fitted.sample_slopes(_LAW_DRAWS, np.random.default_rng(0))
            result[f"wasserstein {peer}"] = wasserstein(drawn, truth)
    tail = (1.0 - COVERAGE) / 2.0
    bounds = np.quantile(design.outcomes(fresh, rng), [tail, 1.0 - tail], axis=0)
    _measure(result, "oracle", bounds, target)
    return result


def _measure(result: dict[str, Any], method: str, bounds: Array, y: Array) -> None:
    result[f"coverage {method}"] = float(((bounds[0] <= y) & (y <= bounds[1])).mean())
    result[f"score {method}"] = interval_score(bounds, y, COVERAGE)


class MixedModel:
    """A Normal intercept and slopes for each subject, statsmodels' MixedLM; predictions are of a new subject."""

    def __init__(self, groups: NDArray[np.intp]) -> None:
        self.groups = groups

    def fit(self, X: Array, y: Array) -> MixedModel:
        """Fit by restricted maximum likelihood."""
        from statsmodels.regression.mixed_linear_model import MixedLM

        design = np.column_stack([np.ones(len(X)), X])
        fit = MixedLM(y, design, self.groups, exog_re=design).fit()
        self.line, self.covariance, self.variance = fit.fe_params, np.asarray(fit.cov_re), float(fit.scale)
        return self

    def interval(self, X: Array, coverage: float) -> Array:
        """Return Normal intervals for a row of a new subject."""
        design = np.column_stack([np.ones(len(X)), X])
        sd = np.sqrt(np.einsum("np,pq,nq->n", design, self.covariance, design) + self.variance)
        from scipy.stats import norm

        half = norm.ppf(0.5 + coverage / 2.0) * sd
        return np.stack([design @ self.line - half, design @ self.line + half])

    def sample_slopes(self, n: int, rng: np.random.Generator) -> Array:
        """Draw slopes (n, p) from the law that was found."""
        values, vectors = np.linalg.eigh(self.covariance)
        root = vectors * np.sqrt(np.maximum(values, 0.0))
        result: Array = (self.line + rng.standard_normal((n, len(self.line))) @ root.T)[:, 1:]
        return result


def run(asked: Asked) -> list[Path]:
    """Run all designs for every seed; write the numbers and a table."""
    rows = asked.replicate(one_replicate, [(name, seed) for name in DESIGNS for seed in asked.seeds])
    results = {str(name): summarise(part) for name, part in rows.groupby("design", sort=False)}
    settings = {
        "seeds": asked.ends,
        "coverage": COVERAGE,
        "fresh rows": _FRESH,
        "rows": {name: design.n for name, design in DESIGNS.items()},
        "estimator": GPSLinearRegression(),
    }
    table = asked.write_table(markdown(results))
    return [asked.write(settings, results), table]


def summarise(rows: pd.DataFrame) -> dict[str, Any]:
    """Return means over seeds of everything that was measured, and interval scores relative to the oracle's."""
    numbers = rows.drop(columns=["design", "seed", "law", "findings"]).dropna(axis=1, how="all").astype(float)
    oracle = numbers["score oracle"].mean()
    names = [str(name) for name in numbers]
    methods = [name.removeprefix("score ") for name in names if name.startswith("score ")]
    return {
        "replicates": len(rows),
        "relative score": {method: numbers[f"score {method}"].mean() / oracle for method in methods},
        "relative score, standard error": {
            method: (numbers[f"score {method}"] / numbers["score oracle"]).sem() for method in methods
        },
        "coverage": {method: numbers[f"coverage {method}"].mean() for method in methods},
        "laws": rows["law"].value_counts().to_dict(),
        "means": {name: numbers[name].mean() for name in names if not name.startswith(("score ", "coverage "))},
    }


def markdown(results: dict[str, Any]) -> str:
    """Write relative interval scores of all methods as a table, a row for each design; the best peer's is in bold."""
    methods = ["GPS", *PEERS]
    lines = [
        "| design | differ | coverage | mean coverage | W1 | " + " | ".join(methods) + " |",
        "|" + "---|" * (5 + len(methods)),
    ]
    for name, result in results.items():
        scores, means = result["relative score"], result["means"]
        best = np.nanmin([scores[method] for method in methods if method in scores])
        shown = [shown_score(scores.get(method), best) for method in methods]
        mean = f"{means['mean coverage']:.3f}" if "mean coverage" in means else "-"
        distance = f"{means['wasserstein GPS']:.3f}" if DESIGNS[name].differs else "-"
        lines.append(
            f"| {name} | {means['differ']:.0%} | {result['coverage']['GPS']:.3f} | {mean} | {distance} | "
            + " | ".join(shown)
            + " |"
        )
    return "\n".join(lines)


def shown_score(score: float | None, best: float) -> str:
    """Write a relative score, the best in bold; a method without one failed."""
    if score is None or np.isnan(score):
        return "failed"
    return f"**{score:.3f}**" if score == best else f"{score:.3f}"
