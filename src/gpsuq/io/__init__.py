"""Saved models: a directory of ``config.json`` (what it is, in words) and ``model.safetensors`` (its numbers).

Nothing in it is code: loading reads numbers into objects that gpsuq itself builds.
"""

from __future__ import annotations

import inspect
import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from gpsuq._version import __version__
from gpsuq.checkpoints import beside, write_atomically
from gpsuq.errors import GPSError, MissingCodeError
from gpsuq.io import classifier, linear, poisson, uq
from gpsuq.io.checks import check_tensors
from gpsuq.io.classifier import CLASSIFIERS

FORMAT = 1
CONFIG_FILE, _MODEL = "config.json", "model.safetensors"
_KINDS: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "GPSLinearRegression": (linear.describe, linear.restore),
    "GPSPoissonProcess": (poisson.describe, poisson.restore),
    "NoisyNetwork": (classifier.describe_network, classifier.restore_network),
    "UQDistribution": (uq.describe, uq.restore),
    **dict.fromkeys(CLASSIFIERS, (classifier.describe, classifier.restore)),
}
"""From the name of a type to what describes an object of it, and what builds it again."""

_DAMAGE = (
    SafetensorError,
    OSError,
    LookupError,
    TypeError,
    ValueError,
    ArithmeticError,
    RuntimeError,
    AttributeError,
    MemoryError,
)
LINEAR_FILES = (CONFIG_FILE, _MODEL, "summary.csv", "rows.csv", "coefficients.png", "checks.json", "report.html")
CLASSIFIER_FILES = (CONFIG_FILE, _MODEL, "verdicts.csv", "checks.json", "report.html")
GROUPS_FILE = "groups.csv"
OPTIONAL_FILES = ("columns.json", GROUPS_FILE)
POISSON_FILES = (CONFIG_FILE, _MODEL, "intensity.csv", "intensity.png", "envelope.png", "report.html")
"""What the directories of saved models may hold; all but the first two are written for people by ``gpsuq fit``."""


def save(estimator: Any, path: str | Path, *, force: bool = False) -> Path:
    """Write a fitted estimator, a UQ distribution or a network with a noise input into the directory ``path``.

    It is written whole or not at all; ``force`` replaces what is there.

    Examples
    --------
    >>> import tempfile, numpy as np, gpsuq
    >>> X = np.random.default_rng(0).normal(size=(200, 2))
    >>> model = gpsuq.GPSClassifier(recipe=gpsuq.Recipe(epochs=5)).fit(X, X[:, 0] > 0)
    >>> with tempfile.TemporaryDirectory() as directory:
    ...     again = gpsuq.load(gpsuq.save(model, f"{directory}/model"))
    >>> np.array_equal(again.sample_proba(X), model.sample_proba(X))
    True
    """
    kind = type(estimator).__name__
    if kind not in _KINDS:
        raise GPSError(f"save knows {', '.join(_KINDS)}; got {kind}")
    if isinstance(estimator, BaseEstimator):
        check_is_fitted(estimator)
    with replaced(Path(path), force=force) as directory:
        write_model(estimator, directory)
    return Path(path)


def write_model(estimator: Any, directory: Path) -> None:
    """Write what a model is, and its numbers, into a directory that is there."""
    kind = type(estimator).__name__
    describe, _ = _KINDS[kind]
    described, tensors = describe(estimator)
    config = {"format": FORMAT, "type": kind, "gpsuq": __version__, **described}
    written = json.dumps(config, indent=2, allow_nan=False, default=_plain) + "\n"
    write_atomically(directory / CONFIG_FILE, written.encode())
    write_atomically(directory / _MODEL, save_tensors(tensors))


@contextmanager
def replaced(path: Path, *, force: bool) -> Iterator[Path]:
    """Give a new directory to fill, which takes the place of ``path`` once all went well, and vanishes otherwise."""
    directory = path.resolve()  # of a link, what it points to is replaced, and the link stays
    refuse_existing(directory, force=force)
    directory.parent.mkdir(parents=True, exist_ok=True)
    temporary = beside(directory)
    temporary.mkdir()
    with _deleted_on_failure(temporary):
        yield temporary
    _refuse_newcomer(directory, temporary, force=force)
    with _deleted_on_failure(temporary):
        _swap(temporary, directory)


@contextmanager
def _deleted_on_failure(directory: Path) -> Iterator[None]:
    """Delete a directory where what is done with it fails."""
    try:
        yield
    except BaseException:
        shutil.rmtree(directory, ignore_errors=True)
        raise


def _refuse_newcomer(directory: Path, temporary: Path, *, force: bool) -> None:
    """Raise where something came into a place while what shall take it was made, which may have taken hours."""
    try:
        refuse_existing(directory, force=force)
    except GPSError as error:
        raise GPSError(f"{error}. It came there meanwhile; what was to be written is kept as {temporary}") from error


def refuse_existing(directory: Path, *, force: bool) -> None:
    """Raise where a directory exists, or, with ``force``, where it holds anything that gpsuq did not write."""
    if not directory.exists():
        return
    if not force:
        raise GPSError(f"{directory} exists already; choose another directory, or pass --force (force=True)")
    known = {*LINEAR_FILES, *POISSON_FILES, *CLASSIFIER_FILES, *OPTIONAL_FILES}
    foreign = sorted({path.name for path in directory.iterdir()} - known) if directory.is_dir() else []
    if foreign or not directory.is_dir():
        raise GPSError(
            f"{directory} is not replaced: it holds {foreign[0] if foreign else 'a file'}, which is no part of a saved "
            "model; choose another directory"
        )


def _swap(new: Path, directory: Path) -> None:
    """Put ``new`` in the place of ``directory``; whatever goes wrong, one of the two is there afterwards."""
    if not directory.exists():
        os.replace(new, directory)
        return
    retired = beside(directory)
    try:
        os.replace(directory, retired)
        os.replace(new, directory)
    except BaseException as error:
        if not directory.exists():
            _put_back(retired, directory, error)
        raise
    shutil.rmtree(retired, ignore_errors=True)


def _put_back(retired: Path, directory: Path, failure: BaseException) -> None:
    """Give a directory its name back, or say where it is."""
    try:
        os.replace(retired, directory)
    except OSError as error:
        raise GPSError(
            f"{directory} could not be replaced ({failure}), nor what was there be put back ({error}): it is kept as "
            f"{retired}"
        ) from failure


def _plain(value: Any) -> Any:
    """Give a NumPy number as JSON knows it."""
    if isinstance(value, np.generic):
        return value.item()
    raise GPSError(f"cannot save {value!r}: JSON has no such thing")


def load(path: str | Path, **code: Any) -> Any:
    """Read what was saved, of whatever type it was; it gives the same draws for the same seed.

    A saved model holds no code. What was yours has to be passed again: ``network=`` (the module, or a function that
    makes it) for a classifier or :func:`~gpsuq.noisify` network, ``model=`` (and ``generator=``, where it was not
    an ``MLP``) for a UQ distribution.

    Examples
    --------
    >>> import tempfile, torch, gpsuq
    >>> from torch import nn
    >>> network = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
    >>> noisy = gpsuq.noisify(network, "2")
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = gpsuq.save(noisy, f"{folder}/noisy")
    ...     again = gpsuq.load(path, network=network)
    >>> bool(torch.equal(again.state_dict()["module.2.noise_weight"], noisy.state_dict()["module.2.noise_weight"]))
    True
    """
    unknown = set(code) - {"network", "model", "generator"}
    if unknown:
        raise GPSError(f"load takes network=, model= and generator=, not {unknown.pop()}=")
    directory = Path(path)
    if not (directory / CONFIG_FILE).is_file():
        raise GPSError(f"{directory} holds no saved model: there is no {CONFIG_FILE} in it")
    try:
        config = json.loads((directory / CONFIG_FILE).read_text())
        version = config["format"]
    except (ValueError, KeyError, TypeError, OSError) as error:
        raise GPSError(f"{directory / CONFIG_FILE} is damaged: {error}") from error
    if version != FORMAT:
        raise GPSError(
            f"{directory} has format {version}, and this version of gpsuq ({__version__}) reads {FORMAT}: "
            f"{_advice(config)}"
        )
    if not isinstance(config.get("type"), str) or config["type"] not in _KINDS:
        raise GPSError(
            f"{directory} holds a {config.get('type')}, which this version of gpsuq ({__version__}) does not know: "
            f"{_advice(config)}"
        )
    try:
        tensors = load_tensors((directory / _MODEL).read_bytes())
        check_tensors(tensors, own=bool(code))
        _, restore = _KINDS[config["type"]]
        wanted = inspect.signature(restore).parameters
        model = restore(config, tensors, **{name: value for name, value in code.items() if name in wanted})
    except MissingCodeError:
        raise
    except _DAMAGE as error:
        raise GPSError(f"the saved model in {directory} is damaged or incomplete: {error}") from error
    if hasattr(model, "progress"):
        model.progress = False  # who fitted it was watching, who loads it may not be
    return model


def _advice(config: dict[str, Any]) -> str:
    """Say what to do with a model of another version."""
    writer = config.get("gpsuq")
    wanted = f"gpsuq {writer}, which wrote it" if isinstance(writer, str) else "the gpsuq that wrote it"
    return f"install {wanted}, or fit again with this one"
