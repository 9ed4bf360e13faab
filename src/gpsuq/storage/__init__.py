"""Saved models: a directory of ``config.json`` (what it is, in words) and ``model.safetensors`` (its numbers).

Nothing in it is code: loading reads numbers into objects that gpsuq itself builds. Each of the two files has a digest
of the other, so that a model that was changed, or put together from two, is refused.
"""

from __future__ import annotations

import importlib
import inspect
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
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
from gpsuq.files import (
    MOST_TEXT,
    digest,
    parsed,
    read_bytes,
    regular_file,
    shapes_in,
    tensors_as_bytes,
    tensors_from_bytes,
    write_atomically,
)
from gpsuq.storage.directories import CHECKS_FILE, COLUMNS_FILE, CONFIG_FILE, MODEL_FILE, read_again, replaced

FORMAT = 1
SECONDS = "seconds"
"""The entry of a config for how long a fit took: the file of numbers is the same without it, as equal fits are."""

KINDS = {
    "GPSLinearRegression": "gpsuq.linear",
    "GPSPoissonProcess": "gpsuq.poisson",
    "GPSRegressor": "gpsuq.regress",
    "GPSClassifier": "gpsuq.classify",
    "PlainClassifier": "gpsuq.classify",
    "DropoutClassifier": "gpsuq.classify",
    "EnsembleClassifier": "gpsuq.classify",
    "NoisyNetwork": "gpsuq.classify",
    "UQDistribution": "gpsuq.uq",
}
"""From the name of a type to the folder whose ``storage`` describes and restores it, and whose ``report`` shows it."""

_DIGESTS = "digests"  # in the config: what its other files are known by
_COVERED = (CONFIG_FILE, MODEL_FILE, COLUMNS_FILE, CHECKS_FILE)
_DAMAGE = (OSError, LookupError, TypeError, ValueError, ArithmeticError, RuntimeError, AttributeError, MemoryError)
_MAY_BE_MISSING = ("history/", "covariate/")
"""Begin the names of tensors that may hold NaN: scores of a training, and covariates outside the window."""


def check_tensors(tensors: Mapping[str, Tensor], *, own: bool) -> None:
    """Raise where a number is missing or infinite; networks of the user's ``own`` may hold infinities, as masks do."""
    for name, tensor in tensors.items():
        bad = tensor.isnan() if own else ~torch.isfinite(tensor)
        if bad.any() and not name.startswith(_MAY_BE_MISSING):
            raise ValueError(f"{name} holds numbers that are not finite")


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
    try:
        with replaced(Path(path), force=force) as directory:
            write_model(estimator, directory)
    except OSError as error:
        raise GPSError(f"{path} could not be written ({error}); what was there before is as it was") from error
    return Path(path)


def part_of(kind: str, part: str) -> ModuleType:
    """Return the module ``part`` (storage, report, commands) of the folder that a type of object belongs to."""
    return importlib.import_module(f"{KINDS[kind]}.{part}")


def write_model(estimator: Any, directory: Path) -> None:
    """Write what a model is, and its numbers, into a directory that is there.

    Files of columns and checks that are read with it are part of it if they are there already.
    """
    kind = type(estimator).__name__
    described, tensors = part_of(kind, "storage").describe(estimator)
    write_described({"format": FORMAT, "type": kind, "gpsuq": __version__, **described}, tensors, directory)


def write_described(config: dict[str, Any], tensors: dict[str, Tensor], directory: Path) -> None:
    """Write words and numbers, each with a digest of the other."""
    plain = parsed(_as_json(config))
    numbers = tensors_as_bytes(tensors, {"config": digest(_said(plain, SECONDS))})
    digests = {CONFIG_FILE: digest(_said(plain)), MODEL_FILE: digest(numbers)}
    for name in (COLUMNS_FILE, CHECKS_FILE):
        if (directory / name).is_file():
            digests[name] = digest(read_bytes(directory / name))
    words = _as_json(config | {_DIGESTS: digests})
    if len(words) > MOST_TEXT:
        raise GPSError(f"the description of this model has {len(words):,} bytes, and at most {MOST_TEXT:,} are read")
    write_atomically(directory / MODEL_FILE, numbers)
    write_atomically(directory / CONFIG_FILE, words)


def _as_json(config: Mapping[str, Any]) -> bytes:
    return (json.dumps(config, indent=2, allow_nan=False, default=_plain) + "\n").encode()


def _said(config: Mapping[str, Any], *apart: str) -> bytes:
    """Return what a config says apart from digests and some entries, in one order."""
    said = {name: value for name, value in config.items() if name not in (_DIGESTS, *apart)}
    return json.dumps(said, sort_keys=True).encode()


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
    model = read_again(directory, lambda: _loaded(directory, code))
    if hasattr(model, "progress"):
        model.progress = False  # whoever loads it may not want a bar
    return model


def read_config(directory: Path) -> dict[str, Any]:
    """Return the config of a saved model that this version can read."""
    try:
        content = read_bytes(directory / CONFIG_FILE, most=MOST_TEXT)
        config = parsed(content)
        version, kind, writer = config["format"], config.get("type"), config.get("gpsuq")
        if version == FORMAT and not {*config.get(_DIGESTS, ())} <= {*_COVERED}:
            raise ValueError("it names other files than a model has")
        if version == FORMAT and _DIGESTS in config and content != _as_json(config):
            raise ValueError("it was changed since the model was saved")
        _check_digest(config, CONFIG_FILE, _said(config))
    except FileNotFoundError as error:
        raise GPSError(f"{directory} holds no saved model: there is no {CONFIG_FILE} in it") from error
    except (ValueError, KeyError, TypeError, AttributeError, OSError) as error:
        raise GPSError(f"{directory / CONFIG_FILE} is damaged: {error}") from error
    if version != FORMAT or not isinstance(kind, str) or kind not in KINDS:
        reader = f"this version of gpsuq ({__version__})"
        problem = f"holds a {kind}, which {reader} does not know"
        if version != FORMAT:
            problem = f"has format {version}, and {reader} reads {FORMAT}"
        other = f"gpsuq {writer}, which wrote it" if isinstance(writer, str) else "the gpsuq that wrote it"
        raise GPSError(f"{directory} {problem}: install {other}, or fit again with this one")
    return dict(config)


def _loaded(directory: Path, code: Mapping[str, Any]) -> Any:
    """Read a model once; whatever was changed since it was written is refused before anything large is made."""
    config = read_config(directory)
    family = part_of(config["type"], "storage")  # a missing extra is no damage
    try:
        with regular_file(directory / MODEL_FILE) as file:
            shapes, words = shapes_in(file)
            known = words.get("config")
            if (known is not None or _DIGESTS in config) and known != digest(_said(config, SECONDS)):  # 0.1 wrote none
                raise ValueError(f"{CONFIG_FILE} and {MODEL_FILE} do not belong together, or {CONFIG_FILE} was changed")
            family.check(config, shapes)
            file.seek(0)
            content = file.read()
        _check_digest(config, MODEL_FILE, content)
        tensors = tensors_from_bytes(content)
        check_tensors(tensors, own=bool(code))
        wanted = inspect.signature(family.restore).parameters
        return family.restore(config, tensors, **{name: value for name, value in code.items() if name in wanted})
    except MissingCodeError:
        raise
    except _DAMAGE as error:
        raise GPSError(f"the saved model in {directory} is damaged or incomplete: {error}") from error


def _check_digest(config: Mapping[str, Any], name: str, content: bytes) -> None:
    """Raise where a file is not what it was when its model was written."""
    if config.get(_DIGESTS, {}).get(name, digest(content)) != digest(content):
        raise ValueError(f"{name} was changed since the model was saved")


def read_beside(directory: Path, name: str, *, most: int = MOST_TEXT) -> Any:
    """Return the JSON that was written beside a saved model, unchanged since; None where there is no such file."""
    path = directory / name
    if not path.exists():
        return None
    try:
        content = read_bytes(path, most=most)
        if (directory / CONFIG_FILE).exists():
            _check_digest(read_config(directory), name, content)
        return parsed(content)
    except (ValueError, TypeError, AttributeError, OSError) as error:
        raise GPSError(f"{path} is damaged ({error}); delete it, or fit again") from error
