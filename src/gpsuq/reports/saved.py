"""The report of a saved model, whatever it is, and the checks beside it: what the report says about data, as JSON.

The family of the model makes the page; with the checks it can be made again without the data.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pandas as pd

from gpsuq.errors import GPSError, MissingCodeError
from gpsuq.files import write_atomically
from gpsuq.reports.page import Page
from gpsuq.storage import KINDS, load, part_of, read_beside, read_config
from gpsuq.storage.directories import CHECKS_FILE, CONFIG_FILE
from gpsuq.tables.reading import check_numbers, for_json

REPORT_FILE = "report.html"
_MOST = 1 << 28  # checks hold pictures


def can_be_made_again(directory: Path) -> bool:
    """Whether :func:`saved_page` shows all that the page in a directory shows.

    One that was made of data from Python has what the directory does not hold.
    """
    if (directory / CHECKS_FILE).is_file() or not (directory / CONFIG_FILE).is_file():
        return True
    return not part_of(type(_loaded(directory)).__name__, "report").NEEDS_ROWS


def saved_page(directory: str | Path, *, progress: bool = False) -> Page:
    """Return the report of a directory that ``gpsuq fit`` or ``save`` wrote, with a bar if it simulates.

    >>> import tempfile
    >>> from gpsuq import GPSLinearRegression
    >>> from gpsuq.datasets import correlated
    >>> from gpsuq.reports.saved import saved_page
    >>> data = correlated(200, 1)
    >>> model = GPSLinearRegression(spread_weight=3.0, n_chains=2, n_steps=10).fit(data.X, data.y)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     saved_page(model.save(f"{folder}/model")).title
    'Linear regression'
    """
    directory = Path(directory)
    if not directory.is_dir():
        raise GPSError(f"there is no directory {directory}")
    model = _loaded(directory)
    page = part_of(type(model).__name__, "report").saved_page(model, directory, progress=progress)
    if not isinstance(page, Page):
        raise GPSError(
            f"{directory} holds a {type(model).__name__}: its report needs observations to judge; name a table with "
            "--data FILE and a page with --out FILE.html, or in Python, gpsuq.reports.page.write_page("
            "gpsuq.classify.report.classifier_page(model, X, y), path)"
        )
    return page


def _loaded(directory: Path) -> Any:
    """Load a model; where that needs the user's code, the error says how its report is made."""
    try:
        return load(directory)
    except MissingCodeError as error:
        kind = read_config(directory)["type"]
        page = part_of(kind, "report").IN_PYTHON
        raise MissingCodeError(
            f"{error}. Its report is made in Python: gpsuq.reports.page.write_page({KINDS[kind]}.report.{page}, "
            f"'{REPORT_FILE}')"
        ) from error


def write_checks(checks: Mapping[str, Any], directory: Path) -> None:
    """Write checks beside a saved model, for a report that is made later."""
    write_atomically(directory / CHECKS_FILE, (json.dumps(checks, indent=2, allow_nan=False) + "\n").encode())


def read_checks(directory: Path, parts: Sequence[str], later: Sequence[str] = ()) -> dict[str, Any] | None:
    """Read the ``parts`` of the checks beside a saved model; None where there are none.

    Parts that came ``later`` are None in the files of earlier versions.
    """
    checks = read_beside(directory, CHECKS_FILE, most=_MOST)
    if checks is None:
        return None
    with damage_told(directory):
        return {name: checks[name] for name in parts} | {name: checks.get(name) for name in later}


def page_with_checks(
    directory: Path, parts: Sequence[str], later: Sequence[str], page: Callable[[dict[str, Any] | None], Page]
) -> Page:
    """Return the page that is made of the checks beside a saved model, or of None where there are none."""
    checks = read_checks(directory, parts, later)
    if checks is None:
        return page(None)
    with damage_told(directory):
        return page(checks)


def outcomes_to_judge_by(y: pd.Series | None) -> pd.Series:
    """Return the outcomes of a file's rows; raise where a regression cannot be judged by them."""
    if y is None:
        raise GPSError("a regression is judged by outcomes: name their column with --target")
    check_numbers(y.to_frame())
    return y


@contextmanager
def damage_told(directory: Path) -> Iterator[None]:
    """Turn whatever fails inside into an error that calls the checks beside a saved model damaged."""
    try:
        yield
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise GPSError(f"{directory / CHECKS_FILE} is damaged ({error}); delete it, or fit again") from error


def frame_as_json(frame: pd.DataFrame) -> dict[str, Any]:
    """Return a table as JSON holds it, with None where a number is missing."""
    values = for_json(frame).to_dict("split")["data"]
    return {"index": list(map(str, frame.index)), "values": values, "names": list(map(str, frame.columns))}


def frame_from_json(held: Mapping[str, Any]) -> pd.DataFrame:
    """Return the table that :func:`frame_as_json` wrote."""
    return pd.DataFrame(held["values"], index=held["index"], columns=held["names"])
