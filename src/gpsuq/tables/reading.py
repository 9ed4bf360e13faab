"""Tables of a user's own: read from CSV or Parquet, checked by columns, split into covariates, target and others."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.utils.multiclass import type_of_target

from gpsuq.errors import GPSError, GPSWarning, needs
from gpsuq.files import write_atomically
from gpsuq.tables.encoding import Encoding

_SHOWN = 5
_NAMELESS = "Unnamed: 0"  # what pandas calls a first column without a name
COUNTED = "(the first row below the header is 1)"
DROP_MISSING = "fill them, delete them, or leave out those rows with --drop-missing"
_DATE = r"\s*\d{1,4}[-/.]\d{1,2}[-/.]\d{1,4}([ T]\d{1,2}:\d{2}.*)?\s*"
_NUMBER_WITH_COMMA = r"\s*[-+]?[\d,]*\d[\d,]*(\.\d+)?([eE][-+]?\d+)?\s*"


class Table(NamedTuple):
    """A table split by role."""

    X: pd.DataFrame
    y: pd.Series
    groups: pd.Series | None
    weights: pd.Series | None
    encoding: Encoding


def read_table(path: str | Path) -> pd.DataFrame:
    """Read a CSV file with a header, or a Parquet file (extra ``parquet``).

    Commas, semicolons or tabs separate columns, as the header shows. A first column without a name holds row numbers
    or names of rows, as pandas and R write them; it is left out, with a warning.
    """
    path = Path(path)
    if not path.is_file():
        raise GPSError(f"there is no file {path}")
    if _is_parquet(path):
        return _read_parquet(path)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", pd.errors.ParserWarning)
            table = pd.read_csv(path, index_col=False, sep=_separator(path))
    except pd.errors.EmptyDataError as error:
        raise GPSError(f"{path} is empty: a header and at least two rows are needed") from error
    except (pd.errors.ParserError, pd.errors.ParserWarning) as error:
        raise GPSError(f"{path} cannot be read as CSV: {error}") from error
    except UnicodeDecodeError as error:
        # Any bytes are Latin-1, so that reading them so could garble names and classes without a word.
        raise GPSError(f"{path} is not UTF-8 text ({error}): save it as UTF-8 (CSV UTF-8 in spreadsheets)") from error
    if table.empty:
        raise GPSError(f"{path} has a header but no rows")
    if table.columns[0] != _NAMELESS:
        return table
    warnings.warn("the first column has no name and was left out: it looks like row numbers", GPSWarning, stacklevel=2)
    return table.drop(columns=_NAMELESS)


def _separator(path: Path) -> str:
    """Return what separates the columns of the header: a comma unless semicolons or tabs make more of them."""
    with path.open(encoding="utf-8", newline="") as file:
        unquoted = re.sub(r'"[^"]*"', "", file.readline())
    return max(",;\t", key=unquoted.count)


def _read_parquet(path: Path) -> pd.DataFrame:
    try:
        table = pd.read_parquet(path)
    except (OSError, ValueError) as error:
        raise GPSError(f"{path} cannot be read as Parquet: {error}") from error
    if table.empty:
        raise GPSError(f"{path} has no rows")
    return table.reset_index(drop=True).rename(columns=str)


def write_table(table: pd.DataFrame, path: Path, *, index: bool) -> Path:
    """Write CSV, or Parquet where the name ends so; the file is whole or absent."""
    if _is_parquet(path):
        content = (table.reset_index() if index else table).rename(columns=str).to_parquet(index=False)
    else:
        content = table.to_csv(index=index).encode()
    path.parent.mkdir(parents=True, exist_ok=True)
    return write_atomically(path, content)


def _is_parquet(path: Path) -> bool:
    """Whether a file is named as Parquet; raise where it is and the package for it is missing."""
    if path.suffix not in (".parquet", ".pq"):
        return False
    with needs("parquet", f"the Parquet file {path}"):
        import_module("pyarrow")
    return True


def check_columns(table: pd.DataFrame, names: Iterable[str | None]) -> None:
    """Raise where a column that is named is not in a table."""
    for name in names:
        if name is not None and name not in table:
            raise GPSError(f"there is no column {name!r}; the table has {', '.join(map(str, table.columns))}")


def without_missing(table: pd.DataFrame, columns: Sequence[str]) -> pd.DataFrame:
    """Leave out rows that lack a value in one of these columns; the others keep their numbers."""
    numbers = table[list(columns)].select_dtypes("number").replace([np.inf, -np.inf], np.nan)
    kept = table[list(columns)].notna().all(axis=1) & numbers.notna().all(axis=1)
    if not kept.any():
        names = ", ".join(columns)
        raise GPSError(f"every row lacks a value in one of the columns {names}: fill the empty column or leave it out")
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
) -> Table:
    """Split a table by the names of its columns; what is not named is a covariate, text becomes columns of 0 and 1.

    With ``classes`` the target holds labels, which may be text.
    """
    check_columns(table, (target, groups, weights, *drop))
    if len(table) < 2:
        raise GPSError("the table has a single row: at least 2 rows are needed")
    roles = [name for name in (target, groups, weights) if name is not None]
    covariates = [str(column) for column in table if column not in (*roles, *drop)]
    if not covariates:
        raise GPSError("no covariates are left: the table has no other columns than those named")
    if drop_missing:
        table = without_missing(table, [*covariates, *roles])
        if len(table) < 2:
            raise GPSError("a single row is left without missing values: at least 2 rows are needed")
    _check_text(table[covariates])
    encoding = Encoding.of(table[covariates])
    X = encoding.encoded(table[covariates])
    numeric = [name for name in (None if classes else target, weights) if name is not None]
    check_numbers(X.join(table[numeric]), encoding, advice=DROP_MISSING)
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


def _check_text(table: pd.DataFrame) -> None:
    """Raise where a column holds nothing but numbers with commas, warn of dates: they would become categories."""
    for name, column in table.select_dtypes(exclude="number").items():
        cells = column.dropna().astype(str)
        commas = cells[cells.str.contains(",")]
        if len(commas) and cells.str.fullmatch(_NUMBER_WITH_COMMA).all():
            raise GPSError(
                f"column {str(name)!r} holds numbers with commas, such as {commas.iloc[0]}: write decimal points, and "
                "nothing between thousands; or leave it out with --drop NAME"
            )
        if len(cells) and (pd.api.types.is_datetime64_any_dtype(column) or cells.str.fullmatch(_DATE).all()):
            warnings.warn(
                f"column {str(name)!r} holds dates, such as {cells.iloc[0]}, and each becomes a category of its own: "
                "write it as a number, such as days, or leave it out with --drop",
                GPSWarning,
                stacklevel=3,
            )


def check_labels(y: pd.Series, classes: NDArray[Any] | None = None) -> None:
    """Raise where a label is missing, or none of the classes; name its row."""
    strange = y.isna() if classes is None else y.isna() | ~y.isin(classes)
    if strange.any():
        label = y[strange].iloc[0]
        known = ", ".join(map(str, [] if classes is None else classes))
        what = "is empty" if pd.isna(label) else f"holds {quoted(label)}, none of {known},"
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
        place = int((pd.to_numeric(column, errors="coerce").isna() & column.notna()).to_numpy().argmax())
        example = f"such as {column.iloc[place]!r} in row {column.index[place] + 1}"
        raise GPSError(f"columns {', '.join(text)} hold text, {example}, where numbers are needed")
    bad = ~np.isfinite(table.to_numpy(dtype=np.float64))
    if bad.any():
        columns = dict.fromkeys((encoding or Encoding({})).source(str(name)) for name in table.columns[bad.any(0)])
        raise GPSError(
            f"missing or infinite values in columns {', '.join(columns)}, {named_rows(table, bad.any(1))} {COUNTED}; "
            f"{advice}"
        )


def named_rows(table: pd.DataFrame | pd.Series, chosen: Any) -> str:
    """Name some rows by their numbers in the file, which stay theirs when others are left out."""
    numbers = [str(row + 1) for row in table.index[np.asarray(chosen)]]
    more = f" and {len(numbers) - _SHOWN} more" if len(numbers) > _SHOWN else ""
    return f"row{'s' if len(numbers) > 1 else ''} {', '.join(numbers[:_SHOWN])}{more}"


def quoted(value: Any) -> str:
    """Return a label as people write it, text in quotes: NumPy's own numbers would name their type."""
    return repr(value.item() if isinstance(value, np.generic) else value)


def for_json(table: pd.DataFrame) -> pd.DataFrame:
    """Return a table whose cells JSON can hold, to the last digit: ``DataFrame.to_json`` keeps ten decimals."""
    return table.astype(object).mask(table.isna() | table.isin([np.inf, -np.inf]), None)


def numbered(table: pd.DataFrame) -> pd.DataFrame:
    """Count rows as messages do, from their place in the file: the first row below the header is 1."""
    return table.set_axis(pd.Index(table.index + 1, name="row"))
