"""`gpsuq summary`, `predict`, `simulate` and `report`: what is asked of a saved model."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from gpsuq.cli.speaking import (
    CoverageOption,
    ForceOption,
    JsonOption,
    as_dict,
    in_one_line,
    print_json,
    print_or_write,
    print_summary,
    refuse_file,
    speaking,
    tell,
    watched,
)

if TYPE_CHECKING:
    import pandas as pd

    from gpsuq.reports import Page


def simulate(
    model: Annotated[Path, typer.Argument(help="Directory of a saved Poisson process.")],
    n: Annotated[int, typer.Option("-n", min=1, help="Number of patterns.")] = 1,
    out: Annotated[Path | None, typer.Option("--out", help="CSV file to write; otherwise it is printed.")] = None,
    seed: Annotated[int, typer.Option("--seed", help="Seed.")] = 0,
    as_json: JsonOption = False,
    force: ForceOption = False,
) -> None:
    """Simulate new point patterns from a fitted process: columns pattern, x and y.

    Example: gpsuq simulate model -n 20 --out simulated.csv
    """
    console = Console()
    with speaking(console):
        import pandas as pd

        from gpsuq.errors import GPSError
        from gpsuq.estimators import GPSPoissonProcess
        from gpsuq.io import load

        estimator = load(model)
        if not isinstance(estimator, GPSPoissonProcess):
            raise GPSError(f"{model} holds a {type(estimator).__name__}; only a Poisson process can be simulated")
        refuse_file(out, force=force)
        estimator.progress = watched()
        patterns = estimator.simulate(n, random_state=seed)
        tables = [pd.DataFrame(pattern, columns=["x", "y"]) for pattern in patterns]
        table = pd.concat(tables, keys=range(1, n + 1), names=["pattern", None]).reset_index("pattern")
    points = [len(pattern) for pattern in patterns]
    print_or_write(console, table, out, index=False, as_json=as_json, patterns=n, points=points)


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
        from gpsuq.io import load

        estimator = load(model)
        table = estimator.summary(coverage) if hasattr(estimator, "summary") else None
    if as_json:
        print_json(as_dict(estimator, coverage))
    elif table is None:
        console.print(in_one_line(estimator), markup=False)
    else:
        print_summary(console, estimator, table)


def report(
    directory: Annotated[Path, typer.Argument(help="Directory that gpsuq fit or gpsuq experiment wrote.")],
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
    """Write one HTML page about a saved model or an experiment; it needs nothing else to be read.

    Example: gpsuq report model --data new.csv --target y --out report.html
    """
    console = Console()
    with speaking(console):
        from gpsuq.errors import GPSError
        from gpsuq.reports import saved_page, write_page
        from gpsuq.reports.saved import REPORT_FILE, can_be_made_again

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
        from gpsuq.io import load
        from gpsuq.tables import numbered, read_table, verdict_table

        estimator = load(model)
        if not hasattr(estimator, "predict"):
            raise GPSError(f"{model} holds a {type(estimator).__name__}, which predicts no rows; see gpsuq simulate")
        table = _covariates(estimator, model, read_table(data), data)
        estimator.progress = watched()
        if hasattr(estimator, "uncertainty"):
            result = verdict_table(estimator.uncertainty(table), table.index)
        else:
            result = estimator.predict_interval(table, coverage)
            result.insert(0, "mean", estimator.predict(table))
        refuse_file(out, force=force)
    print_or_write(console, numbered(result), out, index=True, as_json=as_json, rows=len(result))


def _covariates(estimator: Any, model: Path, table: pd.DataFrame, name: Path) -> pd.DataFrame:
    """Give the columns of a table that a saved model was fitted with, as numbers."""
    from gpsuq.encoding import Encoding
    from gpsuq.errors import GPSError
    from gpsuq.tables import check_numbers

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
    from gpsuq.estimators.linear import GPSLinearRegression
    from gpsuq.io import load
    from gpsuq.reports import classifier_page, linear_page
    from gpsuq.tables import check_labels, check_numbers, read_table

    estimator = load(model)
    if not hasattr(estimator, "predict"):
        raise GPSError(f"{model} holds a {type(estimator).__name__}; --data is for regressions and classifiers")
    table = read_table(data)
    if target is None and isinstance(estimator, GPSLinearRegression):
        raise GPSError("a regression is judged by outcomes: name their column with --target")
    if target is None:
        return classifier_page(estimator, _covariates(estimator, model, table, data))
    if target not in table:
        raise GPSError(f"there is no column {target!r}; the table has {', '.join(map(str, table.columns))}")
    X = _covariates(estimator, model, table.drop(columns=target), data)
    if isinstance(estimator, GPSLinearRegression):
        check_numbers(table[[target]])
        return linear_page(estimator, X, table[target])
    check_labels(table[target], estimator.classes_)
    return classifier_page(estimator, X, table[target])
