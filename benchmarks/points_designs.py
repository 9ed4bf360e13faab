"""Ten simulated point patterns whose intensity is known: error and intervals of GPSPoissonProcess, beside R's.

Each row is one pattern and one method, appended to a file of JSON lines as soon as it is known; rows that are there are
not computed again. ``--peers`` runs spatstat's bw.ppl, bw.diggle and adaptive kernels through Rscript
(apt-get install r-cran-spatstat.explore), ``--models`` a cubic log-linear model (spatstat's ppm) and a Poisson GAM with
a Gaussian process smooth (mgcv; r-cran-spatstat.model); ``--thinnings`` takes halves of real patterns (GPSUQ_DATA)
instead, and the log-likelihood a point of the other half; ``--goodness`` the p values of the goodness of fit to three
Poisson processes. ``--summary`` prints what the rows say.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import shapely
from scipy.stats import kstest

from gpsuq import GPSPoissonProcess, GPSWarning
from gpsuq.datasets import real_pattern
from gpsuq.spatial import CovariateGrid, Grid, Window, simulate_poisson, thin
from gpsuq.spatial.windows import Array

SQUARE = Window.rectangle(0.0, 1.0, 0.0, 1.0)
HOLES = Window(
    shapely.Polygon([(0, 0), (4, 0), (4, 2), (3, 2.6), (0, 2)]).difference(
        shapely.union_all([shapely.Point(1.2, 1.0).buffer(0.4), shapely.box(2.6, 0.5, 3.2, 1.1)])
    )
)
REAL = "redwoodfull", "longleaf", "bei", "finpines", "japanesepines", "anemones"
NULLS = "gradient", "hotspot", "80 points"
KERNELS, MODELS = ("bw.ppl", "bw.diggle", "adaptive"), ("ppm", "gam")
DEFAULT_SIMULATIONS = 39
_CELLS = 64  # of the grid that errors are taken on


@dataclass(frozen=True)
class Design:
    """A pattern, the intensity it came from, and (for a covariate) what the estimator is told."""

    points: Array
    window: Window
    intensity: Callable[[Array], Array]
    covariates: tuple[CovariateGrid, ...] = ()


def bump(s: Array, x: float, y: float, sd: float) -> Array:
    """Return a Gaussian density around (x, y)."""
    return np.asarray(np.exp(-((s[:, 0] - x) ** 2 + (s[:, 1] - y) ** 2) / (2 * sd**2)) / (2 * np.pi * sd**2))


def gradient(s: Array) -> Array:
    """Return a slope, log-linear from west to east, 300 points."""
    return np.asarray(300.0 * 2.0 * np.exp(2.0 * s[:, 0]) / (np.exp(2.0) - 1.0))


def hotspot(s: Array) -> Array:
    """Return a low level with two thirds of 300 points in one bump."""
    return 100.0 + 200.0 * bump(s, 0.62, 0.41, 0.05)


def ring(s: Array) -> Array:
    """Return a ring on a low level, some 500 points."""
    return np.asarray(100.0 + 1900.0 * np.exp(-((np.hypot(s[:, 0] - 0.5, s[:, 1] - 0.5) - 0.3) ** 2) / (2 * 0.05**2)))


def two_scales(s: Array) -> Array:
    """Return a broad and a narrow bump, 500 points."""
    return 100.0 + 250.0 * bump(s, 0.35, 0.6, 0.18) + 150.0 * bump(s, 0.75, 0.25, 0.03)


def in_holes(s: Array) -> Array:
    """Return a slope and a bump, some 800 points in a polygon with holes."""
    return 40.0 + 20.0 * s[:, 0] + 150.0 * bump(s, 2.2, 1.6, 0.35)


def many(s: Array) -> Array:
    """Return three bumps of different widths, 20,000 points."""
    wide, middle, narrow = bump(s, 0.3, 0.3, 0.15), bump(s, 0.7, 0.65, 0.08), bump(s, 0.2, 0.8, 0.04)
    return 5000.0 + 6000.0 * wide + 5000.0 * middle + 4000.0 * narrow


def uniform(s: Array) -> Array:
    """Return the same everywhere, 80 points."""
    return np.full(len(s), 80.0)


KNOWN = {
    "gradient": gradient,
    "hotspot": hotspot,
    "ring": ring,
    "two scales": two_scales,
    "80 points": uniform,
    "20,000 points": many,
}
DESIGNS = (*list(KNOWN)[:4], "holes", "lgcp", "thomas", "covariate", *list(KNOWN)[4:])


def simulate(name: str, seed: int) -> Design:
    """Draw a pattern of a design."""
    rng = np.random.default_rng([seed, DESIGNS.index(name)])
    if name in KNOWN:
        return Design(simulate_poisson(KNOWN[name], SQUARE, rng), SQUARE, KNOWN[name])
    if name == "holes":
        return Design(simulate_poisson(in_holes, HOLES, rng), HOLES, in_holes)
    if name == "covariate":
        axis = np.linspace(0.0, 1.0, 65)
        values = np.sin(3 * np.pi * axis)[:, None] * np.cos(2 * np.pi * axis) + np.sin(7 * axis)
        covariate = CovariateGrid("height", axis, axis, values)
        value = lambda s: 250.0 * np.exp(0.9 * covariate.at(s))  # noqa: E731
        return Design(simulate_poisson(value, SQUARE, rng), SQUARE, value, (covariate,))
    if name == "thomas":
        parents = rng.uniform(-0.2, 1.2, (rng.poisson(25 * 1.4**2), 2))
        value = lambda s: sum((16.0 * bump(s, x, y, 0.05) for x, y in parents), np.full(len(s), 1e-6))  # noqa: E731
        return Design(simulate_poisson(value, SQUARE, rng), SQUARE, value)
    grid = Grid(SQUARE, _CELLS, _CELLS)
    rate = 400.0 * np.exp(field(rng, 0.8, 0.12) - 0.5 * 0.8**2)
    value = lambda s: rate[grid.cell_of(s)]  # noqa: E731
    return Design(simulate_poisson(value, SQUARE, rng, grid=grid, bound=rate.reshape(_CELLS, _CELLS)), SQUARE, value)


def field(rng: np.random.Generator, sd: float, length: float) -> Array:
    """Draw a Gaussian field with exponential covariance on the grid: (cell,)."""
    n = 2 * _CELLS
    along = np.minimum(np.arange(n), n - np.arange(n)) / _CELLS
    power = np.fft.fft2(sd**2 * np.exp(-np.hypot(along[:, None], along) / length)).real.clip(0.0)
    noise = rng.normal(size=(n, n)) + 1j * rng.normal(size=(n, n))
    return np.asarray(np.fft.fft2(noise * np.sqrt(power / n**2)).real[:_CELLS, :_CELLS].ravel())


def relative_error(estimate: Array, truth: Array, area: Array) -> float:
    """Return the relative L2 error."""
    return float(np.sqrt(area @ (estimate - truth) ** 2 / (area @ truth**2)))


def places_of(grid: Grid) -> tuple[Array, Array]:
    """Return the middle of every cell and its area; those that lie in a hole count nothing."""
    nodes = grid.nodes[grid.inside].copy()
    area = grid.exposure[grid.inside] * grid.window.contains(nodes)
    nodes[area == 0.0] = nodes[area > 0.0][0]
    return nodes, area


def blocks(grid: Grid, side: int) -> Iterator[tuple[Array, Array]]:
    """Yield cells (among those inside) and corners of all whole square blocks of so many cells."""
    x, y = grid.edges
    number = np.full(grid.inside.shape, -1)
    number[grid.inside] = np.arange(grid.inside.sum())
    for row in range(0, grid.n_y - side + 1, side):
        for column in range(0, grid.n_x - side + 1, side):
            cells = number[row : row + side, column : column + side].ravel()
            if (cells >= 0).all():
                yield cells, np.array([x[column], x[column + side], y[row], y[row + side]])


def interval_score(lower: Array, upper: Array, truth: Array) -> float:
    """Return the mean score of 95% intervals, lower is better: their width, and 40 times what they miss by."""
    missed = np.maximum(lower - truth, 0.0) + np.maximum(truth - upper, 0.0)
    return float((upper - lower + 2.0 / 0.05 * missed).mean())


def gps_row(name: str, seed: int) -> dict[str, Any]:
    """Fit the default to a pattern: error, time, and what share of the truth its 95% intervals hold."""
    design = simulate(name, seed)
    grid = Grid.with_cells(design.window, _CELLS**2)
    nodes, area = places_of(grid)
    truth = design.intensity(nodes)
    started = time.process_time()
    model = GPSPoissonProcess(random_state=seed).fit(design.points, design.window, covariates=design.covariates)
    seconds = time.process_time() - started
    places = nodes[np.random.default_rng(seed).permutation(len(nodes))[:400]]
    lower, upper = np.quantile(model.sample_intensity(places, 1000), [0.025, 0.975], axis=0)
    value = design.intensity(places)
    row = {
        "points": len(design.points),
        "seconds": round(seconds, 2),
        "error": relative_error(model.intensity(nodes), truth, area),
        "constant": bool(model.frequency_ == 0.0),
        "spread": float(model.spread_),
        "at a point": float(((lower <= value) & (value <= upper)).mean()),
        "score at a point": interval_score(lower, upper, value) / float(truth @ area / area.sum()),
    }
    for side in (4, 8, 16):
        found = list(blocks(grid, side))
        table = model.region_counts([tuple(corner) for _, corner in found])
        mean = np.array([truth[cells] @ area[cells] for cells, _ in found])
        new = np.random.default_rng([seed, side]).poisson(mean)
        row[f"expected, side {side}"] = float(table["mean_lower"].le(mean).mul(table["mean_upper"].ge(mean)).mean())
        row[f"score, side {side}"] = interval_score(table["mean_lower"], table["mean_upper"], mean) / float(mean.mean())
        row[f"new, side {side}"] = float(table["count_lower"].le(new).mul(table["count_upper"].ge(new)).mean())
    if name in ("lgcp", "80 points"):  # stationary: another realisation makes sense
        found = [tuple(corner) for _, corner in blocks(grid, 16)]
        table = model.region_counts(found, new_field=True)
        counts = grid.counts(simulate(name, seed + 10**6).points)[grid.inside]
        count = np.array([counts[cells].sum() for cells, _ in blocks(grid, 16)])
        row["new field, side 16"] = float(table["count_lower"].le(count).mul(table["count_upper"].ge(count)).mean())
    return row


R_BEGIN = """
suppressMessages(library(spatstat.explore)); suppressMessages(library(jsonlite))
given <- fromJSON("given.json", simplifyVector = FALSE)
read <- function(name) as.matrix(read.csv(name))
points <- read("points.csv"); nodes <- read("nodes.csv")
if (given$rectangle) window <- owin(unlist(given$box[1:2]), unlist(given$box[3:4])) else {
  rings <- lapply(given$rings, function(r) list(x = unlist(lapply(r, `[[`, 1)), y = unlist(lapply(r, `[[`, 2))))
  window <- owin(poly = rings)
}
X <- suppressWarnings(ppp(points[, 1], points[, 2], window = window))
at <- function(image) { v <- image[list(x = nodes[, 1], y = nodes[, 2]), drop = FALSE]
  if (anyNA(v)) { near <- nearest.valid.pixel(nodes[, 1], nodes[, 2], image); v <- image$v[cbind(near$row, near$col)] }
  v }
out <- list()
timed <- function(name, f) { t <- system.time(v <- f()); write.csv(data.frame(v = v), paste0(name, ".csv"))
  write(t[["user.self"]] + t[["sys.self"]], paste0(name, ".time")) }
"""
R_KERNELS = """
fixed <- function(bw) function() { h <- bw(X); at(density(X, sigma = h, positive = TRUE, dimyx = 128)) }
timed("bw.ppl", fixed(function(X) bw.ppl(X)))
timed("bw.diggle", fixed(function(X) bw.diggle(X)))
timed("adaptive", function() {
  local <- bw.abram(X, h0 = bw.ppl(X))
  at(densityAdaptiveKernel(X, bw = local, ngroups = 10, dimyx = 128)) })
"""
R_MODELS = """
suppressMessages(library(spatstat.model)); suppressMessages(library(mgcv))
places <- data.frame(x = nodes[, 1], y = nodes[, 2]); cells <- read.csv("cells.csv")
timed("ppm", function() {
  fit <- ppm(X ~ polynom(x, y, 3)); terms <- model.matrix(~ polynom(x, y, 3), places)
  exp(as.vector(terms %*% coef(fit))) })
timed("gam", function() {
  fit <- gam(count ~ s(x, y, bs = "gp", k = 100) + offset(log(area)), family = poisson, method = "REML", data = cells)
  as.vector(exp(predict(fit, cbind(places, area = 1)))) })
"""


def in_r(
    code: str, peers: Sequence[str], points: Array, window: Window, nodes: Array
) -> dict[str, tuple[Array, float]]:
    """Return each peer's intensity at the nodes and its seconds."""
    grid = Grid.with_cells(window, _CELLS**2)
    centers, area = places_of(grid)
    cells = pd.DataFrame({"x": centers[:, 0], "y": centers[:, 1], "area": area})
    cells["count"] = grid.counts(points)[grid.inside]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        pd.DataFrame(points).to_csv(folder / "points.csv", index=False)
        pd.DataFrame(nodes).to_csv(folder / "nodes.csv", index=False)
        cells[area > 0.0].to_csv(folder / "cells.csv", index=False)
        rings = []
        for polygon in shapely.get_parts(window.polygons):
            polygon = shapely.orient_polygons(polygon)
            rings += [list(r.coords)[:-1] for r in (polygon.exterior, *polygon.interiors)]
        given = {"rectangle": bool(window.is_rectangle), "box": list(window.bounds), "rings": rings}
        (folder / "given.json").write_text(json.dumps(given))
        (folder / "peers.R").write_text(R_BEGIN + code)
        subprocess.run(["Rscript", "peers.R"], cwd=folder, check=True, capture_output=True)
        return {
            peer: (pd.read_csv(folder / f"{peer}.csv")["v"].to_numpy(), float((folder / f"{peer}.time").read_text()))
            for peer in peers
        }


def peer_rows(name: str, seed: int, code: str, peers: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Return error and seconds of estimates in R."""
    design = simulate(name, seed)
    grid = Grid.with_cells(design.window, _CELLS**2)
    nodes, area = places_of(grid)
    truth = design.intensity(nodes)
    found = in_r(code, peers, design.points, design.window, nodes)
    return {
        peer: {"points": len(design.points), "seconds": seconds, "error": relative_error(value, truth, area)}
        for peer, (value, seconds) in found.items()
    }


def held_out(value: Array, area: Array, at: Array) -> float:
    """Return the log-likelihood a point, with the intensity no lower than a thousandth of its mean."""
    floor = 1e-3 * (value @ area) / area.sum()
    return float((np.log(np.maximum(at, floor)).sum() - np.maximum(value, floor) @ area) / len(at))


def thinned_rows(name: str, seed: int, code: str, peers: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Fit half of a real pattern, and score the other half."""
    pattern = real_pattern(name)
    train, test = thin(pattern.points, 0.5, seed)
    grid = Grid.with_cells(pattern.window, 128**2)
    nodes, area = places_of(grid)
    places = np.concatenate([nodes, test])
    if peers:
        found = in_r(code, peers, train, pattern.window, places)
    else:
        started = time.process_time()
        model = GPSPoissonProcess(random_state=seed).fit(train, pattern.window)
        found = {"gps": (model.intensity(places), time.process_time() - started)}
    return {
        method: {
            "points": len(train),
            "seconds": seconds,
            "log-likelihood": held_out(value[: len(nodes)], area, value[len(nodes) :]),
        }
        for method, (value, seconds) in found.items()
    }


def goodness_row(name: str, seed: int) -> dict[str, Any]:
    """Fit a pattern of a Poisson process, and test it against what was fitted."""
    design = simulate(name, seed)
    started = time.process_time()
    model = GPSPoissonProcess(random_state=seed).fit(design.points, design.window)
    p_value = model.goodness_of_fit(DEFAULT_SIMULATIONS).p_value
    return {"points": len(design.points), "seconds": round(time.process_time() - started, 2), "p": p_value}


def rows_of(path: Path) -> pd.DataFrame:
    """Read the rows that are there."""
    lines = path.read_text().splitlines() if path.exists() else []
    return pd.DataFrame([json.loads(line) for line in lines])


def summary(path: Path) -> str:
    """Say what the rows say: means by design and method, and ratios of errors to those of the peers."""
    rows = rows_of(path)
    if "p" in rows:
        return summary_of_p(rows)
    result = "log-likelihood" if "log-likelihood" in rows else "error"
    each = rows.pivot_table(index=["name", "seed"], columns="method", values=result)
    each = each[each["gps"].notna()]  # so that all are compared on the same patterns
    table = each.groupby("name").mean()
    texts = [f"{result}, mean over {each.groupby('name').size().to_dict()} seeds", table.round(4).to_string()]
    times = rows.pivot_table(index="name", columns="method", values="seconds", aggfunc="median")
    texts.append(times.round(2).to_string())
    if result == "error":
        for peer in table.columns.drop("gps"):
            both = each[["gps", peer]].dropna().groupby("name").mean()
            ratio = both["gps"] / both[peer]
            texts.append(f"gps / {peer}: geometric mean {np.exp(np.log(ratio).mean()):.3f}, largest {ratio.max():.3f}")
        mine = rows[rows["method"] == "gps"].drop(columns=["method", "seed"])
        texts.append(mine.groupby("name").mean(numeric_only=True).round(3).T.to_string())
    return "\n\n".join(texts)


def summary_of_p(rows: pd.DataFrame) -> str:
    """Say how far p values are from being uniform: shares below some levels, and Kolmogorov's test."""
    groups = {name: group["p"] for name, group in rows.groupby("name")} | {"all": rows["p"]}
    # A rank among 40 curves is spread evenly over its step, which makes it continuous.
    even = np.random.default_rng(0).random(len(rows))
    smooth = pd.Series(rows["p"] - even / (DEFAULT_SIMULATIONS + 1), index=rows.index)
    table = {
        name: {"nulls": len(p)}
        | {f"p <= {level}": round(float((p <= level + 1e-9).mean()), 3) for level in (0.05, 0.1, 0.25, 0.5)}
        | {"Kolmogorov p": round(float(kstest(smooth[p.index], "uniform").pvalue), 3)}
        for name, p in groups.items()
    }
    return pd.DataFrame(table).T.to_string()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/points_designs.jsonl"))
    parser.add_argument("--seeds", type=int, nargs=2, default=(0, 20), metavar=("FIRST", "END"))
    parser.add_argument("--only", nargs="+")
    parser.add_argument("--peers", action="store_true")
    parser.add_argument("--models", action="store_true")
    parser.add_argument("--thinnings", action="store_true")
    parser.add_argument("--goodness", action="store_true")
    parser.add_argument("--summary", action="store_true")
    arguments = parser.parse_args()
    if arguments.summary:
        print(summary(arguments.out))
        return
    warnings.simplefilter("ignore", GPSWarning)
    rows = rows_of(arguments.out)
    there = set(zip(rows["name"], rows["seed"], rows["method"], strict=True)) if len(rows) else set()
    code, peers = (R_MODELS, MODELS) if arguments.models else (R_KERNELS, KERNELS if arguments.peers else ())
    for seed in range(*arguments.seeds):
        for name in arguments.only or (REAL if arguments.thinnings else NULLS if arguments.goodness else DESIGNS):
            if (name, seed, peers[0] if peers else "gps") in there:
                continue
            if arguments.thinnings:
                found = thinned_rows(name, seed, code, peers)
            elif arguments.goodness:
                found = {"gps": goodness_row(name, seed)}
            else:
                found = peer_rows(name, seed, code, peers) if peers else {"gps": gps_row(name, seed)}
            with arguments.out.open("a") as file:
                for method, row in found.items():
                    file.write(json.dumps({"name": name, "seed": seed, "method": method} | row) + "\n")


if __name__ == "__main__":
    main()
