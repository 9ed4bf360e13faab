"""What a linear regression accepts: finite targets, sizes that can be computed with, weights that count rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.utils import column_or_1d

from gpsuq.core.arrays import check_finite_rows, checked_weight
from gpsuq.errors import GPSError

Array = NDArray[np.floating]

_LARGEST = 1e150  # its square is a number still


def check_finite_targets(y: Any) -> None:
    """Name rows of y that are not finite; what is no list of real numbers is scikit-learn's to complain about."""
    try:
        given = np.asarray(y)
        values = given.real.astype(np.float64)
    except (TypeError, ValueError):
        return
    if values.ndim and not np.iscomplexobj(given):
        check_finite_rows("y", values)


def check_sizes(X: Array, y: Array, names: Sequence[str]) -> None:
    """Raise where a column, or y but for outliers, is so large or small that squares of it are no numbers."""
    with np.errstate(over="ignore"):
        sizes = [*np.ptp(X, 0), np.median(np.abs(y - np.median(y)))]
    for name, size in zip([*names, "y"], sizes, strict=True):
        if not (size == 0.0 or 1.0 / _LARGEST < size < _LARGEST):
            raise GPSError(f"{name} varies by {size:.3g}, which is no size to compute with: give it in another unit")


def targets(X: Any, y: Any) -> Array:
    """Check targets that belong to the rows of X."""
    values: Array = column_or_1d(y, dtype=np.float64)
    check_finite_rows("y", values)
    if len(values) != len(X):
        raise GPSError(f"X and y must have the same number of rows, got {len(X)} and {len(values)}")
    return values


def frequencies(sample_weight: Any, n: int) -> Array | None:
    """Return frequency weights (n,), or None where there are none."""
    if sample_weight is None:
        return None
    values = np.asarray(sample_weight)
    weight = checked_weight("sample_weight", np.full(n, values) if values.ndim == 0 else values, n, torch.float64)
    if weight is not None and float(weight.max()) > _LARGEST:
        raise GPSError(f"sample_weight holds {float(weight.max()):.3g}, which is no number of rows")
    return None if weight is None else weight.numpy()
