"""Time of ``GPSLinearRegression`` at p = 20, with and without a difference between rows, beside a mixture of lines.

The peer is EM with one to three lines, ten random starts each, its number of lines by BIC. Both are fitted in turn in
one process, several times; medians are compared, since the machine's speed varies.
"""

from __future__ import annotations

import argparse
import time
import warnings
from pathlib import Path

import numpy as np

SIZES = (200, 2_000)
PREDICTED = 10_000


def table(n: int, seed: int, *, differs: bool) -> tuple[np.ndarray, np.ndarray]:
    """Give twenty columns; where slopes differ, that of the first is -2 for half of the rows and 2 for the others."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, 20))
    first = rng.choice([-2.0, 2.0], n) if differs else np.ones(n)
    return X, first * X[:, 0] + X[:, 1:].sum(1) + 0.5 * rng.standard_normal(n)


def seconds(call) -> float:
    started = time.perf_counter()
    call()
    return time.perf_counter() - started


def main() -> None:
    from common import write

    from gpsuq import GPSLinearRegression, GPSWarning
    from paper.peers import MixtureOfLines

    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"))
    parser.add_argument("--replicates", type=int, default=3)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore", GPSWarning)
    GPSLinearRegression(n_steps=5).fit(*table(200, 99, differs=True))  # libraries are loaded
    rows = []
    for n in SIZES:
        for differs in (False, True):
            times: dict[str, list[float]] = {"GPS": [], "EM": [], "predict_interval": []}
            laws = []
            for seed in range(arguments.replicates):
                X, y = table(n, seed, differs=differs)
                model, peer = GPSLinearRegression(random_state=seed), MixtureOfLines()
                peer.most = 3
                times["GPS"].append(seconds(lambda model=model, X=X, y=y: model.fit(X, y)))
                times["EM"].append(seconds(lambda peer=peer, X=X, y=y: peer.fit(X, y)))
                new = np.resize(X, (PREDICTED, 20))
                times["predict_interval"].append(seconds(lambda model=model, new=new: model.predict_interval(new)))
                laws.append(model.law_)
            median = {name: float(np.median(each)) for name, each in times.items()}
            ratio = median["GPS"] / median["EM"]
            rows.append({"n": n, "differs": differs, "laws": laws, "seconds": median, "GPS over EM": ratio})
            print(rows[-1], flush=True)
    write(arguments.out, "linear_time", f"python benchmarks/linear_time.py --replicates {arguments.replicates}", rows)


if __name__ == "__main__":
    main()
