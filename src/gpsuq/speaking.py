"""What all commands share: options, how results, notes and errors are printed."""

from __future__ import annotations

import io
import json
import os
import signal
import sys
import threading
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Literal, NoReturn

import typer
from rich.console import Console

from gpsuq.engine.progress import counting_bar
from gpsuq.errors import GPSError, GPSWarning

OutOption = Annotated[Path, typer.Option("--out", help="Directory for metrics.json and figures.")]
StepsOption = Annotated[
    int | None, typer.Option("--steps", min=1, help="Training steps, for a quick try; results use the default.")
]
CoverageOption = Annotated[
    float, typer.Option("--coverage", help="Probability that an interval should hold; classifiers have none.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON for machines, and nothing else.")]
DataArgument = Annotated[Path, typer.Argument(help="CSV file with a header, or Parquet.")]
TargetOption = Annotated[str, typer.Option("--target", help="Column to predict.")]
GroupsOption = Annotated[str | None, typer.Option("--groups", help="Column that names subjects measured repeatedly.")]
WeightsOption = Annotated[str | None, typer.Option("--weights", help="Column of frequency weights.")]
DropOption = Annotated[list[str] | None, typer.Option("--drop", help="Column to leave out; may be repeated.")]
DropMissingOption = Annotated[bool, typer.Option("--drop-missing", help="Leave out rows with missing values.")]
DecimalOption = Annotated[
    Literal[".", ","] | None,
    typer.Option("--decimal", help="Sign before decimals in a CSV file; the other one may stand between thousands."),
]
SeedOption = Annotated[int, typer.Option("--seed", help="Seed.")]
ForceOption = Annotated[bool, typer.Option("--force", help="Overwrite results that are there already.")]


_TERMINATED = 128 + signal.SIGTERM


@contextmanager
def speaking() -> Iterator[Console]:
    """Open a console; warnings are one line each, errors one line with exit code 1, both on standard error.

    Ctrl-C and SIGTERM end with a line that says how to go on. Of several processes that ``torchrun`` started, the first
    speaks, and the others tell errors only.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8")  # what is printed may hold any text of the user's
    with warnings.catch_warnings(record=True) as caught, _unwinding_when_terminated():
        warnings.simplefilter("always", GPSWarning)
        try:
            yield Console(quiet=not _speaks())
        except (ValueError, OSError) as error:  # GPSError, and what scikit-learn and the file system raise
            _say(f"error: {error}", style="red", everywhere=True)
            raise typer.Exit(1) from None
        except KeyboardInterrupt as interruption:
            _end(str(interruption), 130)
        except SystemExit as stop:
            if stop.code != _TERMINATED:
                raise
            _end(" ".join(getattr(stop, "__notes__", [])), _TERMINATED)
    for message in dict.fromkeys(str(w.message) for w in caught if issubclass(w.category, GPSWarning)):
        _say(f"note: {message}", style="yellow")


@contextmanager
def _unwinding_when_terminated() -> Iterator[None]:
    """Let SIGTERM raise ``SystemExit``, so that temporary files go; a process that treats it otherwise goes on to."""
    usual = signal.SIG_DFL
    if threading.current_thread() is not threading.main_thread() or signal.getsignal(signal.SIGTERM) is not usual:
        yield
        return

    def stop(number: int, _: object) -> NoReturn:
        raise SystemExit(128 + number)

    signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, usual)


def _end(message: str, code: int) -> NoReturn:
    """Say that the command was stopped, and end it with an exit code."""
    _say(message or "interrupted; give the same command again to start anew")
    raise typer.Exit(code) from None


def _say(message: str, *, style: str = "", everywhere: bool = False) -> None:
    """Print on standard error: between words on a terminal, in one line for files and pipes; paths stay whole."""
    console = Console(stderr=True, quiet=not (everywhere or _speaks()))
    piped = not console.is_terminal
    console.print(message, style=style, markup=False, highlight=False, overflow="ignore", soft_wrap=piped)


def _speaks() -> bool:
    """Whether this process is the only one, or the first that ``torchrun`` started."""
    return os.environ.get("RANK", "0") == "0"


def watched() -> bool:
    """Whether standard error is a terminal: progress bars are not for files and pipes."""
    return _speaks() and sys.stderr.isatty()


@contextmanager
def step(text: str) -> Iterator[None]:
    """Show on a terminal what a command is doing beside training."""
    with counting_bar(watched(), text, None):
        yield


@contextmanager
def without_findings(estimator: Any) -> Iterator[None]:
    """Hold back what a fit inside warns of where it is among the estimator's findings: the summary says it."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", GPSWarning)
        yield
    said = {finding.message for finding in estimator.findings_}
    for warning in caught:
        if str(warning.message) not in said:
            warnings.warn(warning.message, stacklevel=1)


def mean_and_interval(estimator: Any, table: Any, coverage: float) -> Any:
    """Return what a regression predicts of every row of a table: mean, lower and upper bound."""
    result = estimator.predict_interval(table, coverage)
    result.insert(0, "mean", estimator.predict(table))
    return result


def list_files(console: Console, files: list[Path]) -> None:
    """Print the names of the files that were written, each in one piece however narrow the output is."""
    console.print("Wrote")
    for path in files:
        console.print(f"  {path}", markup=False, highlight=False, soft_wrap=True)


def tell(console: Console, files: list[Path], *, as_json: bool, **numbers: Any) -> None:
    """Print the names of the files that were written, or one JSON document with them and some numbers."""
    if as_json:
        print_json(numbers | {"files": list(map(str, files))})
    else:
        list_files(console, files)


def refuse_file(path: Path | None, *, force: bool) -> None:
    """Raise where a file exists that the user did not allow to overwrite."""
    if path is not None and path.exists() and not force:
        raise GPSError(f"{path} exists already; choose another name or pass --force")


def print_or_write(
    console: Console, table: Any, path: Path | None, *, index: bool, as_json: bool, **numbers: Any
) -> None:
    """Write a table to a file and print its name, with some numbers for machines; or print it where none is named."""
    from gpsuq.tables.reading import for_json, write_table
    from gpsuq.tables.writing import csv_text

    if path is not None:
        with speaking():
            write_table(table, path, index=index)
        tell(console, [path], as_json=as_json, **numbers)
    elif as_json:
        print_json(for_json(table.reset_index() if index else table).to_dict("records"))
    elif _speaks():
        typer.echo(csv_text(table, index=index), nl=False)


def print_found(console: Console, found: str, findings: Iterable[Any]) -> None:
    """Print what was found, and what to be careful about; both are text of the user's, never markup."""
    console.print(found, style="bold", highlight=False, markup=False)
    for finding in findings:
        console.print(f"Note: {finding.message}.", style="yellow", highlight=False, markup=False)


def print_json(content: Any) -> None:
    """Print one JSON document."""
    if _speaks():
        typer.echo(json.dumps(content, indent=2, allow_nan=False))


def print_left_out(console: Console, n_before: int, n_after: int) -> None:
    """Print how many rows were left out, if any."""
    if n_after < n_before:
        console.print(f"{n_before - n_after} of {n_before} rows have missing values and were left out.")
