"""Blocks of rows on their way into batches: dealt to processes and workers, and shuffled in a buffer."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

Array = NDArray[np.floating]

_BUFFER = 1 << 16  # rows that a batch is drawn from
_UNEVEN = 0.05  # of its rows: how much a shard of whole row groups may lack


class Block(NamedTuple):
    """Some rows: X (b, p), y, weight and row (b,), the number of each in the files."""

    X: Array
    y: Array
    weight: Array
    row: NDArray[np.int64]

    def at(self, index: Any) -> Block:
        """Return some of the rows."""
        return Block(*(part[index] for part in self))


class Piece(NamedTuple):
    """A row group, or of every block of it each ``parts``-th row that is used, from the number ``part`` on."""

    group: int
    part: int = 0
    parts: int = 1


def dealt(counts: Sequence[int], n_shards: int) -> list[list[Piece]]:
    """Deal row groups of so many rows to shards of nearly the same size; cut all of them where they are too few.

    >>> from gpsuq.tables.blocks import dealt
    >>> [[piece.group for piece in shard] for shard in dealt([5, 1, 4, 2], 2)]
    [[0, 1], [2, 3]]
    >>> dealt([5], 2)
    [[Piece(group=0, part=0, parts=2)], [Piece(group=0, part=1, parts=2)]]
    """
    shards: list[list[Piece]] = [[] for _ in range(n_shards)]
    sizes = [0] * n_shards
    for group in sorted(range(len(counts)), key=lambda group: -counts[group]):
        least = sizes.index(min(sizes))
        shards[least].append(Piece(group))
        sizes[least] += counts[group]
    if min(sizes) >= (1.0 - _UNEVEN) * max(sizes):
        return [sorted(shard) for shard in shards]
    return [[Piece(group, shard, n_shards) for group in range(len(counts))] for shard in range(n_shards)]


def shuffled(blocks: Iterable[Block], size: int, generator: torch.Generator) -> Iterator[Block]:
    """Yield batches of ``size`` rows, drawn from a buffer that is filled again when half of it is used."""
    held: list[Block] = []
    n_held = 0

    def drawn(keep: int) -> Iterator[Block]:
        together = Block(*map(np.concatenate, zip(*held, strict=True)))
        order = torch.randperm(n_held, generator=generator).numpy()
        n_batches = (n_held - keep) // size
        for number in range(n_batches):
            yield together.at(order[number * size : (number + 1) * size])
        held[:] = [together.at(order[n_batches * size :])]

    for block in blocks:
        held.append(block)
        n_held += len(block.y)
        if n_held >= max(_BUFFER, 2 * size):
            yield from drawn(n_held // 2)
            n_held = len(held[0].y)
    if n_held:
        yield from drawn(0)
