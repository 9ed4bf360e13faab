"""Data larger than memory: ``GPSLinearRegression`` and ``GPS`` on Parquet files that are streamed, p = 20.

Two designs: equal coefficients with Normal noise; and a third of the rows with other slopes, under t noise with 3
degrees of freedom. Files of 10^6 rows are written once for each, in bounded memory, with the normal equations of all
rows beside them; smaller sizes are the first of these files. Each fit runs in a process of its own, single-threaded,
whose peak of resident memory is told (imports included). With ``--steps``, the time of a training step of ``GPS`` in
place of all that. The files are deleted afterwards.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from common import write

P, PART = 20, 1_000_000
DESIGNS = ("equal", "subgroup")
STEPS = 100, 500


def make(folder: Path, n: int, design: str) -> None:
    """Write the rows, and after each file the least squares fit of all rows so far and its squared error."""
    import pyarrow as arrow
    from pyarrow import parquet

    root = np.linalg.cholesky(np.where(np.eye(P) == 1, 1.0, 0.5)).T
    theta = np.random.default_rng(0).standard_normal(P)
    other = np.where(np.arange(P) < 3, -theta, theta)
    truth = theta if design == "equal" else (2.0 * theta + other) / 3.0
    gram, pull, errors = np.zeros((P + 1, P + 1)), np.zeros(P + 1), {}
    for part in range(n // PART):
        rng = np.random.default_rng([1, part])
        X = rng.standard_normal((PART, P), dtype=np.float32) @ root.astype(np.float32)
        if design == "equal":
            y = X @ theta + rng.standard_normal(PART)
        else:
            y = np.where(rng.random(PART) < 1 / 3, X @ other, X @ theta) + rng.standard_t(3, PART)
        y = y.astype(np.float32)
        columns = {f"x{column}": X[:, column] for column in range(P)} | {"y": y}
        parquet.write_table(arrow.table(columns), folder / f"part-{part:04}.parquet", row_group_size=1 << 17)
        both = np.column_stack([X, np.ones(PART)]).astype(np.float64)
        gram += both.T @ both
        pull += both.T @ y
        errors[(part + 1) * PART] = float(np.square(np.linalg.solve(gram, pull)[:P] - truth).sum())
    (folder / "truth.json").write_text(json.dumps({"truth": truth.tolist(), "least_squares": errors}), encoding="utf-8")


def fit(folder: Path, n: int) -> dict[str, Any]:
    """Fit the linear regression to the first n rows."""
    from gpsuq import GPSLinearRegression
    from gpsuq.tables.streaming import ParquetRows

    known = json.loads((folder / "truth.json").read_text(encoding="utf-8"))
    started = time.perf_counter()
    rows = ParquetRows(sorted(folder.glob("*.parquet"))[: n // PART], "y")
    first = time.perf_counter() - started
    model = GPSLinearRegression().fit(rows)
    seconds = time.perf_counter() - started - first
    started = time.perf_counter()
    read = sum(len(block.y) for block in rows.blocks())
    error, least = float(np.square(model.coef_ - known["truth"]).sum()), known["least_squares"][str(n)]
    return {
        "n": read,
        "first_pass_seconds": first,
        "fit_seconds": seconds,
        "first_pass_microseconds_a_row": 1e6 * first / n,
        "reading_microseconds_a_row": 1e6 * (time.perf_counter() - started) / n,
        "law": model.law_,
        "error": error,
        "error_least_squares": least,
        "error_ratio": error / least,
        "estimation_sd_over_error": float(
            np.sqrt(np.square(model.summary()["estimation_sd"].iloc[:P]).sum() / max(error, 1e-300))
        ),
        "peak_resident_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


def steps(folder: Path, n: int) -> dict[str, Any]:
    """Train ``GPS`` on the first n rows for two lengths; their difference is steps, without start and first pass."""
    from torch.distributions import Normal

    from gpsuq import GPS, Algorithm, ObservationModel, Positive, Slope
    from gpsuq.tables.streaming import ParquetRows

    rows = ParquetRows(sorted(folder.glob("*.parquet"))[: n // PART], "y")
    model = ObservationModel(
        lambda x, theta, sigma: Normal((x * theta).sum(-1), sigma), theta=Slope(), sigma=Positive()
    )
    seconds = []
    for length in STEPS:
        started = time.perf_counter()
        GPS(model, algorithm=Algorithm(n_steps=length)).fit(rows)
        seconds.append(time.perf_counter() - started)
    return {
        "n": n,
        "milliseconds_a_step": 1e3 * (seconds[1] - seconds[0]) / (STEPS[1] - STEPS[0]),
        "peak_resident_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


def alone(task: str, folder: Path, n: int, design: str = "equal") -> Any:
    """Run one of the tasks in a process of its own, with one thread."""
    call = [sys.executable, __file__, "--task", task, str(folder), str(n), design]
    threads = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    said = subprocess.run(call, check=True, stdout=subprocess.PIPE, text=True, env=os.environ | threads).stdout
    return json.loads(said.splitlines()[-1]) if said else None


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, nargs="+", default=[10**6, 10**7, 10**8])
    parser.add_argument("--steps", action="store_true")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"))
    parser.add_argument("--task", nargs=4)
    arguments = parser.parse_args()
    if arguments.task:
        task, folder, n, design = arguments.task
        if task == "make":
            make(Path(folder), int(n), design)
        else:
            print(json.dumps({"fit": fit, "steps": steps}[task](Path(folder), int(n))))
        return
    task, name = ("steps", "streamed_steps") if arguments.steps else ("fit", "streamed")
    found: dict[str, Any] = {design: [] for design in DESIGNS[: 1 if arguments.steps else None]}
    for design, rows in found.items():
        with tempfile.TemporaryDirectory() as folder:
            alone("make", Path(folder), max(arguments.rows), design)
            for n in arguments.rows * (3 if arguments.steps else 1):  # in turn, as the machine is not always as fast
                rows.append(alone(task, Path(folder), n))
                print(design, rows[-1], flush=True)
        options = f"--rows {' '.join(map(str, arguments.rows))}{' --steps' * arguments.steps}"
        write(arguments.out, name, f"python benchmarks/streamed.py {options}", found)


if __name__ == "__main__":
    main()
