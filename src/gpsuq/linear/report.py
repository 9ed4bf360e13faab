"""The report of a linear regression: coefficients that may differ between rows, and whether the fit can be believed."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from gpsuq.core.generators import MLP
from gpsuq.core.numbers import shown_number
from gpsuq.core.summaries import largest
from gpsuq.errors import GPSError, listed
from gpsuq.linear.candidates import LINES
from gpsuq.linear.estimator import GPSLinearRegression
from gpsuq.linear.plots import coefficients
from gpsuq.linear.profile import profile_in_words, subgroup_profile
from gpsuq.plots.diagnostics import some_points, subgroup_scatter
from gpsuq.reports import blocks
from gpsuq.reports.page import Block, Hints, Page, Picture, Section, Table, Text, settings_table
from gpsuq.reports.saved import frame_as_json, frame_from_json, outcomes_to_judge_by, page_with_checks

_WORST_ROWS = 10
_SHOWN_ROWS = 2000
LINEAR_PARTS = ("n", "target", "columns", "pit", "coverage", "worst", "subgroups", "shown", "left_out")
LATER_PARTS = ("predictions", "profile")
NEEDS_ROWS = True
_SHOWN_COEFFICIENTS = 5
_MOST_COEFFICIENTS = 200
_NAMED_COEFFICIENTS = 3
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
_PROFILE_SAYS = (
    "Only rows that are 90% sure of their subgroup count; where subgroups predict the same, rows cannot be sure, "
    "which may look like a difference. Apart is how far the means are from each other, in standard deviations of the "
    "column; p values are times the number of columns."
)
_ENDS = {"5%": 0.05, "95%": 0.95}
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
    return page_with_checks(directory, LINEAR_PARTS, LATER_PARTS, partial(checked_linear_page, estimator))


def judged_page(estimator: GPSLinearRegression, X: pd.DataFrame, y: pd.Series | None) -> Page:
    """Return the report of a saved regression on the rows of a file."""
    return linear_page(estimator, X, outcomes_to_judge_by(y))


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
    chosen = [names[place] for place in largest(summary["mean"].to_numpy(), _MOST_COEFFICIENTS)]
    covariates = pd.DataFrame(np.asarray(X, dtype=np.float64), columns=names)
    table = pd.concat([pd.Series(outcome, name=target), covariates], axis=1)
    judged = rows.set_axis(blocks.row_names(rows.index)).assign(y=outcome, predicted=predicted)
    judged = judged.assign(**_ends(estimator, X))
    columns = ["y", "predicted", *_ENDS, "subgroup", "outlier_score", "outlier"]
    sizes = rows["subgroup"].value_counts().sort_index()
    most = int(np.argmax(summary["heterogeneity_sd"].to_numpy() * covariates.std().to_numpy()))
    some = np.sort(np.random.default_rng(0).permutation(len(table))[:_SHOWN_ROWS])
    return {
        "n": len(table) if n_rows is None else n_rows,
        "target": target,
        "columns": frame_as_json(blocks.column_table(table[[target, *chosen]])),
        **blocks.calibration(probability),
        "left_out": left_out,
        "worst": frame_as_json(judged.nlargest(_WORST_ROWS, "outlier_score")[columns]),
        "predictions": frame_as_json(judged.iloc[some_points(len(judged))][["y", "predicted", *_ENDS]]),
        "profile": frame_as_json(
            subgroup_profile(covariates[chosen], rows["subgroup"].to_numpy(), rows["subgroup_probability"].to_numpy())
        ),
        "subgroups": frame_as_json(rows.groupby("subgroup")[chosen].mean().assign(rows=sizes)),
        "shown": {
            "of": len(table),
            "covariate": names[most],
            "x": covariates.iloc[some, most].tolist(),
            "y": outcome[some].tolist(),
            "subgroup": rows["subgroup"].iloc[some].tolist(),
            "names": list(map(str, judged.index[some])),
        },
    }


def _ends(estimator: GPSLinearRegression, X: Any) -> dict[str, Any]:
    quantiles = estimator.predict_quantiles(X, list(_ENDS.values())).to_numpy()
    return dict(zip(_ENDS, quantiles.T, strict=True))


def checked_linear_page(estimator: GPSLinearRegression, checks: Mapping[str, Any] | None) -> Page:
    """Return the report of a regression from what :func:`linear_checks` said about rows, if anything."""
    summary, title = estimator.summary(), "Linear regression"
    differ = "differ between rows" if estimator.heterogeneous_ else "no difference detected"
    facts = [("coefficients", differ), ("covariates", str(estimator.n_features_in_))]
    target, subgroups = "the target", 1
    trust = blocks.trust(estimator.findings_, Text(_NO_ROWS, "advice"))
    judged = [Section("Checks", [Text(_NO_ROWS, "advice")])]
    note = ""
    if checks is not None:
        target, subgroups = checks["target"], len(checks["subgroups"]["index"])
        title += f" of {target}"
        facts = [("rows", f"{checks['n']:,}"), *facts, ("in 90% intervals", f"{checks['coverage']['0.9']:.1%}")]
        if (looked_at := checks["shown"].get("of", checks["n"])) < checks["n"]:
            note = (
                f" It was fitted to {checks['n']:,} rows; single rows, checks and the table of columns are those of a "
                f"sample of {looked_at:,} rows."
            )
        if subgroups > 1:
            facts.append(("subgroups", str(subgroups)))
        trust = blocks.trust(estimator.findings_, blocks.calibration_verdict(checks, "rows", advice=_MISFIT))
        judged = _judged_sections(checks)
    law, scatter = _coefficient_picture(estimator, target), subgroups > 1 and checks is not None
    first = _scatter(checks["shown"], target) if scatter and checks is not None else law
    table = _coefficient_blocks(estimator, summary)
    sections = [Section("Coefficients", [law, *table] if scatter else table, _told(estimator, summary)), *judged]
    if estimator.heterogeneous_:
        sections += [
            Section("UQ distribution", _distribution_blocks(estimator, summary), "how coefficients differ"),
            Section("Modes", _mode_blocks(estimator, summary), "pieces that the law of the coefficients falls into"),
            Section("Heterogeneity and estimation", blocks.spread_blocks(summary), "two kinds of uncertainty"),
        ]
    if (path := estimator.spread_path_) is not None:
        table = [Text(_TRIED), Table(path.set_index(path.columns[0]), "Held-out scores")]
        sections.append(Section("Laws that were tried", table, f"{len(path)} of them, judged by rows left out"))
    settings = settings_table(
        estimator.get_params(deep=False) | {"generator": estimator.generator or MLP()},
        seed=estimator.seed_,
        spread_weight_in_use=estimator.spread_weight_,
    )
    sections.append(Section("What was fitted", [Table(settings, "Settings")], "settings and seed"))
    return Page(title, f"{_lead(estimator, summary, target, subgroups)}{note}", sections, facts, trust, first)


def _lead(estimator: GPSLinearRegression, summary: pd.DataFrame, target: str, subgroups: int) -> str:
    """Say what was found: whether coefficients differ, and what the target goes with most."""
    if estimator.law_ in LINES:
        shares = [f"{share:.0%}" for share in estimator.lines()["share"]]
        alike = " Lines that are close count as one subgroup." if 1 < subgroups < len(shares) else ""
        return f"{estimator.verdict()} Their shares of the rows are {listed(shares)}.{alike}"
    told = _told_from_zero(estimator, summary)
    if told.empty:
        return f"{estimator.verdict()} No mean coefficient is told from 0."
    named = listed(f"{name} ({change:+.3g})" for name, change in told.head(_NAMED_COEFFICIENTS).items())
    return f"{estimator.verdict()} For a standard deviation of its column, {target} changes most with {named}."


def _told_from_zero(estimator: GPSLinearRegression, summary: pd.DataFrame) -> pd.Series:
    """Return what the target changes by for a standard deviation of a column, where the mean's interval excludes 0."""
    slopes = summary.iloc[: estimator.n_features_in_]
    told = (slopes["mean_lower"] > 0.0) | (slopes["mean_upper"] < 0.0)
    changes = (slopes["mean"] * estimator.fit_.units.spread)[told]
    return changes.sort_values(key=abs, ascending=False)


def _told(estimator: GPSLinearRegression, summary: pd.DataFrame) -> str:
    told, p = len(_told_from_zero(estimator, summary)), estimator.n_features_in_
    return f"the mean of {told:,} of {p:,} is told from 0"


def _judged_sections(checks: Mapping[str, Any]) -> list[Section]:
    known = Text(_LEFT_OUT if checks["left_out"] else _SEEN_BEFORE)
    inside = f"{checks['coverage']['0.9']:.1%} of the rows are inside their 90% intervals"
    found = [*_prediction_blocks(checks), *blocks.calibration_blocks(checks, "rows", advice=_MISFIT), known]
    columns = frame_from_json(checks["columns"])
    return [
        *_subgroup_sections(checks),
        Section("Checks", found, inside),
        Section("Rows", _row_blocks(checks), "those to look at"),
        Section("Data", [Table(columns, "Columns of the table")], f"{len(columns)} columns"),
    ]


def _prediction_blocks(checks: Mapping[str, Any]) -> list[Block]:
    """Show observed outcomes beside predicted ones; checks of early versions lack them."""
    if checks["predictions"] is None:
        return []
    return [blocks.prediction_picture(frame_from_json(checks["predictions"]), checks["target"])]


def _subgroup_sections(checks: Mapping[str, Any]) -> list[Section]:
    subgroups = frame_from_json(checks["subgroups"])
    if len(subgroups) < 2:
        return []
    found: list[Block] = [Table(subgroups.rename_axis("subgroup"), "Mean coefficients and rows")]
    if checks["profile"] is None:
        return [Section("Subgroups", found)]
    profile = frame_from_json(checks["profile"])
    said = profile_in_words(profile)
    if len(profile):
        means = [name for name in profile if name not in ("apart", "p_value")]
        names = {name: f"mean in subgroup {name}" for name in means} | {"apart": "apart (sd)", "p_value": "p value"}
        found.append(Table(profile.rename(columns=names).rename_axis("column"), "What distinguishes them"))
    return [Section("Subgroups", [Text(f"{said} {_PROFILE_SAYS}"), *found], said)]


def _scatter(shown: Mapping[str, Any], target: str) -> Picture:
    """Show rows by the covariate whose coefficient differs most."""
    names = shown.get("names")
    texts = [
        f"row {name}: {shown['covariate']} {shown_number(x)}, {target} {shown_number(y)}, subgroup {group}"
        for name, x, y, group in zip(names or [], shown["x"], shown["y"], shown["subgroup"], strict=False)
    ]
    return Picture(
        subgroup_scatter(shown["x"], shown["y"], shown["subgroup"], shown["covariate"], target),
        f"Rows by {shown['covariate']} and {target}",
        "Rows by the covariate whose coefficient differs most, and the subgroup that each speaks for.",
        hints=Hints(shown["x"], shown["y"], texts) if names else None,
    )


def _coefficient_picture(estimator: GPSLinearRegression, target: str) -> Picture:
    names, spread = list(estimator.summary().index[:-2]), estimator.fit_.units.spread
    figure = coefficients(estimator.draws_["slope"], names, spread=spread, target=target)
    caption = (
        "Upper boxes: all chains and draws; lower ones: within chains, how rows differ."
        if estimator.heterogeneous_
        else "How well each coefficient is known: all chains and draws."
    )
    return Picture(figure, "Boxplots of every coefficient over chains and draws", caption)


def largest_parameters(summary: pd.DataFrame, most: int = _MOST_COEFFICIENTS) -> list[int]:
    """Return the places of the largest coefficients in a summary, at most so many, and of intercept and sigma."""
    last = len(summary) - 2
    return [*largest(summary["mean"].to_numpy()[:last], most), last, last + 1]


def _coefficient_blocks(estimator: GPSLinearRegression, summary: pd.DataFrame) -> list[Block]:
    p = estimator.n_features_in_
    spread = pd.Series(estimator.fit_.units.spread, summary.index[:p])
    scaled = summary.assign(**{"sd of the column": spread, "mean for one sd": summary["mean"] * spread})
    return [
        blocks.summary_block(scaled.iloc[largest_parameters(summary)], "row", ["sd of the column", "mean for one sd"]),
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
    return [Text(_SURPRISING), Table(frame_from_json(checks["worst"]).rename_axis("row"), "Rows to look at")]
