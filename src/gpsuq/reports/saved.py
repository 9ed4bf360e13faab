"""The report of a saved model, whatever it is: its family makes the page."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from gpsuq.errors import GPSError, MissingCodeError
from gpsuq.reports.checks import CHECKS_FILE
from gpsuq.reports.page import Page
from gpsuq.storage import CONFIG_FILE, KINDS, load, part_of

REPORT_FILE = "report.html"


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
    >>> from pathlib import Path
    >>> from gpsuq import GPSLinearRegression
    >>> from gpsuq.datasets import correlated
    >>> from gpsuq.reports.page import write_page
    >>> from gpsuq.reports.saved import saved_page
    >>> data = correlated(200, 1)
    >>> model = GPSLinearRegression(spread_weight=3.0, n_chains=2, n_steps=10).fit(data.X, data.y)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(model.save(Path(folder, "model")))
    ...     write_page(saved_page(path), path / "report.html").name
    'report.html'
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
    """Load a model; where that needs the user's code, say how its report is made."""
    try:
        return load(directory)
    except MissingCodeError as error:
        kind = json.loads((directory / CONFIG_FILE).read_text())["type"]
        page = part_of(kind, "report").IN_PYTHON
        raise MissingCodeError(
            f"{error}. Its report is made in Python: gpsuq.reports.page.write_page({KINDS[kind]}.report.{page}, "
            "'report.html')"
        ) from error
