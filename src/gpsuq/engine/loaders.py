"""A user's ``DataLoader`` in training: shared out to processes, in an order of each epoch's own, entered anywhere."""

from __future__ import annotations

import collections
import itertools
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import BatchSampler, DataLoader, IterableDataset

from gpsuq.core.seeds import derive_seed, seeded
from gpsuq.engine.ranks import n_ranks, rank, several, summed


class _Share(BatchSampler):
    """Takes a process's share, at least one row, of every batch that has enough of them."""

    def __init__(self, batches: Iterable[list[int]], fewest: int) -> None:
        self.batches, self.fewest = batches, fewest

    def __iter__(self) -> Iterator[list[int]]:
        batches = (list(batch) for batch in self.batches)
        return (batch[rank() :: n_ranks()] or batch[:1] for batch in batches if len(batch) >= self.fewest)

    def __len__(self) -> int:
        return len(self.batches)  # type: ignore[arg-type]


class _Sliced:
    """What a loader yields, batches of too few rows left out; of the others this process keeps its share."""

    def __init__(self, loader: Any, fewest: int) -> None:
        self.loader, self.fewest = loader, fewest
        for name in ("dataset", "sampler", "generator"):
            setattr(self, name, getattr(loader, name, None))

    def __iter__(self) -> Iterator[Any]:
        for item in self.loader:
            if n_ranks() == 1 and _rows(item) >= self.fewest:
                yield item
            elif _rows(item) >= self.fewest:
                yield self._share(item) if isinstance(item, Tensor) else [self._share(part) for part in item]

    def _share(self, part: Any) -> Any:
        return part[:1] if len(part) <= rank() else part[rank() :: n_ranks()]


def shared_out(loader: Any, fewest: int = 1) -> Any:
    """Return a loader of this process's share of every batch that has at least ``fewest`` rows.

    A stream of rows that has a method ``shard`` knows itself which are a process's; of any other stream every process
    reads all and keeps its share.
    """
    dataset: Any = getattr(loader, "dataset", None)
    if hasattr(dataset, "shard"):
        dataset.shard(rank(), n_ranks())
        return loader
    if not several() or isinstance(dataset, IterableDataset) or getattr(loader, "batch_sampler", None) is None:
        return _Sliced(loader, fewest)
    taken_over = ("collate_fn", "num_workers", "pin_memory", "timeout", "worker_init_fn", "multiprocessing_context")
    options = {name: getattr(loader, name) for name in (*taken_over, "generator", "persistent_workers")}
    return DataLoader(dataset, batch_sampler=_Share(loader.batch_sampler, fewest), **options)


def passed_through(loader: Any, seed: int, number: int, start: int = 0) -> Iterator[Any]:
    """Iterate over a loader in an order of this epoch's own, from the item with the number ``start`` on."""
    for name in ("dataset", "sampler"):
        if (set_epoch := getattr(getattr(loader, name, None), "set_epoch", None)) is not None:
            set_epoch(number)
    generator = getattr(loader, "generator", None)
    with seeded(seed, "epoch", number):
        if isinstance(generator, torch.Generator):
            generator.manual_seed(derive_seed(seed, "order", number))
        items = iter(loader)
        # Samplers draw their order with the first item. What is passed over must not move the caller's random numbers.
        first = list(itertools.islice(items, 1))
        if start:
            first = []
            collections.deque(itertools.islice(items, start - 1), maxlen=0)
    return itertools.chain(first, items)


def side_by_side(items: Iterator[Any]) -> Iterator[tuple[Any, float]]:
    """Yield the batches of this process, as long as every process has one, and what the mean over each counts.

    The mean over processes of (count times mean over the rows of each) is the mean over all rows.
    """
    while True:
        item = next(items, None)
        mine = 0 if item is None else _rows(item)
        rows, present = summed(torch.tensor([mine, int(item is not None)])).tolist()
        if present < n_ranks():
            return
        yield item, mine * n_ranks() / max(rows, 1)


def _rows(item: Any) -> int:
    """Return the number of rows of a batch, whichever way it is packed."""
    return len(item[0]) if isinstance(item, list | tuple) and len(item) else len(item)
