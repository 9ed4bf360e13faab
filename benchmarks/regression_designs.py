"""GPSRegressor on simulated designs beside the truth: CRPS over that of the oracle, coverage, modes that are found.

Crossing lines, noise that grows, a ring, skewed noise and counts; 5,000 rows to fit, 4,000 new ones to judge by, and
defaults but for ``family="poisson"`` of counts.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import torch
from common import write
from numpy.typing import NDArray
from scipy import stats

from gpsuq import GPSRegressor

Array = NDArray[np.floating]
ROWS, NEW, SAMPLES = 5000, 4000, 2000
Design = Callable[[Array, np.random.Generator], Array]


def crossing_lines(x: Array, rng: np.random.Generator) -> Array:
    """Draw slope 1 or -1, each for half of the rows."""
    return np.where(rng.random(x.shape) < 0.5, 1.0, -1.0) * x + 0.3 * rng.normal(size=x.shape)


def growing_noise(x: Array, rng: np.random.Generator) -> Array:
    """Draw a wave with noise that grows fivefold."""
    return np.sin(2.0 * x) + 0.1 * np.exp(0.4 * (x + 2.0)) * rng.normal(size=x.shape)


def ring(x: Array, rng: np.random.Generator) -> Array:
    """Draw the upper or the lower half of a circle."""
    side = np.where(rng.random(x.shape) < 0.5, 1.0, -1.0)
    return side * np.sqrt(np.maximum(4.0 - x**2, 0.0)) + 0.1 * rng.normal(size=x.shape)


def skewed(x: Array, rng: np.random.Generator) -> Array:
    """Draw a wave with exponential noise."""
    return np.sin(2.0 * x) + (0.3 + 0.2 * np.abs(x)) * rng.exponential(size=x.shape)


def counts(x: Array, rng: np.random.Generator) -> Array:
    """Draw Poisson counts with a mean between 1 and 20."""
    return rng.poisson(np.exp(1.5 + 0.75 * x)).astype(float)


DESIGNS: dict[str, Design] = {
    "crossing lines": crossing_lines,
    "growing noise": growing_noise,
    "ring": ring,
    "skewed": skewed,
    "counts": counts,
}
MODES = {"crossing lines": (1.5, (-1.5, 1.5)), "ring": (0.0, (-2.0, 2.0))}  # an x, and where the modes are there


def oracle_crps(design: Design, x: Array, y: Array, rng: np.random.Generator) -> float:
    """Return the mean CRPS of y under the true law, by samples of it and without their bias."""
    found = []
    for at, value in zip(x, y, strict=True):
        sample = np.sort(design(np.full(SAMPLES, at), rng))
        spread = sample @ (2.0 * np.arange(1, SAMPLES + 1) - SAMPLES - 1.0) / (SAMPLES * (SAMPLES - 1) / 2)
        found.append(np.abs(sample - value).mean() - 0.5 * spread)
    return float(np.mean(found))


def measured(name: str, seed: int) -> dict[str, object]:
    """Fit one data set of a design, and compare it with the truth."""
    rng, design = np.random.default_rng([seed, *map(ord, name)]), DESIGNS[name]
    x, new = rng.uniform(-2.0, 2.0, ROWS), rng.uniform(-2.0, 2.0, NEW)
    y, target = design(x, rng), design(new, rng)
    family = "poisson" if name == "counts" else "normal"
    model = GPSRegressor(family=family, random_state=seed).fit(x[:, None], y)
    result: dict[str, object] = {
        "crps over oracle": float(model.crps(new[:, None], target).mean()) / oracle_crps(design, new, target, rng),
        "members": model.members_,
    }
    for coverage in (0.9, 0.95):
        interval = model.predict_interval(new[:, None], coverage).to_numpy()
        result[f"coverage {coverage}"] = float(((interval[:, 0] <= target) & (target <= interval[:, 1])).mean())
    if family == "poisson":  # of counts an interval covers more than its level
        true = stats.poisson(np.exp(1.5 + 0.75 * new))
        low, high = true.ppf(0.05), true.ppf(0.95)
        result["coverage 0.9 of the truth"] = float(((low <= target) & (target <= high)).mean())
    if name in MODES:
        at, modes = MODES[name]
        between = model.predict_density([[at]], [0.0])[0]
        heights = [model.predict_density([[at]], [mode])[0] for mode in modes]
        result["both modes"] = bool(between < 0.5 * min(heights))
        result["density between modes over that at them"] = float(between / min(heights))
    return result


def main() -> None:
    """Run all designs, or some, and write what they gave as it comes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--only", default="")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    found: dict[str, list[dict[str, object]]] = {}
    command = f"python benchmarks/regression_designs.py --seeds {options.seeds}"
    command += f" --only '{options.only}'" if options.only else ""
    for seed in range(options.seeds):
        for name in (each for each in DESIGNS if options.only in each):
            found.setdefault(name, []).append(measured(name, seed))
            print(name, seed, found[name][-1], flush=True)
            write(options.out, "regression_designs", command, {"designs": found})


if __name__ == "__main__":
    main()
