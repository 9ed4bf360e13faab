"""The report of a UQ distribution: what was learned about the parameters of any model, and whether to believe it."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from gpsuq.core.observations import Observations, evenly_spaced, observations
from gpsuq.core.summaries import summary_table
from gpsuq.plots.diagnostics import score_curves
from gpsuq.reports import blocks
from gpsuq.reports.page import Block, Page, Picture, Section, Table, Text, settings_table
from gpsuq.uq.distribution import UQDistribution

_DRAWS = 2000  # of each chain, for tables and figures
_PREDICTED = 4000  # outcomes for each observation, over all chains
_SHOWN_PARAMETERS = 6
_SHOWN_ROWS = 3  # where parameters depend on x
_MOST_COMPARED = 2000  # observations whose outcomes are compared with their predictive
_COVERAGE = 0.95
_MISFIT = "Try another distribution or more covariates in the observation model, and read the diagnostics below."
_NO_OBSERVATIONS = (
    "No observations were given, so that nothing here says whether predictions hold: pass them, uq_page(uq, y) or "
    "uq_page(uq, X, y)."
)
_CLASSES = "Outcomes are classes; gpsuq.classify.decisions judges the probabilities that predict_mean gives."
NEEDS_ROWS = True
IN_PYTHON = "uq_page(gpsuq.load(path, model=...), X, y)"


def uq_page(uq: UQDistribution, X: Any = None, y: Any = None) -> Page:
    """Return the report of a UQ distribution; without observations it says nothing about predictions.

    Parameters
    ----------
    uq
        What :meth:`gpsuq.GPS.fit` returned.
    X, y
        Observations as in the fit: ``uq_page(uq, y)`` for a model without covariates, else ``uq_page(uq, X, y)``.

    Examples
    --------
    >>> import numpy as np
    >>> from gpsuq import GPS, Algorithm
    >>> from gpsuq.core.models import normal_location
    >>> from gpsuq.uq.report import uq_page
    >>> y = np.random.default_rng(0).normal(size=100)
    >>> uq = GPS(normal_location(1.0), algorithm=Algorithm(n_steps=100), n_chains=2).fit(y)
    >>> page = uq_page(uq, y)
    >>> page.facts[0], page.sections[0].title
    (('observations', '100'), 'UQ distribution')

    ``gpsuq.reports.page.write_page(page, "report.html")`` writes it.
    """
    x, outcome = (None, X) if y is None else (X, y)
    data = None if outcome is None else observations(x, outcome, dtype=uq.generator.shared.dtype)
    facts = [
        ("observations", "none given" if data is None else f"{len(data):,}"),
        ("parameters", str(len(uq.model.parameters))),
        ("chains", str(uq.n_chains)),
    ]
    about, lead, picture = _parameter_sections(uq, x)
    checks = _predictive_blocks(uq, x, data)
    sections = [
        *about,
        Section("Checks", checks, "whether predictions hold"),
        *([] if data is None else [Section("Data", [Table(_described(uq, data), "Columns")], "what was fitted to")]),
        Section("What was fitted", _fit_blocks(uq), "settings, training and seed"),
    ]
    trust = blocks.trust(uq.findings, *(block for block in checks if isinstance(block, Text)))
    return Page(f"UQ distribution of {', '.join(uq.model.parameters)}", lead, sections, facts, trust, picture)


def _parameter_sections(uq: UQDistribution, x: Any) -> tuple[list[Section], str, Picture | None]:
    """Return what is said about the parameters, and the one sentence and the picture of it that come first."""
    if uq.conditional and x is None:
        text = "Parameters depend on x, so that their law is one for every x: pass observations, uq_page(uq, X, y)."
        return [Section("UQ distribution", [Text(text, "advice")])], "Parameters depend on x.", None
    draws = _draws(uq, x)
    by_chain = {str(name): column.to_numpy().reshape(uq.n_chains, -1) for name, column in draws.items()}
    summary = summary_table(by_chain, _COVERAGE, reweighted=uq.reweighted)
    shared = uq.generator.parameter_map.names(random=False)
    varying = [name for name in summary.index if re.split(r"[\[,]", name)[0] not in shared]
    shown = blocks.differing_most(summary.loc[varying], _SHOWN_PARAMETERS)
    note = "" if len(shown) == len(varying) else f"The {len(shown)} that differ most between observations are shown."
    if uq.conditional:
        note = f"Parameters depend on x: their law is shown at {_SHOWN_ROWS} rows of X, which count from 1. {note}"
    listed = blocks.differing_most(summary.loc[varying], blocks.MOST_PARAMETERS)
    pieces = blocks.pieces_of(draws[listed], summary)
    parted = [str(name) for name, count in pieces.index.value_counts(sort=False).items() if count > 1]
    lead = (
        f"Values of {', '.join(parted)} lie in separate pieces, which may be subgroups of the observations."
        if parted
        else "No parameter's values lie in separate pieces: nothing points to subgroups of the observations."
    )
    law = blocks.distribution_blocks(draws[shown], note)
    picture = next(block for block in law if isinstance(block, Picture))
    rest = [block for block in law if block is not picture]
    sections = [
        Section("UQ distribution", [*rest, blocks.summary_block(summary, "observation")], f"{len(summary)} parameters"),
        Section("Modes", blocks.mode_blocks(pieces, listed), "pieces that the law falls into"),
        Section("Heterogeneity and estimation", blocks.spread_blocks(summary), "two kinds of uncertainty"),
    ]
    return sections, lead, picture


def _draws(uq: UQDistribution, x: Any) -> pd.DataFrame:
    """Draw all parameters, a column for each number, and for each of a few rows where they depend on x."""
    if not uq.conditional:
        return uq.columns(_DRAWS)
    rows = evenly_spaced(len(x), min(len(x), _SHOWN_ROWS)).tolist()
    return pd.concat([uq.columns(_DRAWS, _rows(x, [row])).add_suffix(f", row {row + 1}") for row in rows], axis=1)


def _rows(x: Any, rows: list[int]) -> Any:
    """Take rows of an array, a tensor, a DataFrame or a list."""
    if isinstance(x, (list, tuple)):
        return [x[row] for row in rows]
    return x.iloc[rows] if hasattr(x, "iloc") else x[rows]


def _predictive_blocks(uq: UQDistribution, x: Any, data: Observations | None) -> list[Block]:
    """Show how outcomes fall under their predictive, where there are any and they are single numbers."""
    if data is None:
        return [Text(_NO_OBSERVATIONS, "advice")]
    if data.y.dim() > 1:
        return [Text(f"An outcome has shape {tuple(data.y.shape[1:])}; these checks are for single numbers.")]
    if uq.classifies:
        return [Text(_CLASSES)]
    rows = evenly_spaced(len(data), min(len(data), _MOST_COMPARED))
    probability = _probability(uq, None if x is None else _rows(x, rows.tolist()), data.y[rows].numpy())
    note = (
        "Observations that were fitted flatter a fit a little: judge by new ones, where there are any."
        if len(rows) == len(data)
        else f"{len(rows):,} of {len(data):,} observations were checked. Those that were fitted flatter a fit a little."
    )
    return [*blocks.calibration_blocks(blocks.calibration(probability), "observations", advice=_MISFIT), Text(note)]


def _probability(uq: UQDistribution, x: Any, y: NDArray[np.floating]) -> NDArray[np.float64]:
    """Return where each outcome falls among draws of its predictive; without covariates, one serves all."""
    draws = uq.predict_draws(x, max(1, _PREDICTED // uq.n_chains))
    pooled = draws.reshape(-1, draws.shape[2])
    return blocks.randomised((pooled < y).mean(0), (pooled <= y).mean(0))


def _described(uq: UQDistribution, data: Observations) -> pd.DataFrame:
    """Describe outcomes and covariates, a row for each column; what pads a group is left out."""
    outcome = data.y if data.mask is None else data.y[data.mask]
    columns = {"y": outcome.flatten()}
    if data.x is not None and data.mask is None:
        names = uq.feature_names or [f"x{number}" for number in range(data.x.shape[-1])]
        columns |= dict(zip(names, data.x.flatten(0, -2).T, strict=True))
    table = pd.DataFrame({name: pd.Series(value.double().numpy()) for name, value in columns.items()})
    return blocks.column_table(table)


def _fit_blocks(uq: UQDistribution) -> list[Block]:
    declared = {f"parameter {name}": repr(parameter) for name, parameter in uq.model.parameters.items()}
    history = uq.history
    settings = settings_table(
        declared,
        generator=uq.generator.body.spec,
        chains=f"{uq.n_chains} of {uq.generator.n_chains} trained to the end",
        bootstrap_weights="yes" if uq.reweighted else "no",
        steps=len(history.fit),
        seed=uq.seed,
    )
    shown: list[Block] = [Table(settings, "Settings")]
    if len(history.fit) > 1:
        held_out = torch.stack(history.held_out)[:, uq.chains].numpy() if history.held_out else None
        figure = score_curves(history.score()[:, uq.chains].numpy(), history.evaluated_at, held_out)
        caption = (
            "It should have become flat. Where the kernel is refined half-way, the score jumps: halves have different "
            "units."
        )
        shown.append(Picture(figure, "Training and held-out score by step", caption))
    return shown
