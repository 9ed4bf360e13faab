"""`gpsuq fit linear`, and what the command line says of a regression."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from gpsuq.speaking import (
    DataArgument,
    DropMissingOption,
    DropOption,
    ForceOption,
    JsonOption,
    SeedOption,
    StepsOption,
    list_files,
    print_json,
    print_left_out,
    speaking,
    watched,
)


def fit(
    data: DataArgument,
    target: Annotated[str, typer.Option("--target", help="Column to predict.")],
    out: Annotated[Path, typer.Option("--out", help="Directory for the model, summary.csv, rows.csv and a figure.")],
    groups: Annotated[
        str | None, typer.Option("--groups", help="Column that names subjects measured repeatedly.")
    ] = None,
    weights: Annotated[str | None, typer.Option("--weights", help="Column of frequency weights.")] = None,
    drop: DropOption = None,
    drop_missing: DropMissingOption = False,
    intercept: Annotated[bool, typer.Option(help="Whether the model has an intercept.")] = True,
    random_intercept: Annotated[
        bool, typer.Option("--random-intercept", help="Let the intercept vary, too; with --groups it does.")
    ] = False,
    seed: SeedOption = 0,
    steps: StepsOption = None,
    as_json: JsonOption = False,
    force: ForceOption = False,
) -> None:
    """Fit a linear regression whose coefficients may differ between rows to your own table.

    Example: gpsuq fit linear data.csv --target y --out model
    """
    with speaking() as console:
        from gpsuq.engine.checkpoints import resumable, unfinished
        from gpsuq.errors import GPSWarning
        from gpsuq.linear.estimator import DEFAULT_STEPS, GPSLinearRegression
        from gpsuq.linear.report import checked_linear_page, linear_checks
        from gpsuq.plots.style import save_figure
        from gpsuq.reports.page import write_page
        from gpsuq.reports.saved import write_checks
        from gpsuq.storage import replaced, write_model, written_files
        from gpsuq.tables.reading import numbered, read_table, split_table

        whole = read_table(data)
        table = split_table(whole, target, groups=groups, weights=weights, drop=drop or (), drop_missing=drop_missing)
        estimator = GPSLinearRegression(
            fit_intercept=intercept,
            random_intercept=random_intercept or "auto",
            random_state=seed,
            progress=watched(),
            n_steps=DEFAULT_STEPS if steps is None else steps,
        )
        with resumable(unfinished(out)), replaced(out, force=force) as folder:
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always", GPSWarning)
                estimator.fit(table.X, table.y, table.weights, groups=table.groups)
            said = {finding.message for finding in estimator.findings_}  # the summary has them
            for warning in caught:
                if str(warning.message) not in said:
                    warnings.warn(warning.message, stacklevel=1)
            write_model(estimator, folder)
            if table.encoding.levels:
                table.encoding.write(folder)
            estimator.summary().to_csv(folder / "summary.csv")
            rows = numbered(estimator.explain_rows(table.X, table.y, groups=table.groups))
            rows.to_csv(folder / "rows.csv")
            if table.groups is not None:
                by_group = estimator.explain_groups(table.X, table.y, table.groups)
                by_group.to_csv(folder / "groups.csv")
            save_figure(estimator.plot_coefficients(), folder / "coefficients.png")
            checks = linear_checks(estimator, table.X, table.y, rows, fitted=True)
            write_checks(checks, folder)
            write_page(checked_linear_page(estimator, checks), folder / "report.html")
    files = written_files(out)
    if as_json:
        print_json(facts(estimator) | {"rows": len(table.X), "files": list(map(str, files))})
        return
    print_left_out(console, len(whole), len(table.X))
    show(console, estimator)
    list_files(console, files)


def predicted(estimator: Any, table: Any, coverage: float) -> Any:
    """Return the mean and the interval of every row of a table."""
    result = estimator.predict_interval(table, coverage)
    result.insert(0, "mean", estimator.predict(table))
    return result


def facts(estimator: Any, coverage: float = 0.95) -> dict[str, Any]:
    """Return what machines want to know of a regression."""
    from gpsuq.tables.reading import for_json

    return {
        "type": type(estimator).__name__,
        "coverage": coverage,
        "heterogeneous": bool(estimator.heterogeneous_),
        "verdict": estimator.verdict(),
        "law": estimator.law_,
        "p_value": estimator.p_value_,
        "parameters": for_json(estimator.summary(coverage)).to_dict("index"),
        "findings": [finding.message for finding in estimator.findings_],
    }


def show(console: Console, estimator: Any, coverage: float = 0.95) -> None:
    """Print the verdict on heterogeneity and the coefficients as a table."""
    from rich.table import Table
    from rich.text import Text

    console.print(estimator.verdict(), highlight=False)
    for finding in estimator.findings_:
        console.print(f"Note: {finding.message}.", highlight=False)
    table = Table("parameter", "mean", "heterogeneity sd", "estimation sd", "interval of the mean", header_style="bold")
    for name, row in estimator.summary(coverage).iterrows():
        numbers = (f"{row[column]:.4g}" for column in ("mean", "heterogeneity_sd", "estimation_sd"))
        table.add_row(Text(str(name)), *numbers, f"{row['mean_lower']:.4g} to {row['mean_upper']:.4g}")
    console.print(table)
