"""What a report says about data, as JSON beside a saved model: the page can be made again without the data."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pandas as pd

from gpsuq.errors import GPSError
from gpsuq.tables.reading import for_json

CHECKS_FILE = "checks.json"


def write_checks(checks: Mapping[str, Any], directory: Path) -> Path:
    """Write checks beside a saved model, for a report that is made later."""
    path = directory / CHECKS_FILE
    path.write_text(json.dumps(checks, indent=2, allow_nan=False) + "\n")
    return path


def read_checks(directory: Path, parts: Sequence[str]) -> dict[str, Any] | None:
    """Read the ``parts`` of the checks beside a saved model; None where there are none."""
    path = directory / CHECKS_FILE
    if not path.is_file():
        return None
    with damage_told(directory):
        checks = json.loads(path.read_text())
        return {name: checks[name] for name in parts}


@contextmanager
def damage_told(directory: Path) -> Iterator[None]:
    """Say of whatever fails inside that the checks beside a saved model are damaged."""
    try:
        yield
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise GPSError(f"{directory / CHECKS_FILE} is damaged ({error}); delete it, or fit again") from error


def frame_as_json(frame: pd.DataFrame) -> dict[str, Any]:
    """Give a table as JSON holds it.

    >>> import pandas as pd
    >>> from gpsuq.reports.checks import frame_as_json, frame_from_json
    >>> held = frame_as_json(pd.DataFrame({"mean": [1.5, float("nan")]}, index=["age", "income"]))
    >>> held["values"]
    [[1.5], [None]]
    >>> frame_from_json(held)
            mean
    age      1.5
    income   NaN
    """
    return {
        "index": list(map(str, frame.index)),
        "values": for_json(frame).to_dict("split")["data"],
        "names": list(map(str, frame.columns)),
    }


def frame_from_json(held: Mapping[str, Any]) -> pd.DataFrame:
    """Give back a table that :func:`frame_as_json` gave."""
    return pd.DataFrame(held["values"], index=held["index"], columns=held["names"])
