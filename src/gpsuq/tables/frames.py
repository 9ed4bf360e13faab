"""Frames of pandas, polars and their kin: in as pandas with plain columns, out as the caller's own kind."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec, TypeVar, cast

import narwhals as nw
import numpy as np
import pandas as pd
from pandas.api import types

from gpsuq.engine.diagnostics import Finding
from gpsuq.errors import GPSError, listed
from gpsuq.tables.cells import as_dates

P = ParamSpec("P")
R = TypeVar("R")

_FEW = 5  # columns with a finding of their own
_FEWEST_FOR_IDS = 20
_ID_RANGE, _ID_SIZE = 1e6, 1e9
_ID_NAME = re.compile(r"(^|[^a-z])(id|ids|index|key|row|rownames|number|no|nr|uuid)([^a-z]|$)|[a-z](Id|ID)$")
_EPOCH, _DAY = pd.Timestamp(0), pd.Timedelta(days=1)


def as_pandas(X: Any) -> pd.DataFrame | None:
    """Return a frame of any library as one of pandas' whose columns are numbers, dates or text; None if X is none.

    Decimals and integers that may be missing become floats, durations days, and dates lose their time zone.

    >>> import datetime, decimal
    >>> import pandas as pd
    >>> from gpsuq.tables.frames import as_pandas
    >>> cells = {"on": [datetime.date(2024, 1, 31)], "price": [decimal.Decimal("1.50")], "site": ["north"]}
    >>> [dtype.kind for dtype in as_pandas(pd.DataFrame(cells).convert_dtypes()).dtypes]
    ['M', 'f', 'O']
    """
    frame = nw.from_native(X, eager_only=True, pass_through=True)
    if not isinstance(frame, nw.DataFrame):
        return None
    if frame.implementation.is_pandas_like():
        return plain(frame.to_native())
    decimals = [nw.col(name).cast(nw.Float64) for name, kind in frame.schema.items() if kind == nw.Decimal]
    times = [nw.col(n).dt.replace_time_zone(None) for n, kind in frame.schema.items() if kind == nw.Datetime]
    frame = frame.with_columns(*decimals, *times)
    return pd.DataFrame({name: _plain(pd.Series(frame[name].to_numpy(), name=name)) for name in frame.columns})


def plain(table: pd.DataFrame) -> pd.DataFrame:
    """Return a frame of pandas with columns of numbers, dates or text."""
    given = [table.iloc[:, place] for place in range(table.shape[1])]
    columns = [_plain(column) for column in given]
    if all(new is old for new, old in zip(columns, given, strict=True)):
        return table
    return pd.concat(columns, axis=1).set_axis(table.columns, axis=1)


def _plain(column: pd.Series) -> pd.Series:
    """Return a column as numbers, dates without a time zone, or what it was."""
    dtype = column.dtype
    if types.is_bool_dtype(dtype) or isinstance(dtype, pd.CategoricalDtype | pd.StringDtype):
        return column
    if types.is_datetime64_any_dtype(dtype):
        return _naive(column)
    if dtype.kind == "m":
        return pd.Series(pd.to_timedelta(column.astype(object)) / _DAY, column.index, name=column.name)
    if types.is_numeric_dtype(dtype):
        return column if isinstance(dtype, np.dtype) else _floats(column)
    kind = types.infer_dtype(column.astype(object), skipna=True)
    if kind in ("date", "datetime", "datetime64"):
        return _naive(pd.Series(pd.to_datetime(column.astype(object)), column.index, name=column.name))
    return _floats(column) if kind in ("decimal", "integer", "floating", "mixed-integer-float") else column


def _floats(column: pd.Series) -> pd.Series:
    values = column.astype(object).where(column.notna(), np.nan) if column.dtype == object else column
    return pd.Series(values.to_numpy(dtype=np.float64, na_value=np.nan), column.index, name=column.name)


def _naive(column: pd.Series) -> pd.Series:
    naive: pd.Series = column.dt.tz_localize(None)
    return naive if isinstance(naive.dtype, np.dtype) else naive.astype("datetime64[us]")


def numbers_of(X: Any, what: str) -> Any:
    """Return a frame as one of pandas' that holds nothing but numbers, dates as days; all else as it is.

    Raise where a column holds text, which ``what`` does not take.
    """
    table = as_pandas(X)
    if table is None:
        return X
    dates = {name: days(column) for name, column in table.items() if is_dates(as_dates(column))}
    text = [str(name) for name, column in table.items() if name not in dates and holds_text(column)]
    if text:
        raise GPSError(
            f"columns {listed(text)} hold text, and {what} takes numbers: make columns of 0 and 1 of them, as "
            "pandas.get_dummies(X, drop_first=True, dtype=float) or a OneHotEncoder in a Pipeline does"
        )
    return table.assign(**{str(name): column for name, column in dates.items()}) if dates else table


def holds_text(column: pd.Series) -> bool:
    """Whether a column of a frame holds categories: text, or what pandas calls a category."""
    return not (types.is_numeric_dtype(column) or types.is_bool_dtype(column) or is_dates(column))


def is_dates(column: pd.Series) -> bool:
    """Whether a column of a frame holds dates."""
    return bool(types.is_datetime64_any_dtype(column))


def days(column: pd.Series) -> pd.Series:
    """Return dates, or text such as 2024-01-31 12:00, as days since 1970.

    >>> import pandas as pd
    >>> from gpsuq.tables.frames import days
    >>> days(pd.Series(["1970-01-02", "1970-01-03 12:00", None])).tolist()
    [1.0, 2.5, nan]
    """
    if not is_dates(column):
        column = column.astype("datetime64[us]") if column.isna().all() else as_dates(column)
    if not is_dates(column):
        example = column.dropna().iloc[0]
        raise GPSError(f"column {column.name!r} held dates when it was fitted; write {example!r} as 2024-01-31")
    return (_naive(column) - _EPOCH) / _DAY


def identifiers(table: pd.DataFrame) -> list[Finding]:
    """Return findings about columns that look like row numbers, identifiers or names: few of them, and the others.

    Such a column differs in every row. It holds text, or whole numbers that count the rows, are named so, range over
    more than a million, or are all above a billion.
    """
    if len(table) < _FEWEST_FOR_IDS:
        return []
    names = [str(name) for place, name in enumerate(table) if _identifies(str(name), table.iloc[:, place])]
    few, others = names[:_FEW], names[_FEW:]
    said = [f"column {name} is different in every row: if it is" for name in few]
    if others:
        said.append(f"columns {listed(others)} are different in every row: if one is")
    return [Finding("identifier", f"{start} a row number, a name or an identifier, leave it out") for start in said]


def _identifies(name: str, column: pd.Series) -> bool:
    if holds_text(column):
        return bool(column.is_unique)
    if not types.is_numeric_dtype(column) or types.is_bool_dtype(column):
        return False
    values = column.to_numpy(dtype=np.float64, na_value=np.nan)
    if (values[:_FEWEST_FOR_IDS] % 1.0 != 0.0).any() or (values % 1.0 != 0.0).any():
        return False
    ordered = np.sort(values)
    if np.diff(ordered).min() <= 0.0:
        return False
    counts = bool((np.diff(values) == 1.0).all())
    named = _ID_NAME.search(name) or _ID_NAME.search(name.lower())
    return bool(counts or named or ordered[-1] - ordered[0] > _ID_RANGE or ordered[0] > _ID_SIZE)


def like(result: pd.DataFrame, X: Any) -> Any:
    """Return a result as a frame of the library that X is of; as pandas has it where X is of none.

    >>> import pandas as pd, polars
    >>> from gpsuq.tables.frames import like
    >>> result = pd.DataFrame({0.05: [1.0], 0.95: [2.0]})
    >>> like(result, polars.DataFrame({"x": [0.5]})).to_dict(as_series=False)
    {'0.05': [1.0], '0.95': [2.0]}
    """
    given = nw.from_native(X, eager_only=True, pass_through=True)
    if not isinstance(given, nw.DataFrame) or given.implementation.is_pandas_like():
        return result
    names = [": ".join(map(str, name)) if isinstance(name, tuple) else str(name) for name in result]
    result = result.set_axis(names, axis=1)
    result = result if result.index.name is None else result.reset_index()
    columns = {str(name): column.to_numpy() for name, column in result.items()}
    return nw.from_dict(columns, backend=given.implementation).to_native()


def in_kind(method: Callable[P, R]) -> Callable[P, R]:
    """Let a method of an estimator that returns a frame of pandas return one of the kind of its first argument, X."""

    @wraps(method)
    def returned(self: Any, X: Any, *arguments: Any, **options: Any) -> R:
        return cast(R, like(cast(Any, method)(self, X, *arguments, **options), X))

    return cast(Callable[P, R], returned)
