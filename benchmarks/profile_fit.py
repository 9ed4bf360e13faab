"""Where the time of one default fit goes: scissors, n = 2,000, four chains, by part of a training step."""

from __future__ import annotations

import argparse
import cProfile
import pstats
import time
from pathlib import Path

from common import write

from gpsuq import GPS, Algorithm
from gpsuq.core.models import linear_regression
from gpsuq.datasets import scissors

PARTS = {
    "batch, weights and noise seeds": [("sources.py", "batch"), ("seeds.py", "seeded")],
    "generator (forward)": [("generators.py", "forward")],
    "score (forward, with its derivatives)": [("distances.py", "terms")],
    "backward": [("", "<method 'run_backward' of 'torch._C._EngineBase' objects>")],
    "clipping and divergence checks": [("training.py", "_condition_gradients")],
    "optimiser step": [("optimizer.py", "wrapper"), ("optimizer.py", "profile_hook_step")],
    "held-out evaluation": [("training.py", "evaluate")],
    "diagnostics": [("diagnostics.py", "diagnose")],
}


def seconds_in(stats: pstats.Stats, file: str, function: str) -> float:
    """Cumulative seconds of a function, outermost calls only."""
    total = 0.0
    for (path, _, name), (_, _, _, cumulative, _) in stats.stats.items():  # type: ignore[attr-defined]
        if name == function and (not file or (path.endswith(file) and "torch/nn" not in path)):
            total = max(total, cumulative)
    return total


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"))
    parser.add_argument("--steps", type=int, default=Algorithm().n_steps)
    arguments = parser.parse_args()
    data = scissors()
    gps = GPS(linear_regression(intercept=False), algorithm=Algorithm(n_steps=arguments.steps))
    GPS(linear_regression(intercept=False), algorithm=Algorithm(n_steps=20)).fit(data.X, data.y)
    started = time.perf_counter()
    gps.fit(data.X, data.y)
    plain = time.perf_counter() - started
    profile = cProfile.Profile()
    profile.runcall(gps.fit, data.X, data.y)
    stats = pstats.Stats(profile)
    whole = seconds_in(stats, "gps.py", "fit")
    rows: dict[str, object] = {
        "steps": arguments.steps,
        "seconds_without_profiler": round(plain, 2),
        "ms_per_step_without_profiler": round(1e3 * plain / arguments.steps, 2),
        "share_of_time": {
            part: round(max(seconds_in(stats, *place) for place in places) / whole, 3) for part, places in PARTS.items()
        },
    }
    for part, share in sorted(rows["share_of_time"].items(), key=lambda item: -item[1]):  # type: ignore[attr-defined]
        print(f"{share:6.1%}  {part}")
    print(write(arguments.out, "profile_fit", "make bench", rows))


if __name__ == "__main__":
    main()
