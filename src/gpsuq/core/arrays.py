"""Arrays, tables and lists of numbers as tensors, checked: what cannot be used is named with its rows."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gpsuq.errors import GPSError

_NAMED_ROWS = 5
_DIGITS_ROWS = 1 << 12  # tell a spread well enough


def as_tensor(name: str, values: Any, dtype: torch.dtype) -> Tensor:
    """Return numbers as a tensor of type ``dtype``; raise where there are none, or they are beyond its range."""
    if isinstance(values, Tensor):
        tensor = values.detach()
    else:
        array = np.asarray(values)
        if array.dtype.kind not in "biuf":
            raise GPSError(f"{name} must hold numbers, got {array.dtype}; encode text or objects as numbers first")
        # A copy, in a type that torch has: the array may be read-only, big-endian or of extended precision.
        tensor = torch.from_numpy(array.astype(np.float64 if array.dtype.kind == "f" else np.int64, copy=True))
    if tensor.is_complex():
        raise GPSError(f"{name} must hold real numbers, got complex ones")
    if tensor.dim() == 0 or len(tensor) == 0:
        raise GPSError(f"{name} is empty: at least one observation is needed")
    if tensor.numel() == 0:
        raise GPSError(f"{name} has shape {tuple(tensor.shape)}: an observation without entries says nothing")
    result = tensor.to(dtype).contiguous()
    if tensor.dtype != dtype and (torch.isfinite(tensor) & ~torch.isfinite(result)).any():
        raise GPSError(f"{name} has values beyond the range of {dtype}; rescale it or use precision='64-true'")
    return result


def check_finite(name: str, tensor: Tensor, mask: Tensor | None, first: int = 0) -> None:
    """Raise where a tensor, or what the mask keeps of it, is not finite; name the rows, counted from ``first``."""
    if torch.isfinite(tensor.sum()):  # one pass without a temporary; a sum may overflow where no entry is infinite
        return
    bad = ~torch.isfinite(tensor) if mask is None else ~torch.isfinite(tensor) & mask
    if bad.any():
        rows = bad.reshape(len(bad), -1).any(1)
        named = shown_rows(first + rows.nonzero().flatten())
        raise GPSError(f"{name} has NaN or infinite values in {named}; drop or fill them")


def check_finite_rows(name: str, values: np.ndarray, first: int = 0) -> None:
    """Raise where an array holds NaN or infinite values, and name their rows, counted from ``first``."""
    if not np.isfinite(values.sum()):
        check_finite(name, torch.from_numpy(values), None, first)


def checked_weight(name: str, weight: Any, n: int, dtype: torch.dtype) -> Tensor | None:
    """Return frequency weights as a tensor; raise unless there is one for each observation, finite and not negative."""
    if weight is None:
        return None
    tensor = as_tensor(name, weight, dtype)
    if tensor.shape != (n,):
        raise GPSError(f"{name} must have one entry per observation, shape ({n},), got {tuple(tensor.shape)}")
    check_finite(name, tensor, None)
    if (tensor < 0).any():
        raise GPSError(f"{name} is negative in {shown_rows((tensor < 0).nonzero().flatten())}; weights must be >= 0")
    if not (tensor > 0).any():
        raise GPSError("all weights are zero: there is nothing to fit")
    return tensor


def lost_digits(original: Any) -> list[int]:
    """Return the columns of a table (0 for a vector) whose rows float32 can hardly tell apart, for a large offset.

    >>> lost_digits([[1e8, 1.0], [1e8 + 1.0, 2.0], [1e8 + 2.0, 3.0]])
    [0]
    """
    values = original.detach().cpu() if isinstance(original, Tensor) else original
    if len(values) < 3:
        return []
    some = np.asarray(values[:: math.ceil(len(values) / _DIGITS_ROWS)], dtype=np.float64)
    columns = some.reshape(len(some), -1)
    offset = np.abs(columns.mean(0))
    varies = np.ptp(columns, axis=0) > 1e-12 * offset  # what is less is rounding
    return [int(column) for column in np.flatnonzero(varies & (columns.std(0) < 1e-4 * offset))]


def shown_rows(index: Tensor) -> str:
    """Return the numbers of rows for a message: the first few, and how many more there are."""
    shown = ", ".join(str(int(i)) for i in index[:_NAMED_ROWS])
    more = f" and {len(index) - _NAMED_ROWS} more" if len(index) > _NAMED_ROWS else ""
    return f"row{'s' if len(index) > 1 else ''} {shown}{more}"
