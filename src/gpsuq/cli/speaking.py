"""What all commands share: options, how results, notes and errors are printed."""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

OutOption = Annotated[Path, typer.Option("--out", help="Directory for metrics.json and figures.")]
StepsOption = Annotated[
    int | None, typer.Option("--steps", min=1, help="Training steps, for a quick try; results use the default.")
]
CoverageOption = Annotated[
    float, typer.Option("--coverage", help="Probability that an interval should hold; classifiers have none.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON for machines, and nothing else.")]
ForceOption = Annotated[bool, typer.Option("--force", help="Overwrite results that are there already.")]


@contextmanager
def speaking(console: Console) -> Iterator[None]:
    """Print warnings as one line each, and errors as one line with exit code 1; both go to standard error."""
    from gpsuq.errors import GPSWarning

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", GPSWarning)
        try:
            yield
        except (ValueError, OSError) as error:  # GPSError, and what scikit-learn and the file system raise
            Console(stderr=True).print(f"error: {error}", style="red", markup=False, soft_wrap=True)
            raise typer.Exit(1) from None
        except KeyboardInterrupt as interruption:
            message = str(interruption) or "interrupted; give the same command again to start anew"
            Console(stderr=True).print(message, markup=False, soft_wrap=True)
            raise typer.Exit(130) from None
    for message in dict.fromkeys(str(w.message) for w in caught if issubclass(w.category, GPSWarning)):
        Console(stderr=True).print(f"note: {message}", style="yellow", markup=False, soft_wrap=True)


def watched() -> bool:
    """Whether somebody looks at standard error: bars are not for files and pipes."""
    return sys.stderr.isatty()


@contextmanager
def going_on(out: Path, *, force: bool) -> Iterator[None]:
    """After Ctrl-C in an experiment, say where its rows, replicates and checkpoints are, and how to go on.

    A command with ``--force`` would delete them when it is given again.
    """
    try:
        yield
    except KeyboardInterrupt:
        if not out.is_dir() or not any(out.iterdir()):
            raise
        again = "again without --force" if force else "again"
        raise KeyboardInterrupt(
            f"interrupted; what was done is in {out}: give the same command {again} to go on from there"
        ) from None


def written(out: Path, names: tuple[str, ...]) -> list[Path]:
    """Give the files of a saved model that are there, by these names or by those that only some tables need."""
    from gpsuq.io import OPTIONAL_FILES

    return [out / name for name in (*names, *OPTIONAL_FILES) if (out / name).exists()]


def list_files(console: Console, files: list[Path]) -> None:
    """Name the files that were written, each path in one piece however narrow the output is."""
    console.print("Wrote")
    for path in files:
        console.print(f"  {path}", markup=False, highlight=False, soft_wrap=True)


def tell(console: Console, files: list[Path], *, as_json: bool, **numbers: Any) -> None:
    """Name the files that were written, in words, or in one JSON document with some numbers."""
    if as_json:
        print_json(numbers | {"files": list(map(str, files))})
    else:
        list_files(console, files)


def refuse_file(path: Path | None, *, force: bool) -> None:
    """Raise where a file would be overwritten without the user's word."""
    from gpsuq.errors import GPSError

    if path is not None and path.exists() and not force:
        raise GPSError(f"{path} exists already; choose another name or pass --force")


def print_or_write(
    console: Console, table: Any, path: Path | None, *, index: bool, as_json: bool, **numbers: Any
) -> None:
    """Write a table to a file and name it, with some numbers for machines; or print it where no file is named."""
    from gpsuq.tables import for_json, write_table

    if path is not None:
        with speaking(console):
            write_table(table, path, index=index)
        tell(console, [path], as_json=as_json, **numbers)
    elif as_json:
        print_json(for_json(table.reset_index() if index else table).to_dict("records"))
    else:
        typer.echo(table.to_csv(index=index), nl=False)


def as_dict(estimator: Any, coverage: float = 0.95) -> dict[str, Any]:
    """Give what machines want to know of a model."""
    if hasattr(estimator, "summary"):
        from gpsuq.tables import for_json

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
    if hasattr(estimator, "classes_"):
        from gpsuq.decisions import written_threshold

        return {
            "type": type(estimator).__name__,
            "classes": estimator.classes_.tolist(),
            "inputs": list(getattr(estimator, "feature_names_in_", [])) or list(estimator.input_shape_),
            "uqc_level": estimator.uqc_level_,
            "certain_above": written_threshold(estimator.certain_above_),
        }
    return {
        "type": type(estimator).__name__,
        "points": sum(map(len, estimator.points_)),
        "expected": estimator.integral(),
        "frequency": estimator.frequency_,
        "spread": estimator.fit_.spread.value,
    }


def print_json(content: Any) -> None:
    """Print one JSON document."""
    typer.echo(json.dumps(content, indent=2, allow_nan=False))


def print_left_out(console: Console, n_before: int, n_after: int) -> None:
    """Say how many rows were left out, if any."""
    if n_after < n_before:
        console.print(f"{n_before - n_after} of {n_before} rows have missing values and were left out.")


def print_summary(console: Console, estimator: Any, summary: Any = None) -> None:
    """Print the verdict on heterogeneity and the coefficients as a table."""
    from rich.table import Table
    from rich.text import Text

    summary = estimator.summary() if summary is None else summary
    console.print(estimator.verdict(), highlight=False)
    for finding in estimator.findings_:
        console.print(f"Note: {finding.message}.", highlight=False)
    table = Table("parameter", "mean", "heterogeneity sd", "estimation sd", "interval of the mean", header_style="bold")
    for name, row in summary.iterrows():
        numbers = (f"{row[column]:.4g}" for column in ("mean", "heterogeneity_sd", "estimation_sd"))
        table.add_row(Text(str(name)), *numbers, f"{row['mean_lower']:.4g} to {row['mean_upper']:.4g}")
    console.print(table)


def in_one_line(estimator: Any) -> str:
    """Say what a model without coefficients is."""
    if hasattr(estimator, "classes_"):
        from gpsuq.decisions import threshold_in_words

        return (
            f"{type(estimator).__name__} of {', '.join(map(str, estimator.classes_))}; certain where a class has a "
            f"probability above {threshold_in_words(estimator.certain_above_)} in {1 - estimator.uqc_level_:.0%} of "
            "the draws."
        )
    points = sum(map(len, estimator.points_))
    waves = f"made of waves whose frequencies have an sd of {estimator.frequency_:g} cycles per longest side"
    shape = "constant" if estimator.frequency_ == 0 else waves
    return f"{points} points, expected {estimator.integral():.1f}; intensity: {shape}."
