"""The report of a linear regression: coefficients that may differ between rows, and whether the fit can be believed."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from gpsuq.core.generators import MLP
from gpsuq.core.summaries import largest
from gpsuq.errors import GPSError
from gpsuq.linear.candidates import LINES
from gpsuq.linear.estimator import GPSLinearRegression
from gpsuq.plots.diagnostics import subgroup_scatter
from gpsuq.reports import blocks
from gpsuq.reports.page import Block, Page, Picture, Section, Table, Text, settings_table
from gpsuq.reports.saved import damage_told, frame_as_json, frame_from_json, read_checks
from gpsuq.tables.reading import check_numbers

_WORST_ROWS = 10
_SHOWN_ROWS = 2000
LINEAR_PARTS = ("n", "target", "columns", "pit", "coverage", "worst", "subgroups", "shown", "left_out")
NEEDS_ROWS = True
_SHOWN_COEFFICIENTS = 5
_MOST_COEFFICIENTS = 200
_MOST_NARROW = 8
_MANY = "The {} largest of {:,} coefficients are listed, and the largest of these drawn; summary.csv has all of them."
_MISFIT = "Look for a missing covariate, a curved relation, or very few rows."
_LEFT_OUT = "Each of these rows was judged by a fit and a calibration that had not seen it."
_SEEN_BEFORE = "Rows that were fitted flatter a fit a little: judge by new ones, where there are any."
_TRIED = (
    "Mean log density of rows that were left out, calibrated as predictions are: higher is better. The excess is what "
    "a law loses to the best, beside its standard error."
)
_SURPRISING = (
    "The most surprising rows, in nats beyond an ordinary one; above 5 they are called outliers. They count from 1, "
    "unless the table names them."
)
_NO_ROWS = (
    "No rows were given, so that nothing here says whether predictions hold. Name a table, gpsuq report DIRECTORY "
    "--data FILE --target COLUMN, or pass rows in Python, linear_page(model, X, y)."
)


def linear_page(estimator: GPSLinearRegression, X: Any = None, y: Any = None) -> Page:
    """Return the report of a fitted regression; without rows it says nothing about predictions.

    Parameters
    ----------
    estimator
        The fitted regression.
    X, y
        Rows to compare it with, those of the fit or new ones.

    Examples
    --------
    >>> import tempfile
    >>> from gpsuq import GPSLinearRegression
    >>> from gpsuq.datasets import correlated
    >>> from gpsuq.linear.report import linear_page
    >>> from gpsuq.reports.page import write_page
    >>> data = correlated(200, 1)
    >>> model = GPSLinearRegression(spread_weight=3.0, n_chains=2, n_steps=10).fit(data.X, data.y)
    >>> page = linear_page(model, data.X, data.y)
    >>> page.title, page.facts[0]
    ('Linear regression of y', ('rows', '200'))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_page(page, f"{folder}/report.html").name
    'report.html'
    """
    if (X is None) != (y is None):
        raise GPSError("a regression is compared with rows and their targets: pass both X and y, or neither")
    return checked_linear_page(estimator, None if X is None else linear_checks(estimator, X, y))


def saved_page(estimator: GPSLinearRegression, directory: Path, *, progress: bool) -> Page:
    """Return the report of a saved regression, with what was kept about its rows."""
    checks = read_checks(directory, LINEAR_PARTS)
    with damage_told(directory) if checks is not None else nullcontext():
        return checked_linear_page(estimator, checks)


def judged_page(estimator: GPSLinearRegression, X: pd.DataFrame, y: pd.Series | None) -> Page:
    """Return the report of a saved regression on the rows of a file."""
    if y is None:
        raise GPSError("a regression is judged by outcomes: name their column with --target")
    check_numbers(y.to_frame())
    return linear_page(estimator, X, y)


def linear_checks(
    estimator: GPSLinearRegression,
    X: Any,
    y: Any,
    rows: pd.DataFrame | None = None,
    *,
    fitted: bool = False,
    n_rows: int | None = None,
) -> dict[str, Any]:
    """Compare a fit with rows: everything that a report says about them, as JSON holds it.

    ``rows`` is what ``estimator.explain_rows(X, y)`` gave, where that was computed already. Rows that were ``fitted``
    are judged by fits that had left them out, where there are any. ``n_rows`` is how many there are where these are a
    sample.
    """
    left_out = fitted and len(estimator.fit_.ranks) > 0
    probability, predicted = estimator.fit_.ranks if left_out else estimator.predict_cdf(X, y), estimator.predict(X)
    rows = estimator.explain_rows(X, y) if rows is None else rows
    target = str(getattr(y, "name", None) or "y")
    outcome = np.asarray(y, dtype=np.float64).ravel()
    summary = estimator.summary().iloc[: estimator.n_features_in_]
    names = [str(name) for name in summary.index]
    listed = [names[place] for place in largest(summary["mean"].to_numpy(), _MOST_COEFFICIENTS)]
    covariates = pd.DataFrame(np.asarray(X, dtype=np.float64), columns=names)
    table = pd.concat([pd.Series(outcome, name=target), covariates], axis=1)
    judged = rows.set_axis(blocks.row_names(rows.index)).assign(y=outcome, predicted=predicted)
    worst = judged.nlargest(_WORST_ROWS, "outlier_score")[["y", "predicted", "subgroup", "outlier_score", "outlier"]]
    sizes = rows["subgroup"].value_counts().sort_index()
    most = int(np.argmax(summary["heterogeneity_sd"].to_numpy() * covariates.std().to_numpy()))
    some = np.sort(np.random.default_rng(0).permutation(len(table))[:_SHOWN_ROWS])
    return {
        "n": len(table) if n_rows is None else n_rows,
        "target": target,
        "columns": frame_as_json(blocks.column_table(table[[target, *listed]])),
        **blocks.calibration(probability),
        "left_out": left_out,
        "worst": frame_as_json(worst),
        "subgroups": frame_as_json(rows.groupby("subgroup")[listed].mean().assign(rows=sizes)),
        "shown": {
            "of": len(table),
            "covariate": names[most],
            "x": covariates.iloc[some, most].tolist(),
            "y": outcome[some].tolist(),
            "subgroup": rows["subgroup"].iloc[some].tolist(),
        },
    }


def checked_linear_page(estimator: GPSLinearRegression, checks: Mapping[str, Any] | None) -> Page:
    """Return the report of a regression from what :func:`linear_checks` said about rows, if anything."""
    summary, lead, title = estimator.summary(), estimator.verdict(), "Linear regression"
    differ = "differ between rows" if estimator.heterogeneous_ else "no difference detected"
    facts = [("coefficients", differ), ("covariates", str(estimator.n_features_in_))]
    scatter: list[Block] = []
    judged = [Section("Checks", [Text(_NO_ROWS, "advice")])]
    if checks is not None:
        title += f" of {checks['target']}"
        facts = [("rows", f"{checks['n']:,}"), *facts]
        lead = f"{checks['n']:,} rows, target {checks['target']}. {lead}"
        if (looked_at := checks["shown"].get("of", checks["n"])) < checks["n"]:
            lead = f"{lead} Single rows, checks and the table of columns are those of a sample of {looked_at:,} rows."
        if len(checks["subgroups"]["index"]) > 1:
            facts.append(("subgroups", str(len(checks["subgroups"]["index"]))))
        scatter = [_scatter(checks["shown"], checks["target"])]
        known = Text(_LEFT_OUT if checks["left_out"] else _SEEN_BEFORE)
        judged = [
            Section("Checks", [*blocks.calibration_blocks(checks, "rows", advice=_MISFIT), known]),
            Section("Rows", _row_blocks(checks)),
            Section("Data", [Table(frame_from_json(checks["columns"]), "Columns of the table")]),
        ]
    sections = [
        Section("What to know first", blocks.finding_blocks(estimator.findings_)),
        Section("Coefficients", [*scatter, *_coefficient_blocks(estimator, summary)]),
    ]
    if estimator.heterogeneous_:
        sections += [
            Section("UQ distribution", _distribution_blocks(estimator, summary)),
            Section("Modes", _mode_blocks(estimator, summary)),
            Section("Heterogeneity and estimation", blocks.spread_blocks(summary)),
        ]
    if (path := estimator.spread_path_) is not None:
        table = Table(path.set_index(path.columns[0]), "Held-out scores")
        sections.append(Section("Laws that were tried", [Text(_TRIED), table]))
    settings = settings_table(
        estimator.get_params(deep=False) | {"generator": estimator.generator or MLP()},
        seed=estimator.seed_,
        spread_weight_in_use=estimator.spread_weight_,
    )
    return Page(title, lead, [*sections, *judged, Section("What was fitted", [Table(settings, "Settings")])], facts)


def _scatter(shown: Mapping[str, Any], target: str) -> Block:
    """Show rows by the covariate whose coefficient differs most."""
    return Picture(
        subgroup_scatter(shown["x"], shown["y"], shown["subgroup"], shown["covariate"], target),
        f"Rows by {shown['covariate']} and {target}",
        "Rows by the covariate whose coefficient differs most, and the subgroup that each speaks for.",
    )


def largest_parameters(summary: pd.DataFrame, most: int = _MOST_COEFFICIENTS) -> list[int]:
    """Return the places of the largest coefficients in a summary, at most so many, and of intercept and sigma."""
    last = len(summary) - 2
    return [*largest(summary["mean"].to_numpy()[:last], most), last, last + 1]


def _coefficient_blocks(estimator: GPSLinearRegression, summary: pd.DataFrame) -> list[Block]:
    p = estimator.n_features_in_
    return [
        Picture(
            estimator.plot_coefficients(),
            "Boxplots of every coefficient over chains and draws",
            "Dark: all chains and draws; light: within chains, how rows differ."
            if estimator.heterogeneous_
            else "How well each coefficient is known: all chains and draws.",
            wide=p > _MOST_NARROW,
        ),
        blocks.summary_block(summary.iloc[largest_parameters(summary)], "row"),
        *([Text(_MANY.format(_MOST_COEFFICIENTS, p))] if p > _MOST_COEFFICIENTS else []),
    ]


def _draws(estimator: GPSLinearRegression, summary: pd.DataFrame) -> pd.DataFrame:
    """Return draws of the coefficients and of sigma, indexed by chain and draw."""
    draws = estimator.draws_
    n_chains, each = draws["sigma"].shape
    index = pd.MultiIndex.from_product([range(n_chains), range(each)], names=["chain", "draw"])
    names = summary.index[: estimator.n_features_in_]
    table = pd.DataFrame(draws["slope"].reshape(len(index), -1), columns=names, index=index)
    return table.assign(sigma=draws["sigma"].ravel())


def _distribution_blocks(estimator: GPSLinearRegression, summary: pd.DataFrame) -> list[Block]:
    names = list(summary.index[: estimator.n_features_in_])
    chosen = blocks.differing_most(summary.loc[names], _SHOWN_COEFFICIENTS)
    few = f"The {len(chosen)} coefficients that differ most between rows are shown."
    draws = _draws(estimator, summary)[[*chosen, "sigma"]]
    return blocks.distribution_blocks(draws, "" if len(chosen) == len(names) else few)


def _mode_blocks(estimator: GPSLinearRegression, summary: pd.DataFrame) -> list[Block]:
    if estimator.law_ in LINES:
        return [Table(estimator.lines(), "Lines that rows follow, and the share of each")]
    names = blocks.differing_most(summary.iloc[: estimator.n_features_in_], blocks.MOST_PARAMETERS)
    return blocks.mode_blocks(blocks.pieces_of(_draws(estimator, summary)[names], summary), names)


def _row_blocks(checks: Mapping[str, Any]) -> list[Block]:
    subgroups, worst = (frame_from_json(checks[part]) for part in ("subgroups", "worst"))
    means = Table(subgroups.rename_axis("subgroup"), "Subgroups: mean coefficients and rows")
    shown: list[Block] = [means] if len(subgroups) > 1 else []
    return [*shown, Text(_SURPRISING), Table(worst.rename_axis("row"), "Rows to look at")]
