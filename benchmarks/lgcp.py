"""GPSPoissonProcess beside a log-Gaussian Cox process in NumPyro (NUTS, 4 x (1000 + 1000)), on anemones.

The Cox model is the usual one: counts on a grid, a Gaussian process with an unknown Matern-3/2 length and variance,
non-centred. Its time includes starting Python and compiling; that of GPS the fit, the surface with its quantiles and a
regional interval. Without the real pattern (GPSUQ_DATA) a simulated one of the same size is taken.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
import warnings
from pathlib import Path

import numpy as np

CELLS = 14, 9  # of 20 x 20 units


def pattern():
    from gpsuq.datasets import log_gaussian_cox, real_pattern
    from gpsuq.errors import GPSError
    from gpsuq.spatial import PointPattern, Window

    try:
        return "anemones", real_pattern("anemones")
    except GPSError:
        points = log_gaussian_cox(1, 0, mean=231.0)[0].points * [280.0, 180.0]
        return "simulated", PointPattern(points, Window.rectangle(0, 280, 0, 180))


def run_nuts() -> None:
    """Sample the posterior once; print the smallest effective sample size and the divergences."""
    import numpyro

    numpyro.set_host_device_count(4)
    import jax
    import jax.numpy as jnp
    import numpyro.distributions as dist
    from numpyro.diagnostics import summary
    from numpyro.infer import MCMC, NUTS

    from gpsuq.spatial import Grid

    data = pattern()[1]
    grid = Grid(data.window, *CELLS)
    counts, area = jnp.asarray(grid.counts(data.points).ravel()), float(np.prod(grid.cell_size))
    nodes = grid.nodes.reshape(-1, 2)
    apart = jnp.asarray(np.hypot(*(nodes[:, None] - nodes).transpose(2, 0, 1)))

    def model():
        mean = numpyro.sample("mean", dist.Normal(jnp.log(counts.sum() / (area * counts.size)), 1.0))
        sd = numpyro.sample("sd", dist.HalfNormal(1.0))
        length = numpyro.sample("length", dist.InverseGamma(3.0, 100.0))
        scaled = jnp.sqrt(3.0) * apart / length
        covariance = sd**2 * (1.0 + scaled) * jnp.exp(-scaled) + 1e-5 * jnp.eye(counts.size)
        noise = numpyro.sample("noise", dist.Normal(0.0, 1.0).expand([counts.size]).to_event(1))
        field = mean + jnp.linalg.cholesky(covariance) @ noise
        numpyro.sample("counts", dist.Poisson(area * jnp.exp(field)), obs=counts)

    sampler = MCMC(
        NUTS(model), num_warmup=1000, num_samples=1000, num_chains=4, chain_method="parallel", progress_bar=False
    )
    sampler.run(jax.random.PRNGKey(0), extra_fields=("diverging",))
    table = summary(sampler.get_samples(group_by_chain=True))
    print(int(sampler.get_extra_fields()["diverging"].sum()))
    print(min(float(np.min(values["n_eff"])) for values in table.values()))


def main() -> None:
    from common import write

    from gpsuq import GPSPoissonProcess, GPSWarning

    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"))
    parser.add_argument("--limit", type=float, default=20.0)
    parser.add_argument("--nuts", action="store_true")
    arguments = parser.parse_args()
    if arguments.nuts:
        run_nuts()
        return
    warnings.simplefilter("ignore", GPSWarning)
    name, data = pattern()

    def gps_seconds() -> float:
        started = time.perf_counter()
        model = GPSPoissonProcess().fit(data.points, data.window)
        model.surface()
        model.region_counts((0.0, 70.0, 0.0, 60.0))
        return time.perf_counter() - started

    gps = gps_seconds()
    started = time.perf_counter()
    stopped, divergences, ess = False, None, None
    try:
        call = [sys.executable, __file__, "--nuts"]
        done = subprocess.run(call, check=True, capture_output=True, text=True, timeout=arguments.limit * gps)
        divergences, ess = (float(line) for line in done.stdout.splitlines()[-2:])
    except subprocess.TimeoutExpired:
        stopped = True
    nuts = time.perf_counter() - started
    gps = (gps + gps_seconds()) / 2.0
    result = {
        "pattern": name,
        "points": len(data),
        "gps_seconds": round(gps, 1),
        "nuts_seconds": round(nuts, 1),
        "nuts_stopped": stopped,
        "nuts_divergences": divergences,
        "nuts_smallest_effective_sample_size": ess,
        "ratio": round(nuts / gps, 2),
    }
    print(result)
    write(arguments.out, "lgcp", f"python benchmarks/lgcp.py --limit {arguments.limit:g}", result)


if __name__ == "__main__":
    main()
