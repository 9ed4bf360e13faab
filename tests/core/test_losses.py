"""Losses for anybody's loop: exact against Monte Carlo, gradients, the Brier score behind them."""

import pytest
import torch
from torch.distributions import Categorical, Normal

from gpsuq import GPSError, class_score, predictive_score
from gpsuq.classify.decisions import brier
from gpsuq.core.losses import BOX, pasted_boxes, probability_spread, shuffled_patches, shuffled_rows


@pytest.fixture
def logits():
    return torch.randn(6, 5, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def test_the_class_score_is_that_of_the_registered_kernel(logits):
    y = torch.tensor([0, 1, 2, 0, 1, 2])
    assert torch.allclose(class_score(logits, y), predictive_score(Categorical(logits=logits), y), atol=1e-7)


def test_with_one_law_for_all_draws_it_is_briers_score(logits):
    y = torch.tensor([0, 1, 2, 0, 1, 2])
    same = logits[:, :1].expand(-1, 4, -1)
    expected = brier(torch.softmax(same[:, 0], -1).numpy(), y.numpy())
    assert float(class_score(same, y).mean()) == pytest.approx(expected - 1.0)


def test_outcomes_average_to_the_exact_score(logits):
    torch.manual_seed(0)
    y = torch.tensor([0, 1, 2, 0, 1, 2])
    exact = class_score(logits, y)
    sampled = torch.stack([class_score(logits, y, n_outcomes=5) for _ in range(3000)])
    assert torch.allclose(sampled.mean(0), exact, atol=4 * float(sampled.std(0).max()) / 3000**0.5)


def test_the_gradient_is_right(logits):
    y = torch.tensor([0, 1, 2, 0, 1, 2])
    assert torch.autograd.gradcheck(lambda values: class_score(values, y), logits.requires_grad_())


def test_normal_predictives_have_a_closed_form():
    predictive = Normal(torch.tensor([[0.0, 1.0]]), torch.tensor([[1.0, 1.0]]))
    to_y = [(1 / 3) ** 0.5 * torch.exp(torch.tensor(-(d**2) / 3)) for d in (0.5, 0.5)]
    pair = (1 / 5) ** 0.5 * torch.exp(torch.tensor(-1 / 5))
    score = predictive_score(predictive, torch.tensor([0.5]))
    assert float(score) == pytest.approx(float(pair - sum(to_y)))


def test_spread_is_zero_without_it(logits):
    assert float(probability_spread(logits[:, :1].expand(-1, 3, -1)).abs().max()) < 1e-12
    assert (probability_spread(logits) > 0).all()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: class_score(torch.zeros(2, 3), torch.zeros(2)), "observations, draws, classes"),
        (lambda: class_score(torch.zeros(2, 1, 3), torch.zeros(2)), "at least 2"),
        (lambda: predictive_score(Normal(torch.zeros(3), 1.0), torch.zeros(3)), "batch shape"),
        (lambda: predictive_score(Normal(torch.zeros(3, 2), 1.0), torch.zeros(2)), "y has 2"),
    ],
)
def test_bad_input_is_refused(call, message):
    with pytest.raises(GPSError, match=message):
        call()


def test_shuffled_rows_keep_columns_and_break_rows():
    torch.manual_seed(0)
    x = torch.arange(20.0)[:, None] + 100.0 * torch.arange(3.0)  # columns move together
    y = shuffled_rows(x, 4000)
    assert y.shape == (4000, 3)
    for column in range(3):
        values, counts = y[:, column].unique(return_counts=True)
        assert torch.equal(values, x[:, column])
        assert float(counts.min()) > 130
    assert float((torch.corrcoef(y.T) - torch.eye(3)).abs().max()) < 0.06
    assert shuffled_rows(torch.rand(5, 2, 3), 7).shape == (7, 2, 3)


def test_shuffled_patches_come_whole_from_one_image_each():
    x = torch.arange(50.0)[:, None, None, None] * torch.tensor([1.0, 100.0])[:, None, None].expand(50, 2, 6, 7)
    y = shuffled_patches(x, 400, 3)
    assert y.shape == (400, 2, 6, 7)
    patch = y[:, :, :3, :3]
    assert torch.equal(patch[:, 1], 100.0 * patch[:, 0])  # all channels from the same image
    assert torch.equal(patch, patch[:, :, :1, :1].expand_as(patch))
    assert (y[:, 0, 0, 0] == y[:, 0, 0, 3]).float().mean() < 0.1  # neighbours from others
    assert (y[:, 0, 0, 3] == y[:, 0, 0, 6]).float().mean() < 0.1  # a narrower patch at the edge
    with pytest.raises(GPSError, match="patches are taken from images"):
        shuffled_patches(torch.rand(5, 3), 2, 2)
    assert shuffled_patches(torch.rand(5, 3), 2, None).shape == (2, 3)


def test_boxes_of_another_image_are_whole_and_anywhere():
    x = torch.arange(1.0, 51.0)[:, None, None, None] * torch.tensor([1.0, 100.0])[:, None, None]
    y = pasted_boxes(x.expand(50, 2, 16, 24), 500)
    assert torch.equal(y[:, 1], 100.0 * y[:, 0])  # all channels from the same image
    sides, places = set(), torch.zeros(16, 24)
    for image in y[:, 0]:
        kinds, counts = image.unique(return_counts=True)
        assert len(kinds) == 2  # never of the image itself
        inside = image == kinds[counts.argmin()]
        rows, columns = inside.any(1), inside.any(0)
        assert inside.sum() == rows.sum() * columns.sum()
        assert rows.sum() == columns.sum()
        sides.add(int(rows.sum()))
        places += inside
    assert sides == set(range(6, 13))
    assert (places > 0).all()
    assert shuffled_patches(torch.rand(1, 3, 8, 8), 4, BOX).shape == (4, 3, 8, 8)  # a single image has no other
    with pytest.raises(GPSError, match="patches are taken from images"):
        shuffled_patches(torch.rand(5, 3), 2, BOX)
