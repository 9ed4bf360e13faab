"""Where batches come from: arrays in memory, or a ``DataLoader``; addressed by step, so that training can resume."""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader

from gpsuq.core.observations import Batch, Observations, observations
from gpsuq.core.seeds import derive_seed, random_block, seeded
from gpsuq.engine.chains import ChainPlan, ChainWeights
from gpsuq.engine.fingerprint import fingerprint
from gpsuq.errors import GPSError

_SAMPLE_ROWS = 2000


class BatchSource(ABC):
    """Batches by step, with each chain's weights; a sample of the data to read scales off; held-out batches."""

    sample: Observations

    @abstractmethod
    def batch(self, step: int) -> tuple[Batch, Tensor]:
        """Give the batch of a step and its weights (chain, observation) with mean about 1."""

    @abstractmethod
    def held_out(self) -> Batch | None:
        """Give the held-out observations, with a leading chain dimension where chains hold out different ones."""

    @property
    @abstractmethod
    def weighted(self) -> bool:
        """Whether observations have different weights."""

    @property
    @abstractmethod
    def n_observations(self) -> int | None:
        """Number of observations, None where it is not known."""


class ArraySource(BatchSource):
    """Batches of observations in memory: random without replacement within an epoch, all of them where they are few."""

    def __init__(
        self, data: Observations, plan: ChainPlan, batch_size: int, seed: int, rank: int = 0, n_ranks: int = 1
    ) -> None:
        self.sample = data
        self.seed, self.rank, self.n_ranks = seed, rank, n_ranks
        self.weights = ChainWeights(plan, len(data), data.weight, seed)
        self.batch_size = min(batch_size, len(data))
        self.batches_per_epoch = len(data) // self.batch_size
        self._epoch = -1
        self._order = torch.arange(len(data))
        self._whole: tuple[Batch, Tensor] | None = None

    def batch(self, step: int) -> tuple[Batch, Tensor]:
        """Give the rows of this step; with several processes, this one's share of them."""
        if self.batch_size == len(self.sample):
            if self._whole is None:
                self._whole = self._take(torch.arange(len(self.sample)))
            return self._whole
        epoch, position = divmod(step, self.batches_per_epoch)
        if epoch != self._epoch:
            self._order = torch.randperm(len(self.sample), generator=random_block(self.seed, "epoch", epoch))
            self._epoch = epoch
        return self._take(self._order[position * self.batch_size : (position + 1) * self.batch_size])

    def _take(self, rows: Tensor) -> tuple[Batch, Tensor]:
        rows = rows[self.rank :: self.n_ranks]
        return self.sample.rows(rows), self.weights(rows)

    def held_out(self) -> Batch | None:
        """Give each chain its own held-out rows, shape (chain, held out, 1, ...)."""
        rows = self.weights.held_out
        if rows is None:
            return None
        data = self.sample
        x, mask = (None if t is None else t[rows].unsqueeze(2) for t in (data.x, data.mask))
        return Batch(data.y[rows].unsqueeze(2), x, mask)

    @property
    def weighted(self) -> bool:
        """Whether observations have different weights."""
        return not self.weights.uniform

    @property
    def n_observations(self) -> int:
        """Number of observations."""
        return len(self.sample)


class LoaderSource(BatchSource):
    """Batches of a user's ``DataLoader`` that yields ``y``, ``(x, y)`` or ``(x, y, weight)``.

    Rows have no identity here, so chains differ by their seeds only; held-out observations come from a loader of
    their own. Shuffling is seeded by epoch, so that a resumed run sees the same batches.
    """

    def __init__(
        self,
        loader: DataLoader[Any],
        validation: DataLoader[Any] | None,
        plan: ChainPlan,
        seed: int,
        dtype: torch.dtype,
    ) -> None:
        if plan.folds is not None:
            raise GPSError("folds need observations in memory: a DataLoader's rows have no identity")
        self.loader, self.validation, self.plan, self.seed, self.dtype = loader, validation, plan, seed, dtype
        self.sample = self._read(loader, _SAMPLE_ROWS, "the DataLoader")
        self._batches: Iterator[Any] = iter(())
        self._position = (-1, 0)  # epoch and number of batches already taken from it
        self._length: int | None = None
        self._weighted = self.sample.weight is not None

    def _read(self, loader: DataLoader[Any], n_rows: int, name: str) -> Observations:
        """Read the first ``n_rows`` observations or so into memory."""
        parts: list[Observations] = []
        with seeded(self.seed, "sample"):
            for item in loader:
                parts.append(self._convert(item))
                if sum(map(len, parts)) >= n_rows:
                    break
        if not parts:
            raise GPSError(f"{name} yields nothing: at least one batch is needed")
        x, weight = (
            torch.cat(tensors) if None not in (tensors := [getattr(p, name) for p in parts]) else None
            for name in ("x", "weight")
        )
        return Observations(torch.cat([p.y for p in parts]), x, None, weight)

    def _convert(self, item: Any) -> Observations:
        if isinstance(item, Tensor):
            return observations(None, item, dtype=self.dtype)
        if not isinstance(item, list | tuple) or not 1 <= len(item) <= 3:
            raise GPSError("the DataLoader must yield y, (x, y) or (x, y, weight)")
        if len(item) == 1:
            return observations(None, item[0], dtype=self.dtype)
        return observations(item[0], item[1], weight=item[2] if len(item) == 3 else None, dtype=self.dtype)

    def batch(self, step: int) -> tuple[Batch, Tensor]:
        """Give the batch of this step; after a jump (a resumed run) batches up to it are passed over."""
        epoch, position = self._position_of(step)
        if (epoch, position) != self._position:
            self._batches = self._open(epoch)
            for _ in range(position):
                next(self._batches)
        item = next(self._batches, None)
        if item is None:  # the first epoch's length is learned by reaching its end
            self._length = position
            return self.batch(step)
        self._position = (epoch, position + 1)
        if self._length is not None and position + 1 == self._length:
            self._position = (epoch + 1, 0)
            self._batches = self._open(epoch + 1)
        data = self._convert(item)
        weight = torch.ones(len(data), dtype=torch.float64) if data.weight is None else data.weight.double()
        return data.rows(), weight.expand(self.plan.n_chains, -1)

    def _position_of(self, step: int) -> tuple[int, int]:
        if self._length is None:
            try:
                self._length = len(self.loader)
            except TypeError:
                return 0, step
        return divmod(step, self._length)

    def _open(self, epoch: int) -> Iterator[Any]:
        with seeded(self.seed, "epoch", epoch):
            batches = iter(self.loader)
            first = list(itertools.islice(batches, 1))  # samplers draw their order with the first batch
        return itertools.chain(first, batches)

    def held_out(self) -> Batch | None:
        """Give the first observations of the validation loader."""
        if self.validation is None:
            return None
        return self._read(self.validation, _SAMPLE_ROWS, "the validation DataLoader").rows()

    @property
    def weighted(self) -> bool:
        """Whether the loader yields weights."""
        return self._weighted

    @property
    def n_observations(self) -> int | None:
        """Size of the loader's data set where it has one."""
        try:
            return len(self.loader.dataset)  # type: ignore[arg-type]
        except TypeError:
            return None


class Batches(ABC):
    """Where batches come from, epoch by epoch."""

    @abstractmethod
    def __len__(self) -> int:
        """Give the number of batches in an epoch."""

    @abstractmethod
    def epoch(self, number: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Give the batches of an epoch."""

    @abstractmethod
    def digest(self) -> str:
        """Give what tells these data from others."""


@dataclass(frozen=True)
class ArrayBatches(Batches):
    """Batches of data in memory, in a new order every epoch; a last batch of a single row is left out.

    ``prepare`` maps the inputs of a batch, such as augmentation does; it may draw random numbers. One that has a method
    ``for_epoch`` is asked by it for what maps the inputs of that epoch.
    """

    x: Tensor
    y: Tensor
    batch_size: int
    seed: int
    prepare: Callable[[Tensor], Tensor] | None = None

    def __len__(self) -> int:
        whole, rest = divmod(len(self.x), self.batch_size)
        return whole + (rest > 1)

    def epoch(self, number: int) -> Iterator[tuple[Tensor, Tensor]]:
        order = torch.randperm(len(self.x), generator=random_block(self.seed, "order", number))
        for_epoch = getattr(self.prepare, "for_epoch", None)
        prepare = self.prepare if for_epoch is None else for_epoch(number)
        for start in range(0, len(self) * self.batch_size, self.batch_size):
            rows = order[start : start + self.batch_size]
            x = self.x[rows]
            yield x if prepare is None else prepare(x), self.y[rows]

    def digest(self) -> str:
        return fingerprint((self.x, self.y, self.prepare))


@dataclass(frozen=True)
class LoaderBatches(Batches):
    """Batches of a ``DataLoader`` (or any iterable of pairs that can be passed through again and again).

    ``counts`` is the number of rows of each class, as a first pass found them; a batch of one row is left out. A
    generator of the loader's own is seeded anew for every epoch, so that a resumed run sees the same order.
    """

    loader: Iterable[Any]
    encode: Callable[[Any], Tensor]
    n_batches: int
    counts: tuple[int, ...]
    seed: int

    def __len__(self) -> int:
        return self.n_batches

    def epoch(self, number: int) -> Iterator[tuple[Tensor, Tensor]]:
        generator = getattr(self.loader, "generator", None)
        if isinstance(generator, torch.Generator):
            generator.manual_seed(derive_seed(self.seed, "order", number))
        seen = 0
        for x, y in self.loader:
            if len(x) > 1:
                seen += 1
                if seen <= self.n_batches:
                    yield x.float(), self.encode(y)
        if seen != self.n_batches:
            raise GPSError(
                f"the DataLoader gave {self.n_batches} batches at first and {seen} in epoch {number}: it must give the "
                "same number every time it is passed through"
            )

    def digest(self) -> str:
        return repr((self.n_batches, self.counts))
