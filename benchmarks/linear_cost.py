"""How the cost of ``GPSLinearRegression`` grows with n, p = 20: time, error, standard errors, memory.

Each fit runs in a process of its own, small and large in turn, so that memory is its own and a slow moment of the
machine hits both alike.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import numpy as np

SIZES = (10_000, 1_000_000)


def one(n: int, seed: int) -> dict[str, float]:
    """Fit once; memory is the peak of the process over what it held with the data and all libraries loaded."""
    from gpsuq import GPSLinearRegression
    from gpsuq.datasets import correlated
    from gpsuq.linear.baselines import BayesianLinearPosterior

    data = correlated(n, 20, seed=seed)
    warm = correlated(200, 20, seed=seed)
    GPSLinearRegression(n_steps=5, n_chains=2).fit(warm.X, warm.y)
    Path("/proc/self/clear_refs").write_text("5")  # the peak counts from here
    before = memory_mb("VmRSS")
    started = time.perf_counter()
    model = GPSLinearRegression(random_state=seed).fit(data.X, data.y)
    seconds = time.perf_counter() - started
    peak = memory_mb("VmHWM")
    posterior = BayesianLinearPosterior().fit(data.X, data.y)
    truth = data.theta[0]
    ratio = model.summary()["estimation_sd"].iloc[:20] / posterior.sd[:20]
    return {
        "n": n,
        "seed": seed,
        "seconds": seconds,
        "error": float(np.square(model.coef_ - truth).sum()),
        "error_least_squares": float(np.square(posterior.mean[:20] - truth).sum()),
        "estimation_sd_over_posterior": float(np.median(ratio)),
        "memory_mb_over_data": peak - before,
        "data_mb": data.X.nbytes / 2**20,
    }


def memory_mb(field: str) -> float:
    """Read a field of this process's status, in megabytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(float(line.split()[1]) / 1024 for line in lines if line.startswith(field))


def main() -> None:
    from common import in_own_process, write

    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"))
    parser.add_argument("--replicates", type=int, default=3)
    parser.add_argument("--one", type=int, nargs=2)
    arguments = parser.parse_args()
    if arguments.one:
        print(json.dumps(one(*arguments.one)))
        return
    rows = []
    for seed in range(arguments.replicates):
        for n in SIZES:
            rows.append(in_own_process(__file__, n, seed))
            print(rows[-1], flush=True)
            command = f"python benchmarks/linear_cost.py --replicates {arguments.replicates}"
            write(arguments.out, "linear_cost", command, summarise(rows))


def summarise(rows: list[dict[str, float]]) -> dict[str, object]:
    each = {n: [row for row in rows if row["n"] == n] for n in SIZES}
    result: dict[str, object] = {"rows": rows}
    if all(each.values()):
        small, large = (each[n] for n in SIZES)
        error, least = (sum(row[name] for row in large) for name in ("error", "error_least_squares"))
        result["time_ratio"] = float(
            np.median([r["seconds"] for r in large]) / np.median([r["seconds"] for r in small])
        )
        result["error_ratio_at_largest_n"] = error / least
    return result


if __name__ == "__main__":
    main()
