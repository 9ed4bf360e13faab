"""Relative risk of two types of simulated points, beside spatstat's kernel estimate (``relrisk`` with ``bw.relrisk``).

For each design and number of points, over seeds: root mean squared error of the probability of a type over the window,
the share of places whose 95% interval holds the truth, the share where a type is called surely more or less likely than
overall and the share where that is wrong, and how often random labelling is rejected at 5%. Needs R with
spatstat.explore.
"""

from __future__ import annotations

import argparse
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from common import write
from scipy.special import expit

from gpsuq.poisson.risk import relative_risk
from gpsuq.spatial import Grid, Window

SQUARE = Window.rectangle(0.0, 1.0, 0.0, 1.0)
PLACES = Grid.with_cells(SQUARE, 1024).nodes.reshape(-1, 2)
SCRIPT = Path(__file__).with_name("relrisk.R")
LOGITS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "constant": lambda s: np.full(len(s), -0.5),
    "gradient": lambda s: 3.0 * (s[:, 0] - 0.5),
    "hotspot": lambda s: -1.0 + 3.0 * np.exp(-np.square(s - [0.3, 0.6]).sum(1) / (2 * 0.12**2)),
    "waves": lambda s: 1.5 * np.sin(4.0 * np.pi * s[:, 0]) * np.sin(3.0 * np.pi * s[:, 1]),
}


def simulate(design: str, n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Draw points that are dense in one corner, and whether each is of type b."""
    rng = np.random.default_rng(seed)
    points = np.empty((0, 2))
    while len(points) < n:
        some = rng.random((n, 2))
        points = np.concatenate([points, some[rng.random(n) < np.exp(-np.square(some - 0.4).sum(1) / 0.15)]])
    return points[:n], rng.random(n) < expit(LOGITS[design](points[:n]))


def judged(
    estimate: np.ndarray, lower: np.ndarray, upper: np.ndarray, truth: np.ndarray, share: float
) -> dict[str, Any]:
    """Compare an estimate at the places with the truth."""
    more, less = lower > share, upper < share
    return {
        "error": float(np.sqrt(np.square(estimate - truth).mean())),
        "covered": float(((lower <= truth) & (truth <= upper)).mean()),
        "sure": float((more | less).mean()),
        "sure and wrong": float(((more & (truth < share)) | (less & (truth > share))).mean()),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results")
    parser.add_argument("--points", type=int, nargs="+", default=[150, 600])
    asked = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        pd.DataFrame(PLACES, columns=["x", "y"]).to_csv(f"{folder}/places.csv", index=False)
        cases = [(design, n, seed) for design in LOGITS for n in asked.points for seed in range(asked.seeds)]
        for design, n, seed in cases:
            points, is_b = simulate(design, n, seed)
            table = pd.DataFrame({"x": points[:, 0], "y": points[:, 1], "mark": np.where(is_b, "b", "a")})
            table.to_csv(f"{folder}/{design}-{n}-{seed}.points.csv", index=False)
        started = time.perf_counter()
        subprocess.run(["Rscript", str(SCRIPT), folder], check=True)
        in_r = (time.perf_counter() - started) / len(cases)
        for design, n, seed in cases:
            points, is_b = simulate(design, n, seed)
            truth = expit(LOGITS[design](PLACES))
            started = time.process_time()
            risk = relative_risk(points, np.where(is_b, "b", "a"), SQUARE, n_cells=1024)
            ours = judged(*(m[1].ravel() for m in (risk.probability, risk.lower, risk.upper)), truth, is_b.mean())
            ours |= {"rejected": float(risk.p_value <= 0.05), "seconds": time.process_time() - started}
            kernel = pd.read_csv(f"{folder}/{design}-{n}-{seed}.kernel.csv")
            p, half = kernel["estimate"].to_numpy(), 1.96 * kernel["se"].to_numpy()
            theirs = judged(p, p - half, p + half, truth, is_b.mean()) | {"seconds": in_r}
            rows += [{"design": design, "points": n, "method": m} | r for m, r in (("gps", ours), ("relrisk", theirs))]
    table = pd.DataFrame(rows)
    print(table.groupby(["design", "points", "method"], sort=False).mean().round(3).to_string())
    wide = table.pivot_table(index=["design", "points"], columns="method", values="error", aggfunc=list)
    ratio = wide.apply(lambda row: float(np.exp(np.mean(np.log(row["gps"]) - np.log(row["relrisk"])))), axis=1)
    print(ratio.round(2).to_string())
    means = table.groupby(["design", "points", "method"], sort=False).mean().round(4).reset_index()
    ratios = {f"{design}, {n}": round(value, 3) for (design, n), value in ratio.items()}
    command = f"python benchmarks/relative_risk.py --seeds {asked.seeds} --points {' '.join(map(str, asked.points))}"
    rows = {"means": means.to_dict("records"), "geometric mean of error ratios to relrisk": ratios}
    write(asked.out, "relative_risk", command, rows)


if __name__ == "__main__":
    main()
