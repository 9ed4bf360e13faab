"""Which law ``GPS`` takes with its defaults, an affine or a bent one, for slopes of four laws, and how far it is off.

Distances are Wasserstein's between draws of the slope and its true quantiles, over the true standard deviation: of the
law that was taken, and of both by themselves, generators that were asked for. Rows that are there are not fitted again.
"""

from __future__ import annotations

import argparse
import itertools
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from torch.distributions import Normal

from gpsuq import GPS, MLP, GPSWarning, ObservationModel, Scale, Slope

MODEL = ObservationModel(
    lambda x, slope, scale: Normal((x * slope).sum(-1), scale), slope=Slope(), scale=Scale(random=False)
)
LAWS = {
    "Normal": lambda rng, n: rng.normal(0.5, 1.5, n),
    "two values": lambda rng, n: rng.choice([-1.0, 2.0], n),
    "t3": lambda rng, n: 0.5 + rng.standard_t(3, n),
    "fixed": lambda rng, n: np.full(n, 0.5),
}
GENERATORS = {"taken": None, "affine": MLP(hidden=(), gain=10.0), "bent": MLP()}


def distance(drawn: np.ndarray, true: np.ndarray) -> float:
    """Return the distance of draws from true slopes, over their deviation, or the noise's where they do not differ."""
    levels = (np.arange(1000) + 0.5) / 1000
    apart = np.abs(np.quantile(drawn, levels) - np.quantile(true, levels)).mean()
    return round(float(apart / (true.std() or 0.5)), 3)


def measured(law: str, n: int, seed: int) -> dict[str, Any]:
    """Fit a data set three times."""
    rng = np.random.default_rng([seed, n])
    X, slopes = rng.normal(size=(n, 1)), LAWS[law](rng, n)
    y = X[:, 0] * slopes + 0.5 * rng.normal(size=n)
    row: dict[str, Any] = {"law": law, "n": n, "seed": seed}
    for name, generator in GENERATORS.items():
        gps = GPS(MODEL, generator)
        row[name] = distance(gps.fit(X, y).draws(1000)["slope"].ravel(), LAWS[law](np.random.default_rng(0), 100_000))
        if gps.law_scores is not None:
            row["chosen"] = gps.law_scores["chosen"].idxmax()
    return row


def main() -> None:
    from common import kept, write

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"))
    parser.add_argument("--seeds", type=int, default=8)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore", GPSWarning)
    rows = kept(arguments.out, "law_shapes")
    done = {(row["law"], row["n"], row["seed"]) for row in rows}
    for case in itertools.product(LAWS, (200, 1000), range(arguments.seeds)):
        if case not in done:
            rows.append(measured(*case))
            print(rows[-1], flush=True)
            write(arguments.out, "law_shapes", f"python benchmarks/law_shapes.py --seeds {arguments.seeds}", rows)


if __name__ == "__main__":
    main()
