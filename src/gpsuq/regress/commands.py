"""`gpsuq fit regression`, and what the command line says of a nonlinear regression."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from gpsuq.speaking import (
    DataArgument,
    DecimalOption,
    DropOption,
    ForceOption,
    GroupsOption,
    JsonOption,
    SeedOption,
    StepsOption,
    TargetOption,
    WeightsOption,
    list_files,
    mean_and_interval,
    print_found,
    print_json,
    print_left_out,
    speaking,
    step,
    watched,
    without_findings,
)

_FAMILIES = "normal, student-t, laplace, lognormal, poisson, negative-binomial or beta"
_MOST_SHOWN = 50

predicted = mean_and_interval  # for gpsuq predict


def fit(
    data: DataArgument,
    target: TargetOption,
    out: Annotated[Path, typer.Option("--out", help="Directory for the model, rows.csv, a report and a figure.")],
    family: Annotated[str, typer.Option("--family", help=f"Distribution of the target: {_FAMILIES}.")] = "normal",
    conformal: Annotated[
        float | None,
        typer.Option("--conformal", help="Share of the rows to set apart, so that intervals cover by construction."),
    ] = None,
    groups: GroupsOption = None,
    weights: WeightsOption = None,
    drop: DropOption = None,
    drop_missing: Annotated[
        bool,
        typer.Option("--drop-missing", help="Leave out rows without target, group or weight; other gaps may stay."),
    ] = False,
    decimal: DecimalOption = None,
    seed: SeedOption = 0,
    steps: StepsOption = None,
    as_json: JsonOption = False,
    force: ForceOption = False,
) -> None:
    """Fit a nonlinear regression that predicts a whole distribution at every row; text and gaps may stay.

    Example: gpsuq fit regression data.csv --target y --out model
    """
    with speaking() as console:
        from gpsuq.engine.checkpoints import resumable, unfinished
        from gpsuq.plots.diagnostics import observed_and_predicted
        from gpsuq.plots.style import save_figure
        from gpsuq.regress.estimator import DEFAULT_STEPS, GPSRegressor
        from gpsuq.regress.report import checked_regression_page, regression_checks
        from gpsuq.reports.page import write_page
        from gpsuq.reports.saved import frame_from_json, write_checks
        from gpsuq.storage import write_model
        from gpsuq.storage.directories import replaced, written_files
        from gpsuq.tables.reading import numbered, read_table, split_table, write_table

        whole = read_table(data, decimal)
        table = split_table(
            *(whole, target),
            groups=groups,
            weights=weights,
            drop=drop or (),
            drop_missing=drop_missing,
            encode=False,
        )
        estimator = GPSRegressor(
            family=family,
            conformal=conformal,
            n_steps=DEFAULT_STEPS if steps is None else steps,
            random_state=seed,
            progress=watched(),
        )
        with resumable(unfinished(out)), replaced(out, force=force) as folder:
            with without_findings(estimator):
                estimator.fit(table.X, table.y, table.weights, groups=table.groups)
            X, y = numbered(table.X), table.y
            with step("judging rows and writing the report"):
                rows = estimator.explain_rows(X, y, fitted=True)
                write_table(rows, folder / "rows.csv", index=True)
                checks = regression_checks(estimator, X, y, rows, fitted=True)
                shown = frame_from_json(checks["shown"])
                figure = observed_and_predicted(
                    *(shown[name] for name in ("y", "predicted", "5%", "95%")), target=checks["target"]
                )
                save_figure(figure, folder / "regression.png")
                write_checks(checks, folder)
                write_model(estimator, folder)  # after what is read with it
                write_page(checked_regression_page(estimator, checks), folder / "report.html")
    files = written_files(out)
    judged = {"inside": checks["coverage"]} | {name: checks[name] for name in ("left_out", "crps")}
    if as_json:
        print_json(facts(estimator) | judged | {"rows": len(table.X), "files": list(map(str, files))})
        return
    print_left_out(console, len(whole), len(table.X))
    show(console, estimator)
    seen = "rows that were left out" if checks["left_out"] else "rows that were fitted"
    held = ", ".join(f"{float(level):.0%} intervals {share:.1%}" for level, share in checks["coverage"].items())
    console.print(f"Of {seen}, these hold: {held}.", highlight=False)
    list_files(console, files)


def facts(estimator: Any, coverage: float = 0.95) -> dict[str, Any]:
    """Return what machines want to know of a regression."""
    return {
        "type": type(estimator).__name__,
        "coverage": coverage,
        "family": estimator.fit_.family.name,
        "columns": _columns(estimator),
        "members": {name: float(weight) for name, weight in estimator.members_.items()},
        "conformal_rows": 0 if estimator.conformal_ is None else estimator.conformal_.n_rows,
        "findings": [finding.message for finding in estimator.findings_],
    }


def _columns(estimator: Any) -> dict[str, str]:
    """Return the columns that were fitted, and what was taken from each."""
    kinds = {}
    for column in estimator.columns_.columns:
        plain = "numbers" if column.cycles is None else "dates"
        words = plain if column.levels is None else f"text, {len(column.levels)} levels"
        kinds[column.name] = f"{words}, some missing" if column.gaps else words
    return kinds


def show(console: Console, estimator: Any, coverage: float = 0.95) -> None:
    """Print findings, the columns, and the generators that were mixed."""
    from rich.table import Table
    from rich.text import Text

    from gpsuq.regress.report import conformal_in_words

    mixed = ", ".join(f"{name} {weight:.0%}" for name, weight in estimator.members_.items())
    found = f"Outcomes are {estimator.fit_.family.name}. Generators: {mixed}."
    print_found(console, found, estimator.findings_)
    columns = _columns(estimator)
    table = Table("column", "holds", header_style="bold")
    for name in list(columns)[:_MOST_SHOWN]:
        table.add_row(Text(name), columns[name])
    console.print(table)
    if len(columns) > _MOST_SHOWN:
        console.print(f"These are {_MOST_SHOWN} of {len(columns):,} columns; --json has all of them.")
    if (said := conformal_in_words(estimator, coverage)) is not None:
        console.print(said, highlight=False)
