"""How often 95% intervals of mean coefficients hold the truth, over many data sets of every design that is a line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from gpsuq.linear.estimator import GPSLinearRegression
from paper.designs import DESIGNS, fit_design, mean_coverage
from paper.record import Asked


def one_replicate(name: str, seed: int, *, progress: bool = False) -> dict[str, Any]:
    """Fit one data set of a design; return the share of intervals that hold, and whether slopes were said to differ."""
    mean = DESIGNS[name].mean
    assert mean is not None  # only lines have one
    model = fit_design(name, seed)[0]
    return {"design": name, "coverage": mean_coverage(model, mean), "differ": float(model.heterogeneous_)}


def run(asked: Asked) -> list[Path]:
    """Fit a data set of every design for every seed; write the numbers and a table."""
    names = [name for name, design in DESIGNS.items() if design.mean is not None]
    tasks = [(name, number) for name in names for number in asked.seeds]
    rows = asked.replicate(one_replicate, tasks)
    results = {
        str(name): {
            "coverage": float(part["coverage"].mean()),
            "standard error": float(np.std(part["coverage"], ddof=1) / np.sqrt(len(part))),
            "differ": float(part["differ"].mean()),
        }
        for name, part in rows.groupby("design", sort=False)
    }
    lines = ["| design | coverage of 95% intervals of the mean | slopes said to differ |", "|---|---|---|"]
    lines += [
        f"| {name} | {row['coverage']:.3f} +- {row['standard error']:.3f} | {row['differ']:.1%} |"
        for name, row in results.items()
    ]
    table = asked.write_table("\n".join(lines))
    return [asked.write({"seeds": asked.ends, "estimator": GPSLinearRegression()}, results), table]
