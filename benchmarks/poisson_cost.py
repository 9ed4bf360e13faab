"""GPSPoissonProcess on ten thousand and on one million points, on the same grid, each fit in a process of its own."""

from __future__ import annotations

import time

import numpy as np
from common import fits_by_size, time_ratio

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


def summarise(rows: list[dict[str, float]]) -> dict[str, float]:
    """Compare times of both sizes."""
    return {"time_ratio": round(time_ratio(rows, SIZES), 3)}


if __name__ == "__main__":
    fits_by_size(__file__, one, SIZES, replicates=2, summarise=summarise)
