"""Two of the ten models beside NumPyro's NUTS with Normal laws of what varies, on the same data, one after the other.

NUTS takes 4 x (1000 + 1000) steps in a process of its own, its compilation counted, tastes and slopes standardised
(not centred) so that it mixes. Its law of a parameter is Normal with mean and deviation drawn from their posterior.
Distances of laws from the truth are those of ``ten_models.py``; rows that the results file has are not measured again.
"""

from __future__ import annotations

import argparse
import time
import warnings
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
from nuts import sampled
from ten_models import TRUTH, distance, fitted, judged, models

TITLES = ("A logit of persons", "Counts with too many zeros")
LAWS = 4000  # draws of a law


def run_nuts(title: str, seed: int) -> dict[str, Any]:
    """Sample the posterior once; return distances of laws from the truth, and the smallest effective sample size."""
    import jax.numpy as jnp
    import numpyro
    import numpyro.distributions as dist

    numpyro.set_host_device_count(4)  # before there are arrays

    head, sections = models()
    names: dict[str, Any] = {}
    exec(head, names)
    names["rng"] = np.random.default_rng(seed)
    exec(sections[title][0], names)
    X, y = jnp.asarray(names["X"], jnp.float32), jnp.asarray(names["y"], jnp.float32)

    def law(n: int, width: int) -> Any:
        mean = numpyro.sample("mean", dist.Normal(0, 5).expand([width]).to_event(1))
        deviation = numpyro.sample("deviation", dist.HalfNormal(5).expand([width]).to_event(1))
        return mean + deviation * numpyro.sample("z", dist.Normal().expand([n, width]).to_event(2))

    def logit() -> None:
        taste, level = law(*X.shape[::2]), numpyro.sample("level", dist.Normal(0, 5))
        numpyro.sample("y", dist.Bernoulli(logits=(X * taste[:, None]).sum(-1) + level).to_event(2), obs=y)

    def zeros() -> None:
        slope, level = law(*X.shape), numpyro.sample("level", dist.Normal(0, 5))
        never = numpyro.sample("never", dist.Uniform())
        rate = jnp.exp(level + (X * slope).sum(-1))
        numpyro.sample("y", dist.ZeroInflatedPoisson(never, rate).to_event(1), obs=y)

    samples, ess = sampled(logit if title == TITLES[0] else zeros, seed, ("mean", "deviation"))
    found = {name: np.asarray(values) for name, values in samples.items()}
    rng, rows = np.random.default_rng(seed), np.arange(LAWS) % len(found["mean"])
    drawn = found["mean"][rows] + found["deviation"][rows] * rng.normal(size=(LAWS, found["mean"].shape[1]))
    laws = [truth for truth in TRUTH[title].values() if callable(truth)]
    return {"nuts_w1": [round(distance(drawn[:, k], each), 3) for k, each in enumerate(laws)], "nuts_ess": round(ess)}


def main() -> None:
    from common import kept, write

    from gpsuq import GPSWarning

    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"))
    parser.add_argument("--seeds", type=int, default=3)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore", GPSWarning)
    head, sections = models()
    rows: list[dict[str, Any]] = kept(arguments.out, "nuts_models")
    done = {(row["model"], row["seed"]) for row in rows}
    for seed in range(1, arguments.seeds + 1):
        for title in TITLES:
            if (title, seed) in done:
                continue
            names, seconds, _ = fitted(head, *sections[title], seed)
            laws = [each["w1"] for each in judged(title, names).values() if "w1" in each]
            started = time.perf_counter()
            with ProcessPoolExecutor(1, get_context("spawn")) as pool:  # which starts Python and compiles, as users do
                said = pool.submit(run_nuts, title, seed).result()
            nuts = time.perf_counter() - started
            row = {"model": title, "seed": seed, "gps_seconds": round(seconds, 1), "nuts_seconds": round(nuts, 1)}
            rows.append(row | {"ratio": round(nuts / seconds, 1), "gps_w1": laws} | said)
            print(rows[-1], flush=True)
            write(arguments.out, "nuts_models", f"python benchmarks/nuts_models.py --seeds {arguments.seeds}", rows)


if __name__ == "__main__":
    main()
