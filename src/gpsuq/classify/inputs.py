"""What users pass to network classifiers: labels of any kind, loaders, columns that float32 cannot hold, tables."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from sklearn.model_selection import train_test_split
from sklearn.utils import _safe_indexing, column_or_1d
from torch import Tensor, nn

from gpsuq.core.arrays import check_finite_rows, lost_digits
from gpsuq.core.seeds import unmoved
from gpsuq.errors import GPSError, listed, warn
from gpsuq.tables.reading import quoted

_PART = 1000  # observations that are checked at once


def warn_of_lost_digits(X: Any, names: NDArray[Any] | None) -> None:
    """Warn of columns of a table that say nothing any more once they are float32, as networks take them."""
    lost = lost_digits(X) if X.ndim == 2 else []
    if lost:
        shown = listed((f"x{column}" if names is None else names[column] for column in lost), most=5)
        warn(
            f"X varies little around a large value in {shown}, and float32 keeps only seven digits: subtract a "
            "constant from each of these columns, here and in predictions"
        )


def takes_integers(network: nn.Module | Callable[[], nn.Module] | None, few: Tensor) -> bool:
    """Whether a network takes integers and no floating-point numbers, as one that begins with an embedding does.

    >>> import torch
    >>> from torch import nn
    >>> tokens = torch.tensor([[1, 2, 0]])
    >>> takes_integers(nn.Embedding(3, 8), tokens), takes_integers(nn.Linear(3, 8), tokens)
    (True, False)
    """
    if network is None or few.is_floating_point() or few.dtype == torch.bool:
        return False
    with unmoved(), torch.no_grad():
        trial = copy.deepcopy(network) if isinstance(network, nn.Module) else network()
        for dtype in (torch.get_default_dtype(), torch.int64):
            try:
                trial.eval()(few.to(dtype))
            except (RuntimeError, TypeError, ValueError, IndexError, GPSError):
                continue  # what is wrong with both is said where the network is tried
            return dtype == torch.int64
    return False


class Mapped:
    """Inputs in a file (``numpy.memmap``), all or the given ones; those of some rows are a tensor when asked for.

    >>> import tempfile, numpy as np
    >>> from gpsuq.classify.inputs import Mapped
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.save(f"{folder}/images.npy", np.zeros((100, 1, 8, 8), dtype=np.uint8))
    ...     images = Mapped(np.load(f"{folder}/images.npy", mmap_mode="r"), rows=np.arange(0, 100, 2))
    >>> len(images), images.shape, images[:5].shape, images[:5].dtype
    (50, (50, 1, 8, 8), torch.Size([5, 1, 8, 8]), torch.float32)
    """

    def __init__(
        self, array: NDArray[Any], dtype: type[np.generic] = np.float32, rows: NDArray[np.intp] | None = None
    ) -> None:
        self.array, self.dtype, self.rows = array, dtype, rows
        self.shape = (len(array) if rows is None else len(rows), *array.shape[1:])
        self.ndim = array.ndim

    def __len__(self) -> int:
        return int(self.shape[0])

    def __getitem__(self, rows: slice | Tensor) -> Tensor:
        index = rows if isinstance(rows, slice) else rows.numpy()
        return torch.from_numpy(np.array(self.array[index if self.rows is None else self.rows[index]], self.dtype))

    def check(self) -> None:
        """Raise where a number is not finite; the file is read in parts."""
        for start in range(0, len(self), _PART) if self.array.dtype.kind == "f" else ():
            check_finite_rows("X", self[start : start + _PART].numpy(), start)


def is_loader(X: Any) -> bool:
    """Whether X is to be iterated over like a ``DataLoader``, and is not an array or list."""
    return not isinstance(X, (np.ndarray, Tensor, list, tuple)) and hasattr(X, "__iter__") and not hasattr(X, "shape")


def labels_of(y: Any, n: int) -> NDArray[Any]:
    """Return checked labels: one for each of n observations, none missing."""
    if y is None:
        raise GPSError(
            "labels are missing: fit(X, y) requires y to be passed, but the target y is None; fit(loader) takes a "
            "DataLoader of pairs"
        )
    if not isinstance(y, Tensor) and np.asarray(y, dtype=object).ndim == 1:
        missing = np.flatnonzero(pd.isna(np.asarray(y, dtype=object)))
        if len(missing):
            raise GPSError(f"y has NaN or missing labels; the first is in row {missing[0]}")
    labels = np.asarray(y.detach().cpu() if isinstance(y, Tensor) else y)
    if labels.ndim > 2 or (labels.ndim == 2 and labels.shape[1] != 1):
        raise GPSError(f"y must hold one label for each observation, got shape {labels.shape}")
    labels = np.asarray(column_or_1d(labels, warn=True))
    if len(labels) != n:
        raise GPSError(f"X has {n} observations but y has {len(labels)} labels")
    if labels.dtype.kind == "f":
        bad = ~np.isfinite(labels)
        if bad.any():
            raise GPSError(f"y has NaN or infinite values; the first is in row {int(bad.argmax())}")
        if (labels != np.rint(labels)).any():
            raise GPSError("Unknown label type: y holds continuous numbers; a classifier needs classes")
    if labels.dtype == object and len({type(label) for label in labels}) > 1:
        raise GPSError(f"labels must be of one type, got {sorted({type(label).__name__ for label in labels})}")
    return labels


def parted(y: pd.Series, share: float, seed: int) -> tuple[pd.Index, pd.Index]:
    """Split rows at random into those that are kept and a share that is set aside, alike in their classes."""
    counts = y.value_counts()
    fewest = math.ceil(max(1.0 / share, 1.0 / (1.0 - share)) - 1e-9)
    if counts.min() < fewest:
        raise GPSError(
            f"class {quoted(counts.idxmin())} has {counts.min()} rows, too few to set a share of {share:g} aside: at "
            f"least {fewest} are needed; leave those rows out, or join the class with another"
        )
    kept, aside = train_test_split(y.index, test_size=share, stratify=y, random_state=seed % 2**32)
    return pd.Index(kept).sort_values(), pd.Index(aside).sort_values()


def set_aside(
    X: Any, y: Any, share: float, seed: int, part: int = 0, n_parts: int = 1
) -> tuple[Any, Any, tuple[Any, Any]]:
    """Return the observations and labels that are kept, and a share that is set aside, alike in their classes.

    Different parts, of at most 1 / share, set different observations aside. A class of which all would be set aside is
    kept; a file (``numpy.memmap``) is not copied.

    >>> import numpy as np
    >>> X, y, (aside, labels) = set_aside(np.zeros((100, 2)), np.repeat(["a", "b"], [80, 20]), 0.1, seed=0)
    >>> X.shape, aside.shape, labels
    ((90, 2), (10, 2), array(['a', 'a', 'a', 'a', 'a', 'a', 'a', 'a', 'b', 'b'], dtype='<U1'))
    """
    labels = labels_of(y, len(X))
    random = np.random.default_rng(seed % 2**32)
    order = random.permutation(len(labels))
    classes = np.unique(labels, return_inverse=True)[1]
    order = order[np.argsort(classes[order], kind="stable")]
    first = (part + random.random()) / n_parts
    chosen = order[((np.arange(int(share * len(order))) + first) / share).astype(np.intp)]
    lost = np.bincount(classes[chosen], minlength=classes.max() + 1) == np.bincount(classes)
    chosen = chosen[~lost[classes[chosen]]]
    kept = np.setdiff1d(np.arange(len(labels)), chosen)

    def of(rows: NDArray[np.intp]) -> Any:
        return Mapped(X, rows=rows) if isinstance(X, np.memmap) and X.ndim > 2 else _safe_indexing(X, rows)

    return of(kept), labels[kept], (of(chosen), labels[chosen])
