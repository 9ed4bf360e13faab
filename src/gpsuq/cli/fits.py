"""`gpsuq fit`: a model for the user's own data."""

from __future__ import annotations

import shutil
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from gpsuq.cli.speaking import (
    ForceOption,
    JsonOption,
    StepsOption,
    as_dict,
    in_one_line,
    list_files,
    print_json,
    print_left_out,
    print_summary,
    speaking,
    watched,
    written,
)

if TYPE_CHECKING:
    import pandas as pd

    from gpsuq.estimators.classifier import GPSClassifier

fit = typer.Typer(
    help="Fit a model to your own data.\n\nExample: gpsuq fit linear data.csv --target y --out model",
    no_args_is_help=True,
)

DataArgument = Annotated[Path, typer.Argument(help="CSV file with a header, or Parquet.")]
DropOption = Annotated[list[str] | None, typer.Option("--drop", help="Column to leave out; may be repeated.")]
DropMissingOption = Annotated[bool, typer.Option("--drop-missing", help="Leave out rows with missing values.")]
SeedOption = Annotated[int, typer.Option("--seed", help="Seed.")]


@fit.command("linear")
def fit_linear(
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
    console = Console()
    with speaking(console):
        from gpsuq.errors import GPSWarning
        from gpsuq.estimators.linear import DEFAULT_STEPS, GPSLinearRegression
        from gpsuq.io import GROUPS_FILE, LINEAR_FILES, replaced, write_model
        from gpsuq.plots import save_figure
        from gpsuq.reports.checks import write_checks
        from gpsuq.reports.linear import checked_linear_page, linear_checks
        from gpsuq.reports.page import write_page
        from gpsuq.resuming import resumable, unfinished
        from gpsuq.tables import numbered, read_table, split_table

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
                by_group.to_csv(folder / GROUPS_FILE)
            save_figure(estimator.plot_coefficients(), folder / "coefficients.png")
            checks = linear_checks(estimator, table.X, table.y, rows, fitted=True)
            write_checks(checks, folder)
            write_page(checked_linear_page(estimator, checks), folder / "report.html")
    files = written(out, LINEAR_FILES)
    if as_json:
        print_json(as_dict(estimator) | {"rows": len(table.X), "files": list(map(str, files))})
        return
    print_left_out(console, len(whole), len(table.X))
    print_summary(console, estimator)
    list_files(console, files)


@fit.command("classifier")
def fit_classifier(
    data: DataArgument,
    target: Annotated[str, typer.Option("--target", help="Column of classes, numbers or text.")],
    out: Annotated[Path, typer.Option("--out", help="Directory for the model, verdicts.csv and a report.")],
    drop: DropOption = None,
    drop_missing: DropMissingOption = False,
    holdout: Annotated[
        float, typer.Option("--holdout", min=0.05, max=0.5, help="Share of the rows that is judged, not trained on.")
    ] = 0.2,
    target_error: Annotated[
        float | None,
        typer.Option(
            "--target-error",
            help="Set the verdict by half of those rows: certain ones err so often at most, with 90% confidence.",
        ),
    ] = None,
    by_class: Annotated[
        bool,
        typer.Option("--by-class", help="With --target-error: a threshold for each class, whose rows err so often."),
    ] = False,
    epochs: Annotated[int | None, typer.Option("--epochs", min=1, help="Passes over the rows.")] = None,
    seed: SeedOption = 0,
    as_json: JsonOption = False,
    force: ForceOption = False,
) -> None:
    """Fit a classifier that says when it is uncertain to your own table.

    Example: gpsuq fit classifier data.csv --target species --out model
    """
    console = Console()
    with speaking(console):
        from gpsuq.decisions import selective_error
        from gpsuq.errors import GPSError, GPSWarning
        from gpsuq.estimators.classifier import GPSClassifier
        from gpsuq.io import CLASSIFIER_FILES, replaced, write_model
        from gpsuq.recipes import Recipe
        from gpsuq.reports.checks import write_checks
        from gpsuq.reports.classifier import checked_classifier_page, classifier_checks
        from gpsuq.reports.page import write_page
        from gpsuq.resuming import resumable, unfinished
        from gpsuq.tables import numbered, parted, read_table, split_table, verdict_table
        from gpsuq.thresholds import check_calibration_size

        if by_class and target_error is None:
            raise GPSError("--by-class needs the error that certain rows may have: add --target-error")
        whole = read_table(data)
        table = split_table(
            whole, target, groups=None, weights=None, drop=drop or (), drop_missing=drop_missing, classes=True
        )
        train, aside = parted(table.y, holdout, seed)
        chosen = None
        if target_error is not None:
            chosen, aside = parted(table.y.loc[aside], 0.5, seed)
            check_calibration_size(len(chosen), target_error)
        estimator = GPSClassifier(recipe=Recipe(epochs=epochs), random_state=seed, progress=watched())
        kept = unfinished(out)
        with resumable(kept), replaced(out, force=force) as folder:
            _fit_or_start_anew(estimator, table.X.loc[train], table.y.loc[train], kept)
            if chosen is not None and target_error is not None:
                try:
                    estimator.calibrate(
                        table.X.loc[chosen], table.y.loc[chosen], target=target_error, by_class=by_class
                    )
                except GPSError as error:
                    warnings.warn(f"the verdict is the usual one: {error}", GPSWarning, stacklevel=1)
            X, y = table.X.loc[aside], table.y.loc[aside]
            verdicts = estimator.uncertainty(X)
            write_model(estimator, folder)
            if table.encoding.levels:
                table.encoding.write(folder)
            numbered(verdict_table(verdicts, X.index).assign(truth=y)).to_csv(folder / "verdicts.csv")
            checks = classifier_checks(estimator, numbered(X), y, verdicts=verdicts)
            write_checks(checks, folder)
            write_page(checked_classifier_page(estimator, checks), folder / "report.html")
        found = selective_error(verdicts.mean, estimator.encoded(y), verdicts.uncertain)
    files = written(out, CLASSIFIER_FILES)
    certain = None if verdicts.uncertain.all() else found.certain
    if as_json:
        judged = {"judged": len(X), "error": found.full, "certain_error": certain, "uncertain": found.uncertain_share}
        print_json(as_dict(estimator) | judged | {"rows": len(table.X), "files": list(map(str, files))})
        return
    print_left_out(console, len(whole), len(table.X))
    console.print(in_one_line(estimator), markup=False)
    console.print(
        f"Of {len(X)} rows that it was not trained on, {found.uncertain_share:.1%} are Uncertain; it errs on "
        f"{found.full:.1%} of all and on {'none' if certain is None else f'{certain:.1%}'} of those it is certain of."
    )
    list_files(console, files)


def _fit_or_start_anew(estimator: GPSClassifier, X: pd.DataFrame, y: pd.Series, kept: Path) -> None:
    """Go on from what an interrupted command kept, unless that was another one."""
    from gpsuq.errors import CheckpointError, GPSWarning

    try:
        estimator.fit(X, y, checkpoint=kept)
    except CheckpointError:
        warnings.warn(
            f"{kept} is damaged, or is what a command with other data or options had done: training started anew",
            GPSWarning,
            stacklevel=1,
        )
        shutil.rmtree(kept)
        estimator.fit(X, y, checkpoint=kept)


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
    drop_missing: DropMissingOption = False,
    drop_outside: Annotated[bool, typer.Option("--drop-outside", help="Leave out points outside the window.")] = False,
    seed: SeedOption = 0,
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
        from gpsuq.io import POISSON_FILES, replaced, write_model
        from gpsuq.plots import envelope, save_figure
        from gpsuq.reports.page import write_page
        from gpsuq.reports.poisson import poisson_page
        from gpsuq.resuming import resumable, unfinished
        from gpsuq.spatial import read_covariate, read_window
        from gpsuq.tables import read_points, surface_table

        region = read_window(window)
        inside = None if drop_outside else region
        patterns = read_points(points, x, y, replicate, drop_missing=drop_missing, window=inside)
        estimator = GPSPoissonProcess(
            outside="drop" if drop_outside else "error",
            random_state=seed,
            progress=watched(),
            n_steps=DEFAULT_STEPS if steps is None else steps,
        )
        grids = [read_covariate(path) for path in covariate or ()]
        with resumable(unfinished(out)), replaced(out, force=force) as folder:
            estimator.fit(patterns, region, covariates=grids)
            write_model(estimator, folder)
            surface_table(estimator.surface()).to_csv(folder / "intensity.csv", index=False)
            save_figure(estimator.plot(), folder / "intensity.png")
            fitness = estimator.goodness_of_fit()
            save_figure(envelope(fitness, estimator.window_.unit), folder / "envelope.png")
            write_page(poisson_page(estimator, fitness), folder / "report.html")
    files = written(out, POISSON_FILES)
    if as_json:
        print_json(as_dict(estimator) | {"p_value": fitness.p_value, "files": list(map(str, files))})
        return
    console.print(in_one_line(estimator), markup=False)
    console.print(f"L function of the points beside those of simulated patterns: p = {fitness.p_value:.3g}.")
    list_files(console, files)
