"""Tables of the image experiments: the paper's layout, quality of every method, errors at less than full coverage."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

METHODS = ("plain", "plain-head", "dropout", "ensemble", "gps-0.5", "gps-0.25")
"""Methods in the order of the tables; others follow."""

COVERAGES = tuple(np.round(np.concatenate([np.arange(0.5, 0.9, 0.01), np.arange(0.9, 1.0005, 0.001)]), 3).tolist())
"""Coverages at which the error of every method is written down."""

SELECTIVE = (1.0, 0.95, 0.9, 0.8)
"""Coverages at which the literature compares selective classifiers."""

CURVES = ("uqc_shortfall", "error_probability")
"""Scores by which images are left out in the curves: the verdict's own, and the usual one."""

ONE, BY_CLASS = "calibrated", "by_class"
"""Prefixes of the results of calibrated verdicts, with one threshold and with one for each class."""

Published = Mapping[str, tuple[float | None, ...]]
"""The paper's numbers by method, in per cent."""


def mean_curves(frame: pd.DataFrame) -> dict[str, NDArray[np.float64]]:
    """Return every method's error at each coverage by its own score, the mean over seeds."""
    return {
        str(method): np.mean([row[own_score(str(method))] for row in rows["error_at_coverage"]], axis=0)
        for method, rows in frame.groupby("method", sort=False)
    }


def own_score(method: str) -> str:
    """Return the score that a method's users go by: the verdict's for GPS, the mean probability for the others."""
    return "uqc_shortfall" if method.startswith("gps-") else "error_probability"


def summarise(frame: pd.DataFrame) -> dict[str, Any]:
    """Return means over seeds with their spread; for each GPS the others' errors at its coverage, seed by seed."""
    result: dict[str, Any] = {}
    for method, rows in frame.groupby("method", sort=False):
        entry: dict[str, Any] = {
            str(name): {
                "mean": values.mean(),
                "sd": values.std(ddof=1),
                "median": values.median(),
                "each": list(values),
            }
            for name, values in rows.select_dtypes("number").items()
            if name != "seed"
        }
        entry["seeds"] = list(rows["seed"])
        if str(method).startswith("gps-"):
            entry["at_its_coverage"] = {
                str(other): _against(rows, theirs)
                for other, theirs in frame.groupby("method", sort=False)
                if other != method
            }
        result[str(method)] = entry
    return result


def _against(gps: pd.DataFrame, others: pd.DataFrame) -> dict[str, Any]:
    """Compare certain errors with those of another method that leaves out as many images, by each of its scores.

    Seeds are paired where both have them; a method of a single row, such as the ensemble, is compared with every seed.
    """
    result: dict[str, Any] = {}
    for score in CURVES:
        differences, theirs = [], []
        for _, row in gps.iterrows():
            same = others[others["seed"] == row["seed"]] if len(others) > 1 else others
            for curves in same["error_at_coverage"]:
                theirs.append(error_at(1.0 - row["uncertain"], curves[score]))
                differences.append(row["certain_error"] - theirs[-1])
        found = pd.Series(differences, dtype=float)
        result[score] = {"error": float(np.mean(theirs)) if theirs else None, "gps_minus_it": found.mean(),
                         "standard_error": found.sem()}  # fmt: skip
    return result


def _per_cent(values: pd.Series) -> str:
    spread = f" ± {100 * values.std(ddof=1):.2f}" if len(values) > 1 else ""
    return f"{100 * values.mean():.2f}{spread}"


def _median(values: pd.Series) -> str:
    each = ", ".join(f"{100 * value:.1f}" for value in values)
    return f"{100 * values.median():.1f}" + (f" ({each})" if len(values) > 1 else "")


def paper_table(frame: pd.DataFrame, published: Published, table: int) -> str:
    """Write the table in the paper's layout, its numbers beside ours, in per cent.

    Table 1 has means and standard deviations over seeds, Table 2 medians and every seed.
    """
    shown = _per_cent if table == 1 else _median
    columns = (
        {"error": "error", "certain_error": "error without Uncertain", "uncertain": "Uncertain"}
        if table == 1
        else {"unseen_uncertain": "Uncertain, unseen class", "noise_uncertain": "Uncertain, noise"}
    )
    more = {"uncertain": "Uncertain, seen test images"} if table == 2 else {}
    heads = [head for title in columns.values() for head in (f"{title} (%)", "paper")]
    heads += [f"{title} (%)" for title in more.values()] + ["seeds"]
    lines = ["| method | " + " | ".join(heads) + " |", "|" + "---|" * (len(heads) + 1)]
    for method, rows in frame.groupby("method", sort=False):
        numbers = published.get(str(method), (None,) * len(columns))
        cells = []
        for column, number in zip(columns, numbers, strict=True):
            cells += [shown(rows[column]), "-" if number is None else f"{number:g}"]
        cells += [shown(rows[column]) for column in more]
        lines.append("| " + " | ".join([str(method), *cells, str(len(rows))]) + " |")
    return "\n".join(lines) + "\n"


def calibrated_table(frame: pd.DataFrame) -> str:
    """Write Table 2 for verdicts that were calibrated to one coverage of images set aside, medians and every seed."""
    columns = {
        "uncertain": "Uncertain, seen test images",
        "certain_error": "error without Uncertain",
        "unseen_uncertain": "Uncertain, unseen class",
        "noise_uncertain": "Uncertain, noise",
    }
    lines = ["| method | threshold | " + " | ".join(f"{title} (%)" for title in columns.values()) + " |"]
    lines.append("|" + "---|" * (len(columns) + 2))
    for method, rows in frame.groupby("method", sort=False):
        for prefix, threshold in ((ONE, "one"), (BY_CLASS, "by class")):
            cells = [str(method), threshold, *(_median(rows[f"{prefix}_{column}"]) for column in columns)]
            lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def quality_table(frame: pd.DataFrame) -> str:
    """Write how good every method's ranking and probabilities are, by its own score; means over seeds.

    The error at the coverage of the first GPS is that of a method that leaves out as many images.
    """
    gps = frame[frame["method"].str.startswith("gps-")]
    coverage = None if gps.empty else 1.0 - float(gps[gps["method"] == gps["method"].iloc[0]]["uncertain"].mean())
    others = {"unseen": "unseen class", "noise": "noise", "outside": "other images"}
    others = {name: text for name, text in others.items() if f"{name}_fpr95" in frame}
    heads = ["AURC (x 1000)", "log loss", "Brier", "ECE (%)", *(f"AUROC, {text} (%)" for text in others.values())]
    if coverage is not None:
        heads.append(f"error (%) at {100 * coverage:.1f}% coverage")
    lines = ["| method | " + " | ".join(heads) + " |", "|" + "---|" * (len(heads) + 1)]
    for method, rows in frame.groupby("method", sort=False):
        score = own_score(str(method))
        cells = [
            1000 * rows[f"aurc_{score}"].mean(),
            rows["log_loss"].mean(),
            rows["brier"].mean(),
            100 * rows["ece"].mean(),
        ]
        cells += [100 * rows[f"{name}_auroc_{score}"].mean() for name in others]
        if coverage is not None:
            cells.append(100 * _mean_error(rows, score, coverage))
        lines.append(
            "| " + " | ".join([str(method), *("-" if np.isnan(cell) else f"{cell:.4g}" for cell in cells)]) + " |"
        )
    return "\n".join(lines) + "\n"


def _mean_error(rows: pd.DataFrame, score: str, coverage: float) -> float:
    return float(np.mean([error_at(coverage, errors[score]) for errors in rows["error_at_coverage"]]))


def error_at(coverage: float, errors: Sequence[float]) -> float:
    """Return the error at a coverage from those at :data:`COVERAGES`; NaN below the lowest."""
    return float(np.interp(coverage, COVERAGES, errors, left=np.nan))


def coverage_table(frame: pd.DataFrame, literature: Mapping[str, Sequence[float]]) -> str:
    """Write the error of every method at full coverage and less, by its own score, and what others published."""
    lines = ["| method | " + " | ".join(f"error (%) at {100 * c:g}% coverage" for c in SELECTIVE) + " |"]
    lines.append("|" + "---|" * (len(SELECTIVE) + 1))
    for method, rows in frame.groupby("method", sort=False):
        errors = [100 * _mean_error(rows, own_score(str(method)), coverage) for coverage in SELECTIVE]
        lines.append("| " + " | ".join([str(method), *(f"{error:.2f}" for error in errors)]) + " |")
    for name, published in literature.items():
        lines.append("| " + " | ".join([name, *(f"{error:.2f}" for error in published)]) + " |")
    return "\n".join(lines) + "\n"
