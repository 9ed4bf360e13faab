"""How often 95% intervals of mean coefficients hold the truth, over many data sets of every design that is a line."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np

from gpsuq.files import write_atomically
from gpsuq.linear.estimator import GPSLinearRegression
from paper.designs import DESIGNS, fit_design, mean_coverage
from paper.record import command_line, prepare, write_metrics
from paper.replicates import run_replicates


def one_replicate(name: str, seed: int, *, progress: bool = False) -> dict[str, Any]:
    """Fit one data set of a design; return the share of intervals that hold, and whether slopes were said to differ."""
    mean = DESIGNS[name].mean
    assert mean is not None  # only lines have one
    model = fit_design(name, seed)[0]
    return {"design": name, "coverage": mean_coverage(model, mean), "differ": float(model.heterogeneous_)}


def run(
    seed: int, replicates: int, out: Path, *, n_steps: int | None = None, force: bool = False, progress: bool = False
) -> list[Path]:
    """Fit ``replicates`` data sets of every design; write the numbers and a table."""
    prepare(out, force=force)
    started = time.perf_counter()
    names = [name for name, design in DESIGNS.items() if design.mean is not None]
    tasks = [(name, number) for name in names for number in range(seed, seed + replicates)]
    rows = run_replicates(one_replicate, tasks, out, force=force, progress=progress)
    results = {
        str(name): {
            "coverage": float(part["coverage"].mean()),
            "standard error": float(np.std(part["coverage"], ddof=1) / np.sqrt(len(part))),
            "differ": float(part["differ"].mean()),
        }
        for name, part in rows.groupby("design", sort=False)
    }
    table = out / "table.md"
    lines = ["| design | coverage of 95% intervals of the mean | slopes said to differ |", "|---|---|---|"]
    lines += [
        f"| {name} | {row['coverage']:.3f} +- {row['standard error']:.3f} | {row['differ']:.1%} |"
        for name, row in results.items()
    ]
    write_atomically(table, ("\n".join(lines) + "\n").encode())
    settings = {"seeds": [seed, seed + replicates - 1], "estimator": GPSLinearRegression()}
    command = command_line("mean-coverage", out, seed=seed, replicates=replicates)
    return [write_metrics(out, command, settings=settings, results=results, started=started), table]
