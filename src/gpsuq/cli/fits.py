"""`gpsuq fit`: a model for the user's own data."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from gpsuq.cli.speaking import (
    UNFINISHED,
    ForceOption,
    JsonOption,
    StepsOption,
    as_dict,
    describe_poisson,
    list_files,
    print_json,
    print_summary,
    speaking,
)

fit = typer.Typer(help="Fit a model to your own data.", no_args_is_help=True)


@fit.command("linear")
def fit_linear(
    data: Annotated[Path, typer.Argument(help="CSV file with a header, or Parquet.")],
    target: Annotated[str, typer.Option("--target", help="Column to predict.")],
    out: Annotated[Path, typer.Option("--out", help="Directory for the model, summary.csv, rows.csv and a figure.")],
    groups: Annotated[
        str | None, typer.Option("--groups", help="Column that names subjects measured repeatedly.")
    ] = None,
    weights: Annotated[str | None, typer.Option("--weights", help="Column of frequency weights.")] = None,
    drop: Annotated[list[str] | None, typer.Option("--drop", help="Column to leave out; may be repeated.")] = None,
    drop_missing: Annotated[bool, typer.Option("--drop-missing", help="Leave out rows with missing values.")] = False,
    intercept: Annotated[bool, typer.Option(help="Whether the model has an intercept.")] = True,
    random_intercept: Annotated[bool, typer.Option("--random-intercept", help="Let the intercept vary, too.")] = False,
    seed: Annotated[int, typer.Option("--seed", help="Seed.")] = 0,
    steps: StepsOption = None,
    as_json: JsonOption = False,
    force: ForceOption = False,
) -> None:
    """Fit a linear regression whose coefficients may differ between rows to your own table.

    Example: gpsuq fit linear data.csv --target y --out model
    """
    console = Console()
    with speaking(console):
        from gpsuq.estimators.linear import DEFAULT_STEPS, GPSLinearRegression
        from gpsuq.io import LINEAR_FILES, refuse_existing
        from gpsuq.plots import save_figure
        from gpsuq.reports.linear import linear_checks, linear_page, write_checks
        from gpsuq.reports.page import write_page
        from gpsuq.resuming import resumable
        from gpsuq.tables import numbered, read_table, split_table

        whole = read_table(data)
        table = split_table(whole, target, groups=groups, weights=weights, drop=drop or (), drop_missing=drop_missing)
        refuse_existing(out.absolute(), force=force)
        estimator = GPSLinearRegression(
            fit_intercept=intercept,
            random_intercept=random_intercept,
            random_state=seed,
            progress=sys.stderr.isatty(),
            n_steps=DEFAULT_STEPS if steps is None else steps,
        )
        with resumable(out.with_name(out.name + UNFINISHED)):
            estimator.fit(table.X, table.y, table.weights, groups=table.groups)
        estimator.save(out, force=force)
        if table.encoding.levels:
            table.encoding.write(out)
        estimator.summary().to_csv(out / "summary.csv")
        rows = estimator.explain_rows(table.X, table.y)
        numbered(rows).to_csv(out / "rows.csv")
        save_figure(estimator.plot_coefficients(), out / "coefficients.png")
        checks = linear_checks(estimator, table.X, table.y, rows)
        write_checks(checks, out)
        write_page(linear_page(estimator, checks), out / "report.html")
    files = [out / name for name in LINEAR_FILES]
    if as_json:
        print_json(as_dict(estimator) | {"rows": len(table.X), "files": list(map(str, files))})
        return
    if len(table.X) < len(whole):
        console.print(f"{len(whole) - len(table.X)} of {len(whole)} rows have missing values and were left out.")
    print_summary(console, estimator)
    list_files(console, files)


@fit.command("poisson")
def fit_poisson(
    points: Annotated[Path, typer.Argument(help="CSV file with a header and columns x and y.")],
    window: Annotated[Path, typer.Option("--window", help="GeoJSON, or JSON with a rectangle's xrange and yrange.")],
    out: Annotated[Path, typer.Option("--out", help="Directory for the model, intensity.csv and figures.")],
    x: Annotated[str, typer.Option("--x", help="Column of x coordinates.")] = "x",
    y: Annotated[str, typer.Option("--y", help="Column of y coordinates.")] = "y",
    replicate: Annotated[
        str | None, typer.Option("--replicate", help="Column that names replicates of the pattern.")
    ] = None,
    covariate: Annotated[
        list[Path] | None,
        typer.Option("--covariate", help="CSV grid with a JSON of its axes beside it; may be repeated."),
    ] = None,
    drop_outside: Annotated[bool, typer.Option("--drop-outside", help="Leave out points outside the window.")] = False,
    seed: Annotated[int, typer.Option("--seed", help="Seed.")] = 0,
    steps: StepsOption = None,
    as_json: JsonOption = False,
    force: ForceOption = False,
) -> None:
    """Fit a random intensity to your own point pattern.

    Example: gpsuq fit poisson points.csv --window window.json --out model
    """
    console = Console()
    with speaking(console):
        from gpsuq.estimators.poisson import DEFAULT_STEPS, GPSPoissonProcess
        from gpsuq.io import POISSON_FILES, refuse_existing
        from gpsuq.plots import envelope, save_figure
        from gpsuq.reports.page import write_page
        from gpsuq.reports.poisson import poisson_page
        from gpsuq.resuming import resumable
        from gpsuq.spatial import read_covariate, read_window
        from gpsuq.tables import read_points, surface_table

        patterns = read_points(points, x, y, replicate)
        refuse_existing(out.absolute(), force=force)
        estimator = GPSPoissonProcess(
            outside="drop" if drop_outside else "error",
            random_state=seed,
            progress=sys.stderr.isatty(),
            n_steps=DEFAULT_STEPS if steps is None else steps,
        )
        grids = [read_covariate(path) for path in covariate or ()]
        with resumable(out.with_name(out.name + UNFINISHED)):
            estimator.fit(patterns, read_window(window), covariates=grids)
        estimator.save(out, force=force)
        surface_table(estimator.surface()).to_csv(out / "intensity.csv", index=False)
        save_figure(estimator.plot(), out / "intensity.png")
        fitness = estimator.goodness_of_fit()
        save_figure(envelope(fitness, estimator.window_.unit), out / "envelope.png")
        write_page(poisson_page(estimator, fitness), out / "report.html")
    files = [out / name for name in POISSON_FILES]
    if as_json:
        print_json(as_dict(estimator) | {"p_value": fitness.p_value, "files": list(map(str, files))})
        return
    console.print(describe_poisson(estimator))
    console.print(f"L function of the points beside those of simulated patterns: p = {fitness.p_value:.3g}.")
    list_files(console, files)
