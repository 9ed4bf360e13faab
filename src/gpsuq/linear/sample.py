"""Observations as fitting sees them: rows of a table, or the rows of each group together, in the units of training."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gpsuq.core.generators import MLP
from gpsuq.errors import GPSError
from gpsuq.linear.units import LinearUnits

Array = NDArray[np.floating]
Index = NDArray[np.intp] | slice

_MOST_PADDED = 1 << 26


@dataclass(frozen=True)
class LinearSettings:
    """How a linear regression is fitted; see :class:`gpsuq.GPSLinearRegression`."""

    n_chains: int
    n_steps: int
    n_draws: int
    batch_size: int
    spread_weight: float | Literal["auto"]
    random_level: bool
    generator: MLP
    seed: int
    progress: bool


@dataclass(frozen=True)
class Sample:
    """Observations: ``design`` (n, T, q), zero where padded, ``y`` and ``mask`` (n, T), ``weight`` (n,).

    ``columns`` (n, T, p) are those of the table, in the user's units.
    """

    design: Array
    y: Array
    mask: NDArray[np.bool_]
    weight: Array
    columns: Array

    def __len__(self) -> int:
        return len(self.y)

    @property
    def grouped(self) -> bool:
        """Whether an observation may have several rows."""
        return bool(self.y.shape[1] > 1)

    @property
    def n_observations(self) -> float:
        """Number of independent observations; weights are frequencies."""
        return float(self.weight.sum())

    @property
    def n_measures(self) -> float:
        """Number of rows, which is that of observations where each is one."""
        return float(self.weight @ self.mask.sum(1))

    def rows(self, index: Index) -> Sample:
        """Give some of the observations."""
        return Sample(self.design[index], self.y[index], self.mask[index], self.weight[index], self.columns[index])

    def flat(self) -> tuple[Array, Array, Array]:
        """Give every measure as a row of its own: design (N, q), y (N,), weight (N,)."""
        weight = np.broadcast_to(self.weight[:, None], self.y.shape)
        return self.design[self.mask], self.y[self.mask], weight[self.mask]

    def far(self, level: float) -> float:
        """Quantile of the size of y."""
        return float(np.quantile(np.abs(self.y[self.mask]), level))

    def tensors(self) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None]:
        """Give covariates without the level, y, mask and weights as training takes them."""
        x, y = torch.from_numpy(self.design[..., :-1]).float(), torch.from_numpy(self.y).float()
        weight = None if np.ptp(self.weight) == 0 and self.weight[0] == 1 else torch.from_numpy(self.weight).float()
        if not self.grouped:
            return x[:, 0], y[:, 0], None, weight
        return x, y, torch.from_numpy(self.mask), weight


def observe(
    X: Array, y: Array, weight: Array | None, codes: NDArray[np.intp] | None, units: LinearUnits, most: int
) -> Sample:
    """Take at most so many observations, evenly spaced: single rows, or groups of rows that share a code."""
    if codes is None:
        index = np.arange(len(y)) if len(y) <= most else np.linspace(0, len(y) - 1, most).astype(np.intp)
        some = X[index]
        weights = np.ones(len(index)) if weight is None else weight[index]
        design, target = units.design(some), units.residuals(some, y[index])
        return Sample(design[:, None], target[:, None], np.ones((len(index), 1), dtype=bool), weights, some[:, None])
    counts = np.bincount(codes)
    if weight is not None:
        of_group = np.zeros(len(counts))
        of_group[codes] = weight
        if not np.array_equal(of_group[codes], weight):
            raise GPSError("sample_weight must be the same for all rows of a group: a subject counts as a whole")
    else:
        of_group = np.ones(len(counts))
    n, longest = len(counts), int(counts.max())
    chosen = np.arange(n) if n <= most else np.linspace(0, n - 1, most).astype(np.intp)
    if len(chosen) * longest * max(units.rank + 1, longest) > _MOST_PADDED:
        raise GPSError(
            f"groups of up to {longest} rows, {n} in all, take too much memory when padded to one length; split the "
            "longest groups, or fit a sample of them"
        )
    order = np.argsort(codes, kind="stable")
    place = np.arange(len(codes)) - np.repeat(np.cumsum(counts) - counts, counts)
    slot = np.full(n, -1)
    slot[chosen] = np.arange(len(chosen))
    group = slot[codes[order]]
    kept = group >= 0
    group, measure, row = group[kept], place[kept], order[kept]
    design = np.zeros((len(chosen), longest, units.rank + 1))
    columns = np.zeros((len(chosen), longest, X.shape[1]))
    target, mask = np.zeros((len(chosen), longest)), np.zeros((len(chosen), longest), dtype=bool)
    design[group, measure], target[group, measure] = units.design(X[row]), units.residuals(X[row], y[row])
    columns[group, measure], mask[group, measure] = X[row], True
    return Sample(design, target, mask, of_group[chosen], columns)
