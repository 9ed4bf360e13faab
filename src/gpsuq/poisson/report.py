"""The report of a Poisson process: its intensity, how well that is known, and whether simulated patterns look alike."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pandas as pd

from gpsuq.core.mixtures import poisson_cumulative
from gpsuq.poisson.estimator import GPSPoissonProcess
from gpsuq.poisson.findings import findings, of_distances
from gpsuq.poisson.plots import envelope, intensity_parts
from gpsuq.reports.blocks import calibration, calibration_blocks, finding_blocks, randomised
from gpsuq.reports.page import Block, Page, Picture, Section, Table, Text, settings_table
from gpsuq.spatial.grids import TILE
from gpsuq.spatial.statistics import Envelope
from gpsuq.spatial.units import shown_area, shown_density, shown_length
from gpsuq.spatial.windows import Array

_SIDES = (TILE, TILE // 2, TILE // 4)  # of the blocks whose counts are checked, in cells
_FEWEST_BLOCKS = 16
_BINS = 10
_MISFIT = "Counts vary otherwise than the model says: look for a missing covariate, or points that attract each other."
_CANDIDATES = (
    "Gain of each candidate over a constant in log density of held-out points, with its standard error over points, "
    "and its weight in the mean: waves by the standard deviation of their frequencies (cycles per longest side), "
    "kernels by their bandwidth"
)

NEEDS_ROWS = False


def poisson_page(estimator: GPSPoissonProcess, fitness: Envelope | None = None) -> Page:
    """Return the report of a fitted process.

    ``fitness`` is ``estimator.goodness_of_fit()``, which simulates patterns and takes a few seconds, where it is known.

    >>> import numpy as np
    >>> from gpsuq import GPSPoissonProcess
    >>> from gpsuq.poisson.report import poisson_page
    >>> points = np.random.default_rng(0).random((150, 2))
    >>> model = GPSPoissonProcess(frequency=1.0, n_chains=2, n_steps=5).fit(points, window=(0, 1, 0, 1))
    >>> page = poisson_page(model, model.goodness_of_fit(n_simulations=9))  # gpsuq.reports.page.write_page writes it
    >>> page.title, page.facts[0]
    ('Intensity of a point pattern', ('points', '150'))
    """
    fitness = estimator.goodness_of_fit() if fitness is None else fitness
    facts = [
        ("points", f"{sum(map(len, estimator.points_)):,}"),
        ("expected per pattern", f"{estimator.integral():,.1f}"),
        ("intensity", "constant" if _is_constant(estimator) else "changes over the window"),
        ("spread between blocks", "none" if estimator.spread_ == 0 else "found"),
    ]
    grid = estimator.grid_
    surfaces = estimator.fit_.surfaces(grid.nodes[grid.inside])
    found = findings(grid, estimator.points_, estimator.n_outside_, surfaces.estimation)  # old files hold none
    found += [finding for finding in [of_distances(fitness)] if finding is not None]
    parts = {"uncertainty of estimation": surfaces.estimation}
    if estimator.spread_ > 0:
        parts = {"heterogeneity between blocks": surfaces.heterogeneity} | parts
    choices = [(estimator.spread_path_, "Held-out score by the size of the random spread")]
    if estimator.smoothness_path_ is not None:
        choices = [(estimator.smoothness_path_, _CANDIDATES), *choices]
    settings = settings_table(estimator.get_params(deep=False), seed=estimator.seed_)
    sections = [
        Section("Intensity", _intensity_blocks(estimator, parts)),
        Section("Heterogeneity and estimation", _spread_blocks(estimator, parts)),
        Section("Checks", [*_count_blocks(estimator), *_distance_blocks(estimator, fitness)]),
        Section("Diagnostics", finding_blocks(found)),
        Section("How sharp, how variable", [Table(*choice) for choice in choices]),
        Section("Data", [Table(_data(estimator), "Points and window")]),
        Section("What was fitted", [Table(settings, "Settings")]),
    ]
    return Page("Intensity of a point pattern", _lead(estimator), sections, facts)


def saved_page(estimator: GPSPoissonProcess, directory: Path, *, progress: bool) -> Page:
    """Return the report of a saved process: it holds its points."""
    return poisson_page(estimator.set_params(progress=progress))


def _is_constant(estimator: GPSPoissonProcess) -> bool:
    return estimator.frequency_ == 0 and not estimator.fit_.locations.covariates


def _lead(estimator: GPSPoissonProcess) -> str:
    chosen = estimator.smoothness_path_ is not None
    if _is_constant(estimator) and chosen:
        return "The points give no reason to think that their intensity changes over the window."
    if _is_constant(estimator):
        return "The intensity was taken to be constant, as was asked for."
    if estimator.frequency_ == 0:
        return "The intensity changes with the covariates, and with nothing else."
    width = shown_length(estimator.window_, estimator.resolution_).text(estimator.resolution_)
    why = ", as held-out points chose" if chosen else ""
    return f"The intensity changes over the window. Features narrower than about {width} are smoothed away{why}."


def _intensity_blocks(estimator: GPSPoissonProcess, parts: Mapping[str, Array]) -> list[Block]:
    inside = estimator.grid_.inside
    maps = {title: np.full(inside.shape, np.nan) for title in parts}
    for title, values in parts.items():
        maps[title][inside] = values
    unit = shown_density(estimator.window_, estimator.integral() / estimator.window_.area).unit
    return [
        Picture(
            intensity_parts(estimator.surface(), max(estimator.points_, key=len), maps),
            "The points, the mean intensity and its relative uncertainty",
            f"Mean intensity in {unit}, and standard deviations relative to it.",
            wide=True,
        ),
    ]


def _spread_blocks(estimator: GPSPoissonProcess, parts: Mapping[str, Array]) -> list[Block]:
    between = (
        "Held-out points ask for no spread of the intensity between blocks: all that is uncertain is its estimate."
        if estimator.spread_ == 0
        else "The intensity differs from block to block by more than the map of its mean shows, which more points do "
        "not reduce."
    )
    relative = {name: {"median": f"{np.median(v):.1%}", "largest": f"{v.max():.1%}"} for name, v in parts.items()}
    table = pd.DataFrame(relative).T.rename_axis("standard deviation / mean")
    return [Text(between), Table(table, "Over the cells of the grid")]


def _count_blocks(estimator: GPSPoissonProcess) -> list[Block]:
    """Check the counts in the largest blocks of which there are enough."""
    cells = estimator.grid_.n_x * estimator.grid_.n_y
    side = next((side for side in _SIDES if cells >= _FEWEST_BLOCKS * side**2), _SIDES[-1])
    rates, counts = estimator.block_counts(side)
    below, at_most = (np.stack([poisson_cumulative(one - k, rates.T) for one in counts]) for k in (1, 0))
    found = calibration(randomised(below, at_most).ravel(), bins=_BINS)
    sides = [side * size for size in estimator.grid_.cell_size]
    note = (
        f"Counts in blocks of {shown_length(estimator.window_, max(sides)).text(*sides)} are compared with what the "
        "model says of a new pattern. It has seen these points: on new ones it would be a little less right."
    )
    if estimator.spread_ > 0:
        note += " Blocks of one pattern may go up and down together; chance then explains more than it seems to."
    return [Text(note), *calibration_blocks(found, "counts in blocks", advice=_MISFIT)]


def _distance_blocks(estimator: GPSPoissonProcess, result: Envelope) -> list[Block]:
    found = of_distances(result)
    alike = f"Distances between points are as in simulated patterns ({result.shown})."
    verdict = (
        Text(alike, "good") if found is None else Text(f"{found.message[0].upper()}{found.message[1:]}.", "advice")
    )
    what = "L function of the points with the envelope of simulated patterns"
    figure = envelope(result, estimator.window_)
    return [verdict, Picture(figure, what, "Above the envelope: clustered; below: regular.")]


def _data(estimator: GPSPoissonProcess) -> pd.DataFrame:
    window = estimator.window_
    rows = {
        "patterns": str(len(estimator.points_)),
        "points": ", ".join(str(len(points)) for points in estimator.points_[:8]),
        "area": shown_area(window).text(window.area),
        "grid": f"{estimator.grid_.n_x} x {estimator.grid_.n_y} cells",
        "covariates": ", ".join(c.name for c in estimator.fit_.locations.covariates) or "none",
    }
    return pd.DataFrame({"value": rows})
