from itertools import chain

import pytest
import torch
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

from gpsuq.core.observations import observations
from gpsuq.core.seeds import seeded
from gpsuq.engine.chains import ChainPlan
from gpsuq.engine.sources import ArraySource, LoaderSource
from gpsuq.errors import GPSError

PLAN = ChainPlan(2, None, 0.0)


def values(source, steps):
    return [source.batch(step)[0].y.flatten().tolist() for step in steps]


def test_an_epoch_sees_every_row_once_and_epochs_differ():
    source = ArraySource(observations(None, torch.arange(12.0)), PLAN, 4, seed=0)
    first, second = list(chain(*values(source, range(3)))), list(chain(*values(source, range(3, 6))))
    assert sorted(first) == sorted(second) == list(range(12))
    assert first != second


def test_batches_are_addressed_by_step():
    make = lambda: ArraySource(observations(None, torch.arange(50.0)), PLAN, 8, seed=3)  # noqa: E731
    assert values(make(), range(20))[13:] == values(make(), range(13, 20))


@pytest.mark.parametrize("n_ranks", [2, 3, 12])
def test_processes_share_a_batch(process, n_ranks):
    """Together they take every row once, and the mean of what they count is the mean over all; 12 have 10 rows."""
    data = observations(None, torch.arange(40.0))
    whole = values(ArraySource(data, PLAN, 10, 0), [2])[0]
    seen, mean = [], 0.0
    for rank in range(n_ranks):
        process(rank, n_ranks)
        batch, weight = ArraySource(data, PLAN, 10, 0).batch(2)
        seen += batch.y.flatten()[weight[0] > 0].tolist()
        mean += float((weight[0] * batch.y.flatten()).mean()) / n_ranks
    assert sorted(seen) == sorted(whole)
    assert mean == pytest.approx(sum(whole) / 10)


class Noisy(torch.utils.data.Dataset):
    """Rows that are moved at random whenever they are read."""

    def __len__(self):
        return 12

    def __getitem__(self, row):
        return float(row) + torch.rand(())


def test_what_a_loader_draws_is_the_same_after_a_jump():
    """A resumed run passes over batches, and these must not move the random numbers of the one that it goes on with."""

    def read(steps):
        source = LoaderSource(DataLoader(Noisy(), batch_size=3, shuffle=True), None, PLAN, 0, torch.float32)
        found = []
        for step in steps:
            with seeded(0, "step", step):
                found.append(source.batch(step)[0].y.flatten().tolist())
        return found

    assert read(range(8))[6:] == read(range(6, 8))


def loader(shuffle=True):
    data = TensorDataset(torch.arange(24.0).reshape(12, 2), torch.arange(12.0))
    return DataLoader(data, batch_size=5, shuffle=shuffle)


def test_a_loader_is_read_epoch_by_epoch_and_can_be_resumed():
    source = LoaderSource(loader(), None, PLAN, seed=0, dtype=torch.float32)
    seen = values(source, range(9))
    assert sorted(chain(*seen[:3])) == sorted(chain(*seen[3:6])) == list(range(12))
    assert seen[:3] != seen[3:6]
    resumed = LoaderSource(loader(), None, PLAN, seed=0, dtype=torch.float32)
    assert values(resumed, range(4, 9)) == seen[4:]
    assert source.n_observations == 12
    assert source.sample.x.shape == (12, 2)


class Stream(IterableDataset):
    def __iter__(self):
        return iter(torch.arange(7.0))


def test_a_loader_without_length_is_read_to_its_end():
    source = LoaderSource(DataLoader(Stream(), batch_size=3), None, PLAN, seed=0, dtype=torch.float32)
    assert values(source, range(5)) == [[0.0, 1.0, 2.0], [3.0, 4.0, 5.0], [6.0], [0.0, 1.0, 2.0], [3.0, 4.0, 5.0]]
    assert source.n_observations is None


def test_weights_and_validation_of_a_loader():
    weighted = DataLoader(
        TensorDataset(torch.ones(4, 1), torch.zeros(4), torch.tensor([1.0, 2.0, 3.0, 4.0])), batch_size=4
    )
    source = LoaderSource(weighted, loader(False), PLAN, seed=0, dtype=torch.float32)
    assert source.weighted
    assert source.batch(0)[1].tolist() == [[1.0, 2.0, 3.0, 4.0]] * 2
    assert source.held_out().y.shape == (1, 12, 1)


def test_bad_loaders_are_named():
    with pytest.raises(GPSError, match="yields nothing"):
        LoaderSource(DataLoader(TensorDataset(torch.empty(0))), None, PLAN, 0, torch.float32)
    four = DataLoader(TensorDataset(*[torch.ones(4)] * 4), batch_size=2)
    with pytest.raises(GPSError, match="must yield"):
        LoaderSource(four, None, PLAN, 0, torch.float32)
    broken = DataLoader(TensorDataset(torch.tensor([1.0, torch.nan])), batch_size=2)
    with pytest.raises(GPSError, match="row 1"):
        LoaderSource(broken, None, PLAN, 0, torch.float32)
