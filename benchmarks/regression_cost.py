"""Seconds and memory of GPSRegressor: beside NGBoost at 10^4 x 10, at a million rows, and quantiles of 10^5 rows."""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "2")

import numpy as np
from common import write

COLUMNS = 10


def table(n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return rows and outcomes of a smooth function with noise that grows."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, COLUMNS))
    mean = np.sin(2.0 * X[:, 0]) + X[:, 1] * X[:, 2] + 0.5 * X[:, 3] ** 2
    return X, mean + np.exp(0.4 * X[:, 4]) * rng.normal(size=n)


def megabytes() -> float:
    """Return the largest memory that this process has had."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024.0


def fitted(n: int) -> dict[str, float]:
    """Fit n rows, and predict the quantiles of 10^5, beside a plain network of the same width."""
    import torch
    from torch import nn

    from gpsuq import GPSRegressor

    X, y = table(n)
    before = megabytes()
    started = time.perf_counter()
    model = GPSRegressor().fit(X, y)
    found = {"fit seconds": time.perf_counter() - started, "fit megabytes beside the data": megabytes() - before}
    new, _ = table(100_000, 1)
    plain = nn.Sequential(nn.Linear(COLUMNS, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 2))
    started = time.perf_counter()
    with torch.no_grad():
        center, log_scale = plain(torch.from_numpy(new).float()).T
        torch.stack([center + z * log_scale.exp() for z in (-1.645, 0.0, 1.645)], 1)
    found["plain network, quantiles of 10^5 rows"] = time.perf_counter() - started
    started = time.perf_counter()
    model.predict_quantiles(new, [0.05, 0.5, 0.95])
    found["quantiles of 10^5 rows"] = time.perf_counter() - started
    found["megabytes with predictions"] = megabytes() - before
    return found


def ngboost(n: int) -> dict[str, float]:
    """Fit NGBoost with its defaults."""
    from ngboost import NGBRegressor

    X, y = table(n)
    started = time.perf_counter()
    NGBRegressor(verbose=False).fit(X, y)
    return {"fit seconds": time.perf_counter() - started}


RUNS = {"GPS 10^4": (fitted, 10_000), "NGBoost 10^4": (ngboost, 10_000), "GPS 10^6": (fitted, 1_000_000)}


def main() -> None:
    """Run each in a process of its own, and write what they took."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--one", choices=RUNS)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"))
    options = parser.parse_args()
    if options.one is not None:
        run, n = RUNS[options.one]
        print(json.dumps(run(n)))
        return
    found = {}
    for name in RUNS:
        done = subprocess.run([sys.executable, __file__, "--one", name], capture_output=True, text=True, check=True)
        found[name] = json.loads(done.stdout.splitlines()[-1])
        print(name, found[name], flush=True)
    write(options.out, "regression_cost", "python benchmarks/regression_cost.py", found)


if __name__ == "__main__":
    main()
