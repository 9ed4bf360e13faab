"""The report of whatever a directory holds: a saved model, or what an experiment left."""

from __future__ import annotations

import json
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from gpsuq.errors import GPSError, MissingCodeError
from gpsuq.estimators.linear import GPSLinearRegression
from gpsuq.estimators.network import NetworkClassifier
from gpsuq.estimators.poisson import GPSPoissonProcess
from gpsuq.io import CONFIG_FILE, load
from gpsuq.io.classifier import CLASSIFIERS
from gpsuq.reports.checks import CHECKS_FILE, damage_told, read_checks
from gpsuq.reports.classifier import CLASSIFIER_PARTS, checked_classifier_page
from gpsuq.reports.experiment import experiment_page
from gpsuq.reports.linear import LINEAR_PARTS, checked_linear_page
from gpsuq.reports.page import Page
from gpsuq.reports.poisson import poisson_page

REPORT_FILE, ROWS_FILE = "report.html", "rows.jsonl"
_IN_PYTHON = {
    "UQDistribution": "uq_page(gpsuq.load(path, model=...), X, y)",
    **dict.fromkeys(CLASSIFIERS, "classifier_page(gpsuq.load(path, network=...), X, y)"),
}
"""From the name of a type that may hold the user's code to how its report is made."""


def can_be_made_again(directory: Path) -> bool:
    """Whether :func:`saved_page` shows all that the page in a directory shows.

    That of an experiment with networks, or one made of data from Python, has what the directory does not hold.
    """
    if not (directory / CONFIG_FILE).is_file():
        return not (directory / ROWS_FILE).exists()
    return (directory / CHECKS_FILE).is_file() or isinstance(_loaded(directory), GPSPoissonProcess)


def saved_page(directory: str | Path, *, progress: bool = False) -> Page:
    """Give the report of a directory that ``gpsuq fit`` or ``gpsuq experiment`` wrote, with a bar if it simulates.

    >>> import tempfile
    >>> from pathlib import Path
    >>> from gpsuq import GPSLinearRegression
    >>> from gpsuq.datasets import correlated
    >>> from gpsuq.reports import saved_page, write_page
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
    if not (directory / CONFIG_FILE).is_file():
        return experiment_page(directory)
    model = _loaded(directory)
    if isinstance(model, GPSLinearRegression):
        checks = read_checks(directory, LINEAR_PARTS)
        with damage_told(directory) if checks is not None else nullcontext():
            return checked_linear_page(model, checks)
    if isinstance(model, GPSPoissonProcess):
        return poisson_page(model.set_params(progress=progress))
    checks = read_checks(directory, CLASSIFIER_PARTS) if isinstance(model, NetworkClassifier) else None
    if checks is not None:
        with damage_told(directory):
            return checked_classifier_page(model, checks)
    raise GPSError(
        f"{directory} holds a {type(model).__name__}: its report needs observations to judge; name a table with --data "
        "FILE and a page with --out FILE.html, or in Python, "
        "gpsuq.reports.write_page(gpsuq.reports.classifier_page(model, X, y), path)"
    )


def _loaded(directory: Path) -> Any:
    """Load a model; where that needs the user's code, say how its report is made."""
    try:
        return load(directory)
    except MissingCodeError as error:
        page = _IN_PYTHON.get(json.loads((directory / CONFIG_FILE).read_text())["type"])
        if page is None:
            raise
        raise MissingCodeError(
            f"{error}. Its report is made in Python: gpsuq.reports.write_page(gpsuq.reports.{page}, 'report.html')"
        ) from error
