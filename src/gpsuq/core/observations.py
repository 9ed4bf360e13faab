"""Observations: checked once, kept as tensors, handed out as batches whose shapes line up with draws and chains."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from gpsuq.core.expectations import BATCH_DIMS
from gpsuq.core.parameters import DataScale
from gpsuq.core.shapes import Shape, measure_dims, not_offered
from gpsuq.errors import GPSError, warn

_NAMED_ROWS = 5
_SCALE_ROWS = 1 << 16
_DIGITS_ROWS = 1 << 12  # tell a spread well enough


@dataclass(frozen=True)
class Batch:
    """Some observations with the shapes that models and kernels expect.

    Attributes
    ----------
    y
        Responses, ``(1, n, 1, *event)``.
    x
        Covariates, ``(1, n, 1, *one_x)``, or None.
    mask
        True where a coordinate of ``y`` was observed, with its shape; None where all were.
    w
        Concomitants, ``(1, n, 1, k)``: what the law of the parameters depends on; None where there are none.

    Examples
    --------
    The dimensions of size 1 are those of chains and draws, so that ``y`` broadcasts against a predictive:

    >>> batch = observations([[0.5, 1.0], [1.5, 2.0], [2.5, 3.0]], [1.0, 2.0, 4.0]).rows()
    >>> len(batch), tuple(batch.y.shape), tuple(batch.x.shape), batch.mask
    (3, (1, 3, 1), (1, 3, 1, 2), None)
    """

    y: Tensor
    x: Tensor | None = None
    mask: Tensor | None = None
    w: Tensor | None = None

    def __len__(self) -> int:
        return self.y.shape[1]

    @property
    def seen(self) -> Tensor | None:
        """What a generator that is conditional sees: concomitants, or x where there are none."""
        return self.x if self.w is None else self.w

    def part(self, rows: slice) -> Batch:
        """Return some of the observations."""
        return Batch(self.y[:, rows], *(None if t is None else t[:, rows] for t in (self.x, self.mask, self.w)))

    @property
    def one_y(self) -> Shape:
        """Shape of one observation."""
        return tuple(self.y.shape[BATCH_DIMS:])

    def to(self, device: torch.device, dtype: torch.dtype) -> Batch:
        """Move to a device and floating-point type."""
        x, w = (None if tensor is None else tensor.to(device, dtype) for tensor in (self.x, self.w))
        mask = None if self.mask is None else self.mask.to(device)
        return Batch(self.y.to(device, dtype), x, mask, w)


def aligned(tensor: Tensor) -> Tensor:
    """Return rows (n, *rest) in the shape (1, n, 1, *rest) that broadcasts against (chain, observation, draw, ...)."""
    return tensor[None, :, None]


@dataclass(frozen=True)
class Observations:
    """n checked observations: ``y`` (n, *event), ``x`` (n, *one_x) or None, ``mask`` like ``y``, ``weight`` (n,).

    ``w`` (n, k) are concomitants, where there are any.
    """

    y: Tensor
    x: Tensor | None = None
    mask: Tensor | None = None
    weight: Tensor | None = None
    w: Tensor | None = None

    def __len__(self) -> int:
        return len(self.y)

    @property
    def n_features(self) -> int | None:
        """Number of columns of X (its last dimension), None without covariates."""
        return None if self.x is None else self.x.shape[-1]

    def rows(self, index: Tensor | slice = slice(None)) -> Batch:
        """Return the batch of the rows in ``index``."""
        parts = (self.x, self.mask, self.w)
        return Batch(aligned(self.y[index]), *(None if t is None else aligned(t[index]) for t in parts))

    def scale(self) -> DataScale:
        """Return centre and scale of the data, computed in float64: medians for y, which may hold outliers."""
        y_center, y_scale = _robust_center_and_scale(self.y, self.mask)
        if self.x is None:
            return DataScale(y_center, y_scale)
        seen = None if self.mask is None else _observed_rows(self.x, self.mask)
        # Rows that only pad a group say nothing about scale.
        x = self.x.flatten(0, -2) if seen is None else self.x[seen]
        x = x[~x.isnan().any(-1)] if not_offered(self.x) is not None else x
        return DataScale(y_center, y_scale, *_center_and_scale(x), self.x[0].numel())

    def seen_scale(self) -> DataScale:
        """Return the scale of what a conditional generator sees: of concomitants, or of x where there are none."""
        scale = self.scale()
        if self.w is None:
            return scale
        center, spread = _center_and_scale(self.w)
        return replace(scale, x_center=center, x_scale=spread, x_width=self.w.shape[1])


def _center_and_scale(x: Tensor) -> tuple[Tensor, Tensor]:
    """Return mean and standard deviation of columns, computed in float64; of a constant, its size."""
    some = x[:: math.ceil(len(x) / _SCALE_ROWS)].double()  # a scale needs no more rows, and memory stays bounded
    center, spread, size = some.mean(0), some.std(0, correction=0), some.abs().amax(0)
    spread = torch.where(spread <= 1e-7 * size, torch.where(size > 0, size, 1.0), spread)
    return center.to(x.dtype), spread.to(x.dtype)


def observations(
    x: Any,
    y: Any,
    *,
    mask: Any = None,
    weight: Any = None,
    groups: Any = None,
    concomitants: Any = None,
    dtype: torch.dtype = torch.float32,
) -> Observations:
    """Return checked observations from arrays, tensors, DataFrames, or lists of arrays for ragged groups.

    With ``groups``, labels of the rows of a long table, all rows of a label are one observation. ``concomitants`` have
    a row for each observation, or for each row of a long table.

    >>> data = observations([[1.0], [2.0], [3.0]], [0.1, 0.2, 0.3], groups=["Ann", "Bo", "Ann"])
    >>> data.y, data.mask
    (tensor([[0.1000, 0.3000],
            [0.2000, 0.0000]]), tensor([[ True,  True],
            [ True, False]]))
    """
    if mask is not None and (groups is not None or _is_ragged(y)):
        raise GPSError("give either groups of different lengths or a padded array with a mask, not both")
    if groups is not None:
        x, y, mask = _by_label(x, y, groups, dtype)
    elif _is_ragged(y) or _is_ragged(x):
        x, y, mask = _pad(x, y)
    y_tensor = _tensor("y", y, dtype)
    mask_tensor = _mask(mask, y_tensor)
    _check_finite("y", y_tensor, mask_tensor)
    if y_tensor.dtype == torch.float32 and y_tensor.dim() == 1 and lost_digits(y):
        warn(
            "y varies little around a large value, and float32 keeps only seven digits: subtract a constant from y, or "
            'pass fabric=Fabric(precision="64-true")'
        )
    if mask_tensor is not None:
        y_tensor = torch.where(mask_tensor, y_tensor, 0.0)
    x_tensor = None
    if x is not None:
        x_tensor = _tensor("X", x, dtype)
        if x_tensor.dim() == 1:
            raise GPSError("X must have at least two dimensions (rows, columns); use X.reshape(-1, 1) for one column")
        if len(x_tensor) != len(y_tensor):
            turned = y_tensor.shape[1:2] == (len(x_tensor),)
            hint = f": y of shape {tuple(y_tensor.shape)} seems to be transposed, pass y.T" if turned else ""
            raise GPSError(f"X has {len(x_tensor)} rows but y has {len(y_tensor)}{hint}")
        seen = None if mask_tensor is None else _observed_rows(x_tensor, mask_tensor)
        measures = None if seen is None else seen.unsqueeze(-1).expand_as(x_tensor)
        missing = not_offered(x_tensor) if x_tensor.dim() > y_tensor.dim() + 1 else None
        _check_finite("X", x_tensor if missing is None else x_tensor.masked_fill(missing[..., None], 0.0), measures)
        if measures is not None:
            x_tensor = torch.where(measures, x_tensor, 0.0)
    w = None if concomitants is None else checked_concomitants(concomitants, len(y_tensor), groups, dtype)
    return Observations(y_tensor, x_tensor, mask_tensor, checked_weight("weight", weight, len(y_tensor), dtype), w)


def checked_concomitants(values: Any, n: int, groups: Any, dtype: torch.dtype) -> Tensor:
    """Return concomitants (n, k); of a long table with ``groups``, what all rows of a label agree on.

    >>> checked_concomitants([[30.0], [50.0], [30.0]], 2, ["Ann", "Bo", "Ann"], torch.float32)
    tensor([[30.],
            [50.]])
    """
    w = _tensor("concomitants", values, dtype)
    if w.dim() != 2:
        raise GPSError(
            f"concomitants must have rows and columns, got shape {tuple(w.shape)}; use reshape(-1, 1) for one"
        )
    _check_finite("concomitants", w, None)
    if groups is not None and len(w) != n:
        codes = torch.from_numpy(group_codes(groups, len(w)))
        first = torch.from_numpy(np.unique(codes.numpy(), return_index=True)[1])
        other = (w != w[first][codes]).any(1).nonzero().flatten()
        if len(other):
            raise GPSError(f"concomitants differ within a group in {_rows(other)}; a group has one value of each")
        w = w[first]
    if len(w) != n:
        raise GPSError(f"concomitants have {len(w)} rows for {n} observations")
    return w


def _observed_rows(x: Tensor, mask: Tensor) -> Tensor | None:
    """Return which rows (n, ...) of x (n, ..., p) belong to observed measures; None where x has none of its own."""
    dims = measure_dims(x.shape[1:], mask.shape[1:])
    if dims == 0:
        return None
    seen = mask.flatten(1 + dims).any(-1) if mask.dim() > 1 + dims else mask
    return seen.reshape(*seen.shape, *(1,) * (x.dim() - 2 - dims)).expand(x.shape[:-1])


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


def _by_label(x: Any, y: Any, groups: Any, dtype: torch.dtype) -> tuple[Tensor | None, Tensor, Tensor | None]:
    """Return a long table with all rows of a label in one padded observation; no mask where all have as many rows."""
    rows = {name: _tensor(name, values, dtype) for name, values in (("X", x), ("y", y)) if values is not None}
    n = len(rows["y"])
    if len(rows.get("X", rows["y"])) != n:
        raise GPSError(f"X has {len(rows['X'])} rows but y has {n}; with groups, both have one for each measure")
    for name, values in rows.items():
        _check_finite(name, values, None)
    codes, place = label_places(groups, n)
    lengths = codes.bincount()
    padded = {}
    for name, values in rows.items():
        padded[name] = values.new_zeros(len(lengths), int(lengths.max()), *values.shape[1:])
        padded[name][codes, place] = values
    mask = _up_to(lengths, padded["y"])
    return padded.get("X"), padded["y"], None if bool(mask.all()) else mask


def _up_to(lengths: Tensor, padded: Tensor) -> Tensor:
    """Return a mask of the shape of padded groups (n, longest, ...), true where something was observed."""
    mask = torch.arange(padded.shape[1]) < lengths[:, None]
    return mask.reshape(*mask.shape, *(1,) * (padded.dim() - 2)).expand_as(padded)


def _is_ragged(values: Any) -> bool:
    if not isinstance(values, list | tuple) or not all(
        isinstance(item, np.ndarray | Tensor | list | tuple) for item in values
    ):
        return False
    return len({_shape(item) for item in values}) > 1


def _shape(item: Any) -> tuple[int, ...]:
    """Return the shape of an array; of a list of arrays of different lengths, their number and theirs."""
    try:
        return np.shape(item)
    except ValueError:  # numpy's word for a ragged list
        return len(item), *(size for part in item for size in np.shape(part))


def _pad(x: Any, y: Sequence[Any]) -> tuple[Any, Tensor, Tensor]:
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


def _rectangular(item: Any) -> Any:
    """Return a list of arrays (alternative, column) of different lengths as one array, with rows of NaN."""
    if not _is_ragged(item) or any(np.ndim(part) != 2 for part in item):
        return item
    parts = [torch.from_numpy(np.array(part, dtype=np.float64)) for part in item]
    return torch.nn.utils.rnn.pad_sequence(parts, batch_first=True, padding_value=math.nan).numpy()


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


def _tensor(name: str, values: Any, dtype: torch.dtype) -> Tensor:
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


def _mask(mask: Any, y: Tensor) -> Tensor | None:
    if mask is None:
        return None
    tensor = (mask if isinstance(mask, Tensor) else torch.from_numpy(np.array(mask))).bool()
    if tensor.shape != y.shape:
        raise GPSError(f"mask has shape {tuple(tensor.shape)}, y has {tuple(y.shape)}; they must be equal")
    if y.dim() == 1:
        raise GPSError("a mask is for observations that are vectors; leave out rows of a one-dimensional y instead")
    unseen = (~tensor.flatten(1).any(1)).nonzero().flatten()
    if len(unseen):
        raise GPSError(f"the mask leaves nothing observed in {_rows(unseen)}; drop them")
    return tensor


def _check_finite(name: str, tensor: Tensor, mask: Tensor | None, first: int = 0) -> None:
    if torch.isfinite(tensor.sum()):  # one pass without a temporary; a sum may overflow where no entry is infinite
        return
    bad = ~torch.isfinite(tensor) if mask is None else ~torch.isfinite(tensor) & mask
    if bad.any():
        rows = bad.reshape(len(bad), -1).any(1)
        named = _rows(first + rows.nonzero().flatten())
        raise GPSError(f"{name} has NaN or infinite values in {named}; drop or fill them")


def check_choices(data: Observations) -> None:
    """Raise where an alternative was chosen that was not offered."""
    if data.x is None or data.x.dim() != data.y.dim() + 2 or (missing := not_offered(data.x)) is None:
        return
    choice = data.y.long().clamp(0, missing.shape[-1] - 1)
    wrong = missing.gather(-1, choice.unsqueeze(-1)).squeeze(-1)
    wrong = wrong if data.mask is None else wrong & data.mask
    rows = wrong.reshape(len(wrong), -1).any(1).nonzero().flatten()
    if len(rows):
        raise GPSError(f"an alternative was chosen that was not offered in {_rows(rows)}: its row in X is missing")


def evenly_spaced(n: int, count: int) -> Tensor:
    """Return ``count`` row numbers from 0 to n - 1; in float64, since float32 cannot name rows beyond 2^24."""
    return torch.linspace(0, n - 1, count, dtype=torch.float64).long()


def check_finite_rows(name: str, values: np.ndarray, first: int = 0) -> None:
    """Raise where an array holds NaN or infinite values, and name their rows, counted from ``first``."""
    if not np.isfinite(values.sum()):
        _check_finite(name, torch.from_numpy(values), None, first)


def _rows(index: Tensor) -> str:
    shown = ", ".join(str(int(i)) for i in index[:_NAMED_ROWS])
    more = f" and {len(index) - _NAMED_ROWS} more" if len(index) > _NAMED_ROWS else ""
    return f"row{'s' if len(index) > 1 else ''} {shown}{more}"


def checked_weight(name: str, weight: Any, n: int, dtype: torch.dtype) -> Tensor | None:
    """Return frequency weights as a tensor; raise unless there is one for each observation, finite and not negative."""
    if weight is None:
        return None
    tensor = _tensor(name, weight, dtype)
    if tensor.shape != (n,):
        raise GPSError(f"{name} must have one entry per observation, shape ({n},), got {tuple(tensor.shape)}")
    _check_finite(name, tensor, None)
    if (tensor < 0).any():
        raise GPSError(f"{name} is negative in {_rows((tensor < 0).nonzero().flatten())}; weights must be >= 0")
    if not (tensor > 0).any():
        raise GPSError("all weights are zero: there is nothing to fit")
    return tensor


def _robust_center_and_scale(y: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
    """Return median and 1.4826 x median absolute deviation of every coordinate of one observation, with fallbacks."""
    columns = y.double().reshape(len(y), -1)
    seen = torch.ones_like(columns, dtype=torch.bool) if mask is None else mask.reshape(len(y), -1)
    found = torch.full((2, columns.shape[1]), math.nan, dtype=torch.float64)
    for j, (column, observed) in enumerate(zip(columns.T, seen.T, strict=True)):
        values = column[observed]
        if len(values) == 0:
            continue
        center = values.median()
        scale = 1.4826 * (values - center).abs().median()
        if scale <= 0:
            scale = values.std(correction=0)
        if scale <= 1e-12 * center.abs():
            scale = center.abs()
        found[0, j], found[1, j] = center, scale if scale > 0 else 1.0
    # A coordinate that nobody observed takes after the others.
    center, scale = (torch.where(v.isnan(), v.nanmedian(), v).to(y).reshape(y.shape[1:]) for v in found)
    return center, scale
