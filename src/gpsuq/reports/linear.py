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
from gpsuq.plots.checks import pit_histogram, spread_shares, subgroup_scatter
from gpsuq.plots.distributions import table_marginals, table_pairs
from gpsuq.reports.page import Block, Page, Picture, Section, Table, Text, settings_table

CHECKS_FILE = "checks.json"
_BINS = 20
_COVERAGES = (0.5, 0.8, 0.9, 0.95)
_WORST_ROWS = 10
_SHOWN_ROWS = 2000
_PARTS = ("n", "target", "columns", "pit", "coverage", "worst", "subgroups", "shown")
_SHOWN_COEFFICIENTS = 5
_MOST_SHARES = 40
_MOST_NARROW = 8
_OFF = 0.05


def linear_checks(estimator: GPSLinearRegression, X: pd.DataFrame, y: pd.Series, rows: pd.DataFrame) -> dict[str, Any]:
    """Compare a fit with its data: everything that a report says about them, as JSON holds it.

    ``rows`` is what ``estimator.explain_rows(X, y)`` gave.
    """
    probability = estimator.predict_cdf(X, y)
    counts, _ = np.histogram(probability, bins=_BINS, range=(0.0, 1.0))
    inside = {str(c): float((np.abs(probability - 0.5) <= 0.5 * c).mean()) for c in _COVERAGES}
    table = pd.concat([y.rename(str(y.name)), X], axis=1)
    described = table.describe().T[["mean", "std", "min", "50%", "max"]].rename(columns={"50%": "median", "std": "sd"})
    worst = rows.assign(y=np.asarray(y), predicted=estimator.predict(X)).nlargest(_WORST_ROWS, "outlier_score")
    sizes = rows["subgroup"].value_counts().sort_index()
    names = [str(name) for name in X.columns]
    summary = estimator.summary().iloc[: len(names)]
    most = int(np.argmax(summary["heterogeneity_sd"].to_numpy() * X.std().to_numpy()))
    some = np.sort(np.random.default_rng(0).permutation(len(X))[:_SHOWN_ROWS])
    return {
        "n": len(table),
        "target": str(y.name),
        "columns": _as_json(described),
        "pit": counts.tolist(),
        "coverage": inside,
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
        Section("Heterogeneity and estimation", _spread_blocks(summary)),
    ]
    if checks is not None:
        sections += [Section("Checks", _check_blocks(checks)), Section("Rows", _row_blocks(checks))]
    sections.append(Section("Diagnostics", _diagnostics(estimator)))
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
    columns = ["mean", "mean_lower", "mean_upper", "heterogeneity_sd", "population_lower", "population_upper"]
    return [
        Picture(
            estimator.plot_coefficients(),
            "Boxplots of every coefficient over chains and draws",
            "Dark: all chains and draws; light: within chains, how rows differ.",
            wide=estimator.n_features_in_ > _MOST_NARROW,
        ),
        Table(summary[columns], "Mean of a coefficient over rows (95%), and where a row's own lies (95%)"),
    ]


def _distribution_blocks(estimator: GPSLinearRegression, summary: pd.DataFrame) -> list[Block]:
    draws = estimator.draws_
    names = [str(name) for name in summary.index[: estimator.n_features_in_]]
    spread = (summary["heterogeneity_sd"] / summary["estimation_sd"].clip(lower=1e-300)).iloc[: len(names)]
    chosen = sorted(np.argsort(-spread.to_numpy(), kind="stable")[:_SHOWN_COEFFICIENTS])
    n_chains, each = draws["sigma"].shape
    index = pd.MultiIndex.from_product([range(n_chains), range(each)], names=["chain", "draw"])
    table = pd.DataFrame({names[j]: draws["slope"][..., j].ravel() for j in chosen}, index=index)
    table["sigma"] = draws["sigma"].ravel()
    few = (
        "" if len(chosen) == len(names) else f" The {len(chosen)} coefficients that differ most between rows are shown."
    )
    return [
        Text(
            "The law of a row's own parameters. Several peaks are subgroups; a single narrow one is a shared value."
            + few
        ),
        Picture(table_marginals(table), "Histograms of the parameters", "Thin outlines are single chains.", wide=True),
        Picture(
            table_pairs(table), "Scatter plots of pairs of parameters", "Pairs of parameters of one row.", wide=True
        ),
    ]


def _spread_blocks(summary: pd.DataFrame) -> list[Block]:
    return [
        Text(
            "Two kinds of uncertainty that must not be mixed up: how parameters differ between observations, which "
            "more data do not reduce, and how little these data say about their law, which they do."
        ),
        Picture(spread_shares(summary.head(_MOST_SHARES)), "Shares of heterogeneity and estimation in each variance"),
        Table(summary[["heterogeneity_sd", "estimation_sd"]], "Standard deviations"),
    ]


def _check_blocks(checks: Mapping[str, Any]) -> list[Block]:
    coverage = pd.DataFrame({"inside": {f"{float(c):.0%}": f"{share:.1%}" for c, share in checks["coverage"].items()}})
    worst = max(abs(float(c) - share) for c, share in checks["coverage"].items())
    verdict = (
        Text("Prediction intervals hold as many rows as they should, within 5 points.", "good")
        if worst <= _OFF
        else Text(
            f"Prediction intervals miss their coverage by up to {worst:.0%} on the rows that were fitted. Look for a "
            "missing covariate, a curved relation, or very few rows.",
            "advice",
        )
    )
    return [
        verdict,
        Picture(
            pit_histogram(checks["pit"]),
            "Histogram of the probability of at most y",
            "Flat where the predictive is right; a hump means intervals that are too wide, a bowl too narrow.",
        ),
        Table(coverage.rename_axis("prediction interval"), "Share of the fitted rows inside"),
    ]


def _row_blocks(checks: Mapping[str, Any]) -> list[Block]:
    blocks: list[Block] = []
    subgroups = _from_json(checks["subgroups"])
    if len(subgroups) > 1:
        blocks.append(Table(subgroups.rename_axis("subgroup"), "Subgroups: mean coefficients and rows"))
    worst = _from_json(checks["worst"]).rename_axis("row")
    text = "The most surprising rows, in nats beyond an ordinary one (above about 5 is rare); rows count from 1."
    return [*blocks, Text(text), Table(worst, "Rows to look at")]


def _diagnostics(estimator: GPSLinearRegression) -> list[Block]:
    if not estimator.findings_:
        return [Text("Nothing to be careful about was found.", "good")]
    return [Text(finding.message, "advice") for finding in estimator.findings_]


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
