"""All rows of a table as a fit passes over them, block by block: in memory, or streamed from files.

Laws are fitted to some rows, which are in memory. Ranges, moments and the last step of mean coefficients take all.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.floating]

BLOCK = 1 << 15
"""Rows of a block."""


class AllRows(Protocol):
    """What a fit asks of all rows: of an :class:`InMemory` table, or of :class:`gpsuq.tables.streaming.ParquetRows`."""

    @property
    def n_rows(self) -> int:
        """Number of rows."""

    @property
    def total_weight(self) -> float:
        """Sum of their weights."""

    @property
    def lowest(self) -> Array:
        """Smallest number of every column, (p,)."""

    @property
    def highest(self) -> Array:
        """Largest number of every column, (p,)."""

    def moments(self, middle: Array, size: Array) -> tuple[Array, Array]:
        """Return the weighted mean (p,) and second moments (p, p) of (X - middle) / size."""

    def blocks(self) -> Iterator[tuple[Array, Array, Array, NDArray[np.int64]]]:
        """Yield X (b, p), y, weights and numbers (b,) of this process's rows, some at a time."""

    def summed(self, values: Array) -> Array:
        """Return the sum over all processes that share the rows of what each found in its blocks."""


class InMemory:
    """A table in memory; every process has all of it."""

    def __init__(self, X: Array, y: Array, weight: Array | None) -> None:
        self.X, self.y, self.weight = X, y, np.ones(len(y)) if weight is None else weight
        self.n_rows, self.total_weight = len(y), float(self.weight.sum())
        self.lowest, self.highest = X.min(0), X.max(0)

    def moments(self, middle: Array, size: Array) -> tuple[Array, Array]:
        """Return the weighted mean (p,) and second moments (p, p) of (X - middle) / size."""
        mean, second = np.zeros_like(middle), np.zeros((len(middle), len(middle)))
        for X, _, weight, _ in self.blocks():
            block = (X - middle) / size
            weighted = block * weight[:, None] / self.total_weight
            mean += weighted.sum(0)
            second += weighted.T @ block
        return mean, second

    def blocks(self) -> Iterator[tuple[Array, Array, Array, NDArray[np.int64]]]:
        """Yield the rows, some at a time."""
        for start in range(0, len(self.y), BLOCK):
            rows = slice(start, start + BLOCK)
            yield self.X[rows], self.y[rows], self.weight[rows], np.arange(start, start + len(self.y[rows]))

    def summed(self, values: Array) -> Array:
        """Return what it is given."""
        return values
