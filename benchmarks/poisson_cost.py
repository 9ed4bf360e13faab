"""GPSPoissonProcess on ten thousand and on one million points, on the same grid, each fit in a process of its own."""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import numpy as np

SIZES = (10_000, 1_000_000)


def one(n: int, seed: int) -> dict[str, float]:
    """Fit once, on a smooth pattern of about n points."""
    from gpsuq import GPSPoissonProcess
    from gpsuq.datasets.patterns import UNIT_SQUARE, bumps
    from gpsuq.spatial import Grid, simulate_poisson

    nodes = Grid(UNIT_SQUARE, 128, 128).nodes.reshape(-1, 2)
    truth = bumps(nodes)
    factor = n / truth.mean()
    points = simulate_poisson(lambda s: factor * bumps(s), UNIT_SQUARE, np.random.default_rng(seed))
    started = time.perf_counter()
    model = GPSPoissonProcess(random_state=seed).fit(points, UNIT_SQUARE)
    seconds = time.perf_counter() - started
    error = np.sqrt(np.square(model.intensity(nodes) - factor * truth).sum() / np.square(factor * truth).sum())
    return {
        "n": n,
        "seed": seed,
        "points": len(points),
        "cells": model.grid_.n_x * model.grid_.n_y,
        "seconds": round(seconds, 1),
        "relative_error": round(float(error), 4),
        "frequency": model.frequency_,
    }


def main() -> None:
    from common import in_own_process, write

    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"))
    parser.add_argument("--replicates", type=int, default=2)
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
    small, large = (np.median([row["seconds"] for row in rows if row["n"] == n]) for n in SIZES)
    command = f"python benchmarks/poisson_cost.py --replicates {arguments.replicates}"
    write(arguments.out, "poisson_cost", command, {"rows": rows, "time_ratio": round(float(large / small), 3)})


if __name__ == "__main__":
    main()
