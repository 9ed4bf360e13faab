"""Observations: checked once, kept as tensors, handed out as batches whose shapes line up with draws and chains."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gpsuq.core.arrays import as_tensor, check_finite, checked_weight, lost_digits, shown_rows
from gpsuq.core.expectations import BATCH_DIMS
from gpsuq.core.groups import by_label, group_codes, is_ragged, padded_groups
from gpsuq.core.parameters import DataScale
from gpsuq.core.shapes import Shape, measure_dims, not_offered
from gpsuq.errors import GPSError, warn

_SCALE_ROWS = 1 << 16


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
    if mask is not None and (groups is not None or is_ragged(y)):
        raise GPSError("give either groups of different lengths or a padded array with a mask, not both")
    if groups is not None:
        x, y, mask = by_label(x, y, groups, dtype)
    elif is_ragged(y) or is_ragged(x):
        x, y, mask = padded_groups(x, y)
    y_tensor = as_tensor("y", y, dtype)
    mask_tensor = _mask(mask, y_tensor)
    check_finite("y", y_tensor, mask_tensor)
    if y_tensor.dtype == torch.float32 and y_tensor.dim() == 1 and lost_digits(y):
        warn(
            "y varies little around a large value, and float32 keeps only seven digits: subtract a constant from y, or "
            'pass fabric=Fabric(precision="64-true")'
        )
    if mask_tensor is not None:
        y_tensor = torch.where(mask_tensor, y_tensor, 0.0)
    x_tensor = None
    if x is not None:
        x_tensor = as_tensor("X", x, dtype)
        if x_tensor.dim() == 1:
            raise GPSError("X must have at least two dimensions (rows, columns); use X.reshape(-1, 1) for one column")
        if len(x_tensor) != len(y_tensor):
            turned = y_tensor.shape[1:2] == (len(x_tensor),)
            hint = f": y of shape {tuple(y_tensor.shape)} seems to be transposed, pass y.T" if turned else ""
            raise GPSError(f"X has {len(x_tensor)} rows but y has {len(y_tensor)}{hint}")
        seen = None if mask_tensor is None else _observed_rows(x_tensor, mask_tensor)
        measures = None if seen is None else seen.unsqueeze(-1).expand_as(x_tensor)
        missing = not_offered(x_tensor) if x_tensor.dim() > y_tensor.dim() + 1 else None
        check_finite("X", x_tensor if missing is None else x_tensor.masked_fill(missing[..., None], 0.0), measures)
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
    w = as_tensor("concomitants", values, dtype)
    if w.dim() != 2:
        raise GPSError(
            f"concomitants must have rows and columns, got shape {tuple(w.shape)}; use reshape(-1, 1) for one"
        )
    check_finite("concomitants", w, None)
    if groups is not None and len(w) != n:
        codes = torch.from_numpy(group_codes(groups, len(w)))
        first = torch.from_numpy(np.unique(codes.numpy(), return_index=True)[1])
        other = (w != w[first][codes]).any(1).nonzero().flatten()
        if len(other):
            raise GPSError(f"concomitants differ within a group in {shown_rows(other)}; a group has one value of each")
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
        raise GPSError(f"the mask leaves nothing observed in {shown_rows(unseen)}; drop them")
    return tensor


def check_choices(data: Observations) -> None:
    """Raise where an alternative was chosen that was not offered."""
    if data.x is None or data.x.dim() != data.y.dim() + 2 or (missing := not_offered(data.x)) is None:
        return
    choice = data.y.long().clamp(0, missing.shape[-1] - 1)
    wrong = missing.gather(-1, choice.unsqueeze(-1)).squeeze(-1)
    wrong = wrong if data.mask is None else wrong & data.mask
    rows = wrong.reshape(len(wrong), -1).any(1).nonzero().flatten()
    if len(rows):
        raise GPSError(f"an alternative was chosen that was not offered in {shown_rows(rows)}: its row in X is missing")


def evenly_spaced(n: int, count: int) -> Tensor:
    """Return ``count`` row numbers from 0 to n - 1; in float64, since float32 cannot name rows beyond 2^24."""
    return torch.linspace(0, n - 1, count, dtype=torch.float64).long()


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
