"""Saved models: a directory of ``config.json`` (what it is, in words) and ``model.safetensors`` (its numbers).

Nothing in it is code: loading reads numbers into objects that gpsuq itself builds.
"""

from __future__ import annotations

import importlib
import inspect
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from gpsuq._version import __version__
from gpsuq.errors import GPSError, MissingCodeError
from gpsuq.files import beside, tensors_as_bytes, tensors_from_bytes, write_atomically

FORMAT = 1
CONFIG_FILE, _MODEL = "config.json", "model.safetensors"
KINDS = {
    "GPSLinearRegression": "gpsuq.linear",
    "GPSPoissonProcess": "gpsuq.poisson",
    "GPSClassifier": "gpsuq.classify",
    "PlainClassifier": "gpsuq.classify",
    "DropoutClassifier": "gpsuq.classify",
    "EnsembleClassifier": "gpsuq.classify",
    "NoisyNetwork": "gpsuq.classify",
    "UQDistribution": "gpsuq.uq",
}
"""From the name of a type to the folder whose ``storage`` describes and restores it, and whose ``report`` shows it."""

_DAMAGE = (OSError, LookupError, TypeError, ValueError, ArithmeticError, RuntimeError, AttributeError, MemoryError)
_FOR_PEOPLE = {
    *("report.html", "checks.json", "columns.json"),
    *("summary.csv", "rows.csv", "groups.csv", "coefficients.png"),
    *("intensity.csv", "intensity.png", "envelope.png"),
    "verdicts.csv",
}
"""What ``gpsuq fit`` writes beside a model."""

_MAY_BE_MISSING = ("history/", "covariate/")
"""Begin the names of tensors that may hold NaN: scores of a training, and covariates outside the window."""


def check_tensors(tensors: Mapping[str, Tensor], *, own: bool) -> None:
    """Raise where a number is missing or infinite; networks of the user's ``own`` may hold infinities, as masks do."""
    for name, tensor in tensors.items():
        bad = tensor.isnan() if own else ~torch.isfinite(tensor)
        if bad.any() and not name.startswith(_MAY_BE_MISSING):
            raise ValueError(f"{name} holds numbers that are not finite")


def feature_names(config: Mapping[str, Any], n_features: int | None) -> list[str] | None:
    """Return the names of the columns that were fitted, if they had any: one text for each."""
    names = config["feature_names"]
    if names is None:
        return None
    if not isinstance(names, list) or len(names) != n_features or not all(isinstance(name, str) for name in names):
        raise ValueError(f"feature_names must hold {n_features} names, got {names!r}")
    return names


@contextmanager
def your_code(what: str, saved: str | None = None) -> Iterator[None]:
    """Blame whatever fails inside on the user's network or generator, ``what``, and describe what was ``saved``."""
    try:
        yield
    except MissingCodeError:
        raise
    except Exception as error:
        was = "" if saved is None else f"; the saved one was:\n{saved}"
        raise MissingCodeError(f"the {what} that was passed does not fit the saved model ({error}){was}") from error


def save(estimator: Any, path: str | Path, *, force: bool = False) -> Path:
    """Write a fitted estimator, a UQ distribution or a network with a noise input into the directory ``path``.

    It is written whole or not at all; ``force`` replaces what is there.

    >>> import tempfile, gpsuq
    >>> from torch import nn
    >>> noisy = gpsuq.noisify(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3)), "2")
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     sorted(file.name for file in gpsuq.save(noisy, f"{folder}/noisy").iterdir())
    ['config.json', 'model.safetensors']
    """
    kind = type(estimator).__name__
    if kind not in KINDS:
        raise GPSError(f"save knows {', '.join(KINDS)}; got {kind}")
    if isinstance(estimator, BaseEstimator):
        check_is_fitted(estimator)
    with replaced(Path(path), force=force) as directory:
        write_model(estimator, directory)
    return Path(path)


def part_of(kind: str, part: str) -> ModuleType:
    """Return the module ``part`` (storage, report, commands) of the folder that a type of object belongs to."""
    return importlib.import_module(f"{KINDS[kind]}.{part}")


def written_files(directory: Path) -> list[Path]:
    """Return the files of a saved model, the model itself first."""
    order = (CONFIG_FILE, _MODEL)
    files = [path for path in directory.iterdir() if path.name in {*order, *_FOR_PEOPLE}]
    return sorted(files, key=lambda path: (path.name not in order, path.suffix == ".html", path.name))


def write_model(estimator: Any, directory: Path) -> None:
    """Write what a model is, and its numbers, into a directory that is there."""
    kind = type(estimator).__name__
    described, tensors = part_of(kind, "storage").describe(estimator)
    config = {"format": FORMAT, "type": kind, "gpsuq": __version__, **described}
    written = json.dumps(config, indent=2, allow_nan=False, default=_plain) + "\n"
    write_atomically(directory / CONFIG_FILE, written.encode())
    write_atomically(directory / _MODEL, tensors_as_bytes(tensors))


@contextmanager
def replaced(path: Path, *, force: bool) -> Iterator[Path]:
    """Open a new directory to fill, which takes the place of ``path`` once all went well, and vanishes otherwise."""
    directory = path.resolve()  # of a link, what it points to is replaced, and the link stays
    refuse_existing(directory, force=force)
    directory.parent.mkdir(parents=True, exist_ok=True)
    temporary = beside(directory)
    temporary.mkdir()
    with ExitStack() as cleaning:
        cleaning.callback(shutil.rmtree, temporary, ignore_errors=True)  # nothing is left of it once it was moved
        yield temporary
        try:
            refuse_existing(directory, force=force)  # to fill the new one may have taken hours
        except GPSError as error:
            cleaning.pop_all()
            raise GPSError(f"{error}. It appeared meanwhile; what was to be written is kept as {temporary}") from error
        _swap(temporary, directory)


def refuse_existing(directory: Path, *, force: bool) -> None:
    """Raise where a directory exists, or, with ``force``, where it holds anything that gpsuq did not write."""
    if not directory.exists():
        return
    if not force:
        raise GPSError(f"{directory} exists already; choose another directory, or pass --force (force=True)")
    found = {path.name for path in directory.iterdir()} if directory.is_dir() else {"a file"}
    if foreign := sorted(found - {CONFIG_FILE, _MODEL, *_FOR_PEOPLE}):
        raise GPSError(
            f"{directory} is not replaced: it holds {foreign[0]}, which is no part of a saved model; choose another "
            "directory"
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
    except BaseException as failure:
        if not directory.exists():
            try:
                os.replace(retired, directory)
            except OSError as error:
                raise GPSError(
                    f"{directory} could not be replaced ({failure}), and its old content could not be put back "
                    f"({error}): it is kept as {retired}"
                ) from failure
        raise
    shutil.rmtree(retired, ignore_errors=True)


def _plain(value: Any) -> Any:
    """Return a NumPy number as JSON knows it."""
    if isinstance(value, np.generic):
        return value.item()
    raise GPSError(f"cannot save {value!r}: JSON has no such thing")


def load(path: str | Path, **code: Any) -> Any:
    """Read what was saved, of whatever type it was; it gives the same draws for the same seed.

    A saved model holds no code. What was yours has to be passed again: ``network=`` (the module, or a function that
    makes it) for a classifier or :func:`~gpsuq.noisify` network, ``model=`` (and ``generator=``, where it was not
    an ``MLP``) for a UQ distribution.

    >>> import tempfile, torch, gpsuq
    >>> from torch import nn
    >>> network = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
    >>> noisy = gpsuq.noisify(network, "2")
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     again = gpsuq.load(gpsuq.save(noisy, f"{folder}/noisy"), network=network)
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
    kind, writer = config.get("type"), config.get("gpsuq")
    if version != FORMAT or not isinstance(kind, str) or kind not in KINDS:
        reader = f"this version of gpsuq ({__version__})"
        problem = f"holds a {kind}, which {reader} does not know"
        if version != FORMAT:
            problem = f"has format {version}, and {reader} reads {FORMAT}"
        other = f"gpsuq {writer}, which wrote it" if isinstance(writer, str) else "the gpsuq that wrote it"
        raise GPSError(f"{directory} {problem}: install {other}, or fit again with this one")
    restore = part_of(kind, "storage").restore  # a missing extra is no damage
    try:
        tensors = tensors_from_bytes((directory / _MODEL).read_bytes())
        check_tensors(tensors, own=bool(code))
        wanted = inspect.signature(restore).parameters
        model = restore(config, tensors, **{name: value for name, value in code.items() if name in wanted})
    except MissingCodeError:
        raise
    except _DAMAGE as error:
        raise GPSError(f"the saved model in {directory} is damaged or incomplete: {error}") from error
    if hasattr(model, "progress"):
        model.progress = False  # whoever loads it may not want a bar
    return model
