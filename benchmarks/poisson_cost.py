"""GPSPoissonProcess on five hundred points to one million, each fit in a process of its own: seconds and memory."""

from __future__ import annotations

import resource
import time

import numpy as np
from common import fits_by_size, time_ratio

SIZES = (500, 10_000, 20_000, 1_000_000)
SAME_GRID = SIZES[1:]


def one(n: int, seed: int) -> dict[str, float]:
    """Fit once, on a smooth pattern of about n points."""
    from gpsuq import GPSPoissonProcess
    from gpsuq.datasets.patterns import UNIT_SQUARE, bumps
    from gpsuq.spatial import Grid, simulate_poisson

    nodes = Grid(UNIT_SQUARE, 128, 128).nodes.reshape(-1, 2)
    truth = bumps(nodes)
    factor = n / truth.mean()
    points = simulate_poisson(lambda s: factor * bumps(s), UNIT_SQUARE, np.random.default_rng(seed))
    GPSPoissonProcess(n_chains=2, n_steps=2).fit(points[:50], UNIT_SQUARE)  # what the first fit loads is not timed
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    started = time.process_time()
    model = GPSPoissonProcess(random_state=seed).fit(points, UNIT_SQUARE)
    seconds = time.process_time() - started
    more = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    error = np.sqrt(np.square(model.intensity(nodes) - factor * truth).sum() / np.square(factor * truth).sum())
    return {
        "n": n,
        "seed": seed,
        "points": len(points),
        "cells": model.grid_.n_x * model.grid_.n_y,
        "seconds": round(seconds, 1),
        "megabytes": round(more / 1024),
        "relative_error": round(float(error), 4),
        "frequency": model.frequency_,
    }


def summarise(rows: list[dict[str, float]]) -> dict[str, float]:
    """Compare processor times of ten thousand and one million."""
    return {"time_ratio": round(time_ratio(rows, SAME_GRID), 3)}


if __name__ == "__main__":
    fits_by_size(__file__, one, SIZES, replicates=2, summarise=summarise)
