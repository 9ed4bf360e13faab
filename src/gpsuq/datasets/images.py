"""Labelled images: scikit-learn's digits, and MNIST, notMNIST and CIFAR-10 from their official files, never pickles."""

from __future__ import annotations

import gzip
import math
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from gpsuq.datasets.download import find
from gpsuq.errors import GPSError
from gpsuq.files import regular_file

Split = Literal["train", "test"]

CIFAR10_CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
_CIFAR_IMAGES = 10_000  # in a file
_CIFAR_RECORD = 1 + 3 * 32 * 32
_MOST_BYTES = 1 << 30
_AGAIN = "fetch it again with `gpsuq data get {} --force`"
_DIGITS_TEST_SHARE = 4  # every fourth digit


@dataclass(frozen=True)
class Images:
    """n images (n, channel, row, column) of bytes, their labels (n,) from 0, and the names of the classes.

    >>> import numpy as np
    >>> from gpsuq.datasets import Images
    >>> images = Images(np.zeros((3, 1, 8, 8), np.uint8), np.array([0, 1, 2]), ("cat", "dog", "owl"))
    >>> images.without(1).labels, images.without(1).classes
    (array([0, 1]), ('cat', 'owl'))
    """

    bytes: NDArray[np.uint8]
    labels: NDArray[np.int64]
    classes: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.labels)

    def pixels(self) -> NDArray[np.float32]:
        """Return the images as numbers from 0 to 1."""
        return self.bytes.astype(np.float32) / np.float32(255.0)

    def rows(self, index: Any) -> Images:
        """Return some of the images."""
        return Images(self.bytes[index], self.labels[index], self.classes)

    def without(self, label: int) -> Images:
        """Leave out a class; the labels of the others close up."""
        kept = self.rows(self.labels != label)
        names = tuple(name for number, name in enumerate(self.classes) if number != label)
        return Images(kept.bytes, kept.labels - (kept.labels > label), names)


def load_images(name: str, split: Split = "train") -> Images:
    """Read ``"digits"``, which come with scikit-learn, or ``"mnist"``, ``"notmnist"`` (test only) or ``"cifar10"``.

    >>> from gpsuq.datasets import load_images
    >>> load_images("digits", "test").bytes.shape
    (450, 1, 8, 8)
    """
    if split not in ("train", "test"):
        raise GPSError(f'split must be "train" or "test", got {split!r}')
    if name == "digits":
        from sklearn.datasets import load_digits  # slow to import

        data = load_digits()
        chosen = (np.arange(len(data.target)) % _DIGITS_TEST_SHARE == 0) == (split == "test")
        digits = np.rint(data.images[chosen, None] * (255.0 / 16.0)).astype(np.uint8)
        return Images(digits, data.target[chosen].astype(np.int64), tuple("0123456789"))
    if name == "notmnist" and split == "train":
        raise GPSError('notmnist is there to be judged, not to train on: pass "test"')
    if name in ("mnist", "notmnist"):
        prefix = "train" if split == "train" else "t10k"
        source = find(name, f"{prefix}-images-idx3-ubyte")
        images, labels = read_idx(source, 3), read_idx(find(name, f"{prefix}-labels-idx1-ubyte"), 1)
        _check(images, labels, source)
        return Images(
            images[:, None], labels.astype(np.int64), tuple("0123456789" if name == "mnist" else "ABCDEFGHIJ")
        )
    if name == "cifar10":
        files = [f"data_batch_{number}.bin" for number in range(1, 6)] if split == "train" else ["test_batch.bin"]
        paths = [find(name, file) for file in files]
        pictures, of_pictures = zip(*(_read_cifar(path) for path in paths), strict=True)
        return Images(np.concatenate(pictures), np.concatenate(of_pictures), CIFAR10_CLASSES)
    raise GPSError(f'there are images called "digits", "mnist", "notmnist" and "cifar10", not {name!r}')


def read_idx(path: str | Path, dimensions: int) -> NDArray[np.uint8]:
    """Read a file of bytes in the IDX format, compressed or not.

    >>> import tempfile
    >>> from pathlib import Path
    >>> from gpsuq.datasets.images import read_idx
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "labels-idx1-ubyte")
    ...     _ = path.write_bytes(bytes([0, 0, 8, 1, 0, 0, 0, 3, 7, 2, 1]))  # bytes in one dimension, three of them
    ...     read_idx(path, 1)
    array([7, 2, 1], dtype=uint8)
    """
    path, content = Path(path), _content(Path(path), "mnist")
    start = 4 + 4 * dimensions
    if len(content) < start or content[:4] != bytes([0, 0, 8, dimensions]):
        raise GPSError(f"{path} is not an IDX file of bytes in {dimensions} dimensions")
    shape = tuple(int(size) for size in np.frombuffer(content[4:start], ">u4"))
    if len(content) - start != math.prod(shape):
        raise GPSError(
            f"{path} says that it holds {shape} bytes, and holds {len(content) - start}; {_AGAIN.format('mnist')}"
        )
    return np.frombuffer(content, np.uint8, offset=start).reshape(shape).copy()


def _content(path: Path, name: str) -> bytes:
    """Read a file of a data set, compressed or not."""
    try:
        with regular_file(path) as file:
            content: bytes = (gzip.GzipFile(fileobj=file) if path.suffix == ".gz" else file).read(_MOST_BYTES + 1)
        if len(content) > _MOST_BYTES:  # a few bytes can unpack to any number of them
            raise OSError(f"it holds more than {_MOST_BYTES:,} bytes")
        return content
    except (OSError, EOFError, zlib.error, GPSError) as error:
        raise GPSError(f"{path} is damaged ({error}); {_AGAIN.format(name)}") from error


def _read_cifar(path: Path) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Read images and labels from records of a label byte and 3,072 bytes of an image, plane by plane."""
    content = np.frombuffer(_content(path, "cifar10"), np.uint8)
    expected = _CIFAR_IMAGES * _CIFAR_RECORD
    if len(content) != expected:
        raise GPSError(
            f"{path} has {len(content):,} bytes, the official file has {expected:,}; {_AGAIN.format('cifar10')}"
        )
    records = content.reshape(-1, _CIFAR_RECORD)
    images, labels = records[:, 1:].reshape(-1, 3, 32, 32), records[:, 0]
    _check(images, labels, path)
    return images, labels.astype(np.int64)


def _check(images: NDArray[np.uint8], labels: NDArray[np.uint8], source: Path) -> None:
    """Raise where there are not as many labels as images, or labels above 9: all these data sets have ten classes."""
    if len(images) != len(labels):
        raise GPSError(f"{source} holds {len(images)} images but {len(labels)} labels")
    if len(labels) and labels.max() > 9:
        raise GPSError(f"{source}: label {labels.max()} of image {labels.argmax()} is above 9; the file is damaged")
