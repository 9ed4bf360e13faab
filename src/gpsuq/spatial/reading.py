"""Point patterns from tables."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from gpsuq.errors import GPSError, warn
from gpsuq.spatial.windows import Window
from gpsuq.tables.reading import COUNTED, DROP_MISSING, check_numbers, named_rows, read_table, without_missing


def read_points(
    path: str | Path,
    x: str,
    y: str,
    replicate: str | None,
    *,
    drop_missing: bool = False,
    window: Window | None = None,
) -> list[np.ndarray]:
    """Read coordinates (n, 2) from a CSV file, one array for each replicate; all must lie in a ``window``, if given."""
    table = read_table(path)
    columns = [name for name in (x, y, replicate) if name is not None]
    for name in columns:
        if name not in table:
            raise GPSError(f"there is no column {name!r}; the table has {', '.join(map(str, table.columns))}")
    if drop_missing:
        kept = without_missing(table, columns)
        if len(kept) < len(table):
            left_out = f"{len(table) - len(kept)} of {len(table)} rows have missing values and were left out"
            warn(left_out)
        table = kept
    check_numbers(table[[x, y]], advice=DROP_MISSING)
    if replicate is not None and table[replicate].isna().any():
        raise GPSError(f"column {replicate!r} is empty in {named_rows(table, table[replicate].isna())} {COUNTED}")
    points = table[[x, y]].to_numpy(dtype=np.float64)
    outside = np.zeros(len(points), dtype=bool) if window is None else ~window.contains(points)
    if outside.any():
        raise GPSError(
            f"{outside.sum()} of {len(points)} points lie outside the window, {named_rows(table, outside)} {COUNTED}; "
            "check units and axes, or leave them out with --drop-outside"
        )
    if replicate is None:
        return [points]
    return [rows[[x, y]].to_numpy(dtype=np.float64) for _, rows in table.groupby(replicate, sort=True)]
