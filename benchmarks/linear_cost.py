"""How the cost of ``GPSLinearRegression`` grows with n, p = 20: time, error, standard errors, memory.

Each fit runs in a process of its own, small and large in turn, so that memory is its own and a slow moment of the
machine hits both alike.
"""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
from common import fits_by_size, time_ratio

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


def summarise(rows: list[dict[str, float]]) -> dict[str, float]:
    """Compare times of both sizes, and errors at the larger one."""
    error, least = (
        sum(row[name] for row in rows if row["n"] == SIZES[-1]) for name in ("error", "error_least_squares")
    )
    return {"time_ratio": time_ratio(rows, SIZES), "error_ratio_at_largest_n": error / least}


if __name__ == "__main__":
    fits_by_size(__file__, one, SIZES, replicates=3, summarise=summarise)
