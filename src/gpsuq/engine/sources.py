"""Where batches come from: arrays in memory or a ``DataLoader``, epoch by epoch, so that training can resume.

An epoch has the same batches whenever it is asked for. :class:`Source` is the protocol; chains of generators take
:class:`Batch` objects with the weights of every chain, networks take inputs and labels. With several processes each
takes its share of every batch, and weights say what it counts, so that all together see what one process would see.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import torch
from torch import Tensor
from torch.utils.data import DataLoader

from gpsuq.core.observations import Batch, Observations, observations
from gpsuq.core.seeds import random_block, seeded
from gpsuq.engine.chains import ChainPlan, ChainWeights
from gpsuq.engine.fingerprint import fingerprint
from gpsuq.engine.loaders import passed_through, shared_out, side_by_side
from gpsuq.engine.ranks import share
from gpsuq.errors import GPSError

T = TypeVar("T")

_SAMPLE_ROWS = 2000
_FEWEST_LABELLED = 2  # a single row cannot be normalised by its batch


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
    ``n_observations`` is None where their number is not known. Where rows are ``numbered``, chains can weigh them
    differently.
    """

    sample: Observations
    weighted: bool
    n_observations: int | None
    numbered = False

    @abstractmethod
    def held_out(self) -> Batch | None:
        """Return held-out observations, with a leading chain dimension where chains hold out different ones."""


class ArraySource(BatchSource):
    """Observations in memory: random without replacement within an epoch, all of them where they are few."""

    numbered = True

    def __init__(
        self, data: Observations, plan: ChainPlan, batch_size: int, seed: int, groups: Tensor | None = None
    ) -> None:
        self.sample, self.n_observations, self.seed = data, len(data), seed
        self.weights = ChainWeights(plan, len(data), data.weight, seed, groups=groups)
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
        mine, counts = share(rows)
        return self.sample.rows(mine), counts * self.weights(mine)

    def held_out(self) -> Batch | None:
        """Return each chain's own held-out rows, shape (chain, held out, 1, ...)."""
        return None if self.weights.held_out is None else _of_chains(self.sample, self.weights.held_out)


def _of_chains(data: Observations, rows: Tensor) -> Batch:
    """Return rows (chain, n) of each chain's own, shape (chain, n, 1, ...)."""
    parts = (data.x, data.mask, data.w)
    return Batch(data.y[rows].unsqueeze(2), *(None if t is None else t[rows].unsqueeze(2) for t in parts))


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
        self.validation, self.plan, self.seed, self.dtype = validation, plan, seed, dtype
        self.sample = self._read(loader, "the DataLoader")
        self.loader = shared_out(loader)
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
        items = passed_through(self.loader, self.seed, number, start)
        for data, counts in side_by_side(map(self._convert, items)):
            weight = torch.ones(len(data), dtype=torch.float64) if data.weight is None else data.weight.double()
            yield data.rows(), (counts * weight).expand(self.plan.n_chains, -1)

    def held_out(self) -> Batch | None:
        """Return the first observations of the validation loader."""
        return None if self.validation is None else self._read(self.validation, "the validation DataLoader").rows()


class RowSource(BatchSource):
    """A loader of batches (x, y, weight, row) of a stream such as :class:`gpsuq.tables.streaming.ParquetRows`.

    The numbers of its rows stand for them, so that chains have weights and held-out rows as if all were in memory; what
    is held out comes from the stream's sample.
    """

    numbered = True

    def __init__(self, loader: DataLoader[Any], plan: ChainPlan, seed: int, dtype: torch.dtype) -> None:
        stream: Any = loader.dataset
        x, y, weight, row = (torch.from_numpy(part) for part in stream.sample)
        self.sample = observations(x, y, weight=None if stream.weights is None else weight, dtype=dtype)
        self.n_observations, self._rows, self._given = stream.n_rows, row, stream.weights is not None
        self.weights = ChainWeights(plan, stream.n_rows, self.sample.weight, seed, known=row)
        self.weighted = not self.weights.uniform
        self.loader, self.seed, self.dtype, self.length = shared_out(loader), seed, dtype, len(loader)

    def epoch(self, number: int, start: int = 0) -> Iterator[tuple[Batch, Tensor]]:
        """Yield the stream's batches; those before ``start`` are passed over."""
        for (x, y, weight, row), counts in side_by_side(passed_through(self.loader, self.seed, number, start)):
            data = Observations(y.to(self.dtype), x.to(self.dtype))
            yield data.rows(), counts * self.weights(row, weight if self._given else None)

    def held_out(self) -> Batch | None:
        """Return each chain's own held-out rows, shape (chain, held out, 1, ...)."""
        chosen = self.weights.held_out
        return None if chosen is None else _of_chains(self.sample, torch.searchsorted(self._rows, chosen))


def _length(sized: Any) -> int | None:
    try:
        return len(sized)
    except TypeError:
        return None


class Labelled(NamedTuple):
    """Inputs, labels, and what the mean loss over them counts: 1 in a single process."""

    x: Tensor
    y: Tensor
    counts: float = 1.0


class Batches(Source[Labelled]):
    """Batches of inputs and labels, as many in every epoch."""

    length: int

    @abstractmethod
    def digest(self) -> str:
        """Return what tells these data from others."""


class Inputs(Protocol):
    """Inputs of which those of some rows are a tensor: a tensor itself, or an array in a file."""

    def __len__(self) -> int: ...

    def __getitem__(self, rows: Any, /) -> Tensor: ...


class ArrayBatches(Batches):
    """Inputs and labels in memory, in a new order every epoch; a last batch of a single row is left out.

    ``prepare`` maps the inputs of a batch, such as augmentation does; it may draw random numbers. One that has a method
    ``for_epoch`` is asked by it for what maps the inputs of that epoch.
    """

    def __init__(
        self, x: Inputs, y: Tensor, batch_size: int, seed: int, prepare: Callable[[Tensor], Tensor] | None = None
    ) -> None:
        self.x, self.y, self.batch_size, self.seed, self.prepare = x, y, batch_size, seed, prepare
        full, rest = divmod(len(x), batch_size)
        self.length = full + (rest >= _FEWEST_LABELLED)

    def epoch(self, number: int, start: int = 0) -> Iterator[Labelled]:
        """Yield batches in an order of this epoch's own."""
        order = torch.randperm(len(self.x), generator=random_block(self.seed, "order", number))
        for_epoch = getattr(self.prepare, "for_epoch", None)
        prepare = self.prepare if for_epoch is None else for_epoch(number)
        for first in range(start * self.batch_size, self.length * self.batch_size, self.batch_size):
            rows, counts = share(order[first : first + self.batch_size])
            x = self.x[rows]
            yield Labelled(x if prepare is None else prepare(x), self.y[rows], counts)

    def digest(self) -> str:
        return fingerprint((self.x, self.y, self.prepare))


class LoaderBatches(Batches):
    """A ``DataLoader`` (or any iterable of pairs that can be passed through again and again).

    ``length`` is the number of batches that a first pass found, ``found`` a digest of what it saw; a batch of one row
    is left out. A generator of the loader's own is seeded anew for every epoch, so that a resumed run sees the same.
    Inputs become numbers of type ``dtype``.
    """

    def __init__(
        self,
        loader: Iterable[Any],
        encode: Callable[[Any], Tensor],
        length: int,
        found: str,
        seed: int,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        self.loader = shared_out(loader, _FEWEST_LABELLED)
        self.encode, self.length, self.found, self.seed, self.dtype = encode, length, found, seed, dtype

    def epoch(self, number: int, start: int = 0) -> Iterator[Labelled]:
        """Yield the loader's batches; those before ``start`` are passed over."""
        seen = start
        for (x, y), counts in side_by_side(passed_through(self.loader, self.seed, number, start)):
            seen += 1
            if seen <= self.length:
                yield Labelled(x.to(self.dtype), self.encode(y), counts)
        if seen != self.length:
            raise GPSError(
                f"the DataLoader gave {self.length} batches at first and {seen} in epoch {number}: it must give the "
                "same number every time it is passed through"
            )

    def digest(self) -> str:
        return self.found
