"""Tables as CSV that a spreadsheet can open without harm: texts of a user's data stay texts."""

from __future__ import annotations

import csv
import math
from typing import Any

import pandas as pd

_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def csv_text(table: pd.DataFrame, *, index: bool = True) -> str:
    r"""Return a table as CSV, with an apostrophe before texts that a spreadsheet would take for formulas.

    Numbers are as they were, also those that are written as text.

    >>> import pandas as pd
    >>> from gpsuq.tables.writing import csv_text
    >>> print(csv_text(pd.DataFrame({"label": ["=1+1", "-1", "plain"], "mean": [-0.5, 2.0, -3.0]}), index=False))
    label,mean
    '=1+1,-0.5
    -1,2.0
    plain,-3.0
    <BLANKLINE>
    """
    safe = table.rename(columns=_harmless)
    for place, dtype in enumerate(table.dtypes):
        if _holds_text(dtype):
            safe.isetitem(place, table.iloc[:, place].astype(object).map(_harmless).to_numpy())
    if _holds_text(table.index.dtype) and not isinstance(table.index, pd.MultiIndex):
        safe.index = table.index.map(_harmless)
    text = safe.to_csv(index=index)
    # Python quotes no carriage return, which would begin a new row.
    return safe.to_csv(index=index, quoting=csv.QUOTE_NONNUMERIC) if "\r" in text else text


def _holds_text(dtype: Any) -> bool:
    return pd.api.types.is_object_dtype(dtype) or isinstance(dtype, pd.StringDtype | pd.CategoricalDtype)


def _harmless(cell: Any) -> Any:
    return f"'{cell}" if isinstance(cell, str) and cell.startswith(_FORMULA) and not _is_number(cell) else cell


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False
