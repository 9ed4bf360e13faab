"""Columns of a table as a network takes them: numbers and dates standardised, gaps marked, text as zeros and ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from gpsuq.errors import GPSError, listed
from gpsuq.tables.cells import as_dates
from gpsuq.tables.frames import as_pandas, days, is_dates
from gpsuq.tables.streaming import ParquetRows

Array = NDArray[np.floating]

MOST_LEVELS = 50
OTHER = "(other)"
_EDGE_ROWS = 50_000
_CYCLES = (365.2425, 7.0, 1.0)  # days: years, weeks, days


@dataclass(frozen=True)
class Column:
    """One column: centre and scale of its numbers and whether any were missing, or the levels of its text.

    Dates are numbers of days; ``cycles``, None of other columns, are the periods that count beside them.
    """

    name: str
    center: float = 0.0
    scale: float = 1.0
    gaps: bool = False
    levels: tuple[str, ...] | None = None
    cycles: tuple[float, ...] | None = None

    @property
    def width(self) -> int:
        """How many numbers it becomes."""
        return 1 + self.gaps + 2 * len(self.cycles or ()) if self.levels is None else len(self.levels)

    def encoded(self, values: pd.Series) -> Array:
        """Return the numbers of its cells, (n, width)."""
        if self.levels is None:
            numbers = _numbers(values) if self.cycles is None else days(values).to_numpy(dtype=np.float64)
            missing = np.isnan(numbers)
            parts = [np.where(missing, 0.0, (numbers - self.center) / self.scale)]
            parts += [missing.astype(float)] if self.gaps else []
            for period in self.cycles or ():
                turn = 2.0 * np.pi * numbers / period
                parts += [np.where(missing, 0.0, np.sin(turn)), np.where(missing, 0.0, np.cos(turn))]
            return np.column_stack(parts)
        texts = _texts(values)
        texts = texts.where(texts.isin(self.levels), texts.str.removesuffix(".0"))  # codes beside gaps are read as 1.0
        place = {level: number for number, level in enumerate(self.levels)}
        # What was never seen is like what was rare; where nothing was, it has zeros everywhere.
        codes = texts.map(lambda text: place.get(text, place.get(OTHER, -1))).to_numpy(dtype=np.int64)
        return np.asarray(codes[:, None] == np.arange(len(self.levels)), dtype=np.float64)


@dataclass(frozen=True)
class Columns:
    """All columns of a table.

    >>> import pandas as pd
    >>> from gpsuq.regress.columns import Columns
    >>> table = pd.DataFrame({"age": [30.0, 40.0, None], "site": ["north", "south", "north"]})
    >>> Columns.of(table).encoded(table).round(1).tolist()
    [[-1.0, 0.0, 1.0, 0.0], [1.0, 0.0, 0.0, 1.0], [0.0, 1.0, 1.0, 0.0]]
    """

    columns: tuple[Column, ...]

    @classmethod
    def of(cls, table: pd.DataFrame) -> Columns:
        """Learn centre and scale of numbers, and the most frequent levels of text."""
        return cls(tuple(_learned(str(name), table.iloc[:, place]) for place, name in enumerate(table.columns)))

    @property
    def width(self) -> int:
        """How many numbers a row becomes."""
        return sum(column.width for column in self.columns)

    def encoded(self, table: pd.DataFrame) -> Array:
        """Return the rows as numbers of order one, (n, width)."""
        parts = [column.encoded(table.iloc[:, place]) for place, column in enumerate(self.columns)]
        return np.concatenate(parts, axis=1).astype(np.float32)

    def edges(self, encoded: Array, bins: int) -> tuple[tuple[float, ...], ...]:
        """Return the bounds of pieces of about equal numbers of rows; columns of zeros and ones are not cut."""
        some = encoded[:: -(-len(encoded) // _EDGE_ROWS)]
        found: list[tuple[float, ...]] = []
        for column in self.columns:
            first = len(found)
            bounds = np.unique(np.quantile(some[:, first], np.linspace(0.0, 1.0, bins + 1)).astype(np.float32))
            bounds = bounds[np.append(True, np.diff(bounds) > 1e-6)]
            cut = column.levels is None and len(bounds) > 2
            found += [tuple(bounds.tolist()) if cut else (), *[()] * (column.width - 1)]
        return tuple(found)


def as_frame(X: Any) -> pd.DataFrame:
    """Return a table of pandas', polars' or NumPy's as a DataFrame of pandas'."""
    if isinstance(X, ParquetRows):
        raise GPSError(
            "GPSRegressor holds all rows in memory: read some, as in pandas.read_parquet(path).sample(1_000_000), "
            "or let GPSLinearRegression read all"
        )
    if hasattr(X, "toarray"):
        raise GPSError("sparse tables are not supported: pass X.toarray(), or a table of fewer columns")
    frame = as_pandas(X)
    if frame is not None:
        return frame
    array = np.asarray(X)
    if np.iscomplexobj(array):
        raise GPSError("Complex data not supported: X holds complex numbers")
    if array.ndim != 2:
        raise GPSError(
            f"Expected 2D array, got {array.ndim}D array instead: X must be a table (rows, columns). Reshape your "
            "data with X.reshape(-1, 1) if it is a single column"
        )
    frame = pd.DataFrame(array)
    return frame.infer_objects() if array.dtype == object else frame


def _is_text(values: pd.Series) -> bool:
    return not pd.api.types.is_numeric_dtype(values) or pd.api.types.is_bool_dtype(values)


def _texts(values: pd.Series) -> pd.Series:
    return values.astype(object).where(values.notna(), "(missing)").astype(str)


def _numbers(values: pd.Series) -> Array:
    if _is_text(values):
        raise GPSError(f"column {values.name!r} holds text or true and false, and numbers were fitted")
    numbers = values.to_numpy(dtype=np.float64, na_value=np.nan)
    if np.isinf(numbers).any():
        row = int(np.flatnonzero(np.isinf(numbers))[0])
        raise GPSError(f"Input X contains infinity: column {values.name!r}, row {row}; mark it as missing, or mend it")
    return numbers


def _learned(name: str, values: pd.Series) -> Column:
    dates = is_dates(as_dates(values))
    if _is_text(values) and not dates:
        counts = _texts(values).value_counts()
        kept = counts.index[: MOST_LEVELS - 1 if len(counts) > MOST_LEVELS else MOST_LEVELS]
        levels = sorted(map(str, kept))
        return Column(name, levels=tuple([*levels, OTHER] if len(counts) > len(kept) else levels))
    numbers = days(values).to_numpy(dtype=np.float64) if dates else _numbers(values)
    seen = numbers[~np.isnan(numbers)]
    if not len(seen):
        raise GPSError(f"column {name!r} holds nothing but missing values: leave it out")
    with np.errstate(over="ignore", invalid="ignore"):
        center, scale = float(seen.mean()), float(seen.std())
    if not np.isfinite([center, scale]).all():
        raise GPSError(f"column {name!r} varies by more than a number can hold: give it in another unit")
    flat = scale <= 1e-12 * abs(center) or scale == 0.0
    cycles = _cycles(seen) if dates else None
    return Column(name, center, 1.0 if flat else scale, gaps=len(seen) < len(numbers), cycles=cycles)


def _cycles(numbers: Array) -> tuple[float, ...]:
    """Return the cycles that dates pass through twice at least, in steps of less than half of one."""
    different = np.unique(numbers)
    if len(different) < 2:
        return ()
    step = np.median(np.diff(different))
    return tuple(period for period in _CYCLES if np.ptp(different) >= 2.0 * period and step < 0.5 * period)


def check_names(columns: Columns, table: pd.DataFrame) -> pd.DataFrame:
    """Return the columns in the order in which they were fitted; raise where one is missing or new."""
    names = [column.name for column in columns.columns]
    given = list(map(str, table.columns))
    missing, new = [n for n in names if n not in given], [n for n in given if n not in names]
    if missing or new:
        said = [f"lacks {listed(missing)}"] * bool(missing) + [f"has {listed(new)}, which were not fitted"] * bool(new)
        raise GPSError(f"X {' and '.join(said)}")
    return table.set_axis(given, axis=1)[names]
