"""The report of a linear regression: coefficients that may differ between rows, and whether the fit can be believed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from gpsuq.errors import GPSError
from gpsuq.estimators.linear import GPSLinearRegression
from gpsuq.generators import MLP
from gpsuq.plots.checks import subgroup_scatter
from gpsuq.reports.blocks import (
    MOST_PARAMETERS,
    column_table,
    differing_most,
    distribution_blocks,
    finding_blocks,
    mode_blocks,
    pieces_of,
    spread_blocks,
    summary_block,
)
from gpsuq.reports.calibration import calibration, calibration_blocks
from gpsuq.reports.page import Block, Page, Picture, Section, Table, Text, settings_table

CHECKS_FILE = "checks.json"
_WORST_ROWS = 10
_SHOWN_ROWS = 2000
_PARTS = ("n", "target", "columns", "pit", "coverage", "worst", "subgroups", "shown")
_SHOWN_COEFFICIENTS = 5
_MOST_NARROW = 8
_MISFIT = "Look for a missing covariate, a curved relation, or very few rows."


def linear_checks(estimator: GPSLinearRegression, X: pd.DataFrame, y: pd.Series, rows: pd.DataFrame) -> dict[str, Any]:
    """Compare a fit with its data: everything that a report says about them, as JSON holds it.

    ``rows`` is what ``estimator.explain_rows(X, y)`` gave.
    """
    probability = estimator.predict_cdf(X, y)
    table = pd.concat([y.rename(str(y.name)), X], axis=1)
    worst = rows.assign(y=np.asarray(y), predicted=estimator.predict(X)).nlargest(_WORST_ROWS, "outlier_score")
    sizes = rows["subgroup"].value_counts().sort_index()
    names = [str(name) for name in X.columns]
    summary = estimator.summary().iloc[: len(names)]
    most = int(np.argmax(summary["heterogeneity_sd"].to_numpy() * X.std().to_numpy()))
    some = np.sort(np.random.default_rng(0).permutation(len(X))[:_SHOWN_ROWS])
    return {
        "n": len(table),
        "target": str(y.name),
        "columns": _as_json(column_table(table)),
        **calibration(probability),
        "worst": _as_json(worst[["y", "predicted", "subgroup", "outlier_score"]].set_axis(worst.index + 1)),
        "subgroups": _as_json(rows.groupby("subgroup")[names].mean().assign(rows=sizes)),
        "shown": {
            "covariate": names[most],
            "x": X.iloc[some, most].tolist(),
            "y": np.asarray(y)[some].tolist(),
            "subgroup": rows["subgroup"].iloc[some].tolist(),
        },
    }


def write_checks(checks: Mapping[str, Any], directory: Path) -> Path:
    """Write checks beside a saved model, for a report that is made later."""
    path = directory / CHECKS_FILE
    path.write_text(json.dumps(checks, indent=2) + "\n")
    return path


def read_checks(directory: Path) -> dict[str, Any] | None:
    """Read the checks beside a saved model; None where there are none."""
    path = directory / CHECKS_FILE
    if not path.is_file():
        return None
    try:
        checks = json.loads(path.read_text())
        return {name: checks[name] for name in _PARTS}
    except (ValueError, KeyError, TypeError) as error:
        raise GPSError(f"{path} is damaged ({error}); delete it, or fit again") from error


def linear_page(estimator: GPSLinearRegression, checks: Mapping[str, Any] | None = None) -> Page:
    """Give the report of a fitted regression; without ``checks`` it says nothing about the data.

    Parameters
    ----------
    estimator
        The fitted regression.
    checks
        What ``gpsuq.reports.linear.linear_checks`` gave for a table.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> import pandas as pd
    >>> from gpsuq import GPSLinearRegression
    >>> from gpsuq.datasets import correlated
    >>> from gpsuq.reports import linear_page, write_page
    >>> from gpsuq.reports.linear import linear_checks
    >>> data = correlated(200, 1)
    >>> X, y = pd.DataFrame(data.X, columns=["size"]), pd.Series(data.y, name="price")
    >>> model = GPSLinearRegression(spread_weight=3.0, n_chains=2, n_steps=10).fit(X, y)
    >>> page = linear_page(model, linear_checks(model, X, y, model.explain_rows(X, y)))
    >>> page.title, page.facts[0]
    ('Linear regression of price', ('rows', '200'))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_page(page, Path(folder, "report.html")).name
    'report.html'
    """
    summary = estimator.summary()
    differ = estimator.heterogeneous_
    facts = [("coefficients", "differ between rows" if differ else "the same for all rows")]
    lead = (
        "Coefficients differ between rows: one line for all would hide that."
        if differ
        else "Nothing in the data asks for coefficients that differ between rows."
    )
    facts.append(("covariates", str(estimator.n_features_in_)))
    if checks is not None:
        facts = [("rows", f"{checks['n']:,}"), *facts]
        lead = f"{checks['n']:,} rows, target {checks['target']}. {lead}"
        if len(checks["subgroups"]["index"]) > 1:
            facts.append(("subgroups", str(len(checks["subgroups"]["index"]))))
    sections = [
        Section("Coefficients", [*_seen(checks), *_coefficient_blocks(estimator, summary)]),
        Section("UQ distribution", _distribution_blocks(estimator, summary)),
        Section("Modes", _mode_blocks(estimator, summary)),
        Section("Heterogeneity and estimation", spread_blocks(summary)),
    ]
    if checks is not None:
        sections.append(Section("Checks", calibration_blocks(checks, "rows", advice=_MISFIT)))
        sections.append(Section("Rows", _row_blocks(checks)))
    sections.append(Section("Diagnostics", finding_blocks(estimator.findings_)))
    if checks is not None:
        sections.append(Section("Data", [Table(_from_json(checks["columns"]), "Columns of the table")]))
    sections.append(Section("What was fitted", [Table(_settings(estimator), "Settings")]))
    title = "Linear regression" if checks is None else f"Linear regression of {checks['target']}"
    return Page(title, lead, sections, facts)


def _seen(checks: Mapping[str, Any] | None) -> list[Block]:
    """Show rows by the covariate whose coefficient differs most."""
    if checks is None:
        return []
    shown = checks["shown"]
    return [
        Picture(
            subgroup_scatter(shown["x"], shown["y"], shown["subgroup"], shown["covariate"], checks["target"]),
            f"Rows by {shown['covariate']} and {checks['target']}",
            "Rows by the covariate whose coefficient differs most, and the subgroup that each speaks for.",
        )
    ]


def _coefficient_blocks(estimator: GPSLinearRegression, summary: pd.DataFrame) -> list[Block]:
    return [
        Picture(
            estimator.plot_coefficients(),
            "Boxplots of every coefficient over chains and draws",
            "Dark: all chains and draws; light: within chains, how rows differ.",
            wide=estimator.n_features_in_ > _MOST_NARROW,
        ),
        summary_block(summary, "row"),
    ]


def _draws(estimator: GPSLinearRegression, summary: pd.DataFrame) -> pd.DataFrame:
    """Give draws of the coefficients and of sigma, indexed by chain and draw."""
    draws = estimator.draws_
    n_chains, each = draws["sigma"].shape
    index = pd.MultiIndex.from_product([range(n_chains), range(each)], names=["chain", "draw"])
    names = summary.index[: estimator.n_features_in_]
    table = pd.DataFrame(draws["slope"].reshape(len(index), -1), columns=names, index=index)
    return table.assign(sigma=draws["sigma"].ravel())


def _distribution_blocks(estimator: GPSLinearRegression, summary: pd.DataFrame) -> list[Block]:
    names = list(summary.index[: estimator.n_features_in_])
    chosen = differing_most(summary.loc[names], _SHOWN_COEFFICIENTS)
    few = f"The {len(chosen)} coefficients that differ most between rows are shown."
    draws = _draws(estimator, summary)[[*chosen, "sigma"]]
    return distribution_blocks(draws, "" if len(chosen) == len(names) else few)


def _mode_blocks(estimator: GPSLinearRegression, summary: pd.DataFrame) -> list[Block]:
    if not estimator.heterogeneous_:
        return [Text("All rows share their coefficients, so that there are no modes to tell apart.")]
    names = differing_most(summary.iloc[: estimator.n_features_in_], MOST_PARAMETERS)
    return mode_blocks(pieces_of(_draws(estimator, summary)[names], summary), names)


def _row_blocks(checks: Mapping[str, Any]) -> list[Block]:
    blocks: list[Block] = []
    subgroups = _from_json(checks["subgroups"])
    if len(subgroups) > 1:
        blocks.append(Table(subgroups.rename_axis("subgroup"), "Subgroups: mean coefficients and rows"))
    worst = _from_json(checks["worst"]).rename_axis("row")
    text = "The most surprising rows, in nats beyond an ordinary one (above about 5 is rare); rows count from 1."
    return [*blocks, Text(text), Table(worst, "Rows to look at")]


def _settings(estimator: GPSLinearRegression) -> pd.DataFrame:
    return settings_table(
        estimator.get_params(deep=False) | {"generator": estimator.generator or MLP()},
        seed=estimator.seed_,
        spread_weight_in_use=estimator.spread_weight_,
    )


def _as_json(frame: pd.DataFrame) -> dict[str, Any]:
    return {
        "index": list(map(str, frame.index)),
        "values": json.loads(frame.to_json(orient="values")),
        "names": list(map(str, frame.columns)),
    }


def _from_json(held: Mapping[str, Any]) -> pd.DataFrame:
    return pd.DataFrame(held["values"], index=held["index"], columns=held["names"])
