"""Columns of text as numbers: one column ``name=level`` for every level but the first, which is the reference.

Dates are days since 1970.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from gpsuq.errors import GPSError, listed
from gpsuq.files import write_atomically
from gpsuq.storage import read_beside
from gpsuq.storage.directories import COLUMNS_FILE
from gpsuq.tables.frames import days, holds_text, is_dates

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
            if not _is_category(table[name]):
                continue
            found = tuple(sorted(table[name].dropna().astype(str).unique()))
            if len(found) < 2:
                raise GPSError(
                    f"column {name!r} holds nothing but {found[0] if found else 'missing values'!r}; leave it out with "
                    f"{drop(name)}"
                )
            if len(found) > _MOST_LEVELS:
                raise GPSError(
                    f"column {name!r} holds {len(found)} different texts, such as {found[0]!r}: it looks like a name, "
                    f"not a category; leave it out with {drop(name)}"
                )
            levels[str(name)] = found
        result = cls(levels)
        taken = set(map(str, table))
        for made, name in result._made():
            if made in taken:
                raise GPSError(
                    f"there is a column {made!r} already, and a category of column {name!r} needs that name: rename "
                    "one of them, or leave it out with --drop"
                )
            taken.add(made)
        return result

    def encoded(self, table: pd.DataFrame) -> pd.DataFrame:
        """Return the table with columns of 0 and 1 in the place of text; a missing text stays missing."""
        columns: dict[str, pd.Series] = {}
        for name in table:
            if str(name) not in self.levels:
                columns[str(name)] = days(table[name]) if is_dates(table[name]) else table[name]
                continue
            levels, shown = self.levels[str(name)], table[name].astype(object).map(str, na_action="ignore")
            # Codes beside missing cells were read as 1.0, not 1.
            shown = shown.where(shown.isin(levels) | shown.isna(), shown.str.removesuffix(".0"))
            known = shown.isin(levels) | shown.isna()
            if not known.all():
                strange = shown[~known]
                raise GPSError(
                    f"column {name!r} holds {strange.iloc[0]!r} in row {strange.index.to_numpy()[0] + 1}, which was "
                    f"not in the data that were fitted: {listed(levels)}"
                )
            for level in levels[1:]:
                columns[f"{name}={level}"] = (shown == level).astype(float).mask(shown.isna())
        return pd.DataFrame(columns, index=table.index)

    def source(self, column: str) -> str:
        """Name the column of a table that an encoded one was made of."""
        return dict(self._made()).get(column, column)

    def _made(self) -> list[tuple[str, str]]:
        """Return the names of the columns that categories become, each with the name of its source."""
        return [(f"{name}={level}", name) for name, levels in self.levels.items() for level in levels[1:]]

    def write(self, directory: Path) -> None:
        """Write the levels beside a saved model."""
        write_atomically(directory / COLUMNS_FILE, (json.dumps(dict(self.levels), indent=2) + "\n").encode())

    @classmethod
    def read(cls, directory: Path) -> Encoding:
        """Read the levels beside a saved model; none where there is no such file."""
        found = read_beside(directory, COLUMNS_FILE)
        if found is None:
            return cls({})
        if not isinstance(found, dict) or not all(_are_levels(levels) for levels in found.values()):
            raise GPSError(f"{directory / COLUMNS_FILE} is damaged: it must hold lists of texts; fit again")
        return cls({name: tuple(levels) for name, levels in found.items()})


def _are_levels(held: object) -> bool:
    return isinstance(held, list) and len(held) > 1 and all(isinstance(level, str) for level in held)


def _is_category(column: pd.Series) -> bool:
    return pd.api.types.is_bool_dtype(column) or holds_text(column)


def drop(name: object) -> str:
    """Return the option that leaves a column out, as a shell takes it.

    >>> from gpsuq.tables.encoding import drop
    >>> drop("body mass")
    "--drop 'body mass'"
    """
    return f"--drop {shlex.quote(str(name))}"
