"""Tables whose estimates and outliers others have published, fitted with the default settings."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from gpsuq.datasets import regression_table
from gpsuq.errors import GPSWarning
from gpsuq.linear.estimator import GPSLinearRegression
from paper.record import Asked


@dataclass(frozen=True)
class Published:
    """A table, the lines that others found in it (their standard errors, where they gave some), and its outliers."""

    file: str
    y: str
    lines: tuple[dict[str, float], ...]
    errors: dict[str, float] | None
    outliers: tuple[int, ...] | None
    source: str
    columns: tuple[str, ...] | None = None


TABLES: dict[str, Published] = {
    "starsCYG": Published(
        "robustbase_starsCYG",
        "log.light",
        ({"intercept": -4.969, "log.Te": 2.253},),
        {"intercept": 3.410, "log.Te": 0.769},
        (11, 20, 30, 34),
        "MM, robustbase::lmrob",
    ),
    "stackloss": Published(
        "statsmodels_stackloss",
        "STACKLOSS",
        ({"intercept": -41.525, "AIRFLOW": 0.939, "WATERTEMP": 0.580, "ACIDCONC": -0.113},),
        {"intercept": 5.298, "AIRFLOW": 0.117, "WATERTEMP": 0.263, "ACIDCONC": 0.070},
        (4, 21),
        "MM, robustbase::lmrob; rows of weight below 0.3",
    ),
    "coleman": Published(
        "robustbase_coleman",
        "Y",
        (
            {
                "intercept": 30.502,
                "salaryP": -1.666,
                "fatherWc": 0.0843,
                "sstatus": 0.668,
                "teacherSc": 1.168,
                "motherLev": -4.137,
            },
        ),
        {
            "intercept": 6.713,
            "salaryP": 0.431,
            "fatherWc": 0.0147,
            "sstatus": 0.0339,
            "teacherSc": 0.110,
            "motherLev": 0.921,
        },
        (3, 18),
        "MM, robustbase::lmrob; rows of weight below 0.3",
    ),
    "tonedata": Published(
        "mixtools_tonedata",
        "tuned",
        ({"intercept": 1.916, "stretchratio": 0.0425}, {"intercept": -0.019, "stretchratio": 0.992}),
        None,
        None,
        "mixture of two lines by EM, mixtools",
    ),
    "NPreg": Published(
        "flexmix_NPreg",
        "yn",
        ({"intercept": -0.209, "x": 4.818, "x2": 0.036}, {"intercept": 14.717, "x": 9.846, "x2": -0.968}),
        None,
        None,
        "mixture of two parabolas by EM, flexmix",
        ("x", "x2"),
    ),
}


def compare(name: str, seed: int) -> dict[str, Any]:
    """Fit one table and set what was found beside what is published, in standard errors."""
    known = TABLES[name]
    table = regression_table(known.file).drop(columns="rownames", errors="ignore")
    if "x2" in (known.columns or ()):
        table = table.assign(x2=table["x"] ** 2)
    X = table[list(known.columns)] if known.columns else table.drop(columns=known.y)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", GPSWarning)
        model = GPSLinearRegression(random_state=seed).fit(X, table[known.y])
    found = model.lines()
    lines = []
    for published in known.lines:
        names = list(published)
        away = (found[names] - pd.Series(published)).abs()
        relative = away / (found[names].std().fillna(0.0) + away.mean() + 1e-12)
        nearest = int(relative.sum(axis=1).to_numpy().argmin())
        errors = known.errors or _errors_of_line(model, nearest, names)
        lines.append(
            {
                "published": published,
                "found": found.loc[nearest, names].to_dict(),
                "standard errors": errors,
                "away, in standard errors": {key: away[key].to_numpy()[nearest] / errors[key] for key in names},
                "share": found["share"].to_numpy()[nearest],
            }
        )
    outliers = (np.flatnonzero(model.explain_rows(X, table[known.y])["outlier"]) + 1).tolist()
    return {
        "source": known.source,
        "verdict": model.verdict(),
        "lines": lines,
        "outliers published": None if known.outliers is None else list(known.outliers),
        "outliers found": outliers,
    }


def _errors_of_line(model: GPSLinearRegression, line: int, names: list[str]) -> dict[str, float]:
    """Return standard errors of a line's coefficients: how they differ between chains."""
    means = np.stack([law.mean[line] for law in model.fit_.chains])
    draws = model.fit_.units.parameters(means, np.zeros(len(means)))
    columns = dict(zip(model.feature_names_in_, draws["slope"].T, strict=True)) | {"intercept": draws["intercept"]}
    return {name: float(columns[name].std(ddof=1)) for name in names}


def run(asked: Asked) -> list[Path]:
    """Compare all tables; write numbers and a table."""
    results = {name: compare(name, asked.seed) for name in TABLES}
    table = asked.write_table(markdown(results))
    settings = {"seed": asked.seed, "estimator": GPSLinearRegression(random_state=asked.seed)}
    return [asked.write(settings, results), table]


def markdown(results: dict[str, Any]) -> str:
    """Write published and found lines as a table."""
    lines = [
        "| table | published | found | farthest, standard errors | outliers published / found |",
        "|---|---|---|---|---|",
    ]
    for name, result in results.items():
        known = result["outliers published"]
        told = (
            "-" if known is None else f"{', '.join(map(str, known))} / {', '.join(map(str, result['outliers found']))}"
        )
        for line in result["lines"]:
            published, found = (
                ", ".join(f"{value:.3g}" for value in line[key].values()) for key in ("published", "found")
            )
            away = max(line["away, in standard errors"].values())
            lines.append(f"| {name} | {published} | {found} | {away:.2f} | {told} |")
    return "\n".join(lines)
