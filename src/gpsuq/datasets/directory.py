"""Real data from a directory of the user's: the environment variable ``GPSUQ_DATA`` names it."""

from __future__ import annotations

import os
from pathlib import Path

import pandas as pd

from gpsuq.errors import GPSError


def data_directory() -> Path:
    """Return the directory of real data; raise where ``GPSUQ_DATA`` does not name one.

    >>> import os
    >>> from unittest.mock import patch
    >>> from gpsuq.datasets import data_directory
    >>> with patch.dict(os.environ, GPSUQ_DATA="."):  # in a shell: export GPSUQ_DATA=.
    ...     print(data_directory())
    .
    >>> with patch.dict(os.environ, GPSUQ_DATA=""):
    ...     data_directory()
    Traceback (most recent call last):
    gpsuq.errors.GPSError: this needs real data: set the environment variable GPSUQ_DATA to their directory
    """
    name = os.environ.get("GPSUQ_DATA")
    if not name:
        raise GPSError("this needs real data: set the environment variable GPSUQ_DATA to their directory")
    path = Path(name)
    if not path.is_dir():
        raise GPSError(f"GPSUQ_DATA names {path}, which is not a directory")
    return path


def regression_table(name: str) -> pd.DataFrame:
    r"""Read ``regression/<name>.csv`` of the data directory.

    >>> import os, tempfile
    >>> from pathlib import Path
    >>> from unittest.mock import patch
    >>> from gpsuq.datasets import regression_table
    >>> with tempfile.TemporaryDirectory() as folder, patch.dict(os.environ, GPSUQ_DATA=folder):
    ...     Path(folder, "regression").mkdir()
    ...     _ = Path(folder, "regression", "cars.csv").write_text("speed,dist\n4,2\n7,4\n")
    ...     list(regression_table("cars"))
    ['speed', 'dist']
    """
    path = data_directory() / "regression" / f"{name}.csv"
    if not path.is_file():
        raise GPSError(f"there is no {path}")
    return pd.read_csv(path)
