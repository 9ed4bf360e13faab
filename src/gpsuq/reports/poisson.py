"""The report of a Poisson process: its intensity, how well that is known, and whether simulated patterns look alike."""

from __future__ import annotations

import pandas as pd

from gpsuq.estimators.poisson import GPSPoissonProcess
from gpsuq.plots import envelope, intensity
from gpsuq.plots.surfaces import density_unit
from gpsuq.reports.page import Block, Page, Picture, Section, Table, Text, settings_table
from gpsuq.spatial.statistics import Envelope

_SURPRISING = 0.05


def poisson_page(estimator: GPSPoissonProcess, fitness: Envelope | None = None) -> Page:
    """Give the report of a fitted process.

    ``fitness`` is ``estimator.goodness_of_fit()``, which simulates patterns and takes a few seconds, where it is known.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> import numpy as np
    >>> from gpsuq import GPSPoissonProcess
    >>> from gpsuq.reports import poisson_page, write_page
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
    count = sum(map(len, estimator.points_))
    expected = estimator.integral()
    constant = estimator.frequency_ == 0
    shape = "constant" if constant else f"up to {estimator.frequency_:g} waves per side"
    lead = (
        "The points give no reason to think that their intensity changes over the window."
        if constant
        else f"The intensity changes over the window; the sharpest features that the points support have {shape}."
    )
    facts = [
        ("points", f"{count:,}"),
        ("expected per pattern", f"{expected:,.1f}"),
        ("intensity", shape),
        ("spread between patterns", "none" if estimator.fit_.spread.value == 0 else "found"),
    ]
    sections = [
        Section("Intensity", _intensity_blocks(estimator)),
        Section("Checks", _check_blocks(estimator, fitness)),
        Section("How sharp, how variable", _choice_blocks(estimator)),
        Section("Data", [Table(_data(estimator), "Points and window")]),
        Section("What was fitted", [Table(_settings(estimator), "Settings")]),
    ]
    return Page("Intensity of a point pattern", lead, sections, facts)


def _intensity_blocks(estimator: GPSPoissonProcess) -> list[Block]:
    return [
        Picture(
            intensity(estimator.surface(), max(estimator.points_, key=len)),
            "The points, the mean intensity and its relative uncertainty",
            f"Mean intensity in {density_unit(estimator.window_)}, and its standard deviation relative to it.",
            wide=True,
        ),
    ]


def _check_blocks(estimator: GPSPoissonProcess, result: Envelope) -> list[Block]:
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
        blocks.append(Table(smoothness.table, "Held-out score by frequency: the smoothest within one standard error"))
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
