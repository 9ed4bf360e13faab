"""`gpsuq fit classifier`, and what the command line says of a classifier."""

from __future__ import annotations

import shutil
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
    list_files,
    print_json,
    print_left_out,
    speaking,
    watched,
)


def fit(
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
        from gpsuq.classify.decisions import selective_error
        from gpsuq.classify.estimator import GPSClassifier
        from gpsuq.classify.report import checked_classifier_page, classifier_checks
        from gpsuq.classify.tables import parted, verdict_table
        from gpsuq.classify.thresholds import check_calibration_size
        from gpsuq.engine.checkpoints import resumable, unfinished
        from gpsuq.engine.recipes import Recipe
        from gpsuq.errors import GPSError, GPSWarning
        from gpsuq.reports.checks import write_checks
        from gpsuq.reports.page import write_page
        from gpsuq.storage import replaced, write_model, written_files
        from gpsuq.tables.reading import numbered, read_table, split_table

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
    files = written_files(out)
    certain = None if verdicts.uncertain.all() else found.certain
    if as_json:
        judged = {"judged": len(X), "error": found.full, "certain_error": certain, "uncertain": found.uncertain_share}
        print_json(facts(estimator) | judged | {"rows": len(table.X), "files": list(map(str, files))})
        return
    print_left_out(console, len(whole), len(table.X))
    show(console, estimator)
    console.print(
        f"Of {len(X)} rows that it was not trained on, {found.uncertain_share:.1%} are Uncertain; it errs on "
        f"{found.full:.1%} of all and on {'none' if certain is None else f'{certain:.1%}'} of those it is certain of."
    )
    list_files(console, files)


def _fit_or_start_anew(estimator: Any, X: Any, y: Any, kept: Path) -> None:
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


def predicted(estimator: Any, table: Any, coverage: float) -> Any:
    """Return the verdict on every row of a table; a classifier has no intervals."""
    from gpsuq.classify.tables import verdict_table

    return verdict_table(estimator.uncertainty(table), table.index)


def facts(estimator: Any, coverage: float = 0.95) -> dict[str, Any]:
    """Return what machines want to know of a classifier."""
    from gpsuq.classify.decisions import written_threshold

    return {
        "type": type(estimator).__name__,
        "classes": estimator.classes_.tolist(),
        "inputs": list(getattr(estimator, "feature_names_in_", [])) or list(estimator.input_shape_),
        "uqc_level": estimator.uqc_level_,
        "certain_above": written_threshold(estimator.certain_above_),
    }


def show(console: Console, estimator: Any, coverage: float = 0.95) -> None:
    """Print the classes, and what certain means."""
    from gpsuq.classify.decisions import threshold_in_words

    console.print(
        f"{type(estimator).__name__} of {', '.join(map(str, estimator.classes_))}; certain where a class has a "
        f"probability above {threshold_in_words(estimator.certain_above_)} in {1 - estimator.uqc_level_:.0%} of "
        "the draws.",
        markup=False,
    )
