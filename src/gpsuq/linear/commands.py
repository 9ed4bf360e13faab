"""`gpsuq fit linear`, and what the command line says of a regression."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from gpsuq.speaking import (
    DataArgument,
    DecimalOption,
    DropMissingOption,
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

predicted = mean_and_interval  # for gpsuq predict


def fit(
    data: DataArgument,
    target: TargetOption,
    out: Annotated[Path, typer.Option("--out", help="Directory for the model, summary.csv, rows.csv and a figure.")],
    groups: GroupsOption = None,
    weights: WeightsOption = None,
    drop: DropOption = None,
    drop_missing: DropMissingOption = False,
    intercept: Annotated[bool, typer.Option(help="Whether the model has an intercept.")] = True,
    random_intercept: Annotated[
        bool, typer.Option("--random-intercept", help="Let the intercept vary, too; with --groups it does.")
    ] = False,
    decimal: DecimalOption = None,
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
        from gpsuq.errors import GPSError
        from gpsuq.linear.estimator import DEFAULT_STEPS, GPSLinearRegression
        from gpsuq.linear.report import checked_linear_page, linear_checks
        from gpsuq.plots.style import save_figure
        from gpsuq.reports.page import write_page
        from gpsuq.reports.saved import write_checks
        from gpsuq.storage import write_model
        from gpsuq.storage.directories import replaced, written_files
        from gpsuq.tables.parquet import is_streamed
        from gpsuq.tables.reading import numbered, read_table, split_table, write_table
        from gpsuq.tables.streaming import ParquetRows

        left_out = drop or ()
        if is_streamed(data):
            if groups is not None:
                raise GPSError(f"--groups needs a table in memory: pass a single file smaller than {data}")
            stream = ParquetRows(data, target, weights=weights, drop=left_out, drop_missing=drop_missing, seed=seed)
            table, n_rows = stream.sample_table(), stream.n_rows
            n_before = stream.table.n_rows if weights is None else n_rows
        else:
            whole, stream = read_table(data, decimal), None
            table = split_table(whole, target, groups=groups, weights=weights, drop=left_out, drop_missing=drop_missing)
            n_before, n_rows = len(whole), len(table.X)
        estimator = GPSLinearRegression(
            fit_intercept=intercept,
            random_intercept=random_intercept or "auto",
            random_state=seed,
            progress=watched(),
            n_steps=DEFAULT_STEPS if steps is None else steps,
        )
        with resumable(unfinished(out)), replaced(out, force=force) as folder:
            with without_findings(estimator):
                if stream is None:
                    estimator.fit(table.X, table.y, table.weights, groups=table.groups)
                else:
                    estimator.fit(stream)
            if table.encoding.levels:
                table.encoding.write(folder)
            with step("judging rows and writing the report"):
                write_table(estimator.summary(), folder / "summary.csv", index=True)
                rows = numbered(estimator.explain_rows(table.X, table.y, groups=table.groups))
                write_table(rows, folder / "rows.csv", index=True)
                if table.groups is not None:
                    by_group = estimator.explain_groups(table.X, table.y, table.groups)
                    write_table(by_group, folder / "groups.csv", index=True)
                save_figure(estimator.plot_coefficients(), folder / "coefficients.png")
                checks = linear_checks(estimator, table.X, table.y, rows, fitted=True, n_rows=n_rows)
                write_checks(checks, folder)
                write_model(estimator, folder)  # after what is read with it
                write_page(checked_linear_page(estimator, checks), folder / "report.html")
    files = written_files(out)
    if as_json:
        print_json(facts(estimator) | {"rows": n_rows, "files": list(map(str, files))})
        return
    print_left_out(console, n_before, n_rows)
    show(console, estimator)
    list_files(console, files)


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
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    from gpsuq.core.numbers import shown_number
    from gpsuq.linear.report import largest_parameters

    print_found(console, estimator.verdict(), estimator.findings_)
    table = Table("parameter", header_style="bold", box=SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    for column in ("mean", "hetero-\ngeneity sd", "estima-\ntion sd", "interval of\nthe mean", "for one\nsd of x"):
        table.add_column(column, justify="right", no_wrap=True)
    summary = estimator.summary(coverage)
    scaled = (summary["mean"].iloc[:-2] * estimator.fit_.units.spread).map("{:+.3g}".format)
    shown = summary.iloc[largest_parameters(summary, 50)]
    for name, row in shown.iterrows():
        numbers = (shown_number(row[column]) for column in ("mean", "heterogeneity_sd", "estimation_sd"))
        interval = f"{shown_number(row['mean_lower'])} to {shown_number(row['mean_upper'])}"
        told = row["mean_lower"] > 0.0 or row["mean_upper"] < 0.0
        table.add_row(Text(str(name)), *numbers, interval, scaled.get(name, ""), style="" if told else "dim")
    console.print(table)
    console.print("Dim: the interval of the mean holds 0.", style="dim")
    if len(shown) < len(summary):
        console.print(f"These are the largest of {len(summary):,}; summary.csv and --json have all of them.")
