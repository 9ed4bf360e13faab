"""The report of a nonlinear regression: what it predicts, whether that holds, and what it depends on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from gpsuq.core.numbers import shown_number
from gpsuq.errors import GPSError, listed
from gpsuq.regress.effects import EFFECT_LEVELS, effect, importance, named_table
from gpsuq.regress.estimator import GPSRegressor
from gpsuq.regress.left_out import Judge, gathered, judges, thinned
from gpsuq.regress.plots import density_strips, effect_curves
from gpsuq.reports import blocks
from gpsuq.reports.page import Block, Page, Picture, Section, Table, Text, settings_table
from gpsuq.reports.saved import frame_as_json, frame_from_json, outcomes_to_judge_by, page_with_checks

Array = NDArray[np.floating]

NEEDS_ROWS = True
IN_PYTHON = "regression_page(gpsuq.load(path, ...), X, y)"
REGRESSION_PARTS = (
    *("n", "target", "looked_at", "fitted", "left_out", "pit", "coverage", "crps", "crps_without_columns"),
    *("columns", "shown", "strips", "importance", "effects", "surprising", "uncertain"),
)
_MOST_ROWS = 2000  # that predictions are looked at for
_SCORED_ROWS = 300
_COUNT_LEVELS = 40
_WORST_ROWS = 10
_STRIPS = 6
_STRIP_VALUES = 160
_EFFECTS = 4
_MOST_COLUMNS = 200
_ENDS = (0.05, 0.95)
_MEMBERS = {
    "smooth": "networks that are smooth in all columns",
    "pieces": "networks that see columns cut into pieces",
    "affine": "planes, with Student's t around them",
    "forest": "trees, whose draws are outcomes of rows alike",
    "own": "the network that was passed",
}
_MISFIT = "Look for a missing column, another family of outcomes, or very few rows."
_LEFT_OUT = "Each of these rows was judged by generators that had not seen it."
_SEEN_BEFORE = "Rows that were fitted flatter a fit: judge by new ones, where there are any."
_STRIPS_SAY = (
    "The whole predictive at some rows, from those that it is surest of to those that it is least sure of. "
    "Several peaks are several likely outcomes; then the mean may be none of them."
)
_IMPORTANCE_SAYS = (
    "Importance is by how much the score of predictions (CRPS) grows when a column is shuffled, as a share of it; "
    "columns that say the same share it. The figure has the predictive's quantiles when one column is changed and the "
    "others stay, averaged over rows. This is what the model says, not what an intervention would do."
)
_NOTHING_MATTERS = "Predictions get no worse when a column is shuffled: none of them says anything about the outcome."
_SURPRISING = (
    "The most surprising rows, in nats beyond an ordinary one; above 5 they are called outliers. They count from 1, "
    "unless the table names them."
)
_UNCERTAIN = (
    "Rows at which generators agree least, so that more data like them would help most. The share that is epistemic is "
    "what they disagree on; the rest of the variance is noise, which more data do not reduce."
)
_NO_ROWS = (
    "No rows were given, so that nothing here says whether predictions hold. Name a table, gpsuq report DIRECTORY "
    "--data FILE --target COLUMN --out PAGE, or pass rows in Python, regression_page(model, X, y)."
)


def regression_page(estimator: GPSRegressor, X: Any = None, y: Any = None) -> Page:
    """Return the report of a fitted regression; without rows it says nothing about predictions.

    Parameters
    ----------
    estimator
        The fitted regression, of a single outcome.
    X, y
        Rows to compare it with, best those that were not fitted.

    Examples
    --------
    >>> import numpy as np
    >>> from gpsuq import GPSRegressor
    >>> from gpsuq.regress.report import regression_page
    >>> X = np.random.default_rng(0).normal(size=(200, 2))
    >>> y = np.sin(X[:, 0]) + 0.1 * X[:, 1]
    >>> model = GPSRegressor(n_chains=4, n_steps=50).fit(X[:150], y[:150])
    >>> page = regression_page(model, X[150:], y[150:])
    >>> page.title, page.facts[0]
    ('Regression of y', ('rows', '50'))
    """
    if (X is None) != (y is None):
        raise GPSError("a regression is compared with rows and their targets: pass both X and y, or neither")
    return checked_regression_page(estimator, None if X is None else regression_checks(estimator, X, y))


def saved_page(estimator: GPSRegressor, directory: Path, *, progress: bool) -> Page:
    """Return the report of a saved regression, with what was kept about its rows."""
    return page_with_checks(directory, REGRESSION_PARTS, (), partial(checked_regression_page, estimator))


def judged_page(estimator: GPSRegressor, X: pd.DataFrame, y: pd.Series | None) -> Page:
    """Return the report of a saved regression on the rows of a file."""
    return regression_page(estimator, X, outcomes_to_judge_by(y))


def regression_checks(
    estimator: GPSRegressor, X: Any, y: Any, rows: pd.DataFrame | None = None, *, fitted: bool = False
) -> dict[str, Any]:
    """Compare a fit with rows: everything that a report says about them, as JSON holds it.

    Rows that were ``fitted`` are judged by generators that had left them out, where there are any; ``rows`` is what
    ``estimator.explain_rows`` said of them, where that was computed already. At most 2,000 rows are predicted.
    """
    table = named_table(estimator, X)
    target = str(getattr(y, "name", None) or "y")
    outcome = _single_outcome(estimator, y, len(table))
    everyone = judges(estimator, len(table), fitted=fitted)
    judging = thinned(everyone, _MOST_ROWS)
    places = np.concatenate([judge.places for judge in judging])
    chosen, seen = table.iloc[places], outcome[places]
    if rows is None:
        rows = estimator.explain_rows(table, outcome, fitted=fitted)
    ends = gathered(judging, lambda model, at: model.predict_quantiles(table.iloc[at], _ENDS))
    mean = gathered(judging, lambda model, at: model.predict(table.iloc[at]))
    shown = pd.DataFrame({"y": seen, "predicted": mean, "5%": ends[:, 0], "95%": ends[:, 1]})
    shown.index = blocks.row_names(table.index)[places]
    scored = thinned(judging, _SCORED_ROWS)
    crps = gathered(scored, lambda model, at: model.crps(table.iloc[at], outcome[at]))
    order = _importance(scored, table, outcome)
    told = order.index[:_EFFECTS][order[:_EFFECTS] > 0.0]
    parts = gathered(judging, lambda model, at: model.uncertainty(table.iloc[at])[["total", "epistemic"]])
    return {
        "n": len(table),
        "target": target,
        "looked_at": len(places),
        "fitted": fitted,
        "left_out": everyone[0].model is not estimator,
        **blocks.calibration(_probability(estimator, everyone, table, outcome, fitted)),
        "crps": float(crps.mean()),
        "crps_without_columns": _spread(seen),
        "columns": frame_as_json(_described(pd.concat([pd.Series(seen, chosen.index, name=target), chosen], axis=1))),
        "shown": frame_as_json(shown),
        "strips": _strips(judging, table, shown),
        "importance": frame_as_json(order.to_frame()),
        "effects": [_effect_as_json(effect(estimator, chosen, str(name))) for name in told],
        "surprising": frame_as_json(_surprising(shown, rows.iloc[places])),
        "uncertain": frame_as_json(_uncertain(shown, parts)),
    }


def _single_outcome(estimator: GPSRegressor, y: Any, n: int) -> Array:
    outcome = np.asarray(y, dtype=np.float64)
    if estimator.fit_.n_outputs > 1 or outcome.size != len(outcome):
        raise GPSError("a report judges rows by a single outcome: fit one model for each")
    if len(outcome) != n:
        raise GPSError(f"X and y must have the same number of rows: {n}, {len(outcome)}")
    return outcome.ravel()


def _probability(
    estimator: GPSRegressor, judging: list[Judge[GPSRegressor]], X: pd.DataFrame, y: Array, fitted: bool
) -> Array:
    """Return the probability of at most each outcome, of rows left out where they were fitted."""
    if estimator.fit_.family.outcome.discrete:
        return gathered(thinned(judging, _SCORED_ROWS), lambda model, at: _of_counts(model, X.iloc[at], y[at]))
    if fitted and len(estimator.fit_.ranks):
        return estimator.fit_.ranks[:, 0]
    return gathered(thinned(judging, _MOST_ROWS), lambda model, at: model.predict_cdf(X.iloc[at], y[at]))


def _of_counts(model: GPSRegressor, X: pd.DataFrame, y: Array) -> Array:
    """Return a number between the probabilities of less and of at most each count, by the quantiles that it lies among.

    Ranks of counts are those of the middle of their steps, which many share.
    """
    levels = np.arange(1, _COUNT_LEVELS) / _COUNT_LEVELS
    quantiles = model.predict_quantiles(X, list(levels)).to_numpy()
    less, at_most = (found.sum(1) for found in (quantiles < y[:, None], quantiles <= y[:, None]))
    return blocks.randomised(less / _COUNT_LEVELS, (at_most + 1) / _COUNT_LEVELS)


def _importance(judging: list[Judge[GPSRegressor]], X: pd.DataFrame, y: Array) -> pd.Series:
    """Return the importance of columns, the mean over all judges."""
    found = [importance(judge.model, X.iloc[judge.places], y[judge.places]) for judge in judging]
    return pd.concat(found, axis=1).mean(axis=1).sort_values(ascending=False, kind="stable").rename("importance")


def _strips(judging: list[Judge[GPSRegressor]], X: pd.DataFrame, shown: pd.DataFrame) -> list[dict[str, Any]]:
    """Return the predictive at rows from narrow to wide intervals, each by its own judge."""
    widths = (shown["95%"] - shown["5%"]).to_numpy()
    levels = np.linspace(0.02, 0.98, min(_STRIPS, len(shown)))
    order = np.argsort(widths, kind="stable")[np.round(levels * (len(shown) - 1)).astype(int)]
    asked = [(judge.model, place) for judge in judging for place in judge.places]
    found = []
    for row in order:
        model, place = asked[row]
        name, y = f"row {shown.index[row]}", shown["y"].to_numpy()[[row]]
        found += predictive_strips(model, X.iloc[[place]], y, [name])
    return found


def _spread(y: Array) -> float:
    r"""Return :math:`E|y - y'| / 2`, the CRPS of the distribution of all outcomes."""
    n = len(y)
    return float((2.0 * np.arange(1, n + 1) - n - 1.0) @ np.sort(y) / n**2)


def _described(table: pd.DataFrame) -> pd.DataFrame:
    """Describe columns of numbers and text, a row for each: gaps, levels of text, moments of numbers."""
    some = table.iloc[:, : _MOST_COLUMNS + 1]
    numbers = some.select_dtypes("number")
    texts = [name for name in some if name not in numbers]
    result = pd.DataFrame({"missing": some.isna().sum()})
    result["levels"] = some[texts].nunique().reindex(result.index).astype(object)
    return result.join(blocks.column_table(numbers)).rename_axis("column")


def predictive_strips(
    estimator: GPSRegressor, X: Any, y: Any = None, names: Sequence[str] | None = None
) -> list[dict[str, Any]]:
    """Return the predictive density at every row, as :func:`gpsuq.regress.plots.density_strips` shows it.

    >>> import numpy as np
    >>> from gpsuq import GPSRegressor
    >>> from gpsuq.regress.plots import density_strips
    >>> from gpsuq.regress.report import predictive_strips
    >>> X = np.random.default_rng(0).normal(size=(100, 1))
    >>> model = GPSRegressor(n_chains=4, n_steps=50).fit(X, np.sin(X[:, 0]))
    >>> strips = predictive_strips(model, X[:3], np.sin(X[:3, 0]))
    >>> [strip["name"] for strip in strips], len(density_strips(strips).axes)
    (['row 1', 'row 2', 'row 3'], 1)
    """
    table = named_table(estimator, X)
    counts = bool(estimator.fit_.family.outcome.discrete)
    names = [f"row {name}" for name in blocks.row_names(table.index)] if names is None else names
    observed = [None] * len(table) if y is None else [float(value) for value in np.asarray(y).ravel()]
    ends = estimator.predict_quantiles(table, (0.005, 0.995)).to_numpy()
    grids = [np.linspace(low, high, _STRIP_VALUES) for low, high in ends]
    if counts:
        grids = [np.unique(np.round(grid)) for grid in grids]
    asked = table.iloc[np.repeat(np.arange(len(table)), [len(grid) for grid in grids])]
    density = estimator.predict_density(asked, np.concatenate(grids))
    parts = np.split(density, np.cumsum([len(grid) for grid in grids])[:-1])
    return [
        {"name": name, "at": grid.tolist(), "density": part.tolist(), "counts": counts, "observed": seen}
        for name, grid, part, seen in zip(names, grids, parts, observed, strict=True)
    ]


def _effect_as_json(quantiles: pd.DataFrame) -> dict[str, Any]:
    number = pd.api.types.is_numeric_dtype(quantiles.index) and not pd.api.types.is_bool_dtype(quantiles.index)
    at = [float(value) if number else str(value) for value in quantiles.index]
    return {"name": str(quantiles.index.name), "at": at, "quantiles": quantiles.to_numpy().tolist()}


def _effect_from_json(held: Mapping[str, Any]) -> pd.DataFrame:
    return pd.DataFrame(held["quantiles"], index=pd.Index(held["at"], name=held["name"]), columns=list(EFFECT_LEVELS))


def _surprising(shown: pd.DataFrame, rows: pd.DataFrame) -> pd.DataFrame:
    judged = shown.assign(outlier_score=rows["outlier_score"].to_numpy(), outlier=rows["outlier"].to_numpy())
    return judged.nlargest(_WORST_ROWS, "outlier_score")


def _uncertain(shown: pd.DataFrame, parts: Array) -> pd.DataFrame:
    """Return the rows with the largest epistemic variance, of columns total and epistemic."""
    total, epistemic = parts.T
    shares = [f"{share:.0%}" for share in epistemic / np.maximum(total, 1e-300)]
    judged = shown.assign(sd=np.sqrt(total), epistemic=shares)
    return judged.iloc[np.argsort(-epistemic, kind="stable")[:_WORST_ROWS]]


def checked_regression_page(estimator: GPSRegressor, checks: Mapping[str, Any] | None) -> Page:
    """Return the report of a regression from what :func:`regression_checks` said about rows, if anything."""
    fitted = Section("What was fitted", _fit_blocks(estimator), _mixed(estimator))
    facts = [("outcomes", estimator.fit_.family.name), ("columns", str(estimator.n_features_in_))]
    if checks is None:
        without = Text(_NO_ROWS, "advice")
        lead = "At every row the predictive is a whole distribution, a mixture over draws of its parameters."
        trust = blocks.trust(estimator.findings_, without)
        return Page("Regression", lead, [Section("Checks", [without]), fitted], facts, trust)
    facts = [("rows", f"{checks['n']:,}"), *facts, ("in 90% intervals", f"{checks['coverage']['0.9']:.1%}")]
    facts.append(("CRPS", shown_number(checks["crps"])))
    lead = _lead(checks)
    if checks["looked_at"] < checks["n"]:
        lead += f" Single rows, figures and the table of columns are those of {checks['looked_at']:,} rows."
    scored = _scored(checks)
    calibrated = blocks.calibration_verdict(checks, "rows", advice=_MISFIT)
    trust = [*blocks.trust(estimator.findings_, calibrated, scored), *([] if scored.kind == "advice" else [scored])]
    picture = blocks.prediction_picture(frame_from_json(checks["shown"]), checks["target"])
    return Page(f"Regression of {checks['target']}", lead, [*_judged_sections(checks), fitted], facts, trust, picture)


def _lead(checks: Mapping[str, Any]) -> str:
    """Say what predictions depend on, and how wide intervals are."""
    shown, names = frame_from_json(checks["shown"]), [held["name"] for held in checks["effects"]]
    half = shown_number(float((shown["95%"] - shown["5%"]).median()) / 2.0)
    depends = f"Predictions of {checks['target']} depend most on {listed(names)}." if names else _NOTHING_MATTERS
    return f"{depends} Half of the 90% intervals are narrower than \u00b1{half}."


def _mixed(estimator: GPSRegressor) -> str:
    return f"a mixture of {', '.join(f'{name} {weight:.0%}' for name, weight in estimator.members_.items())}"


def _judged_sections(checks: Mapping[str, Any]) -> list[Section]:
    strips = Picture(
        density_strips(checks["strips"], target=checks["target"]),
        "Predictive densities of single rows, from narrow to wide ones",
        "Diamonds are what was observed.",
    )
    columns = frame_from_json(checks["columns"]).rename_axis("column")
    inside = f"{checks['coverage']['0.9']:.1%} of the rows are inside their 90% intervals"
    calibrated = blocks.calibration_blocks(checks, "rows", advice=_MISFIT)
    effects = ", ".join(held["name"] for held in checks["effects"]) or "nothing"
    return [
        Section("Calibration", [_scored(checks), *calibrated], inside),
        Section("What predictions depend on", _effect_blocks(checks), effects),
        Section("Rows", _row_blocks(checks), "the most surprising, and those of which least is known"),
        Section("Distributions at single rows", [Text(_STRIPS_SAY), strips], "from narrow to wide"),
        Section("Data", [Table(columns, "Columns of the table")], f"{len(columns)} columns"),
    ]


def _scored(checks: Mapping[str, Any]) -> Text:
    """Say how good predictions are beside those that see no column."""
    without = checks["crps_without_columns"]
    gained = 1.0 - checks["crps"] / without if without > 0.0 else 0.0
    said = f"The score of predictions (CRPS, lower is better) is {shown_number(checks['crps'])}"
    one = f"one distribution for all rows has {shown_number(without)}"
    known = _LEFT_OUT if checks["left_out"] else _SEEN_BEFORE if checks["fitted"] else ""
    if gained > 0.0:
        return Text(f"{said}, {gained:.0%} less than without columns: {one}. {known}".rstrip())
    return Text(f"{said}, and {one}: the columns say nothing about the outcome here. {known}".rstrip(), "advice")


def _effect_blocks(checks: Mapping[str, Any]) -> list[Block]:
    order = frame_from_json(checks["importance"]).rename_axis("column")
    table = Table(order.map("{:.1%}".format), "Columns by importance")
    effects = [_effect_from_json(held) for held in checks["effects"]]
    if not effects:
        return [Text(_NOTHING_MATTERS, "advice"), table]
    figure = effect_curves(effects, target=checks["target"])
    words = "Quantiles of the predictive by the columns that matter most"
    return [Text(_IMPORTANCE_SAYS), Picture(figure, words, wide=len(effects) > 1), table]


def _row_blocks(checks: Mapping[str, Any]) -> list[Block]:
    surprising, uncertain = (frame_from_json(checks[part]) for part in ("surprising", "uncertain"))
    return [
        Text(_SURPRISING),
        Table(surprising.rename_axis("row"), "The most surprising rows"),
        Text(_UNCERTAIN),
        Table(uncertain.rename_axis("row"), "The rows of which least is known"),
    ]


def _fit_blocks(estimator: GPSRegressor) -> list[Block]:
    members = {name: (f"{weight:.0%}", _MEMBERS.get(name, "")) for name, weight in estimator.members_.items()}
    table = pd.DataFrame.from_dict(members, orient="index", columns=["weight", "what it is"])
    settings = settings_table(estimator.get_params(deep=False), seed=estimator.fit_.seed)
    return [
        Table(table.rename_axis("generators"), "Generators that were mixed, and how much each counts"),
        *([] if (said := conformal_in_words(estimator)) is None else [Text(said)]),
        Table(settings, "Settings"),
    ]


def conformal_in_words(estimator: GPSRegressor, coverage: float = 0.9) -> str | None:
    """Say which quantiles the conformal layer takes for an interval; None without one."""
    conformal = estimator.conformal_
    if conformal is None:
        return None
    said = f"Intervals cover by construction, by {conformal.n_rows:,} rows that were not fitted (conformal)"
    if conformal.grouped:
        return f"{said}, in each of {len(conformal.scores)} groups."
    low, high = conformal.levels(coverage, 1)[0]
    return f"{said}: that of {coverage:.0%} lies between the quantiles {low:.1%} and {high:.1%} of the predictive."
