import numpy as np
import pytest
import torch
from scipy import stats

from gpsuq.core.seeds import derive_seed, random_block, seeded, uniform_by_row


def test_blocks_differ_by_every_part_of_their_address():
    addresses = [(0, "a", 0), (1, "a", 0), (0, "b", 0), (0, "a", 1), (0, "a", 0, 0), (0, "a/0", 0)]
    assert len({derive_seed(*address) for address in addresses}) >= len(addresses) - 1
    assert torch.equal(torch.randn(5, generator=random_block(3, "x")), torch.randn(5, generator=random_block(3, "x")))


def test_uniform_by_row_does_not_depend_on_the_rows_it_is_asked_with():
    rows = torch.arange(1000)
    whole = uniform_by_row(1, "w", 3, rows)
    assert torch.equal(whole[:, 100:200], uniform_by_row(1, "w", 3, rows[100:200]))
    assert torch.equal(whole[:2], uniform_by_row(1, "w", 2, rows))


@pytest.mark.parametrize("start", [0, 10**6, 2**31 - 5_000, 2**40])
def test_uniform_by_row_is_uniform_and_uncorrelated(start):
    values = uniform_by_row(7, "w", 2, torch.arange(start, start + 20_000)).numpy()
    assert values.min() > 0
    assert values.max() < 1
    for chain in values:
        assert stats.kstest(chain, "uniform").pvalue > 1e-3
        assert abs(np.corrcoef(chain[:-1], chain[1:])[0, 1]) < 0.03
    assert abs(np.corrcoef(values[0], values[1])[0, 1]) < 0.03


def test_no_row_has_the_same_number_in_all_chains():
    """Row 0 once had: its two hashes were equal and cancelled."""
    values = uniform_by_row(0, "bootstrap", 50, torch.tensor([0, 1, 2**31, 2**31 + 1]))
    assert (values.std(1) > 0.05).all()
    assert values.unique().numel() == values.numel()
    assert (values.T.std(1) > 0.2).all()


def test_seeded_repeats_and_leaves_the_callers_generator_alone():
    torch.manual_seed(5)
    expected = torch.randn(3)
    torch.manual_seed(5)
    with seeded(0, "step", 1):
        first = torch.randn(3)
    assert torch.equal(torch.randn(3), expected)
    with seeded(0, "step", 1):
        assert torch.equal(torch.randn(3), first)


def test_seeded_blocks_of_threads_take_turns(threads):
    def drawn(number):
        with seeded(number, "outer"), seeded(number, "inner"):
            return [torch.randn(2) for _ in range(20)]

    state = torch.get_rng_state()
    alone = [drawn(number) for number in range(100)]
    for one, other in zip(alone, threads.map(drawn, range(100)), strict=True):
        assert all(map(torch.equal, one, other))
    assert torch.equal(torch.get_rng_state(), state)
