"""Columns of text as numbers: one column ``name=level`` for every level but the first, which is the reference."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from gpsuq.errors import GPSError

FILE = "columns.json"
_MOST_LEVELS = 50


@dataclass(frozen=True)
class Encoding:
    """Levels of every column that holds text, the reference first.

    >>> import pandas as pd
    >>> from gpsuq.tables.encoding import Encoding
    >>> table = pd.DataFrame({"age": [30, 40, 50], "site": ["north", "south", "north"]})
    >>> Encoding.of(table).encoded(table)
       age  site=south
    0   30         0.0
    1   40         1.0
    2   50         0.0
    """

    levels: Mapping[str, tuple[str, ...]]

    @classmethod
    def of(cls, table: pd.DataFrame) -> Encoding:
        """Learn the levels of all columns of text, or of true and false; the reference comes first in the alphabet."""
        levels = {}
        for name in table:
            if not _is_text(table[name]):
                continue
            found = tuple(sorted(table[name].dropna().astype(str).unique()))
            if len(found) < 2:
                raise GPSError(
                    f"column {name!r} holds nothing but {found[0] if found else 'missing values'!r}; leave it out with "
                    f"--drop {name}"
                )
            if len(found) > _MOST_LEVELS:
                raise GPSError(
                    f"column {name!r} holds {len(found)} different texts, such as {found[0]!r}: it looks like a name, "
                    f"not a category; leave it out with --drop {name}"
                )
            levels[str(name)] = found
        return cls(levels)

    def encoded(self, table: pd.DataFrame) -> pd.DataFrame:
        """Return the table with columns of 0 and 1 in the place of text; a missing text stays missing."""
        parts = []
        for name in table:
            if str(name) not in self.levels:
                parts.append(table[[name]])
                continue
            levels, shown = self.levels[str(name)], table[name].astype(object).map(str, na_action="ignore")
            known = shown.isin(levels) | shown.isna()
            if not known.all():
                row = int((~known).to_numpy().argmax())
                raise GPSError(
                    f"column {name!r} holds {shown.iloc[row]!r} in row {row + 1}, which was not in the data that were "
                    f"fitted: {', '.join(levels)}"
                )
            columns = {f"{name}={level}": (shown == level).astype(float) for level in levels[1:]}
            parts.append(pd.DataFrame(columns).mask(shown.isna()))
        return pd.concat(parts, axis=1)

    def source(self, column: str) -> str:
        """Name the column of a table that an encoded one was made of."""
        made = {f"{name}={level}": name for name, levels in self.levels.items() for level in levels[1:]}
        return made.get(column, column)

    def write(self, directory: Path) -> None:
        """Write the levels beside a saved model."""
        (directory / FILE).write_text(json.dumps(dict(self.levels), indent=2) + "\n")

    @classmethod
    def read(cls, directory: Path) -> Encoding:
        """Read the levels beside a saved model; none where there is no such file."""
        path = directory / FILE
        if not path.is_file():
            return cls({})
        try:
            found = json.loads(path.read_text())
            return cls({str(name): tuple(map(str, levels)) for name, levels in found.items()})
        except (ValueError, AttributeError, TypeError) as error:
            raise GPSError(f"{path} is damaged: {error}") from error


def _is_text(column: pd.Series) -> bool:
    return pd.api.types.is_bool_dtype(column) or not pd.api.types.is_numeric_dtype(column)
