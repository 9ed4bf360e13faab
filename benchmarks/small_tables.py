"""Ordinary tables of 16 to 442 rows: GPSRegressor beside least squares, a quantile forest, NGBoost and a linear law.

``python benchmarks/small_tables.py`` fits every method with its defaults to random parts of every table, and scores the
rest: a fifth of the rows, a tenth where there are more than 150. Lines are appended to ``results/small_tables.jsonl``,
and those that are there are not measured again. ``--summarise`` turns all lines into ``results/small_tables.md``.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from scipy import stats
from sklearn.datasets import load_diabetes, load_linnerud, make_friedman1
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import train_test_split
from uci import _FINE, ENDS, Forecast, Predict, gps, intervals_of, ngboost, quantile_crps, quantile_forest

from paper.peers import interval_score

Array = NDArray[np.floating]
Table = tuple[Array, Array]

_MANY = 150  # rows, of which a tenth is enough to score by


def _statsmodels(name: str) -> Table:
    import statsmodels.api as sm

    data = getattr(sm.datasets, name).load_pandas()
    return pd.get_dummies(data.exog, drop_first=True).to_numpy(dtype=float), data.endog.to_numpy(dtype=float)


def _linnerud(_: int) -> Table:
    data = load_linnerud()
    return data.data, data.target[:, 1]


def _linear(n: int) -> Callable[[int], Table]:
    def make(seed: int) -> Table:
        rng = np.random.default_rng([n, seed])
        x = rng.normal(size=(n, 5))
        return x, x @ np.array([2.0, -1.0, 0.5, 0.0, 0.0]) + rng.normal(size=n)

    return make


def _sine(n: int) -> Callable[[int], Table]:
    def make(seed: int) -> Table:
        rng = np.random.default_rng([n, seed])
        x = rng.uniform(-3.0, 3.0, size=(n, 1))
        return x, np.sin(2.0 * x[:, 0]) + 0.3 * rng.normal(size=n)

    return make


def _friedman(n: int) -> Callable[[int], Table]:
    return lambda seed: make_friedman1(n, noise=1.0, random_state=seed)


_KNOWN = (
    *("ccard", "copper", "longley", "stackloss", "scotland", "committee"),
    *("strikes", "cpunish", "statecrime", "engel", "grunfeld"),
)
TABLES: dict[str, Callable[[int], Table]] = {
    "linnerud": _linnerud,
    **{name: lambda _, name=name: _statsmodels(name) for name in _KNOWN},
    "diabetes": lambda _: load_diabetes(return_X_y=True),
    **{f"linear {n}": _linear(n) for n in (40, 80, 150)},
    **{f"sine {n}": _sine(n) for n in (60, 150)},
    **{f"friedman {n}": _friedman(n) for n in (100, 200)},
}


def _from_quantiles(mean: Callable[[Array], Array], quantiles: Callable[[Array, Any], Array]) -> Predict:
    """Return what predicts by quantiles (n, level) at levels that it is asked for."""

    def predict(new: Array) -> Forecast:
        fine = quantiles(new, _FINE)
        return Forecast(mean(new), intervals_of(quantiles(new, ENDS)), lambda y: quantile_crps(y, _FINE, fine))

    return predict


def least_squares(X: Array, y: Array, seed: int) -> Predict:
    """Fit least squares; new rows have Student's t of the flat prior."""
    model = LinearRegression().fit(X, y)
    design = np.column_stack([np.ones(len(X)), X])
    rank = np.linalg.matrix_rank(design)
    freedom = max(len(y) - rank, 1)
    residual = np.square(y - model.predict(X)).sum() / freedom
    inverse = np.linalg.pinv(design)

    def quantiles(new: Array, levels: Any) -> Array:
        leverage = np.square(np.column_stack([np.ones(len(new)), new]) @ inverse).sum(1)
        size = np.sqrt(residual * (1.0 + leverage))[:, None]
        return np.asarray(model.predict(new)[:, None] + size * stats.t.ppf(levels, freedom))

    return _from_quantiles(model.predict, quantiles)


def gps_linear(X: Array, y: Array, seed: int) -> Predict:
    """Fit GPSLinearRegression with its defaults."""
    from gpsuq import GPSLinearRegression

    model = GPSLinearRegression(random_state=seed).fit(X, y)
    return _from_quantiles(model.predict, lambda new, levels: model.predict_quantiles(new, list(levels)).to_numpy())


METHODS: dict[str, Callable[[Array, Array, int], Predict]] = {
    "GPS": gps,
    "GPS linear": gps_linear,
    "least squares": least_squares,
    "quantile forest": quantile_forest,
    "NGBoost": ngboost,
}


def split(table: str, seed: int) -> tuple[Array, Array, Array, Array]:
    """Return rows and targets to fit, and to score by: (X, new X, y, new y)."""
    x, y = TABLES[table](seed)
    share = 0.1 if len(y) > _MANY else 0.2
    return tuple(train_test_split(x, y, test_size=share, random_state=seed))  # type: ignore[return-value]


def scored(forecast: Forecast, y: Array) -> dict[str, float]:
    """Return the scores of a forecast of outcomes y."""
    lower, upper = forecast.intervals[0.9]
    return {
        "crps": float(forecast.crps(y).mean()),
        "interval score 90": interval_score(forecast.intervals[0.9], y, 0.9),
        "coverage 90": float(((lower <= y) & (y <= upper)).mean()),
        "rmse": float(np.sqrt(np.square(forecast.mean - y).mean())),
    }


def measure(path: Path, tables: list[str], seeds: list[int], methods: list[str]) -> None:
    """Append a line for every table, part and method that has none."""
    path.parent.mkdir(parents=True, exist_ok=True)
    held = _lines(path)
    known = set() if held.empty else set(zip(held.table, held.seed, held.method, strict=True))
    for seed in seeds:
        for table in tables:
            x, new, y, target = split(table, seed)
            for method in methods:
                if (table, seed, method) in known:
                    continue
                start = time.process_time()
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    predict = METHODS[method](x, y, seed)
                    seconds = time.process_time() - start
                    found = scored(predict(new), target)
                line = {"table": table, "seed": seed, "method": method, "n": len(y), **found, "seconds": seconds}
                with path.open("a") as file:
                    file.write(json.dumps(line) + "\n")


def _lines(path: Path) -> pd.DataFrame:
    lines = path.read_text().splitlines() if path.exists() else []
    return pd.DataFrame([json.loads(line) for line in lines])


def summarise(path: Path) -> str:
    """Return a table in Markdown: means over parts, of methods beside the best peer of GPS."""
    mean = _lines(path).groupby(["table", "method"]).mean(numeric_only=True).unstack("method")
    peers = [method for method in METHODS if not method.startswith("GPS")]
    heads = ["table", "rows", *METHODS, "GPS: over the best peer", "interval score", "RMSE", "coverage", "seconds"]
    lines = [" | ".join(heads), " | ".join("---" for _ in heads)]
    ratios = []
    for table in (name for name in TABLES if name in mean.index):
        row = mean.loc[table]
        ratio = [row[score, "GPS"] / row[score][peers].min() for score in ("crps", "interval score 90", "rmse")]
        ratios.append([*ratio, row["coverage 90", "GPS"], row["seconds", "GPS"]])
        each = [f"{row['crps', method]:.3g}" for method in METHODS]
        lines.append(" | ".join([table, f"{row['n', 'GPS']:.0f}", *each, *(f"{r:.3g}" for r in ratios[-1])]))
    overall = np.mean(ratios, axis=0)
    lines.append(" | ".join(["mean", *[""] * (1 + len(METHODS)), *(f"{r:.3g}" for r in overall)]))
    return "\n".join(f"| {line} |" for line in lines)


def main() -> None:
    """Measure, or summarise."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"))
    parser.add_argument("--tables", default=",".join(TABLES), help="names with commas between them")
    parser.add_argument("--seeds", type=int, default=2, help="random parts of every table")
    parser.add_argument("--methods", default=",".join(METHODS), help="with commas between them")
    parser.add_argument("--summarise", action="store_true", help="write small_tables.md from all lines")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    rows = arguments.out / "small_tables.jsonl"
    if arguments.summarise:
        page = summarise(rows)
        rows.with_suffix(".md").write_text(page + "\n")
        print(page)
        return
    measure(rows, arguments.tables.split(","), list(range(arguments.seeds)), arguments.methods.split(","))


if __name__ == "__main__":
    main()
