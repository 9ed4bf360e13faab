"""Tables of a user's own: read from CSV or Parquet, checked by columns, split into covariates, target and others."""

from __future__ import annotations

import csv
import re
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.utils.multiclass import type_of_target

from gpsuq.errors import GPSError, listed, needs, warn
from gpsuq.files import write_atomically
from gpsuq.tables.cells import Decimal, as_dates, as_numbers, look_like_dates
from gpsuq.tables.encoding import Encoding, drop
from gpsuq.tables.frames import holds_text, is_dates, plain
from gpsuq.tables.writing import csv_text

PARQUET = (".parquet", ".pq")
_SHOWN = 5
NO_NAME = "Unnamed: "  # how pandas begins to call a column without a name
_NAMELESS = f"{NO_NAME}0"
COUNTED = "(the first row below the header is 1)"
DROP_MISSING = "fill them, delete them, or leave out those rows with --drop-missing"
_NUMBER_WITH_COMMA = r"\s*[-+]?[\d,]*\d[\d,]*(\.\d+)?([eE][-+]?\d+)?\s*"
_NUMBER_WITH_SIGN = r"\s*[-+]?\s*[$€£¥]?\s*[-+]?\d+(\.\d+)?\s*[%‰$€£¥]?\s*"
_FEW_TEXTS = 0.2  # of the cells: so few among numbers are mistakes
_MOST_CODES = 10  # different numbers that may be codes of categories
_LONGEST = 1000  # characters of a category


class Table(NamedTuple):
    """A table split by role."""

    X: pd.DataFrame
    y: pd.Series
    groups: pd.Series | None
    weights: pd.Series | None
    encoding: Encoding


def read_table(path: str | Path, decimal: Decimal | None = None) -> pd.DataFrame:
    """Read a CSV file with a header, or a Parquet file (extra ``parquet``).

    Commas, semicolons or tabs separate columns, as the header shows. A first column without a name holds row numbers
    or names of rows, as pandas and R write them; it is left out, with a warning. Cells are missing where pandas says so
    (empty, NA, n/a, null, None, NaN and the like), and in a column of numbers also where they are blank or hold ?, -,
    a point or "missing". Columns of dates become dates, where day and month can be told apart. With ``decimal``,
    a comma or a point, the other one may stand between thousands.
    """
    path = Path(path)
    if path.is_dir():
        raise GPSError(f"{path} is a folder: gpsuq fit linear, predict and report take one, of Parquet files")
    if not path.is_file():
        raise GPSError(f"there is no file {path}")
    if _is_parquet(path):
        return _read_parquet(path)
    with csv_damage_told(path):
        table = pd.read_csv(path, **csv_options(path, decimal))
    if table.empty:
        raise GPSError(f"{path} has a header but no rows")
    nothing = [name for name in table if str(name).startswith(NO_NAME) and table[name].isna().all()]
    table = without_row_names(table.drop(columns=nothing))
    return table.assign(**{name: as_dates(as_numbers(column, decimal)) for name, column in _texts(table)})


def csv_options(path: Path, decimal: Decimal | None = None) -> dict[str, Any]:
    """Look at a CSV file, warn of its header, and return how pandas is to read it."""
    with path.open("rb") as file:
        if any(b"\0" in some for some in iter(partial(file.read, 1 << 20), b"")):
            raise GPSError(f"{path} holds NUL bytes, which are no text: save it as CSV in UTF-8")
    between = separator(path)
    _warn_of_repeated_names(path, between)
    return {"index_col": False, "sep": between, "low_memory": False, "decimal": decimal or "."}


def _texts(table: pd.DataFrame) -> Iterator[tuple[str, pd.Series]]:
    """Yield the names and columns of a table that hold text."""
    return ((str(name), column) for name, column in table.items() if holds_text(column))


def _warn_of_repeated_names(path: Path, between: str) -> None:
    """Warn of names that a header has more than once: pandas numbers them."""
    with path.open(encoding="utf-8-sig", newline="") as file:
        counts = Counter(filter(None, next(csv.reader(file, delimiter=between), [])))
    repeated = [name for name, count in counts.items() if count > 1]
    if repeated:
        warn(
            f"the header has columns named {listed(repeated)} more than once: the second of a name is called NAME.1, "
            "and is a column of its own; leave it out with --drop NAME.1 if it should not be used"
        )


def without_row_names(table: pd.DataFrame) -> pd.DataFrame:
    """Leave out a first column without a name, and warn of it."""
    if table.columns[0] != _NAMELESS:
        return table
    warn("the first column has no name and was left out: it looks like row numbers")
    return table.drop(columns=_NAMELESS)


@contextmanager
def csv_damage_told(path: Path) -> Iterator[None]:
    """Turn whatever keeps pandas from reading a CSV file inside into an error that says what is wrong with it."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", pd.errors.ParserWarning)
            yield
    except pd.errors.EmptyDataError as error:
        raise GPSError(f"{path} is empty: a header and at least two rows are needed") from error
    except (pd.errors.ParserError, pd.errors.ParserWarning) as error:
        raise GPSError(f"{path} cannot be read as CSV: {error}") from error
    except UnicodeDecodeError as error:
        # Any bytes are Latin-1, so that reading them so could garble names and classes without a word.
        raise GPSError(f"{path} is not UTF-8 text ({error}): save it as UTF-8 (CSV UTF-8 in spreadsheets)") from error


def separator(path: Path) -> str:
    """Return what separates the columns of the header: a comma unless semicolons or tabs make more of them."""
    with path.open(encoding="utf-8", newline="") as file:
        unquoted = re.sub(r'"[^"]*"', "", file.readline())
    return max(",;\t", key=unquoted.count)


def _read_parquet(path: Path) -> pd.DataFrame:
    try:
        table = pd.read_parquet(path)
    except (OSError, ValueError, TypeError, LookupError, NotImplementedError) as error:
        raise GPSError(f"{path} cannot be read as Parquet: {error}") from error
    if table.empty:
        raise GPSError(f"{path} has no rows")
    for name, column in table.items():
        if column.dtype == object and column.map(lambda cell: isinstance(cell, (bytes, dict, list, np.ndarray))).any():
            raise GPSError(f"column {name!r} of {path} holds bytes, lists or records: write numbers or text")
    return plain(table.reset_index(drop=True).rename(columns=str))


def write_table(table: pd.DataFrame, path: Path, *, index: bool) -> Path:
    """Write CSV, or Parquet where the name ends so; the file is whole or absent."""
    if _is_parquet(path):
        content = (table.reset_index() if index else table).rename(columns=str).to_parquet(index=False)
    else:
        content = csv_text(table, index=index).encode()
    path.parent.mkdir(parents=True, exist_ok=True)
    return write_atomically(path, content)


def _is_parquet(path: Path) -> bool:
    """Whether a file is named as Parquet; raise where it is and the package for it is missing."""
    if path.suffix not in PARQUET:
        return False
    with needs("parquet", f"the Parquet file {path}"):
        import_module("pyarrow")
    return True


def check_columns(table: pd.DataFrame, names: Iterable[str | None]) -> None:
    """Raise where a column that is named is not in a table."""
    for name in names:
        if name is not None and name not in table:
            hint = "" if table.shape[1] > 1 else "; commas, semicolons or tabs must separate columns"
            raise GPSError(f"there is no column {name!r}; the table has {listed(map(_bare, table.columns))}{hint}")


def columns_by_role(
    table: pd.DataFrame, named: Sequence[str | None], drop: Sequence[str]
) -> tuple[list[str], list[str]]:
    """Return the names of the covariates, and of the columns that are named to be something else."""
    check_columns(table, (*named, *drop))
    roles = [name for name in named if name is not None]
    if len(set(roles)) < len(roles):
        raise GPSError("--target, --groups and --weights must name different columns")
    covariates = [str(column) for column in table if column not in (*roles, *drop)]
    if not covariates:
        raise GPSError("no covariates are left: the table has no other columns than those named")
    return covariates, roles


def without_missing(table: pd.DataFrame, columns: Sequence[str]) -> pd.DataFrame:
    """Leave out rows that lack a value in one of these columns; the others keep their numbers."""
    numbers = table[list(columns)].select_dtypes("number").replace([np.inf, -np.inf], np.nan)
    kept = table[list(columns)].notna().all(axis=1) & numbers.notna().all(axis=1)
    if not kept.any():
        raise GPSError(
            f"every row lacks a value in one of the columns {listed(columns)}: fill the empty column or leave it out"
        )
    return table[kept]


def split_table(
    table: pd.DataFrame,
    target: str,
    *,
    groups: str | None = None,
    weights: str | None = None,
    drop: Sequence[str] = (),
    drop_missing: bool = False,
    classes: bool = False,
    encode: bool = True,
) -> Table:
    """Split a table by the names of its columns; what is not named is a covariate, text becomes columns of 0 and 1.

    With ``classes`` the target holds labels, which may be text. Without ``encode`` covariates stay as they are, for
    an estimator that takes text and missing values: no row is left out for what it lacks among them.
    """
    covariates, roles = columns_by_role(table, (target, groups, weights), drop)
    if len(table) < 2:
        raise GPSError("the table has a single row: at least 2 rows are needed")
    if drop_missing:
        table = without_missing(table, [*covariates, *roles] if encode else roles)
        if len(table) < 2:
            raise GPSError("a single row is left without missing values: at least 2 rows are needed")
    _check_length(table[[*covariates, *roles]])
    check_text(table[covariates])
    _check_mistakes(table[covariates], then=", and pass --drop-missing" if encode else "")
    if not encode:
        _check_as_they_are(table[covariates])
    if encode and (dates := [name for name in covariates if is_dates(table[name])]):
        warn(f"dates in columns {listed(dates)} are numbers of days since 1970")
    encoding = Encoding.of(table[covariates]) if encode else Encoding({})
    X = encoding.encoded(table[covariates]) if encode else table[covariates]
    numeric = [name for name in (None if classes else target, weights) if name is not None]
    check_numbers(X.join(table[numeric]) if encode else table[numeric], encoding, advice=DROP_MISSING)
    check_labels(table[target])
    if groups is not None:
        check_labels(table[groups])
    if weights is not None and (table[weights] < 0).any():
        rows = named_rows(table, table[weights] < 0)
        raise GPSError(f"column {weights!r} is negative in {rows} {COUNTED}; weights must be 0 or more")
    if classes and type_of_target(table[target]) not in ("binary", "multiclass"):
        raise GPSError(
            f"column {target!r} holds numbers that are not classes, such as {quoted(table[target].iloc[0])}; gpsuq "
            "fit linear predicts numbers"
        )
    group, weight = (None if name is None else table[name] for name in (groups, weights))
    return Table(X, table[target], group, weight, encoding)


def check_text(table: pd.DataFrame) -> None:
    """Raise where a column holds nothing but numbers with commas or signs, or dates that say too little."""
    for name, column in _texts(table):
        cells = column.dropna().astype(str)
        commas = cells[cells.str.contains(",")]
        if len(commas) and cells.str.fullmatch(_NUMBER_WITH_COMMA).all():
            raise GPSError(
                f"column {name!r} holds numbers with commas, such as {commas.iloc[0]}: pass --decimal , if decimals "
                f"follow them, --decimal . if they separate thousands, or leave the column out with {drop(name)}"
            )
        if cells.nunique() > _MOST_CODES and cells.str.fullmatch(_NUMBER_WITH_SIGN).all():
            raise GPSError(
                f"column {name!r} holds numbers with signs, such as {cells.iloc[0]}: write numbers only; or leave it "
                f"out with {drop(name)}"
            )
        if look_like_dates(column):
            raise GPSError(
                f"column {name!r} holds dates whose day and month cannot be told apart, such as {cells.iloc[0]}: "
                f"write them as 2024-01-31; or leave the column out with {drop(name)}"
            )


def _check_length(table: pd.DataFrame) -> None:
    """Raise where a cell is too long for a category: whatever shows or searches it would take for ever."""
    for name in map(str, table):
        if len(name) > _LONGEST:
            raise GPSError(f"a column has a name of {len(name):,} characters, {name[:40]!r} ...: shorten it")
    for name, column in _texts(table):
        sizes = column.astype(str).str.len()
        if sizes.max() > _LONGEST:
            raise GPSError(
                f"column {name!r} holds {sizes.max():,} characters in {named_rows(table, sizes == sizes.max())} "
                f"{COUNTED}: a category has {_LONGEST:,} at most; shorten it, or leave the column out with {drop(name)}"
            )


def _check_as_they_are(table: pd.DataFrame) -> None:
    """Raise where a number is infinite."""
    infinite = table.select_dtypes("number").isin([np.inf, -np.inf])
    if infinite.to_numpy().any():
        columns = infinite.columns[infinite.any()]
        raise GPSError(
            f"infinite values in columns {listed(columns)}, {named_rows(table, infinite.any(axis=1))} {COUNTED}; mend "
            "them, or leave them empty"
        )


def _check_mistakes(table: pd.DataFrame, *, then: str) -> None:
    """Raise where nearly all cells of a column are numbers and the others look like mistakes: name these.

    They do where each occurs once, or where the numbers are too many to be codes of categories; so that "1", "2" and
    "3a" are categories where "3a" is in more than one row.
    """
    for name, column in _texts(table):
        cells = column.dropna().astype(str)
        numbers = pd.to_numeric(cells, errors="coerce")
        texts = cells[numbers.isna()]
        if not 0 < len(texts) <= _FEW_TEXTS * len(cells):
            continue
        if texts.is_unique or numbers.nunique() > _MOST_CODES:
            shown = listed(
                (f"{text!r} in row {row}" for row, text in zip(texts.index + 1, texts, strict=True)), most=_SHOWN
            )
            raise GPSError(
                f"column {name!r} holds numbers but for {shown} {COUNTED}: mend these cells; or empty them, if they "
                f"are missing{then}; if the numbers are codes of categories, put a letter before each"
            )


def check_labels(y: pd.Series, classes: NDArray[Any] | None = None) -> None:
    """Raise where a label is missing, or none of the classes; name its row."""
    strange = y.isna() | (y.isin([np.inf, -np.inf]) if classes is None else ~y.isin(classes))
    if strange.any():
        label = y[strange].iloc[0]
        known = listed([] if classes is None else classes)
        what = f"holds {quoted(label)}" + ("" if classes is None else f", none of {known},")
        what = "is empty" if pd.isna(label) else what
        raise GPSError(
            f"column {str(y.name)!r} {what} in {named_rows(y, strange)} {COUNTED}; mend it, or leave out such rows"
        )


def check_numbers(
    table: pd.DataFrame, encoding: Encoding | None = None, *, advice: str = "fill or delete them"
) -> None:
    """Raise where a column holds text, or a cell is missing or infinite; name them as they were before encoding."""
    text = [str(name) for name in table if not pd.api.types.is_numeric_dtype(table[name])]
    if text:
        column = table[text[0]]
        strange = pd.to_numeric(column.astype(str), errors="coerce").isna() & column.notna()
        place = int(strange.to_numpy().argmax())
        example = f"such as {str(column.iloc[place])[:_LONGEST]!r} in row {column.index[place] + 1}"
        raise GPSError(f"columns {listed(text)} hold text, {example}, where numbers are needed")
    bad = ~np.isfinite(table.to_numpy(dtype=np.float64))
    if bad.any():
        columns = dict.fromkeys((encoding or Encoding({})).source(str(name)) for name in table.columns[bad.any(0)])
        raise GPSError(
            f"missing or infinite values in columns {listed(columns)}, {named_rows(table, bad.any(1))} {COUNTED}; "
            f"{advice}"
        )


def named_rows(table: pd.DataFrame | pd.Series, chosen: Any) -> str:
    """Name some rows by their numbers in the file, which stay theirs when others are left out."""
    numbers = table.index[np.asarray(chosen)] + 1
    return f"row{'s' if len(numbers) > 1 else ''} {listed(numbers, most=_SHOWN)}"


def _bare(name: object) -> str:
    """Return the name of a column, in quotes where blanks around it would not be seen."""
    return repr(name) if str(name) != str(name).strip() else str(name)


def quoted(value: Any) -> str:
    """Return a label as people write it, text in quotes: NumPy's own numbers would name their type."""
    return repr(value.item() if isinstance(value, np.generic) else value)


def for_json(table: pd.DataFrame) -> pd.DataFrame:
    """Return a table whose cells JSON can hold, to the last digit: ``DataFrame.to_json`` keeps ten decimals."""
    return table.astype(object).mask(table.isna() | table.isin([np.inf, -np.inf]), None)


def numbered(table: pd.DataFrame) -> pd.DataFrame:
    """Count rows as messages do, from their place in the file: the first row below the header is 1."""
    return table.set_axis(pd.Index(table.index + 1, name="row"))
