"""Verdicts of classifiers on small, ordinary tables: GPS by default beside other forms of it and other methods.

Strangers are a class that was left out, rows whose columns were shuffled, or points outside the data. Rows of test data
are ranked by each method's own score: GPS by its verdict, the others by the largest probability.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from common import kept, write
from sklearn.datasets import load_breast_cancer, load_digits, load_iris, load_wine, make_classification, make_moons
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from gpsuq import GPSClassifier
from gpsuq.classify.baselines import EnsembleClassifier, PlainClassifier
from gpsuq.classify.decisions import auroc, log_loss, risk_coverage, wrong

PAPER = {"layer": None, "spread": "even", "verdict": "quantile", "members": 1}
METHODS: dict[str, Callable[[int], Any]] = {
    "GPS, default": lambda seed: GPSClassifier(random_state=seed),
    "GPS, noise at the last hidden layer": lambda seed: GPSClassifier(layer="3", random_state=seed),
    "GPS, one network": lambda seed: GPSClassifier(members=1, random_state=seed),
    "GPS, one network, paper's verdict": lambda seed: GPSClassifier(**PAPER, random_state=seed),
    "plain network": lambda seed: PlainClassifier(random_state=seed),
    "plain networks, 5": lambda seed: EnsembleClassifier(n_members=5, random_state=seed),
    "logistic regression": lambda seed: make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000)),
    "random forest": lambda seed: RandomForestClassifier(random_state=seed),
    "boosted trees": lambda seed: HistGradientBoostingClassifier(random_state=seed),
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
    if name == "moons":
        X, y = make_moons(1000, noise=0.3, random_state=seed)
        around = random.uniform(-4.0, 4.0, size=(300, 2))
        return X, y, around[(np.abs(around) > 3.0).any(1)]
    if name == "noisy labels":
        X, y = make_classification(
            1500, n_informative=6, n_classes=3, n_clusters_per_class=2, flip_y=0.2, random_state=seed
        )
    elif name == "digits, 300 rows":
        X, y = load_digits(return_X_y=True)
        some = random.permutation(len(X))[:300]
        X, y = X[some], y[some]
    else:
        X, y = {"iris": load_iris, "wine": load_wine, "cancer": load_breast_cancer}[name](return_X_y=True)
    return X, y, np.column_stack([random.permutation(column) for column in X.T])[:150]


TABLES = (
    *("iris", "wine", "wine without a class", "cancer"),
    *("moons", "noisy labels", "digits, 300 rows", "digits without 8"),
)


def measured(method: str, name: str, seed: int) -> dict[str, float]:
    """Fit a method to 60% of a table, and judge the rest and the strangers."""
    X, y, strangers = table(name, seed)
    X, new, y, labels = train_test_split(X, y, test_size=0.4, random_state=seed, stratify=y)
    begin = time.process_time()
    model = METHODS[method](seed).fit(X, y)
    found = {"seconds": time.process_time() - begin}
    probabilities = model.predict_proba(new)
    errors = wrong(probabilities, labels)
    found |= {"error": float(errors.mean()), "log loss": log_loss(probabilities, labels)}
    if isinstance(model, GPSClassifier):
        ours, theirs = model.uncertainty(new), model.uncertainty(strangers)
        scores = ours.uqc_shortfall, theirs.uqc_shortfall
        certain = ~ours.uncertain
        found |= {
            "Uncertain": float(ours.uncertain.mean()),
            "certain error": float(errors[certain].mean()) if certain.any() else 0.0,
            "strangers Uncertain": float(theirs.uncertain.mean()),
        }
    else:
        scores = 1.0 - probabilities.max(1), 1.0 - model.predict_proba(strangers).max(1)
    return found | {"AURC x 1000": 1000.0 * risk_coverage(scores[0], errors).area, "AUROC": auroc(*scores)}


def summary(rows: list[dict[str, Any]]) -> pd.DataFrame:
    """Return means over tables and seeds, in the order of the methods."""
    means = pd.DataFrame(rows).drop(columns=["table", "seed"]).groupby("method").mean()
    return means.reindex([method for method in METHODS if method in means.index]).round(4)


def main() -> None:
    """Measure all methods on all tables; what was measured before is kept."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"))
    parser.add_argument("--tables", nargs="*", default=list(TABLES))
    parser.add_argument("--methods", nargs="*", default=list(METHODS))
    asked = parser.parse_args()
    torch.set_num_threads(1)
    rows = kept(asked.out, "table_verdicts")
    known = {(row["table"], row["method"], row["seed"]) for row in rows}
    for seed in range(asked.seeds):
        for name in asked.tables:
            for method in asked.methods:
                if (name, method, seed) in known:
                    continue
                found = {key: round(value, 4) for key, value in measured(method, name, seed).items()}
                rows.append({"table": name, "method": method, "seed": seed} | found)
                print(rows[-1], flush=True)
            write(asked.out, "table_verdicts", f"python benchmarks/table_verdicts.py --seeds {asked.seeds}", rows)
    print(summary(rows).to_string())


if __name__ == "__main__":
    main()
