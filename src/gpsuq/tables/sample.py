"""Some rows of a table that stand for all of them, the same whoever reads it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from gpsuq.core.seeds import uniform_by_row
from gpsuq.tables.parquet import ParquetTable

SAMPLE = 1 << 15
"""Rows that stand for all where not all are needed."""


class Smallest:
    """Rows whose numbers have the smallest hashes, at most so many: a sample that does not depend on who reads it."""

    def __init__(self, most: int, seed: int) -> None:
        self.most, self.seed, self._bound, self._n = most, seed, np.inf, 0
        self._parts: list[list[NDArray[Any]]] = []

    def add(self, *columns: NDArray[Any]) -> None:
        """Consider some rows, whose numbers come last."""
        near = self._hashes(columns[-1]) < self._bound
        self._parts.append([column[near] for column in columns])
        self._n += int(near.sum())
        if self._n > 2 * self.most:
            self._shrink()

    def taken(self) -> list[NDArray[Any]]:
        """Return the columns of the rows that were chosen among all considered, in the order of their numbers."""
        self._shrink()
        order = np.argsort(self._parts[0][-1])
        return [column[order] for column in self._parts[0]]

    def _shrink(self) -> None:
        together = [np.concatenate(columns) for columns in zip(*self._parts, strict=True)]
        hashes = self._hashes(together[-1])
        if len(hashes) > self.most:
            nearest = np.argsort(hashes, kind="stable")[: self.most]
            together, self._bound = [column[nearest] for column in together], float(hashes[nearest[-1]])
        self._parts, self._n = [together], len(together[-1])

    def _hashes(self, row: NDArray[np.int64]) -> NDArray[np.floating]:
        return uniform_by_row(self.seed, "sample", 1, torch.from_numpy(row))[0].numpy()


def sampled(table: ParquetTable) -> pd.DataFrame:
    """Return at most :data:`SAMPLE` rows of a table; the index holds their numbers."""
    chosen = Smallest(SAMPLE, seed=0)
    for group in table.groups:
        chosen.add(np.arange(group.start, group.start + group.n_rows))
    rows = chosen.taken()[0]
    return pd.concat([frame[frame.index.isin(rows)] for frame in table.frames()])
