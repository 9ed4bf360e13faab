"""Losses for anybody's loop: exact against Monte Carlo, gradients, the Brier score behind them."""

import pytest
import torch
from torch.distributions import Categorical, Normal

from gpsuq import GPSError, class_score, predictive_score
from gpsuq.classify.decisions import brier
from gpsuq.core import losses
from gpsuq.core.losses import probability_spread


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


def test_spread_is_the_same_of_very_many_classes(monkeypatch):
    logits = torch.randn(4, 3, 300, generator=torch.Generator().manual_seed(0))
    many = probability_spread(logits)
    monkeypatch.setattr(losses, "_MANY_CLASSES", 300)
    assert torch.allclose(many, probability_spread(logits), rtol=1e-5)


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
