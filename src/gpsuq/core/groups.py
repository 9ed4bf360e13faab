"""Observations of several measures each: rows of a long table by their labels, and ragged lists, padded."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from gpsuq.core.arrays import as_tensor, check_finite
from gpsuq.errors import GPSError


def group_codes(groups: object, n: int) -> NDArray[np.intp]:
    """Return the number of each row's label, from 0 in order of appearance; raise where one is missing."""
    labels = np.asarray(groups)
    if labels.shape != (n,):
        raise GPSError(f"groups must have one label per row, shape ({n},), got {labels.shape}")
    codes, _ = pd.factorize(labels)
    if (codes < 0).any():
        raise GPSError(f"groups has a missing label in row {int((codes < 0).argmax())}")
    return codes


def label_places(groups: object, n: int) -> tuple[Tensor, Tensor]:
    """Return of each row of a long table the number of its label, and its place among the rows of that label.

    >>> label_places(["Ann", "Bo", "Ann"], 3)
    (tensor([0, 1, 0]), tensor([0, 0, 1]))
    """
    codes = torch.from_numpy(group_codes(groups, n))
    lengths = codes.bincount()
    place = torch.empty_like(codes)
    place[codes.argsort(stable=True)] = torch.arange(n) - (lengths.cumsum(0) - lengths).repeat_interleave(lengths)
    return codes, place


def by_label(x: Any, y: Any, groups: Any, dtype: torch.dtype) -> tuple[Tensor | None, Tensor, Tensor | None]:
    """Return a long table with all rows of a label in one padded observation; no mask where all have as many rows."""
    rows = {name: as_tensor(name, values, dtype) for name, values in (("X", x), ("y", y)) if values is not None}
    n = len(rows["y"])
    if len(rows.get("X", rows["y"])) != n:
        raise GPSError(f"X has {len(rows['X'])} rows but y has {n}; with groups, both have one for each measure")
    for name, values in rows.items():
        check_finite(name, values, None)
    codes, place = label_places(groups, n)
    lengths = codes.bincount()
    padded = {}
    for name, values in rows.items():
        padded[name] = values.new_zeros(len(lengths), int(lengths.max()), *values.shape[1:])
        padded[name][codes, place] = values
    mask = _up_to(lengths, padded["y"])
    return padded.get("X"), padded["y"], None if bool(mask.all()) else mask


def is_ragged(values: Any) -> bool:
    """Say whether values are a list of arrays of different shapes."""
    if not isinstance(values, list | tuple) or not all(
        isinstance(item, np.ndarray | Tensor | list | tuple) for item in values
    ):
        return False
    return len({_shape(item) for item in values}) > 1


def padded_groups(x: Any, y: Sequence[Any]) -> tuple[Any, Tensor, Tensor]:
    """Pad groups of different lengths with zeros; the mask is true where something was observed."""
    if any(np.ndim(item) == 0 for item in y):
        raise GPSError(
            "X is a list of arrays of different lengths, but y has one number for each: give y as a list of arrays, "
            "too, with one entry for each row of X"
        )
    lengths = [len(item) for item in y]
    padded_y = _padded("y", y)
    mask = _up_to(torch.tensor(lengths), padded_y)
    if x is None:
        return None, padded_y, mask
    if len(x) != len(y):
        raise GPSError(f"X has {len(x)} groups but y has {len(y)}")
    if all(len(_shape(item)) == 1 for item in x) and len({len(item) for item in x}) == 1:
        return x, padded_y, mask  # covariates of the subject, not of its single measures
    for group, (length, item) in enumerate(zip(lengths, x, strict=True)):
        if len(item) != length:
            raise GPSError(
                f"group {group}: X has {len(item)} rows but y has {length}; a group has one of each for every measure"
            )
        if len(_shape(item)) == 1:
            raise GPSError(
                f"group {group}: X has shape {np.shape(item)}, but a group's X has rows and columns; use "
                "reshape(-1, 1) for one column"
            )
    return _padded("X", x), padded_y, mask


def _padded(name: str, items: Sequence[Any]) -> Tensor:
    try:
        arrays = [torch.from_numpy(np.array(_rectangular(item), dtype=np.float64)) for item in items]
    except (TypeError, ValueError) as error:
        raise GPSError(f"groups must hold numbers: {error}") from error
    if name == "X" and all(array.dim() == 3 for array in arrays):
        most = max(array.shape[1] for array in arrays)  # alternatives that were not offered are NaN
        arrays = [torch.nn.functional.pad(a, (0, 0, 0, most - a.shape[1]), value=math.nan) for a in arrays]
    inner = arrays[0].shape[1:]
    for group, array in enumerate(arrays):
        if array.shape[1:] != inner:
            raise GPSError(
                f"group {group}: a measure in {name} has shape {tuple(array.shape[1:])}, in group 0 it has "
                f"{tuple(inner)}; groups may differ in how many measures they have, not in what a measure is"
            )
    return torch.nn.utils.rnn.pad_sequence(arrays, batch_first=True)


def _rectangular(item: Any) -> Any:
    """Return a list of arrays (alternative, column) of different lengths as one array, with rows of NaN."""
    if not is_ragged(item) or any(np.ndim(part) != 2 for part in item):
        return item
    parts = [torch.from_numpy(np.array(part, dtype=np.float64)) for part in item]
    return torch.nn.utils.rnn.pad_sequence(parts, batch_first=True, padding_value=math.nan).numpy()


def _shape(item: Any) -> tuple[int, ...]:
    """Return the shape of an array; of a list of arrays of different lengths, their number and theirs."""
    try:
        return np.shape(item)
    except ValueError:  # numpy's word for a ragged list
        return len(item), *(size for part in item for size in np.shape(part))


def _up_to(lengths: Tensor, padded: Tensor) -> Tensor:
    """Return a mask of the shape of padded groups (n, longest, ...), true where something was observed."""
    mask = torch.arange(padded.shape[1]) < lengths[:, None]
    return mask.reshape(*mask.shape, *(1,) * (padded.dim() - 2)).expand_as(padded)
