"""The directory of a saved model: its files, how it takes the place of another, and how it is read meanwhile."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeVar
from uuid import uuid4

from gpsuq.engine.ranks import join, rank, wait_for_all
from gpsuq.errors import GPSError, MissingCodeError
from gpsuq.files import beside, exchange, is_temporary, locked

R = TypeVar("R")

CONFIG_FILE, MODEL_FILE, COLUMNS_FILE, CHECKS_FILE = "config.json", "model.safetensors", "columns.json", "checks.json"
_MODEL = (CONFIG_FILE, MODEL_FILE)
_FOR_PEOPLE = {
    *("report.html", CHECKS_FILE, COLUMNS_FILE),
    *("summary.csv", "rows.csv", "groups.csv", "coefficients.png", "regression.png"),
    *("intensity.csv", "intensity.png", "envelope.png"),
    "verdicts.csv",
}
"""What ``gpsuq fit`` writes beside a model."""

TRUNK_FILE, HEAD_FILE, VERDICT_FILE = "trunk.onnx", "head.onnx", "verdict.json"
_EXPORTED = {TRUNK_FILE, HEAD_FILE, VERDICT_FILE}

_TRIES, _MOMENT = 20, 0.01


def written_files(directory: Path) -> list[Path]:
    """Return the files of a saved model, the model itself first."""
    files = [path for path in directory.iterdir() if path.name in {*_MODEL, *_FOR_PEOPLE}]
    return sorted(files, key=lambda path: (path.name not in _MODEL, path.suffix == ".html", path.name))


@contextmanager
def replaced(path: Path, *, force: bool) -> Iterator[Path]:
    """Open a new directory to fill, which takes the place of ``path`` once all went well, and vanishes otherwise.

    Readers see the old directory or the new one. A second process that wants the place gets an error at once; what a
    killed one left beside it is deleted. Of several processes that train one model the first writes.
    """
    directory = path.resolve()  # of a link, what it points to is replaced, and the link stays
    refuse_existing(directory, force=force)
    join()
    wait_for_all()  # none looks when another has begun to write
    if rank() > 0:
        with TemporaryDirectory() as unused:
            yield Path(unused)
        wait_for_all()
        return
    directory.parent.mkdir(parents=True, exist_ok=True)
    with locked(directory), ExitStack() as cleaning:
        _put_back(directory)
        refuse_existing(directory, force=force)
        temporary = beside(directory, "new")
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir()
        cleaning.callback(shutil.rmtree, temporary, ignore_errors=True)  # what is there then: the old one, or nothing
        yield temporary
        try:
            refuse_existing(directory, force=force)  # to fill the new one may have taken hours
        except GPSError as error:
            kept = directory.with_name(f"{directory.name}.{uuid4().hex[:8]}")
            os.replace(temporary, kept)
            raise GPSError(f"{error}. It appeared meanwhile; what was to be written is kept as {kept}") from error
        if not (directory.exists() and exchange(temporary, directory)):
            _move(temporary, directory)
    wait_for_all()


def refuse_existing(directory: Path, *, force: bool) -> None:
    """Raise where a directory exists, or, with ``force``, where it holds anything that gpsuq did not write."""
    if not directory.exists():
        return
    if not force:
        raise GPSError(f"{directory} exists already; choose another directory, or pass --force (force=True)")
    found = {path.name for path in directory.iterdir()} if directory.is_dir() else {"a file"}
    if foreign := sorted(name for name in found - {*_MODEL, *_FOR_PEOPLE, *_EXPORTED} if not is_temporary(name)):
        raise GPSError(
            f"{directory} is not replaced: it holds {foreign[0]}, which is no part of a saved model; choose another "
            "directory"
        )


def _move(new: Path, directory: Path) -> None:
    """Put ``new`` in the place of ``directory`` by two renames; whatever goes wrong, one of the two is there after."""
    retired = beside(directory, "old")
    try:
        if directory.exists():
            os.replace(directory, retired)
        os.replace(new, directory)
    except BaseException as failure:
        try:
            _put_back(directory)
        except OSError as error:
            raise GPSError(
                f"{directory} could not be replaced ({failure}), and its old content could not be put back ({error}): "
                f"it is kept as {retired}"
            ) from failure
        raise
    shutil.rmtree(retired, ignore_errors=True)


def _put_back(directory: Path) -> None:
    """Return an old directory to its place where the new one never came; delete it where it did."""
    retired = beside(directory, "old")
    if directory.exists():
        shutil.rmtree(retired, ignore_errors=True)
    elif retired.exists():
        os.replace(retired, directory)


def read_again(directory: Path, read: Callable[[], R]) -> R:
    """Return what ``read`` makes of a directory, and try anew if it fails while the directory is being replaced."""
    for _ in range(_TRIES):
        before = _identity(directory)
        try:
            return read()
        except MissingCodeError:
            raise
        except GPSError:
            time.sleep(_MOMENT)
            if _identity(directory) == before:
                raise
    return read()


def _identity(directory: Path) -> tuple[int, ...] | None:
    """Return what no two directories that had a name in turn share; the number of a deleted one is used again."""
    try:
        found = directory.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_mtime_ns, found.st_ctime_ns
