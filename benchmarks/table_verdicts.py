"""Verdicts of classifiers on small, ordinary tables: GPS beside a plain network, logistic regression and a forest.

Strangers are a class that was left out, rows whose columns were shuffled, or points outside the data. Rows of test data
are ranked by each method's own score: GPS by its verdict, the others by the largest probability.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from common import write
from sklearn.datasets import load_breast_cancer, load_digits, load_wine, make_moons
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from gpsuq import GPSClassifier
from gpsuq.classify.baselines import PlainClassifier
from gpsuq.classify.decisions import auroc, log_loss, risk_coverage, wrong

NEW = {"layer": "auto", "loss": "log", "spread": "distance", "verdict": "combined"}
VERDICT = {"spread": "distance", "verdict": "combined"}
METHODS: dict[str, Callable[[int], Any]] = {
    "GPS, default": lambda seed: GPSClassifier(random_state=seed),
    "GPS, distance": lambda seed: GPSClassifier(**NEW, random_state=seed),
    "GPS, distance, trained by default": lambda seed: GPSClassifier(**VERDICT, random_state=seed),
    "plain network": lambda seed: PlainClassifier(random_state=seed),
    "logistic regression": lambda seed: make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000)),
    "random forest": lambda seed: RandomForestClassifier(300, random_state=seed),
}


def without(load: Callable[..., Any], left_out: int) -> tuple[Any, Any, Any]:
    """Return rows and classes of a table without one class, numbered anew, and the rows of that class."""
    X, y = load(return_X_y=True)
    known = y != left_out
    return X[known], np.unique(y[known], return_inverse=True)[1], X[~known]


def table(name: str, seed: int) -> tuple[Any, Any, Any]:
    """Return rows, classes and strangers."""
    random = np.random.default_rng(seed)
    if name == "digits without 8":
        return without(load_digits, 8)
    if name == "wine without a class":
        return without(load_wine, 2)
    if name == "cancer":
        X, y = load_breast_cancer(return_X_y=True)
        return X, y, np.column_stack([random.permutation(column) for column in X[::5].T])
    X, y = make_moons(1000, noise=0.3, random_state=seed)
    around = random.uniform(-4.0, 4.0, size=(300, 2))
    return X, y, around[(np.abs(around) > 3.0).any(1)]


TABLES = ("digits without 8", "wine without a class", "cancer", "moons")


def measured(method: str, name: str, seed: int) -> dict[str, float]:
    """Fit a method to 60% of a table, and judge the rest and the strangers."""
    X, y, strangers = table(name, seed)
    X, new, y, labels = train_test_split(X, y, test_size=0.4, random_state=seed, stratify=y)
    model = METHODS[method](seed).fit(X, y)
    probabilities = model.predict_proba(new)
    errors = wrong(probabilities, labels)
    found = {"error": float(errors.mean()), "log loss": log_loss(probabilities, labels)}
    if hasattr(model, "uncertainty"):
        ours, theirs = model.uncertainty(new), model.uncertainty(strangers)
        scores = ours.uqc_shortfall, theirs.uqc_shortfall
        found |= {"Uncertain": float(ours.uncertain.mean()), "strangers Uncertain": float(theirs.uncertain.mean())}
    else:
        scores = 1.0 - probabilities.max(1), 1.0 - model.predict_proba(strangers).max(1)
    return found | {"AURC x 1000": 1000.0 * risk_coverage(scores[0], errors).area, "AUROC": auroc(*scores)}


def main() -> None:
    """Measure all methods on all tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"))
    asked = parser.parse_args()
    torch.set_num_threads(1)
    result: dict[str, Any] = {}
    for name in TABLES:
        for method in METHODS:
            rows = [measured(method, name, seed) for seed in range(asked.seeds)]
            means = {key: round(float(np.mean([row[key] for row in rows])), 4) for key in rows[0]}
            spread = {key: round(float(np.std([row[key] for row in rows], ddof=1)), 4) for key in rows[0]}
            result.setdefault(name, {})[method] = {"mean": means, "sd": spread}
            print(name, method, means, flush=True)
    write(asked.out, "table_verdicts", f"python benchmarks/table_verdicts.py --seeds {asked.seeds}", result)


if __name__ == "__main__":
    main()
