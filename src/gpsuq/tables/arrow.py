"""Columns of Arrow: which hold numbers, and what the others hold as codes."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpsuq.tables.frames import days

Array = NDArray[np.floating]


def is_number(kind: Any) -> bool:
    """Whether an Arrow type is one of numbers or dates; all others are categories, true and false among them."""
    from pyarrow import types

    return bool(
        types.is_integer(kind)
        or types.is_floating(kind)
        or types.is_decimal(kind)
        or types.is_date(kind)
        or types.is_timestamp(kind)
    )


def numbers(column: Any) -> Array:
    """Return an Arrow column of numbers, or of dates as days since 1970; NaN where one is missing."""
    from pyarrow import types

    kind = column.type
    if types.is_date(kind) or types.is_timestamp(kind):
        return days(column.to_pandas(date_as_object=False)).to_numpy()
    if column.null_count or types.is_decimal(kind):
        column = column.cast("float64", safe=False)
    values: Array = column.to_numpy(zero_copy_only=False)
    return values


def coded(column: Any) -> tuple[list[str], NDArray[np.int64]]:
    """Return the different texts of an Arrow column, and the number of every row's; -1 where it is missing."""
    if hasattr(column, "dictionary"):  # it may hold more than the rows do
        column = column.dictionary_decode()
    column = column.dictionary_encode()
    texts = [str(value) for value in column.dictionary.to_pandas()]
    codes = column.indices.fill_null(-1).to_numpy(zero_copy_only=False)
    return texts, codes.astype(np.int64)
