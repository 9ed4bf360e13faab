"""Nine tables of the UCI repository with the splits that papers on predictive uncertainty use, default settings."""

from __future__ import annotations

import gzip
import json
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from gpsuq.datasets import data_directory
from gpsuq.errors import GPSError, GPSWarning
from gpsuq.linear.estimator import GPSLinearRegression
from paper.designs import shown_score
from paper.peers import PEERS, fit_quietly, interval_score
from paper.record import Asked

Array = NDArray[np.floating]

TABLES = ("boston", "concrete", "energy", "kin8nm", "naval", "power", "protein", "wine", "yacht")
METHODS = ("least squares", "Tukey", "MM", "quantile regression", "conformal")
COVERAGE = 0.9


def read_split(name: str, split: int) -> tuple[Array, Array, Array, Array]:
    """Read a table and one of its splits: columns and targets to fit, columns and targets to judge by."""
    folder = data_directory() / "uci"
    if not (folder / f"{name}.csv.gz").is_file():
        raise GPSError(f"there is no table {name} in {folder}")
    table = pd.read_csv(folder / f"{name}.csv.gz")
    test = np.zeros(len(table), dtype=bool)
    test[splits(name)[split]] = True
    X, y = table.drop(columns="y").to_numpy(float), table["y"].to_numpy(float)
    return X[~test], y[~test], X[test], y[test]


def splits(name: str) -> list[list[int]]:
    """Return the rows of each published test part."""
    with gzip.open(data_directory() / "uci" / f"{name}.splits.json.gz") as file:
        parts: list[list[int]] = json.load(file)["test"]
    return parts


def one_split(name: str, split: int, *, progress: bool = False) -> dict[str, Any]:
    """Fit GPS and its peers with their defaults to one split, and measure them on its test part."""
    X, y, new, target = read_split(name, split)
    result: dict[str, Any] = {"table": name, "split": split}
    started = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", GPSWarning)
        model = GPSLinearRegression(random_state=split).fit(X, y)
    result["seconds"] = time.perf_counter() - started
    result |= {"law": model.law_, "findings": [finding.code for finding in model.findings_]}
    fitted = {"GPS": (model.predict(new), model.predict_interval(new, COVERAGE).to_numpy().T)}
    for peer in METHODS:
        made = fit_quietly(PEERS[peer], X, y)
        if made is None:  # it failed, and has no numbers
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            fitted[peer] = made.predict(new), made.interval(new, COVERAGE)
    for method, (center, bounds) in fitted.items():
        result[f"score {method}"] = interval_score(bounds, target, COVERAGE)
        result[f"coverage {method}"] = float(((bounds[0] <= target) & (target <= bounds[1])).mean())
        result[f"width {method}"] = float((bounds[1] - bounds[0]).mean())
        result[f"rmse {method}"] = float(np.sqrt(np.square(center - target).mean()))
    return result


def run(asked: Asked) -> list[Path]:
    """Run all splits of all tables; the seed of a fit is the number of its split."""
    tasks = [(name, split) for name in TABLES for split in range(len(splits(name)))]
    rows = asked.replicate(one_split, tasks)
    results = {str(name): summarise(part) for name, part in rows.groupby("table", sort=False)}
    table = asked.write_table(markdown(results))
    return [asked.write({"coverage": COVERAGE, "estimator": GPSLinearRegression()}, results), table]


def summarise(rows: pd.DataFrame) -> dict[str, Any]:
    """Return means over splits with standard errors, and ratios to the better of least squares and conformal."""
    numbers = rows.drop(columns=["table", "split", "law", "findings"]).astype(float)
    methods = [method for method in ("GPS", *METHODS) if f"score {method}" in numbers]
    better = min(numbers["score least squares"].mean(), numbers["score conformal"].mean())
    return {
        "splits": len(rows),
        "laws": rows["law"].value_counts().to_dict(),
        "findings": pd.Series([code for codes in rows["findings"] for code in codes]).value_counts().to_dict(),
        "score over the better of least squares and conformal": numbers["score GPS"].mean() / better,
        "rmse over least squares": numbers["rmse GPS"].mean() / numbers["rmse least squares"].mean(),
        "seconds": numbers["seconds"].median(),
        **{
            measure: {
                method: [numbers[f"{measure} {method}"].mean(), numbers[f"{measure} {method}"].sem()]
                for method in methods
            }
            for measure in ("score", "coverage", "width", "rmse")
        },
    }


def markdown(results: dict[str, Any]) -> str:
    """Write interval scores relative to the better of least squares and conformal prediction as a table."""
    lines = [
        "| table | law | coverage | RMSE / least squares | " + " | ".join(["GPS", *METHODS]) + " |",
        "|" + "---|" * (5 + len(METHODS)),
    ]
    for name, result in results.items():
        better = min(result["score"]["least squares"][0], result["score"]["conformal"][0])
        relative = {method: score[0] / better for method, score in result["score"].items()}
        best = np.nanmin(list(relative.values()))
        shown = [shown_score(relative.get(method), best) for method in ("GPS", *METHODS)]
        law = max(result["laws"], key=lambda kind: result["laws"][kind])
        lines.append(
            f"| {name} | {law} | {result['coverage']['GPS'][0]:.3f} | {result['rmse over least squares']:.3f} | "
            + " | ".join(shown)
            + " |"
        )
    return "\n".join(lines)
