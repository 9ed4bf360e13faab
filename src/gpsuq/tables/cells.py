"""Cells of text as numbers and dates, where a whole column is one or the other."""

from __future__ import annotations

from typing import Literal

import pandas as pd

Decimal = Literal[".", ","]
"""What stands before the decimals of a number; the other one may stand between thousands."""

MISSING = {"", "?", "-", "--", ".", "na", "n.a.", "missing"}  # in a column of numbers, beside what pandas knows
_DIGITS = 15  # that any float keeps
_WRITTEN = r"(?=.*\d)[-+]?(\d{{1,3}}({between}\d{{3}})+|\d*)({point}\d*)?([eE][-+]?\d+)?"
_YEAR_FIRST = r"(?P<year>\d{4})[-/.](?P<month>\d{1,2})[-/.](?P<day>\d{1,2})"
_YEAR_LAST = r"(?P<first>\d{1,2})(?P<between>[-/.])(?P<second>\d{1,2})[-/.](?P<year>\d{4})"
_TIME = r"(?P<time>[ T]\d{1,2}:\d{2}\S*( ?[AaPp][Mm])?)?"


def as_numbers(column: pd.Series, decimal: Decimal | None = None) -> pd.Series:
    """Return a column as numbers where all its cells are numbers or missing, and none would lose digits that matter.

    With ``decimal``, thousands may be separated by the other sign.

    >>> import pandas as pd
    >>> from gpsuq.tables.cells import as_numbers
    >>> as_numbers(pd.Series(["1.234,5", "12", "?"]), ",").tolist()
    [1234.5, 12.0, nan]
    """
    cells = column.dropna().astype(str).str.strip()
    cells = cells[~cells.str.lower().isin(MISSING)]
    if decimal is not None:
        between = "," if decimal == "." else "."
        if not cells.str.fullmatch(_WRITTEN.format(between=rf"\{between}", point=rf"\{decimal}")).all():
            return column
        cells = cells.str.replace(between, "", regex=False).str.replace(decimal, ".", regex=False)
    numbers = pd.to_numeric(cells, errors="coerce").astype(float)
    merged = numbers.nunique() < cells.nunique() and cells.str.len().max() > _DIGITS  # long identifiers
    return column if merged or not len(cells) or numbers.isna().any() else numbers.reindex(column.index)


def look_like_dates(column: pd.Series) -> bool:
    """Whether all cells of a column of text that are not missing look like dates."""
    cells = column.dropna().astype(str).str.strip()
    shapes = [cells.str.fullmatch(pattern + _TIME).all() for pattern in (_YEAR_FIRST, _YEAR_LAST)]
    return len(cells) > 0 and any(shapes)


def as_dates(column: pd.Series) -> pd.Series:
    """Return a column as dates where all its cells are dates or missing, and it is clear what is the day of each.

    It is where the year comes first, where points separate, or where another cell has a number above 12 in its place.

    >>> import pandas as pd
    >>> from gpsuq.tables.cells import as_dates
    >>> as_dates(pd.Series(["3/31/2024 18:00", "4/1/2024"])).tolist()
    [Timestamp('2024-03-31 18:00:00'), Timestamp('2024-04-01 00:00:00')]
    >>> as_dates(pd.Series(["3/4/2024"])).tolist()
    ['3/4/2024']
    """
    if pd.api.types.is_numeric_dtype(column) or pd.api.types.is_datetime64_any_dtype(column):
        return column
    cells = column.dropna().astype(str).str.strip()
    if not len(cells) or not cells.iloc[0][:1].isdigit():
        return column
    for pattern in (_YEAR_FIRST, _YEAR_LAST):
        parts = cells.str.extract(f"^{pattern}{_TIME}$")
        if parts["year"].isna().any():
            continue
        if pattern is _YEAR_LAST:
            first, second = parts["first"].astype(int).max(), parts["second"].astype(int).max()
            day_first = first > 12 or (second <= 12 and (parts["between"] == ".").all())
            if not day_first and second <= 12:
                return column
            parts["day"] = parts["first" if day_first else "second"]
            parts["month"] = parts["second" if day_first else "first"]
        written = parts["year"] + "-" + parts["month"].str.zfill(2) + "-" + parts["day"].str.zfill(2)
        dates = pd.to_datetime(written + parts["time"].fillna(""), format="mixed", errors="coerce", utc=True)
        if not dates.isna().any():
            return dates.dt.tz_localize(None).reindex(column.index)
    return column
