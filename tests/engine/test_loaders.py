"""Loaders of several processes: each keeps its share of every batch."""

import pytest
import torch
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

from gpsuq.engine.loaders import shared_out


class Stream(IterableDataset):
    def __iter__(self):
        return iter(torch.arange(7.0))


@pytest.mark.parametrize("streamed", [False, True])
def test_processes_share_the_batches_of_a_loader(process, streamed):
    """Rows in memory are read by one process each; of a stream that cannot be sharded every process keeps its share."""
    rows = TensorDataset(torch.arange(24.0).reshape(12, 2), torch.arange(12.0))
    whole = DataLoader(Stream(), batch_size=3) if streamed else DataLoader(rows, batch_size=5)
    expected = [list(map(float, _outcomes(item))) for item in whole]
    parts = []
    for rank in range(2):
        process(rank, 2)
        parts.append([list(map(float, _outcomes(item))) for item in shared_out(whole)])
    for batch, one, other in zip(expected, *parts, strict=True):
        assert sorted({*one, *other}) == batch
        assert len(one) + len(other) == max(2, len(batch))


def test_batches_of_a_single_row_can_be_left_out(process):
    for n_ranks in (1, 2):
        process(0, n_ranks)
        assert len(list(shared_out(DataLoader(Stream(), batch_size=3), 2))) == 2
        items = list(shared_out(DataLoader(TensorDataset(torch.arange(11.0)), batch_size=5), 2))
        assert len(items) == 2


def _outcomes(item):
    return item if isinstance(item, torch.Tensor) else item[-1]
