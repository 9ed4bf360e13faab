"""Rows of Parquet files as numbers, however many there are: checked in one pass, sharded, shuffled, given in batches.

What depends on a row (samples, bootstrap weights) follows from its number in the files, so that it is the same in
whatever order, by however many processes and workers rows are read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import compress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import IterableDataset, get_worker_info

from gpsuq.core.seeds import random_block
from gpsuq.engine import ranks
from gpsuq.errors import GPSError, listed
from gpsuq.tables.arrow import coded, is_number, numbers
from gpsuq.tables.blocks import Block, Piece, dealt, shuffled
from gpsuq.tables.encoding import Encoding
from gpsuq.tables.parquet import ParquetTable, RowGroup
from gpsuq.tables.reading import Table, check_numbers, check_text, columns_by_role, named_rows
from gpsuq.tables.sample import SAMPLE, Smallest

Array = NDArray[np.floating]

_MOST_TEXTS = 10_000  # in one column: the number that is told of more than enough levels
_DROP_MISSING = "fill them, delete them, or leave out those rows with --drop-missing (drop_missing=True)"


class Facts(NamedTuple):
    """What one pass over all rows tells: rows of each group that are used, weights, ranges and moments of X and y.

    ``mean`` and ``covariance`` are weighted; the last column is y. ``sample`` holds the rows whose numbers have the
    smallest hashes, at most :data:`SAMPLE`.
    """

    counts: NDArray[np.int64]
    total: float
    lowest: Array
    highest: Array
    mean: Array
    covariance: Array
    sample: Block


class ParquetRows(IterableDataset[tuple[Tensor, Tensor, Tensor, Tensor]]):
    """A table in Parquet files that need not fit into memory, for :class:`gpsuq.GPSLinearRegression` and ``GPS``.

    Making one passes over all rows once, in bounded memory: it learns the categories of text columns, finds missing
    values, and takes ranges, moments and a sample. Iterating yields the batches of an epoch, in an order of its own:
    ``x`` (b, p), ``y`` and ``weight`` (b,) as float32, and ``row`` (b,), the number of each row in the files as int64.
    Row groups come in random order, and batches are drawn from a buffer. A ``DataLoader`` with ``batch_size=None`` and
    any number of workers takes it as it is; each worker and each process reads row groups of its own.

    Parameters
    ----------
    paths
        A Parquet file, a folder of them, or several of either.
    target, weights, drop
        Names of the column to predict, of frequency weights, and of those to leave out. All others are covariates;
        text becomes columns of 0 and 1.
    drop_missing
        Whether rows with missing values are left out; otherwise they are an error.
    batch_size
        Rows in a batch, over all processes.
    seed
        Of the order of rows and of the sample.

    Attributes
    ----------
    columns
        Names of the covariates, categories as ``name=level``.
    n_rows
        Rows that are used: those without missing values and with a positive weight.
    sample
        At most 32,768 rows, the same whatever reads them.

    Examples
    --------
    >>> import tempfile
    >>> import pandas as pd
    >>> from gpsuq import GPSLinearRegression, ParquetRows
    >>> from gpsuq.datasets import correlated
    >>> data = correlated(1000, 2)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     pd.DataFrame(data.X, columns=["a", "b"]).assign(y=data.y).to_parquet(f"{folder}/part-0.parquet")
    ...     rows = ParquetRows(folder, target="y")
    ...     model = GPSLinearRegression(n_chains=2).fit(rows)
    >>> rows.n_rows, rows.columns, model.coef_.shape
    (1000, ['a', 'b'], (2,))
    """

    def __init__(
        self,
        paths: str | Path | Sequence[str | Path],
        target: str,
        *,
        weights: str | None = None,
        drop: Sequence[str] = (),
        drop_missing: bool = False,
        batch_size: int = 200,
        seed: int = 0,
    ) -> None:
        if batch_size < 1:
            raise GPSError(f"batch_size must be at least 1, got {batch_size}")
        ranks.join()  # each process reads its share from the first pass on
        self.table = ParquetTable(paths)
        self.target, self.weights, self.drop_missing = target, weights, drop_missing
        self.batch_size, self.seed, self.epoch = batch_size, seed, 0
        self._shard: tuple[int, int] | None = None
        self._read = self._names(target, weights, drop)
        self.encoding = self._levels([name for name in self._read if name not in (target, weights)])
        self.columns = [column for name in self._read for column in self._encoded(name)]
        self.facts = self._settle()
        if self.n_rows < 2:
            raise GPSError(f"{self.n_rows} rows are left to fit: at least 2 with positive weight are needed")

    # --- what all rows are -------------------------------------------------------------------------------------------

    @property
    def n_rows(self) -> int:
        """Number of rows that are used."""
        return int(self.facts.counts.sum())

    @property
    def sample(self) -> Block:
        """Rows that stand for all, in the order of the files."""
        return self.facts.sample

    def sample_table(self) -> Table:
        """Return the sample as a table in memory; the index holds numbers of rows."""
        X, y, weight, row = self.sample
        weights = None if self.weights is None else pd.Series(weight, row, name=self.weights)
        return Table(
            pd.DataFrame(X, row, self.columns), pd.Series(y, row, name=self.target), None, weights, self.encoding
        )

    @property
    def total_weight(self) -> float:
        """Sum of the weights."""
        return self.facts.total

    @property
    def lowest(self) -> Array:
        """Smallest number in every column of X."""
        return self.facts.lowest[:-1]

    @property
    def highest(self) -> Array:
        """Largest number in every column of X."""
        return self.facts.highest[:-1]

    def moments(self, middle: Array, size: Array) -> tuple[Array, Array]:
        """Return the mean (p,) and the second moments (p, p) of (X - middle) / size."""
        mean = (self.facts.mean[:-1] - middle) / size
        return mean, self.facts.covariance[:-1, :-1] / np.outer(size, size) + np.outer(mean, mean)

    def summed(self, values: Array) -> Array:
        """Return the sum over all processes of what each found in its blocks."""
        return ranks.summed(values)

    # --- passes ------------------------------------------------------------------------------------------------------

    def shard(self, rank: int, n_ranks: int) -> None:
        """Read from now on only this process's share; without it, that of the process which reads."""
        self._shard = rank, n_ranks

    def set_epoch(self, number: int) -> None:
        """Choose the order in which the next iteration yields rows."""
        self.epoch = number

    def blocks(self) -> Iterator[Block]:
        """Yield this process's rows in the order of the files, as float64."""
        return self._blocks(self._pieces(*self._place()))

    def __len__(self) -> int:
        """Return the number of batches in an epoch, the same for every process."""
        return max(1, self.n_rows // self.batch_size)

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor, Tensor, Tensor]]:
        shard, n_shards = self._place()
        size = max(1, min(self.batch_size, self.n_rows) // n_shards)
        worker, n_workers = 0, 1
        if (info := get_worker_info()) is not None:
            worker, n_workers = info.id, info.num_workers
        left, lap = len(range(worker, len(self), n_workers)), 0
        pieces = self._pieces(shard * n_workers + worker, n_shards * n_workers)
        while left:  # row groups are of different sizes: a shard that ends early begins anew
            index, before = (self.epoch, shard, worker, lap), left
            order = torch.randperm(len(pieces), generator=random_block(self.seed, "row groups", *index)).tolist()
            blocks = self._blocks([pieces[place] for place in order])
            for batch in shuffled(blocks, size, random_block(self.seed, "buffer", *index)):
                x, y, weight = (torch.from_numpy(part.astype(np.float32, order="C")) for part in batch[:3])
                yield x, y, weight, torch.from_numpy(batch.row)
                left -= 1
                if left == 0:
                    return
            if left == before and size == 1:
                raise GPSError(f"{self.n_rows} rows are too few for {n_shards} processes of {n_workers} workers each")
            size = max(1, size // 2) if left == before else size  # fewer rows than a batch
            lap += 1

    def _place(self) -> tuple[int, int]:
        return self._shard or (ranks.rank(), ranks.n_ranks())

    def _first_pieces(self) -> list[Piece]:
        """Return what this process reads before it is known which rows are used."""
        return dealt([group.n_rows for group in self.table.groups], ranks.n_ranks())[ranks.rank()]

    def _pieces(self, shard: int, n_shards: int) -> list[Piece]:
        return dealt(self.facts.counts.tolist(), n_shards)[shard]

    # --- reading -----------------------------------------------------------------------------------------------------

    def _names(self, target: str, weights: str | None, drop: Sequence[str]) -> list[str]:
        """Check the names of columns, and return those that are read: covariates, then target and weights."""
        from pyarrow import types

        covariates, roles = columns_by_role(pd.DataFrame(columns=self.table.names), (target, weights), drop)
        for name in roles:
            kind = self.table.type_of(name)
            if not is_number(kind) and not types.is_boolean(kind):
                raise GPSError(f"column {name!r} holds {kind}, where numbers are needed")
        return [*covariates, *roles]

    def _levels(self, covariates: list[str]) -> Encoding:
        """Learn the levels of all columns of text, which alone are read for that."""
        text = [name for name in covariates if self._kind(name) == "str"]
        found: dict[str, set[str]] = {name: set() for name in text}
        for piece in self._first_pieces() if text else ():
            for _, batch in self.table.batches(self.table.groups[piece.group], text):
                for name in text:
                    if len(found[name]) < _MOST_TEXTS:
                        found[name].update(coded(batch.column(name))[0])
        everywhere = ranks.gathered(found)
        columns = {name: sorted(set().union(*(each[name] for each in everywhere))) for name in text}
        # Columns of numbers are there for their names.
        table = pd.DataFrame({name: pd.Series(columns.get(name, []), dtype=self._kind(name)) for name in covariates})
        check_text(table)
        return Encoding.of(table)

    def _kind(self, name: str) -> str:
        return "float" if is_number(self.table.type_of(name)) else "str"

    def _encoded(self, name: str) -> list[str]:
        """Return the names of what a column becomes; the target and the weights are no covariates."""
        if name in (self.target, self.weights):
            return []
        levels = self.encoding.levels.get(name)
        return [name] if levels is None else [f"{name}={level}" for level in levels[1:]]

    def _settle(self) -> Facts:
        """Pass over all rows, each process over its share."""
        groups = self.table.groups
        # All processes measure from the same place, near which the rows are: sums of squares keep their digits.
        first = next(self._blocks([Piece(group) for group in range(len(groups))]), None)
        if first is None:
            raise GPSError("no row is left: every one lacks a value, or has a weight of 0")
        origin = np.median(np.column_stack([first.X, first.y]), axis=0)
        unit = np.abs(np.column_stack([first.X, first.y]) - origin).max(0)
        unit = np.where(unit > 0, unit, 1.0)
        width, chosen = len(origin), Smallest(SAMPLE, self.seed)
        counts, total, sums, products = np.zeros(len(groups), np.int64), 0.0, np.zeros(width), np.zeros((width, width))
        ends = np.full((2, width), [[np.inf], [-np.inf]])
        for piece in self._first_pieces():
            for block in self._blocks([piece]):
                both = np.column_stack([block.X, block.y])
                ends = np.stack([np.minimum(ends[0], both.min(0)), np.maximum(ends[1], both.max(0))])
                both -= origin
                both /= unit
                counts[piece.group] += len(block.y)
                total += float(block.weight.sum())
                weighted = both.T * block.weight
                sums += weighted.sum(1)
                products += weighted @ both
                chosen.add(*block)
        found = ranks.summed(np.concatenate([[total], sums, products.ravel()]))
        mean = found[1 : 1 + width] / found[0]
        covariance = found[1 + width :].reshape(width, width) / found[0] - np.outer(mean, mean)
        if not np.isfinite(covariance).all():
            far = compress([*self.columns, self.target], ~np.isfinite(covariance).all(0))
            raise GPSError(f"columns {listed(far)} hold numbers too large for their squares: rescale them")
        everywhere = np.stack(ranks.gathered(ends))
        sample = Smallest(SAMPLE, self.seed)
        for part in ranks.gathered(chosen.taken()):
            sample.add(*part)
        return Facts(
            ranks.summed(counts),
            float(found[0]),
            everywhere[:, 0].min(0),
            everywhere[:, 1].max(0),
            origin + unit * mean,
            covariance * np.outer(unit, unit),
            Block(*sample.taken()),
        )

    def _blocks(self, pieces: Iterable[Piece]) -> Iterator[Block]:
        """Yield the rows of some pieces that are used, in their order."""
        for piece in pieces:
            group = self.table.groups[piece.group]
            for start, batch in self.table.batches(group, self._read):
                block = self._used(group, start, batch)
                if piece.parts > 1:
                    block = block.at(slice(piece.part, None, piece.parts))
                if len(block.y):
                    yield block

    def _used(self, group: RowGroup, start: int, batch: Any) -> Block:
        """Return rows of a batch as numbers, without those that lack a value or have no weight."""
        width = len(self.columns) + 1
        table = np.empty((width + (self.weights is not None), batch.num_rows)).T  # columns lie together, as in files
        place = 0
        for name in self._read:
            levels = self.encoding.levels.get(name)
            if levels is None:
                table[:, place] = numbers(batch.column(name))
                place += 1
                continue
            texts, codes = coded(batch.column(name))
            known = np.array([*map(levels.index, texts), np.nan])[codes]
            for level in range(1, len(levels)):
                table[:, place] = np.where(np.isnan(known), np.nan, known == level)
                place += 1
        row = np.arange(start, start + len(table))
        weight = np.ones(len(table)) if self.weights is None else table[:, width]
        bad = ~np.isfinite(table).all(1)
        if bad.any() and not self.drop_missing:
            names = [*self.columns, self.target, *([] if self.weights is None else [self.weights])]
            self._complain(group, pd.DataFrame(table, columns=names).set_axis(row - group.file_start))
        if (weight < 0).any():
            rows = named_rows(pd.Series(weight, index=row - group.file_start), weight < 0)
            raise GPSError(f"{self.table.place(group)}: column {self.weights!r} is negative in {rows}")
        block = Block(table[:, : width - 1], table[:, width - 1], weight, row)
        used = ~bad & (weight > 0)
        return block if used.all() else block.at(used)

    def _complain(self, group: RowGroup, table: pd.DataFrame) -> None:
        try:
            check_numbers(table, self.encoding, advice=_DROP_MISSING)
        except GPSError as error:
            raise GPSError(f"{self.table.place(group)}: {error}") from None
