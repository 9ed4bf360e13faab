"""The report of a point pattern: where it is dense and how sure that is, types, misses, whether points interact."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from gpsuq.core.mixtures import poisson_cumulative
from gpsuq.poisson import check_plots
from gpsuq.poisson.estimator import GPSPoissonProcess
from gpsuq.poisson.findings import findings, of_distances
from gpsuq.poisson.intensity import IntensitySurface
from gpsuq.poisson.plots import envelope, first_look, uncertainty
from gpsuq.poisson.risk import RelativeRisk
from gpsuq.reports.blocks import calibration, calibration_blocks, calibration_verdict, randomised, trust
from gpsuq.reports.page import Block, Page, Picture, Section, Table, Text, settings_table
from gpsuq.spatial.grids import TILE
from gpsuq.spatial.statistics import Envelope
from gpsuq.spatial.units import shown_area, shown_density, shown_length

_SIDES = (TILE, TILE // 2, TILE // 4)  # of the blocks whose counts are checked, in cells
_FEWEST_BLOCKS = 16
_SURPRISING = 0.05
_BINS = 10
_MAP_CELLS = 9216
_CONSTANT = 0.05  # range of an intensity, relative to its mean
_MISFIT = "Counts vary otherwise than the model says: look for a missing covariate, or points that attract each other."
_CANDIDATES = (
    "Gain of each candidate over a constant in log density of held-out points, with its standard error over points, "
    "and its weight in the mean: waves by the standard deviation of their frequencies (cycles per longest side), "
    "kernels by their bandwidth"
)
_SURE = "Each place is judged by itself: of many, a few are called sure by chance."
_PARTIAL = "Mean intensity if the covariate had each value everywhere, all else being as it is, with 95% limits."
_INTERACT = "Points that attract or repel each other by type would make the intervals too narrow."

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
    grid, window, points = estimator.grid_, estimator.window_, max(estimator.points_, key=len)
    surfaces = estimator.fit_.surfaces(grid.nodes[grid.inside])
    found = findings(grid, estimator.points_, estimator.n_outside_, surfaces.estimation)  # old files hold none
    parts = {"uncertainty of estimation": surfaces.estimation}
    if estimator.spread_ > 0:
        parts = {"heterogeneity between blocks": surfaces.heterogeneity} | parts
    surface, average = estimator.surface(n_cells=_MAP_CELLS), estimator.integral() / window.area
    risk = None if estimator.marks_ is None else estimator.relative_risk()
    counts, side = _counts(estimator)
    verdicts = [
        calibration_verdict(counts, "counts in blocks", advice=_MISFIT),
        _distances(fitness),
        *([] if risk is None else [_types(risk)]),
    ]
    density, area = shown_density(window, average), shown_area(window, average)
    facts = [
        ("points", f"{sum(map(len, estimator.points_)):,}"),
        ("patterns", str(len(estimator.points_))),
        ("area", area.text(window.area)),
        (density.unit, f"{density.factor * average:.3g}"),
    ]
    picture = Picture(
        first_look(surface, points, average),
        "The points on their mean intensity, with lines around where that is surely above or below its average",
        f"Lines surround where the 95% interval of the intensity lies above or below its average. {_SURE}",
    )
    sections = [
        *([] if risk is None else [Section("Where each type is more likely", _type_blocks(risk), "relative risk")]),
        Section("How well it is known", _known_blocks(estimator, parts), "standard deviation over the mean"),
        Section("What the intensity misses", _residual_blocks(estimator), "observed less expected points"),
        *_covariate_sections(estimator),
        Section("Counts in blocks", _count_blocks(estimator, counts, side), "are they as the model says?"),
        Section("Distances between points", _distance_blocks(estimator, fitness), "do they attract or repel?"),
        Section("What was fitted", _fitted_blocks(estimator), "data, smoothness, settings"),
    ]
    said = trust(found, *verdicts)
    return Page("Intensity of a point pattern", _lead(estimator, surface), sections, facts, said, picture)


def saved_page(estimator: GPSPoissonProcess, directory: Path, *, progress: bool) -> Page:
    """Return the report of a saved process: it holds its points."""
    return poisson_page(estimator.set_params(progress=progress))


def _lead(estimator: GPSPoissonProcess, surface: IntensitySurface) -> str:
    grid, window = surface.grid, estimator.window_
    values, area = surface.mean[grid.inside], grid.exposure[grid.inside]
    if np.ptp(values) < _CONSTANT * values.mean():
        if estimator.smoothness_path_ is None:
            return "The intensity was taken to be constant, as was asked for."
        return "The points give no reason to think that their intensity changes over the window."
    order = np.argsort(-values)
    held = np.cumsum((values * area)[order])
    half = area[order][: int(np.searchsorted(held, 0.5 * held[-1])) + 1].sum() / window.area
    below = np.cumsum(area[order[::-1]]) / window.area
    low, high = (values[order[::-1]][int(np.searchsorted(below, share))] for share in (0.05, 0.95))
    shown = shown_density(window, float(held[-1]) / window.area)
    return (
        f"Half of the points are expected on {half:.0%} of the window. On nine tenths of it the intensity lies between "
        f"{shown.factor * low:.3g} and {shown.factor * high:.3g} {shown.unit}.{_resolved(estimator)}"
    )


def _resolved(estimator: GPSPoissonProcess) -> str:
    if not np.isfinite(estimator.resolution_):
        return ""
    width = shown_length(estimator.window_, estimator.resolution_).text(estimator.resolution_)
    return f" Features narrower than about {width} are smoothed away."


def _types(risk: RelativeRisk) -> Text:
    chance = f"(p = {risk.p_value:.2g}, random labelling)"
    if risk.p_value > _SURPRISING:
        return Text(f"The types are mixed alike all over the window, as far as these points can tell {chance}.", "good")
    return Text(f"The types are not mixed alike all over the window {chance}.")


def _type_blocks(risk: RelativeRisk) -> list[Block]:
    area = risk.grid.exposure / risk.grid.window.area
    rows = {
        name: {
            "share": f"{share:.1%}",
            "surely more likely": f"{area[risk.verdict(name) == 1].sum():.0%} of the area",
            "surely less likely": f"{area[risk.verdict(name) == -1].sum():.0%} of the area",
        }
        for name, share in zip(risk.types, risk.shares, strict=True)
    }
    return [
        Text(_types(risk).text),
        Picture(
            risk.plot(),
            "How many times as likely as overall each type is over the window",
            f"Given that there is a point. Lines surround where the {risk.coverage:.0%} interval lies above or below "
            f"the overall share. {_SURE} {_INTERACT}",
            wide=True,
        ),
        Table(pd.DataFrame(rows).T.rename_axis("type"), "Types"),
    ]


def _known_blocks(estimator: GPSPoissonProcess, parts: dict[str, np.ndarray]) -> list[Block]:
    between = (
        "Held-out points ask for no spread of the intensity between blocks: all that is uncertain is its estimate."
        if estimator.spread_ == 0
        else "The intensity differs from block to block by more than the map of its mean shows, which more points do "
        "not reduce."
    )
    inside = estimator.grid_.inside
    maps = {title: np.full(inside.shape, np.nan) for title in parts}
    for title, values in parts.items():
        maps[title][inside] = values
    relative = {name: {"median": f"{np.median(v):.1%}", "largest": f"{v.max():.1%}"} for name, v in parts.items()}
    table = pd.DataFrame(relative).T.rename_axis("standard deviation / mean")
    what = "Maps of the standard deviation of the intensity relative to its mean"
    return [
        Text(between),
        Picture(uncertainty(estimator.grid_, maps), what),
        Table(table, "Over the cells of the grid"),
    ]


def _residual_blocks(estimator: GPSPoissonProcess) -> list[Block]:
    found, quadrats = estimator.residuals(), estimator.quadrat_test()
    around = shown_length(estimator.window_, found.bandwidth).text(found.bandwidth)
    fits = "as expected" if quadrats.p_value > _SURPRISING else "not as expected"
    text = (
        f"Counts in {len(quadrats.table)} quadrats are {fits} (chi squared {quadrats.statistic:.3g}, p = "
        f"{quadrats.p_value:.2g}). The points were fitted: p is larger than it would be on new ones."
    )
    caption = (
        f"Points less those expected, smoothed over {around}, in standard deviations of chance: lines are at 2 (solid, "
        "more points than expected) and -2 (dashed)."
    )
    points = np.concatenate(estimator.points_)
    return [Text(text), Picture(check_plots.residuals(found, points), "Map of residuals with the points", caption)]


def _covariate_sections(estimator: GPSPoissonProcess) -> list[Section]:
    names = [covariate.name for covariate in estimator.fit_.locations.covariates]
    blocks: list[Block] = []
    for name in names:
        seen, left, effect = (f(name) for f in (estimator.covariate_curve, estimator.lurking, estimator.partial_effect))
        what, rest, alone = (f"{said} {name}" for said in ("Points along", "What the fit leaves along", "Effect of"))
        shown = shown_density(estimator.window_, float(effect["mean"].mean()))
        effect[["mean", "lower", "upper"]] *= shown.factor
        times = "Points where the covariate has each value, over those of a constant intensity, with 95% limits."
        limits = "A curve that leaves its limits asks for another form of the covariate, or for another one."
        blocks += [Picture(check_plots.curve(seen, name), what, times)]
        blocks += [Picture(check_plots.curve(effect, name, shown.unit), alone, _PARTIAL)]
        blocks += [Picture(check_plots.curve(left, name), rest, limits)]
    return [Section("Along the covariates", blocks, ", ".join(names))] if names else []


def _counts(estimator: GPSPoissonProcess) -> tuple[dict[str, object], int]:
    """Compare the counts in the largest blocks of which there are enough; return this and the side of a block."""
    cells = estimator.grid_.n_x * estimator.grid_.n_y
    side = next((side for side in _SIDES if cells >= _FEWEST_BLOCKS * side**2), _SIDES[-1])
    rates, counts = estimator.block_counts(side)
    below, at_most = (np.stack([poisson_cumulative(one - k, rates.T) for one in counts]) for k in (1, 0))
    return calibration(randomised(below, at_most).ravel(), bins=_BINS), side


def _count_blocks(estimator: GPSPoissonProcess, found: dict[str, object], side: int) -> list[Block]:
    sides = [side * size for size in estimator.grid_.cell_size]
    note = (
        f"Counts in blocks of {shown_length(estimator.window_, max(sides)).text(*sides)} are compared with what the "
        "model says of a new pattern. It has seen these points: on new ones it would be a little less right."
    )
    if estimator.spread_ > 0:
        note += " Blocks of one pattern may go up and down together; chance then explains more than it seems to."
    return [Text(note), *calibration_blocks(found, "counts in blocks", advice=_MISFIT)[1:]]


def _distances(result: Envelope) -> Text:
    found = of_distances(result)
    if found is None:
        return Text(f"Distances between points are as in simulated patterns ({result.shown}).", "good")
    return Text(f"{found.message[0].upper()}{found.message[1:]}.", "advice")


def _distance_blocks(estimator: GPSPoissonProcess, result: Envelope) -> list[Block]:
    what = "L function of the points with the envelope of simulated patterns"
    return [Picture(envelope(result, estimator.window_), what, "Above the envelope: clustered; below: regular.")]


def _fitted_blocks(estimator: GPSPoissonProcess) -> list[Block]:
    window, grid = estimator.window_, estimator.grid_
    rows = {
        "points": ", ".join(str(len(points)) for points in estimator.points_[:8]),
        "window": shown_length(window).text(*(high - low for low, high in zip(*_corners(window.bounds), strict=True))),
        "coordinate reference system": window.crs or "not known",
        "grid": f"{grid.n_x} x {grid.n_y} cells",
        "covariates": ", ".join(c.name for c in estimator.fit_.locations.covariates) or "none",
    }
    blocks: list[Block] = [Table(pd.DataFrame({"value": rows}), "Points and window")]
    if estimator.smoothness_path_ is not None:
        blocks.append(Table(estimator.smoothness_path_, _CANDIDATES))
    blocks.append(Table(estimator.spread_path_, "How variable: held-out score by the size of the random spread"))
    settings = settings_table(estimator.get_params(deep=False), seed=estimator.seed_)
    return [*blocks, Table(settings, "Settings")]


def _corners(bounds: tuple[float, float, float, float]) -> tuple[tuple[float, float], tuple[float, float]]:
    x_min, x_max, y_min, y_max = bounds
    return (x_min, y_min), (x_max, y_max)
