"""Tables of a user's own: read from CSV, checked column by column, split into covariates, target, groups, weights."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pandas as pd

from gpsuq.errors import GPSError

if TYPE_CHECKING:
    from gpsuq.estimators.poisson import IntensitySurface

_SHOWN = 5


class Table(NamedTuple):
    """A table split by role."""

    X: pd.DataFrame
    y: pd.Series
    groups: pd.Series | None
    weights: pd.Series | None


def read_table(path: str | Path) -> pd.DataFrame:
    """Read a CSV file with a header."""
    path = Path(path)
    if not path.is_file():
        raise GPSError(f"there is no file {path}")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", pd.errors.ParserWarning)
            table = pd.read_csv(path, index_col=False)
    except pd.errors.EmptyDataError as error:
        raise GPSError(f"{path} is empty: a header and at least two rows are needed") from error
    except (pd.errors.ParserError, pd.errors.ParserWarning, UnicodeDecodeError) as error:
        raise GPSError(f"{path} cannot be read as CSV: {error}") from error
    if table.empty:
        raise GPSError(f"{path} has a header but no rows")
    return table


def split_table(
    table: pd.DataFrame, target: str, *, groups: str | None, weights: str | None, drop: Sequence[str]
) -> Table:
    """Split a table by the names of its columns; what is not named is a covariate."""
    for name in (target, groups, weights, *drop):
        if name is not None and name not in table:
            raise GPSError(f"there is no column {name!r}; the table has {', '.join(map(str, table.columns))}")
    if len(table) < 2:
        raise GPSError("the table has a single row: at least 2 rows are needed")
    roles = {target, groups, weights, *drop}
    X = table[[column for column in table if column not in roles]]
    if X.shape[1] == 0:
        raise GPSError("no covariates are left: the table has no other columns than those named")
    check_numbers(X.join(table[[name for name in (target, weights) if name is not None]]))
    chosen = [None if name is None else table[name] for name in (groups, weights)]
    return Table(X, table[target], *chosen)


def check_numbers(table: pd.DataFrame) -> None:
    """Raise where a column holds text, or a cell is missing or infinite; name them."""
    text = [str(name) for name in table if not pd.api.types.is_numeric_dtype(table[name])]
    if text:
        raise GPSError(
            f"columns {', '.join(text)} hold text; encode them as numbers, or leave them out with --drop NAME"
        )
    bad = ~np.isfinite(table.to_numpy(dtype=np.float64))
    if bad.any():
        rows, columns = bad.any(1).nonzero()[0], [str(table.columns[j]) for j in bad.any(0).nonzero()[0]]
        more = f" and {len(rows) - _SHOWN} more" if len(rows) > _SHOWN else ""
        raise GPSError(
            f"missing or infinite values in columns {', '.join(columns)}, rows "
            f"{', '.join(str(row + 1) for row in rows[:_SHOWN])}{more} (the first row below the header is 1); "
            "fill or delete them"
        )


def read_points(path: str | Path, x: str, y: str, replicate: str | None) -> list[np.ndarray]:
    """Read coordinates (n, 2) from a CSV file, one array for each replicate."""
    table = read_table(path)
    for name in (x, y, replicate):
        if name is not None and name not in table:
            raise GPSError(f"there is no column {name!r}; the table has {', '.join(map(str, table.columns))}")
    check_numbers(table[[x, y]])
    if replicate is not None and table[replicate].isna().any():
        row = int(table[replicate].isna().to_numpy().argmax()) + 1
        raise GPSError(f"column {replicate!r} is empty in row {row} (the first row below the header is 1)")
    if replicate is None:
        return [table[[x, y]].to_numpy(dtype=np.float64)]
    return [rows[[x, y]].to_numpy(dtype=np.float64) for _, rows in table.groupby(replicate, sort=True)]


def surface_table(surface: IntensitySurface) -> pd.DataFrame:
    """Give a surface as a table: one row per cell inside the window, with mean, sd and quantiles of its intensity."""
    inside = surface.grid.inside
    nodes = surface.grid.nodes[inside]
    columns = {"x": nodes[:, 0], "y": nodes[:, 1], "area": surface.grid.exposure[inside]}
    columns |= {"mean": surface.mean[inside], "sd": surface.sd[inside]}
    return pd.DataFrame(columns | {f"q{level:g}": values[inside] for level, values in surface.quantiles.items()})


def numbered(table: pd.DataFrame) -> pd.DataFrame:
    """Give rows the numbers that messages use: the first row below the header is 1."""
    return table.set_axis(pd.RangeIndex(1, len(table) + 1, name="row"))
