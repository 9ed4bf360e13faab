"""Saved models: a directory of ``config.json`` (what it is, in words) and ``model.safetensors`` (its numbers).

Nothing in it is code: loading reads numbers into objects that gpsuq itself builds.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors
from sklearn.utils.validation import check_is_fitted

from gpsuq._version import __version__
from gpsuq.errors import GPSError
from gpsuq.io import linear, poisson

FORMAT = 1
_CONFIG, _MODEL = "config.json", "model.safetensors"
_KINDS: dict[str, Any] = {"GPSLinearRegression": linear, "GPSPoissonProcess": poisson}
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
LINEAR_FILES = (_CONFIG, _MODEL, "summary.csv", "rows.csv", "coefficients.png")
POISSON_FILES = (_CONFIG, _MODEL, "intensity.csv", "intensity.png", "envelope.png")
"""What the directories of saved models may hold; all but the first two are written for people by ``gpsuq fit``."""


def save(estimator: Any, path: str | Path, *, force: bool = False) -> Path:
    """Write a fitted estimator into the directory ``path``, whole or not at all; ``force`` replaces what is there."""
    kind = type(estimator).__name__
    if kind not in _KINDS:
        raise GPSError(f"save knows {' and '.join(_KINDS)}, got {kind}")
    check_is_fitted(estimator)
    directory = Path(path).absolute()
    refuse_existing(directory, force=force)
    directory.parent.mkdir(parents=True, exist_ok=True)
    described, tensors = _KINDS[kind].describe(estimator)
    config = {"format": FORMAT, "type": kind, "gpsuq": __version__, **described}
    temporary = Path(tempfile.mkdtemp(dir=directory.parent, prefix=f".{directory.name}."))
    try:
        (temporary / _CONFIG).write_text(json.dumps(config, indent=2, allow_nan=False, default=_plain) + "\n")
        (temporary / _MODEL).write_bytes(save_tensors(tensors))
        temporary.chmod(0o755)
        _swap(temporary, directory)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    return Path(path)


def refuse_existing(directory: Path, *, force: bool) -> None:
    """Raise where a directory exists, or, with ``force``, where it holds anything that gpsuq did not write."""
    if not directory.exists():
        return
    if not force:
        raise GPSError(f"{directory} exists already; choose another directory, or pass --force (force=True)")
    foreign = (
        []
        if not directory.is_dir()
        else sorted({path.name for path in directory.iterdir()} - {*LINEAR_FILES, *POISSON_FILES})
    )
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
    retired = Path(tempfile.mkdtemp(dir=directory.parent, prefix=f".{directory.name}.old."))
    os.replace(directory, retired / "old")
    try:
        os.replace(new, directory)
    except BaseException:
        os.replace(retired / "old", directory)
        raise
    finally:
        shutil.rmtree(retired, ignore_errors=True)


def _plain(value: Any) -> Any:
    """Give a NumPy number as JSON knows it."""
    if isinstance(value, np.generic):
        return value.item()
    raise GPSError(f"cannot save {value!r}: JSON has no such thing")


def load(path: str | Path) -> Any:
    """Read a saved estimator, of whatever type it was; it gives the same draws for the same seed."""
    directory = Path(path)
    if not (directory / _CONFIG).is_file():
        raise GPSError(f"{directory} holds no saved model: there is no {_CONFIG} in it")
    try:
        config = json.loads((directory / _CONFIG).read_text())
        version = config["format"]
    except (ValueError, KeyError, TypeError, OSError) as error:
        raise GPSError(f"{directory / _CONFIG} is damaged: {error}") from error
    if version != FORMAT:
        raise GPSError(f"{directory} has format {version}, this version of gpsuq ({__version__}) reads {FORMAT}")
    if not isinstance(config.get("type"), str) or config["type"] not in _KINDS:
        raise GPSError(f"{directory} holds a {config.get('type')}, which this version of gpsuq does not know")
    try:
        tensors = load_tensors((directory / _MODEL).read_bytes())
        return _KINDS[config["type"]].restore(config, tensors)
    except _DAMAGE as error:
        raise GPSError(f"the saved model in {directory} is damaged or incomplete: {error}") from error
