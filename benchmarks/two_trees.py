"""The same fits by two source trees in turn: whether the numbers agree, and how the times compare.

``python benchmarks/two_trees.py --old PATH/src`` runs scissors, twenty tables with outliers, anemones and digits with
the package at PATH and with this one, each in a process of its own.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np

FITS = ("scissors", "outliers", "anemones", "digits")


def fit(name: str) -> list[float]:
    """Fit one example with the package that is found, by names that both trees have; return some of its numbers."""
    import warnings

    import gpsuq
    from gpsuq import datasets

    warnings.simplefilter("ignore")
    if name == "scissors":
        data = datasets.scissors(seed=0)
        location, scale = gpsuq.Slope(), gpsuq.Scale()
        model = gpsuq.ObservationModel(_line, slope=location, sigma=scale)
        return gpsuq.GPS(model, seed=0).fit(data.X, data.y).summary()["mean"].tolist()
    if name == "outliers":
        found = []
        for seed in range(20):
            data = datasets.correlated(200, 20, contamination=0.05, seed=seed)
            found += gpsuq.GPSLinearRegression(random_state=seed).fit(data.X, data.y).coef_.tolist()
        return found
    if name == "anemones":
        pattern = datasets.real_pattern("anemones")
        process = gpsuq.GPSPoissonProcess(random_state=0).fit(pattern.points, pattern.window)
        return [process.integral(), *process.surface().mean.ravel()[::50].tolist()]
    images = [datasets.load_images("digits", split) for split in ("train", "test")]
    rows = [each.pixels().reshape(len(each.labels), -1) for each in images]
    classifier = gpsuq.GPSClassifier(random_state=0).fit(rows[0], images[0].labels)
    return classifier.predict_proba(rows[1][:50]).ravel().tolist()


def _line(x, slope, sigma):
    from torch.distributions import Normal

    return Normal((x * slope).sum(-1), sigma)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--old", type=Path)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"))
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--one", choices=FITS)
    arguments = parser.parse_args()
    if arguments.one:
        import time

        import torch

        torch.set_num_threads(1)
        fit(arguments.one) if arguments.one == "digits" else None  # a first fit pays for what is loaded
        started = time.perf_counter()
        numbers = fit(arguments.one)
        print(json.dumps([time.perf_counter() - started, numbers]))
        return
    from common import write

    trees = {"old": arguments.old.resolve(), "new": Path(__file__).parents[1].resolve() / "src"}
    rows = []
    for name in FITS:
        seconds: dict[str, list[float]] = {tree: [] for tree in trees}
        numbers = {}
        for _ in range(arguments.repeats):
            for tree, path in trees.items():
                call = [sys.executable, __file__, "--one", name]
                said = subprocess.run(
                    call, check=True, capture_output=True, text=True, env=os.environ | {"PYTHONPATH": str(path)}
                )
                taken, numbers[tree] = json.loads(said.stdout.splitlines()[-1])
                seconds[tree].append(taken)
        old, new = (np.array(numbers[tree], dtype=float) for tree in ("old", "new"))
        medians = {tree: float(np.median(values)) for tree, values in seconds.items()}
        rows.append(
            {
                "fit": name,
                "numbers": len(old),
                "largest difference": float(np.nanmax(np.abs(old - new))),
                "seconds before": round(medians["old"], 2),
                "seconds": round(medians["new"], 2),
                "ratio": round(medians["new"] / medians["old"], 3),
            }
        )
        print(rows[-1], flush=True)
    write(
        arguments.out, "two_trees", f"python benchmarks/two_trees.py --old OLD/src --repeats {arguments.repeats}", rows
    )


if __name__ == "__main__":
    main()
