"""The report of a Poisson process: its intensity, how well that is known, and whether simulated patterns look alike."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pandas as pd
import shapely
from numpy.typing import NDArray

from gpsuq.core.mixtures import poisson_cumulative
from gpsuq.poisson.estimator import GPSPoissonProcess
from gpsuq.poisson.plots import density_unit, envelope, intensity_parts
from gpsuq.reports.calibration import calibration, calibration_blocks, randomised
from gpsuq.reports.page import Block, Page, Picture, Section, Table, Text, settings_table
from gpsuq.spatial.grids import TILE, cells_for
from gpsuq.spatial.statistics import Envelope

Array = NDArray[np.float64]

_SURPRISING = 0.05
_SIDES = (TILE, TILE // 2, TILE // 4)  # of the blocks whose counts are checked, in cells
_FEWEST_BLOCKS = 16
_BINS = 10
_FEW_POINTS = 50
_HARDLY_KNOWN = 0.5
_HARDLY_FILLED = 0.25
_MISFIT = "Counts vary otherwise than the model says: look for a missing covariate, or points that attract each other."
_BY_FREQUENCY = (
    "Held-out score by the standard deviation of the waves' frequencies (cycles per longest side); the smoothest "
    "within one standard error of the best is taken"
)


NEEDS_ROWS = False


def poisson_page(estimator: GPSPoissonProcess, fitness: Envelope | None = None) -> Page:
    """Give the report of a fitted process.

    ``fitness`` is ``estimator.goodness_of_fit()``, which simulates patterns and takes a few seconds, where it is known.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> import numpy as np
    >>> from gpsuq import GPSPoissonProcess
    >>> from gpsuq.poisson.report import poisson_page
    >>> from gpsuq.reports.page import write_page
    >>> points = np.random.default_rng(0).random((150, 2))
    >>> model = GPSPoissonProcess(frequency=1.0, n_chains=2, n_steps=5).fit(points, window=(0, 1, 0, 1))
    >>> page = poisson_page(model, model.goodness_of_fit(n_simulations=9))
    >>> page.title, page.facts[0]
    ('Intensity of a point pattern', ('points', '150'))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_page(page, Path(folder, "report.html")).name
    'report.html'
    """
    fitness = estimator.goodness_of_fit() if fitness is None else fitness
    facts = [
        ("points", f"{sum(map(len, estimator.points_)):,}"),
        ("expected per pattern", f"{estimator.integral():,.1f}"),
        ("intensity", "constant" if _is_constant(estimator) else "changes over the window"),
        ("spread between blocks", "none" if estimator.spread_ == 0 else "found"),
    ]
    inside = estimator.grid_.inside
    surfaces = estimator.fit_.surfaces(estimator.grid_.nodes[inside])
    parts = {"uncertainty of estimation": surfaces.estimation}
    if estimator.spread_ > 0:
        parts = {"heterogeneity between blocks": surfaces.heterogeneity} | parts
    sections = [
        Section("Intensity", _intensity_blocks(estimator, parts)),
        Section("Heterogeneity and estimation", _spread_blocks(estimator, parts)),
        Section("Checks", [*_count_blocks(estimator), *_distance_blocks(estimator, fitness)]),
        Section("Diagnostics", _advice(estimator, surfaces.estimation)),
        Section("How sharp, how variable", _choice_blocks(estimator)),
        Section("Data", [Table(_data(estimator), "Points and window")]),
        Section("What was fitted", [Table(_settings(estimator), "Settings")]),
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
    return (
        f"The intensity changes over the window. It is made of waves whose frequencies have a {_sd(estimator)}, "
        f"{'which held-out points chose' if chosen else 'as was asked for'}."
    )


def _sd(estimator: GPSPoissonProcess) -> str:
    return f"standard deviation of {estimator.frequency_:g} cycles per longest side of the window"


def _intensity_blocks(estimator: GPSPoissonProcess, parts: Mapping[str, Array]) -> list[Block]:
    inside = estimator.grid_.inside
    maps = {title: np.full(inside.shape, np.nan) for title in parts}
    for title, values in parts.items():
        maps[title][inside] = values
    return [
        Picture(
            intensity_parts(estimator.surface(), max(estimator.points_, key=len), maps),
            "The points, the mean intensity and its relative uncertainty",
            f"Mean intensity in {density_unit(estimator.window_)}, and standard deviations relative to it.",
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
    width, height = (side * size for size in estimator.grid_.cell_size)
    note = (
        f"Counts in blocks of {width:.4g} x {height:.4g} are compared with what the model says of a new pattern. It "
        "has seen these points: on new ones it would be a little less right."
    )
    if estimator.spread_ > 0:
        note += " Blocks of one pattern may go up and down together; chance then explains more than it seems to."
    return [Text(note), *calibration_blocks(found, "counts in blocks", advice=_MISFIT)]


def _advice(estimator: GPSPoissonProcess, estimation: Array) -> list[Block]:
    """Say in plain words what to be careful about."""
    grid, window = estimator.grid_, estimator.window_
    points = np.concatenate(estimator.points_)
    each = len(points) // len(estimator.points_)
    filled = shapely.MultiPoint(points).convex_hull.area / window.area
    typical = float(np.median(estimation))
    found = {
        f"{len(points)} points say little about an intensity: only its level and its broadest features can be "
        "learned. More points, or replicates of the pattern, would help.": len(points) < _FEW_POINTS,
        f"At a typical place the intensity is known with a relative standard deviation of {typical:.0%}: do not read "
        "details off the map.": typical > _HARDLY_KNOWN,
        f"The grid of {grid.n_x} x {grid.n_y} cells is coarse for {each} points in a pattern: what is smaller than a "
        "cell is lost. Leave n_cells out, or see whether compare_grid() says that it matters.": (
            2 * grid.n_x * grid.n_y < cells_for(each)
        ),
        f"Points outside the window were dropped ({estimator.n_outside_}): check that window and points have the same "
        "coordinates.": estimator.n_outside_ > 0,
        f"The points fill {filled:.0%} of the window: where they could not have been seen, the window must not reach, "
        "as empty parts of it count as evidence of a low intensity.": filled < _HARDLY_FILLED,
    }
    advice: list[Block] = [Text(message, "advice") for message, holds in found.items() if holds]
    return advice or [Text("Nothing to be careful about was found.", "good")]


def _distance_blocks(estimator: GPSPoissonProcess, result: Envelope) -> list[Block]:
    verdict = (
        Text(f"Distances between points are as in simulated patterns (p = {result.p_value:.3g}).", "good")
        if result.p_value > _SURPRISING
        else Text(
            f"Distances between points are not as in simulated patterns (p = {result.p_value:.3g}): points attract or "
            "repel each other beyond what an intensity can describe. Counts in regions are then more variable than "
            "stated.",
            "advice",
        )
    )
    figure = envelope(result, estimator.window_.unit)
    return [
        verdict,
        Picture(
            figure,
            "L function of the points with the envelope of simulated patterns",
            "Above the envelope: clustered; below: regular.",
        ),
    ]


def _choice_blocks(estimator: GPSPoissonProcess) -> list[Block]:
    blocks: list[Block] = []
    smoothness = estimator.fit_.smoothness
    if smoothness is not None:
        blocks.append(Table(smoothness.table, _BY_FREQUENCY))
    spread = estimator.fit_.spread.table
    return [*blocks, Table(spread, "Held-out score by the size of the random spread")]


def _data(estimator: GPSPoissonProcess) -> pd.DataFrame:
    window = estimator.window_
    rows = {
        "patterns": str(len(estimator.points_)),
        "points": ", ".join(str(len(points)) for points in estimator.points_[:8]),
        "area": f"{window.area:.6g} square {window.unit}",
        "grid": f"{estimator.grid_.n_x} x {estimator.grid_.n_y} cells",
        "covariates": ", ".join(c.name for c in estimator.fit_.locations.covariates) or "none",
    }
    return pd.DataFrame({"value": rows})


def _settings(estimator: GPSPoissonProcess) -> pd.DataFrame:
    return settings_table(estimator.get_params(deep=False), seed=estimator.seed_)
