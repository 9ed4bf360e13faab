"""GPSLinearRegression beside NumPyro's NUTS, 4 x (1000 + 1000): Student-t regression, mixture of two regressions.

The time of GPS has everything in it: units, pilot, test, laws, chains, calibration. NUTS runs in a process of its own,
its compilation counted, and is stopped once it has taken ``--limit`` times as long as GPS: the ratio is then a lower
bound. GPS runs before and after NUTS, and its time is the mean of both: the machine's speed varies.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

SIZES = (1_000, 10_000, 100_000)
MODELS = ("student-t", "mixture")


def data_for(model: str, n: int):
    from gpsuq.datasets import correlated, scissors

    return correlated(n, 20, contamination=0.05, seed=0) if model == "student-t" else scissors(n, seed=0)


def sampled(model: Callable[[], None], seed: int = 0, names: Sequence[str] = ()) -> tuple[dict[str, Any], float]:
    """Sample a posterior; return its draws, and the smallest effective sample size (of what is named, or of all)."""
    import jax
    from numpyro.diagnostics import summary
    from numpyro.infer import MCMC, NUTS

    sampler = MCMC(NUTS(model), num_warmup=1000, num_samples=1000, num_chains=4, progress_bar=False)
    sampler.run(jax.random.PRNGKey(seed))
    table = summary(sampler.get_samples(group_by_chain=True))
    return sampler.get_samples(), min(float(table[name]["n_eff"].min()) for name in names or table)


def run_nuts(model: str, n: int) -> None:
    """Sample the posterior once and print the smallest effective sample size."""
    import jax.numpy as jnp
    import numpyro
    import numpyro.distributions as dist

    numpyro.set_host_device_count(4)  # before there are arrays

    data = data_for(model, n)
    X, y = jnp.asarray(data.X, jnp.float32), jnp.asarray(data.y, jnp.float32)

    def student_t():
        slope = numpyro.sample("slope", dist.Normal(0, 10).expand([X.shape[1]]).to_event(1))
        intercept = numpyro.sample("intercept", dist.Normal(0, 10))
        scale = numpyro.sample("scale", dist.HalfNormal(5))
        df = numpyro.sample("df", dist.Gamma(2, 0.1))
        numpyro.sample("y", dist.StudentT(df, intercept + X @ slope, scale), obs=y)

    def mixture():
        weight = numpyro.sample("weight", dist.Dirichlet(jnp.ones(2)))
        slope = numpyro.sample("slope", dist.Normal(0, 10).expand([2, X.shape[1]]).to_event(2))
        intercept = numpyro.sample("intercept", dist.Normal(0, 10).expand([2]).to_event(1))
        scale = numpyro.sample("scale", dist.HalfNormal(5).expand([2]).to_event(1))
        components = dist.Normal(intercept + X @ slope.T, scale)
        numpyro.sample("y", dist.MixtureSameFamily(dist.Categorical(weight), components), obs=y)

    print(sampled(student_t if model == "student-t" else mixture)[1])


def gps_seconds(data) -> float:
    from gpsuq import GPSLinearRegression

    started = time.perf_counter()
    GPSLinearRegression().fit(data.X, data.y)
    return time.perf_counter() - started


def main() -> None:
    from common import write

    from gpsuq import GPSWarning

    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"))
    parser.add_argument("--limit", type=float, default=15.0)
    parser.add_argument("--sizes", type=int, nargs="+", default=list(SIZES))
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--nuts", nargs=2)
    arguments = parser.parse_args()
    if arguments.nuts:
        run_nuts(arguments.nuts[0], int(arguments.nuts[1]))
        return
    warnings.simplefilter("ignore", GPSWarning)
    rows = []
    command = ["python benchmarks/nuts.py", f"--limit {arguments.limit:g}"]
    command += ["--sizes", *map(str, arguments.sizes), "--models", *arguments.models]
    for n in arguments.sizes:
        for model in arguments.models:
            data = data_for(model, n)
            gps = gps_seconds(data)
            started = time.perf_counter()
            ess, stopped = None, False
            try:
                call = [sys.executable, __file__, "--nuts", model, str(n)]
                done = subprocess.run(call, check=True, capture_output=True, text=True, timeout=arguments.limit * gps)
                ess = float(done.stdout.splitlines()[-1])
            except subprocess.TimeoutExpired:
                stopped = True
            nuts = time.perf_counter() - started
            gps = (gps + gps_seconds(data)) / 2.0
            rows.append(
                {
                    "n": n,
                    "model": model,
                    "gps_seconds": round(gps, 1),
                    "nuts_seconds": round(nuts, 1),
                    "nuts_stopped": stopped,
                    "nuts_smallest_effective_sample_size": ess,
                    "ratio": round(nuts / gps, 2),
                }
            )
            print(rows[-1], flush=True)
            write(arguments.out, "nuts", " ".join(command), rows)


if __name__ == "__main__":
    main()
