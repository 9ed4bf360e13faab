"""Real data from a directory of the user's: the environment variable ``GPSUQ_DATA`` names it."""

from __future__ import annotations

import os
from pathlib import Path

import pandas as pd

from gpsuq.errors import GPSError


def data_directory() -> Path:
    """Give the directory of real data, or say how to name it."""
    name = os.environ.get("GPSUQ_DATA")
    if not name:
        raise GPSError("this needs real data: set the environment variable GPSUQ_DATA to their directory")
    path = Path(name)
    if not path.is_dir():
        raise GPSError(f"GPSUQ_DATA names {path}, which is no directory")
    return path


def regression_table(name: str) -> pd.DataFrame:
    """Read ``regression/<name>.csv`` of the data directory."""
    path = data_directory() / "regression" / f"{name}.csv"
    if not path.is_file():
        raise GPSError(f"there is no {path}")
    return pd.read_csv(path)
