"""The default generator: pieces of columns, chains that do not see each other, dropout in training only."""

import numpy as np
import pytest
import torch

from gpsuq.core.parameters import DataScale
from gpsuq.regress.network import Pieces, Tabular, dropped

SCALE = DataScale(torch.tensor(0.0), torch.tensor(1.0), torch.zeros(2), torch.ones(2), 2)


def test_pieces_are_linear_inside_and_bounded_outside():
    pieces = Pieces([(-1.0, 0.0, 2.0), ()], 2)
    assert pieces.n_out == 4
    x = torch.tensor([[-3.0, 7.0], [-0.5, 0.0], [1.0, 0.0], [9.0, 0.0]])
    found = pieces(x)
    np.testing.assert_allclose(found[:, :2], [[-3.0, 5.0], [-0.5, 0.0], [1.0, 0.0], [5.0, 0.0]])
    np.testing.assert_allclose(found[:, 2:] + 0.5, [[-1.0, 0.0], [0.5, 0.0], [1.0, 0.5], [1.0, 2.0]])


def test_a_chain_depends_on_its_number_only():
    spec = Tabular(hidden=(8, 8), width=4, noise_dim=3, edges=((-1.0, 0.0, 1.0), ()))
    noise, x = torch.randn(3, 5, 6, 3), torch.randn(1, 5, 1, 2)
    three, two = spec.build(2, 3, SCALE, 2, 7), spec.build(2, 2, SCALE, 2, 7)
    whole = three(noise, x)
    assert whole.shape == (3, 5, 6, 2)
    assert torch.allclose(two(noise[:2], x), whole[:2])
    three.select([2])
    assert torch.allclose(three(noise[2:], x), whole[2:], atol=1e-6)
    shared = noise[:2, :1].expand(-1, 5, -1, -1)
    assert torch.allclose(two(noise[:2, :1], x), two(shared, x), atol=1e-6)


def test_dropout_is_for_training_only():
    body = Tabular(hidden=(32,), width=8, dropout=0.5).build(2, 1, SCALE, 2, 0)
    noise, x = torch.randn(1, 4, 3, 4), torch.randn(1, 4, 1, 2)
    assert not torch.equal(body(noise, x), body(noise, x))
    body.eval()
    assert torch.equal(body(noise, x), body(noise, x))


@pytest.mark.parametrize("shape", [(3, 5, 7), (2, 128, 128)])
def test_dropout_keeps_the_mean_and_follows_the_seed(shape):
    hidden = torch.ones(shape)
    torch.manual_seed(0)
    first = dropped(hidden, 0.2)
    torch.manual_seed(0)
    assert torch.equal(first, dropped(hidden, 0.2))
    assert not torch.equal(first, dropped(hidden, 0.2))
    assert first.unique().tolist() == pytest.approx([0.0, 256 / 205])
    if hidden.numel() > 10_000:
        assert (first == 0).float().mean() == pytest.approx(51 / 256, abs=0.01)
