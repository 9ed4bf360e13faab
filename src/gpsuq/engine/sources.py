"""Where batches come from: arrays in memory or a ``DataLoader``, epoch by epoch, so that training can resume.

An epoch has the same batches whenever it is asked for. :class:`Source` is the protocol; chains of generators take
:class:`Batch` objects with the weights of every chain, networks take inputs and labels.
"""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor
from torch.utils.data import DataLoader

from gpsuq.core.observations import Batch, Observations, observations
from gpsuq.core.seeds import derive_seed, random_block, seeded
from gpsuq.engine.chains import ChainPlan, ChainWeights
from gpsuq.engine.fingerprint import fingerprint
from gpsuq.errors import GPSError

T = TypeVar("T")

_SAMPLE_ROWS = 2000


class Source(ABC, Generic[T]):
    """Batches, epoch by epoch. ``length`` is the number of batches in an epoch, None as long as it is not known."""

    length: int | None = None
    _batches: Iterator[T] = iter(())
    _next: tuple[int, int] | None = None

    @abstractmethod
    def epoch(self, number: int, start: int = 0) -> Iterator[T]:
        """Yield the batches of an epoch, from the one with the number ``start`` on."""

    def batch(self, step: int) -> T:
        """Return the batch of a step; one after the other is fast, a jump (a resumed run) opens the epoch anew."""
        epoch, position = (0, step) if self.length is None else divmod(step, self.length)
        if self._next != (epoch, position):
            self._batches = self.epoch(epoch, position)
        for item in self._batches:
            self._next = None if self.length == position + 1 else (epoch, position + 1)
            return item
        self.length, self._next = position, None  # the first epoch's length is learned by reaching its end
        return self.batch(step)


class BatchSource(Source[tuple[Batch, Tensor]]):
    """Batches of observations, with weights (chain, observation) of mean about 1.

    ``sample`` are observations to read scales off, ``weighted`` says whether they have different weights,
    ``n_observations`` is None where their number is not known.
    """

    sample: Observations
    weighted: bool
    n_observations: int | None

    @abstractmethod
    def held_out(self) -> Batch | None:
        """Return held-out observations, with a leading chain dimension where chains hold out different ones."""


class ArraySource(BatchSource):
    """Observations in memory: random without replacement within an epoch, all of them where they are few.

    With several processes each takes its own share of every batch.
    """

    def __init__(
        self, data: Observations, plan: ChainPlan, batch_size: int, seed: int, rank: int = 0, n_ranks: int = 1
    ) -> None:
        self.sample, self.n_observations = data, len(data)
        self.seed, self.rank, self.n_ranks = seed, rank, n_ranks
        self.weights = ChainWeights(plan, len(data), data.weight, seed)
        self.weighted = not self.weights.uniform
        self.batch_size = min(batch_size, len(data))
        self.length = len(data) // self.batch_size
        self._everything = self._take(torch.arange(len(data))) if self.batch_size == len(data) else None

    def epoch(self, number: int, start: int = 0) -> Iterator[tuple[Batch, Tensor]]:
        """Yield batches in an order of this epoch's own."""
        if self._everything is not None:
            yield self._everything
            return
        order = torch.randperm(len(self.sample), generator=random_block(self.seed, "epoch", number))
        for first in range(start * self.batch_size, len(order) - self.batch_size + 1, self.batch_size):
            yield self._take(order[first : first + self.batch_size])

    def _take(self, rows: Tensor) -> tuple[Batch, Tensor]:
        rows = rows[self.rank :: self.n_ranks]
        return self.sample.rows(rows), self.weights(rows)

    def held_out(self) -> Batch | None:
        """Return each chain's own held-out rows, shape (chain, held out, 1, ...)."""
        rows = self.weights.held_out
        if rows is None:
            return None
        x, mask = (None if t is None else t[rows].unsqueeze(2) for t in (self.sample.x, self.sample.mask))
        return Batch(self.sample.y[rows].unsqueeze(2), x, mask)


class LoaderSource(BatchSource):
    """A user's ``DataLoader`` that yields ``y``, ``(x, y)`` or ``(x, y, weight)``.

    Rows have no identity here, so chains differ by their seeds only; held-out observations come from a loader of
    their own. Shuffling is seeded by epoch.
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
        self.sample = self._read(loader, "the DataLoader")
        self.weighted = self.sample.weight is not None
        self.length, self.n_observations = _length(loader), _length(loader.dataset)

    def _read(self, loader: DataLoader[Any], name: str) -> Observations:
        """Read as many observations into memory as tell scales."""
        parts: list[Observations] = []
        with seeded(self.seed, "sample"):
            for item in loader:
                parts.append(self._convert(item))
                if sum(map(len, parts)) >= _SAMPLE_ROWS:
                    break
        if not parts:
            raise GPSError(f"{name} yields nothing: at least one batch is needed")
        x, weight = (
            torch.cat(tensors) if None not in (tensors := [getattr(p, name) for p in parts]) else None
            for name in ("x", "weight")
        )
        return Observations(torch.cat([p.y for p in parts]), x, None, weight)

    def _convert(self, item: Any) -> Observations:
        items = [item] if isinstance(item, Tensor) else item
        if not isinstance(items, list | tuple) or not 1 <= len(items) <= 3:
            raise GPSError("the DataLoader must yield y, (x, y) or (x, y, weight)")
        x, y, weight = (None, *items, None) if len(items) == 1 else (*items, None)[:3]
        return observations(x, y, weight=weight, dtype=self.dtype)

    def epoch(self, number: int, start: int = 0) -> Iterator[tuple[Batch, Tensor]]:
        """Yield the loader's batches; those before ``start`` are passed over."""
        with seeded(self.seed, "epoch", number):
            batches = iter(self.loader)
            first = list(itertools.islice(batches, 1))  # samplers draw their order with the first batch
        for item in itertools.islice(itertools.chain(first, batches), start, None):
            data = self._convert(item)
            weight = torch.ones(len(data), dtype=torch.float64) if data.weight is None else data.weight.double()
            yield data.rows(), weight.expand(self.plan.n_chains, -1)

    def held_out(self) -> Batch | None:
        """Return the first observations of the validation loader."""
        return None if self.validation is None else self._read(self.validation, "the validation DataLoader").rows()


def _length(sized: Any) -> int | None:
    try:
        return len(sized)
    except TypeError:
        return None


class Batches(Source[tuple[Tensor, Tensor]]):
    """Batches of inputs and labels, as many in every epoch."""

    length: int

    @abstractmethod
    def digest(self) -> str:
        """Return what tells these data from others."""


class ArrayBatches(Batches):
    """Inputs and labels in memory, in a new order every epoch; a last batch of a single row is left out.

    ``prepare`` maps the inputs of a batch, such as augmentation does; it may draw random numbers. One that has a method
    ``for_epoch`` is asked by it for what maps the inputs of that epoch.
    """

    def __init__(
        self, x: Tensor, y: Tensor, batch_size: int, seed: int, prepare: Callable[[Tensor], Tensor] | None = None
    ) -> None:
        self.x, self.y, self.batch_size, self.seed, self.prepare = x, y, batch_size, seed, prepare
        full, rest = divmod(len(x), batch_size)
        self.length = full + (rest > 1)

    def epoch(self, number: int, start: int = 0) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield batches in an order of this epoch's own."""
        order = torch.randperm(len(self.x), generator=random_block(self.seed, "order", number))
        for_epoch = getattr(self.prepare, "for_epoch", None)
        prepare = self.prepare if for_epoch is None else for_epoch(number)
        for first in range(start * self.batch_size, self.length * self.batch_size, self.batch_size):
            rows = order[first : first + self.batch_size]
            x = self.x[rows]
            yield x if prepare is None else prepare(x), self.y[rows]

    def digest(self) -> str:
        return fingerprint((self.x, self.y, self.prepare))


class LoaderBatches(Batches):
    """A ``DataLoader`` (or any iterable of pairs that can be passed through again and again).

    ``length`` and ``counts``, the number of rows of each class, are what a first pass found; a batch of one row is left
    out. A generator of the loader's own is seeded anew for every epoch, so that a resumed run sees the same order.
    """

    def __init__(
        self, loader: Iterable[Any], encode: Callable[[Any], Tensor], length: int, counts: tuple[int, ...], seed: int
    ) -> None:
        self.loader, self.encode, self.length, self.counts, self.seed = loader, encode, length, counts, seed

    def epoch(self, number: int, start: int = 0) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield the loader's batches; those before ``start`` are passed over."""
        generator = getattr(self.loader, "generator", None)
        if isinstance(generator, torch.Generator):
            generator.manual_seed(derive_seed(self.seed, "order", number))
        seen = 0
        for x, y in self.loader:
            if len(x) > 1:
                seen += 1
                if start < seen <= self.length:
                    yield x.float(), self.encode(y)
        if seen != self.length:
            raise GPSError(
                f"the DataLoader gave {self.length} batches at first and {seen} in epoch {number}: it must give the "
                "same number every time it is passed through"
            )

    def digest(self) -> str:
        return repr((self.length, self.counts))
