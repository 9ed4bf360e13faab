"""`gpsuq fit classifier`, and what the command line says of a classifier."""

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
    JsonOption,
    SeedOption,
    list_files,
    print_found,
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
    decimal: DecimalOption = None,
    seed: SeedOption = 0,
    as_json: JsonOption = False,
    force: ForceOption = False,
) -> None:
    """Fit a classifier that says when it is uncertain to your own table.

    Example: gpsuq fit classifier data.csv --target species --out model
    """
    with speaking() as console:
        from gpsuq.classify.estimator import GPSClassifier
        from gpsuq.classify.inputs import parted
        from gpsuq.classify.report import checked_classifier_page, classifier_checks
        from gpsuq.classify.thresholds import check_calibration_size
        from gpsuq.engine.checkpoints import resumable, unfinished
        from gpsuq.engine.settings import Recipe
        from gpsuq.errors import GPSError, warn
        from gpsuq.reports.page import write_page
        from gpsuq.reports.saved import write_checks
        from gpsuq.storage import write_model
        from gpsuq.storage.directories import replaced, written_files
        from gpsuq.tables.reading import numbered, read_table, split_table, write_table

        if by_class and target_error is None:
            raise GPSError("--by-class needs the error that certain rows may have: add --target-error")
        whole = read_table(data, decimal)
        table = split_table(
            whole, target, groups=None, weights=None, drop=drop or (), drop_missing=drop_missing, classes=True
        )
        train, aside = parted(table.y, holdout, seed)
        chosen = None
        if target_error is not None:
            chosen, aside = parted(table.y.loc[aside], 0.5, seed)
            check_calibration_size(len(chosen), target_error)
        estimator = GPSClassifier(recipe=Recipe(epochs=epochs), random_state=seed, progress=watched())
        with resumable(unfinished(out)), replaced(out, force=force) as folder:
            estimator.fit(table.X.loc[train], table.y.loc[train])
            if chosen is not None and target_error is not None:
                X, y = table.X.loc[chosen], table.y.loc[chosen]
                try:
                    estimator.calibrate(X, y, target=target_error, by_class=by_class)
                except GPSError as error:
                    warn(f"the verdict is the usual one: {error}")
            X, y = table.X.loc[aside], table.y.loc[aside]
            verdicts = estimator.uncertainty(X)
            if table.encoding.levels:
                table.encoding.write(folder)
            judged_rows = numbered(_verdict_table(verdicts, X.index).assign(truth=y))
            write_table(judged_rows, folder / "verdicts.csv", index=True)
            checks = classifier_checks(estimator, numbered(X), y, verdicts=verdicts)
            write_checks(checks, folder)
            write_model(estimator, folder)  # after what is read with it
            write_page(checked_classifier_page(estimator, checks), folder / "report.html")
    files = written_files(out)
    judged = {"judged": len(X), "uncertain": checks["uncertain"]}
    judged |= {name: checks["quality"][name] for name in ("error", "certain_error")}
    if as_json:
        print_json(facts(estimator) | judged | {"rows": len(table.X), "files": list(map(str, files))})
        return
    print_left_out(console, len(whole), len(table.X))
    show(console, estimator)
    certain = "none" if judged["certain_error"] is None else f"{judged['certain_error']:.1%}"
    console.print(
        f"Of {len(X)} rows that it was not trained on, {judged['uncertain']:.1%} are Uncertain; it errs on "
        f"{judged['error']:.1%} of all and on {certain} of those it is certain of."
    )
    list_files(console, files)


def predicted(estimator: Any, table: Any, coverage: float) -> Any:
    """Return the verdict on every row of a table; a classifier has no intervals."""
    return _verdict_table(estimator.uncertainty(table), table.index)


def _verdict_table(verdicts: Any, index: Any) -> Any:
    """Return one row for each observation: prediction, verdict, scores, and the mean probability of every class."""
    probabilities = {f"probability of {name}": verdicts.mean[:, h] for h, name in enumerate(verdicts.classes)}
    return verdicts.to_frame().assign(**probabilities).set_axis(index)


def facts(estimator: Any, coverage: float = 0.95) -> dict[str, Any]:
    """Return what machines want to know of a classifier."""
    import numpy as np

    return {
        "type": type(estimator).__name__,
        "classes": estimator.classes_.tolist(),
        "inputs": list(getattr(estimator, "feature_names_in_", [])) or list(estimator.input_shape_),
        "uqc_level": estimator.uqc_level_,
        "certain_above": np.asarray(estimator.certain_above_).tolist(),
        "findings": [finding.message for finding in estimator.findings_],
    }


def show(console: Console, estimator: Any, coverage: float = 0.95) -> None:
    """Print the classes, what certain means, and what to be careful about."""
    from gpsuq.classify.decisions import threshold_in_words
    from gpsuq.errors import listed

    classes, threshold = listed(estimator.classes_), threshold_in_words(estimator.certain_above_)
    found = (
        f"{type(estimator).__name__} of {classes}; certain where a class has a probability above {threshold} in "
        f"{1 - estimator.uqc_level_:.0%} of the draws."
    )
    print_found(console, found, estimator.findings_)
