"""`gpsuq summary`, `predict` and `report`: what is asked of a saved model."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from gpsuq.speaking import (
    CoverageOption,
    ForceOption,
    JsonOption,
    print_json,
    print_or_write,
    refuse_file,
    speaking,
    tell,
    watched,
)

if TYPE_CHECKING:
    import pandas as pd

    from gpsuq.reports.page import Page


def summary(
    model: Annotated[Path, typer.Argument(help="Directory of a saved model.")],
    coverage: CoverageOption = 0.95,
    as_json: JsonOption = False,
) -> None:
    """Show the parameters of a saved model, with heterogeneity and estimation uncertainty side by side.

    Example: gpsuq summary model
    """
    console = Console()
    with speaking(console):
        from gpsuq.storage import load, part_of

        estimator = load(model)
        family = part_of(type(estimator).__name__, "commands")
        if as_json:
            print_json(family.facts(estimator, coverage))
        else:
            family.show(console, estimator, coverage)


def report(
    directory: Annotated[Path, typer.Argument(help="Directory of a saved model.")],
    out: Annotated[
        Path | None, typer.Option("--out", help="HTML file; report.html in the directory otherwise.")
    ] = None,
    data: Annotated[
        Path | None, typer.Option("--data", help="CSV or Parquet file of rows to judge; --out names their page.")
    ] = None,
    target: Annotated[
        str | None, typer.Option("--target", help="Column of outcomes or of true classes in that file.")
    ] = None,
    as_json: JsonOption = False,
    force: ForceOption = False,
) -> None:
    """Write one HTML page about a saved model; it needs nothing else to be read.

    Example: gpsuq report model --data new.csv --target y --out report.html
    """
    console = Console()
    with speaking(console):
        from gpsuq.errors import GPSError
        from gpsuq.reports.page import write_page
        from gpsuq.reports.saved import REPORT_FILE, can_be_made_again, saved_page

        path = directory / REPORT_FILE if out is None else out
        if target is not None and data is None:
            raise GPSError("--target names a column of --data: pass both")
        if data is not None and out is None:
            raise GPSError(f"a page about {data} needs a file of its own: name it with --out FILE.html")
        if out is not None or not can_be_made_again(directory):
            refuse_file(path, force=force)
        page = saved_page(directory, progress=watched()) if data is None else _judged(directory, data, target)
        write_page(page, path)
    tell(console, [path], as_json=as_json, title=page.title, facts=dict(page.facts))


def predict(
    model: Annotated[Path, typer.Argument(help="Directory of a saved model.")],
    data: Annotated[Path, typer.Argument(help="CSV or Parquet file with the columns of the fit.")],
    out: Annotated[Path | None, typer.Option("--out", help="CSV file to write; otherwise it is printed.")] = None,
    coverage: CoverageOption = 0.95,
    as_json: JsonOption = False,
    force: ForceOption = False,
) -> None:
    """Predict new rows: mean, lower and upper bound of each; of a classifier, class, verdict and probabilities.

    Example: gpsuq predict model new.csv --out predictions.csv
    """
    console = Console()
    with speaking(console):
        from gpsuq.errors import GPSError
        from gpsuq.storage import load, part_of
        from gpsuq.tables.reading import numbered, read_table

        estimator = load(model)
        if not hasattr(estimator, "predict"):
            raise GPSError(f"{model} holds a {type(estimator).__name__}, which predicts no rows; see gpsuq simulate")
        table = _covariates(estimator, model, read_table(data), data)
        estimator.progress = watched()
        result = part_of(type(estimator).__name__, "commands").predicted(estimator, table, coverage)
        refuse_file(out, force=force)
    print_or_write(console, numbered(result), out, index=True, as_json=as_json, rows=len(result))


def _covariates(estimator: Any, model: Path, table: pd.DataFrame, name: Path) -> pd.DataFrame:
    """Give the columns of a table that a saved model was fitted with, as numbers."""
    from gpsuq.errors import GPSError
    from gpsuq.tables.encoding import Encoding
    from gpsuq.tables.reading import check_numbers

    encoding = Encoding.read(model)
    encoded = encoding.encoded(table)
    columns = list(getattr(estimator, "feature_names_in_", encoded.columns))
    missing = dict.fromkeys(encoding.source(column) for column in columns if column not in encoded)
    if missing:
        raise GPSError(f"{name} lacks the columns {', '.join(missing)} that the model was fitted with")
    check_numbers(encoded[columns], encoding)
    return encoded[columns]


def _judged(model: Path, data: Path, target: str | None) -> Page:
    """Give the report of a saved regression or classifier on the rows of a file."""
    from gpsuq.errors import GPSError
    from gpsuq.storage import load, part_of
    from gpsuq.tables.reading import read_table

    estimator = load(model)
    if not hasattr(estimator, "predict"):
        raise GPSError(f"{model} holds a {type(estimator).__name__}; --data is for regressions and classifiers")
    table = read_table(data)
    if target is not None and target not in table:
        raise GPSError(f"there is no column {target!r}; the table has {', '.join(map(str, table.columns))}")
    X = _covariates(estimator, model, table if target is None else table.drop(columns=target), data)
    page: Page = part_of(type(estimator).__name__, "report").judged_page(
        estimator, X, None if target is None else table[target]
    )
    return page
