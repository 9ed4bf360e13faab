"""Observations as fitting sees them: rows of a table, or the rows of each group together, in the units of training."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from lightning_fabric import Fabric
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
    fabric: Fabric


class Rows(NamedTuple):
    """Rows that each stand alone: design (n, q), y (n,), weight (n,), and columns (n, p) of the table."""

    design: Array
    y: Array
    weight: Array
    columns: Array

    def residuals(self, coefficients: Array) -> Array:
        """Return y minus what coefficients (q,) say."""
        return self.y - self.design @ coefficients

    def part(self, index: NDArray[Any]) -> Rows:
        """Return some of the rows."""
        return Rows(*(each[index] for each in self))


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
        """Return some of the observations."""
        return Sample(self.design[index], self.y[index], self.mask[index], self.weight[index], self.columns[index])

    def of_measures(self, values: NDArray[Any]) -> NDArray[Any]:
        """Return numbers of the observations (n,) for every measure, (N,)."""
        return np.broadcast_to(values[:, None], self.y.shape)[self.mask]

    def flat(self) -> Rows:
        """Return every measure as a row of its own."""
        weight = self.of_measures(self.weight)
        return Rows(self.design[self.mask], self.y[self.mask], weight, self.columns[self.mask])

    def far(self, level: float) -> float:
        """Return a quantile of the size of y."""
        return float(np.quantile(np.abs(self.y[self.mask]), level))

    def frequencies(self) -> Tensor | None:
        """Return the weights as training takes them: None where all are 1."""
        return None if (self.weight == 1.0).all() else torch.from_numpy(self.weight)

    def tensors(self) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None]:
        """Return covariates without the level, y, mask and weights as training takes them."""
        x, y = torch.from_numpy(self.design[..., :-1]).float(), torch.from_numpy(self.y).float()
        weight = self.frequencies()
        weight = None if weight is None else weight.float()
        return (x, y, torch.from_numpy(self.mask), weight) if self.grouped else (x[:, 0], y[:, 0], None, weight)


def observe(
    X: Array, y: Array, weight: Array | None, codes: NDArray[np.intp] | None, units: LinearUnits, most: int
) -> Sample:
    """Take at most so many observations, evenly spaced: single rows, or groups of rows that share a code."""
    grouped = codes is not None
    codes = np.arange(len(y)) if codes is None else codes
    weight = np.ones(len(y)) if weight is None else weight
    counts = np.bincount(codes)
    n, longest = len(counts), int(counts.max())
    chosen = np.arange(n) if n <= most else np.linspace(0, n - 1, most).astype(np.intp)
    of_group = np.ones(n)
    of_group[codes] = weight
    if not np.array_equal(of_group[codes], weight):
        raise GPSError("sample_weight must be the same for all rows of a group: a subject counts as a whole")
    if grouped and len(chosen) * longest * max(units.rank + 1, longest) > _MOST_PADDED:
        raise GPSError(
            f"groups of up to {longest} rows, {n} in all, take too much memory when padded to one length; split the "
            "longest groups, or fit a sample of them"
        )
    order = np.argsort(codes, kind="stable")
    rows = order[np.isin(codes[order], chosen)]
    mask = np.arange(longest) < counts[chosen][:, None]

    def padded(values: Array) -> Array:
        result = np.zeros((*mask.shape, *values.shape[1:]))
        result[mask] = values
        return result

    design, target = units.design(X[rows]), units.residuals(X[rows], y[rows])
    return Sample(padded(design), padded(target), mask, of_group[chosen], padded(X[rows]))
