"""The log score: its value, how little outliers pull, and noise that is spread evenly."""

import math

import pytest
import torch
from torch.distributions import Bernoulli, Beta, Categorical, Independent, Normal, StudentT, Weibull

from gpsuq import Censored, Cuts, GPSError, LogScore
from gpsuq.core.generators import even_normals
from gpsuq.core.likelihood import has_density
from gpsuq.core.observations import Batch, observations
from gpsuq.core.parameters import DataScale, ParameterMap


def test_the_score_is_that_of_the_mixture():
    data = observations(None, [0.0, 1.0, 4.0])
    loc = torch.tensor([[[0.0, 1.0]]])
    score = LogScore().resolve(data).terms(Normal(loc, 1.0), data.rows()).score[0]
    density = Normal(loc[0, 0], 1.0).log_prob(data.y[:, None]).exp().mean(1)
    expected = (
        -0.95 * torch.log(0.75 * density + 0.25 / 4.0) - 0.05 * density.log()
    )  # a share 1 / (n + 1) over the range
    assert torch.allclose(score, expected)


def test_an_outlier_pulls_a_twentieth():
    y = torch.cat([torch.linspace(-1.0, 1.0, 99), torch.tensor([40.0])])
    data, loc = observations(None, y), torch.zeros(1, 1, 2, requires_grad=True)

    def pull(distance):
        score = distance.terms(Normal(loc, 1.0), data.rows()).score[0, -1]
        return float(torch.autograd.grad(score, loc)[0].sum())

    assert pull(LogScore().resolve(data)) == pytest.approx(0.05 * pull(LogScore()), rel=1e-3)


def test_classes_panels_and_chains_of_held_out_rows_have_a_score_each():
    y = torch.randint(3, (4, 5, 1, 2))  # (chain, observation, 1, measure)
    data = observations(None, y.reshape(20, 2).float())
    predictive = Independent(Categorical(logits=torch.zeros(4, 1, 6, 2, 3)), 1)
    score = LogScore().resolve(data).terms(predictive, Batch(y.float())).score
    assert score.shape == (4, 5)
    assert torch.allclose(score, torch.full((4, 5), 2 * math.log(3.0)), atol=1e-5)


def test_what_has_a_density_is_known():
    batch = observations(None, [0.0, 1.0]).rows()

    class Sampler(Normal):
        log_prob = torch.distributions.Distribution.log_prob

    class NoGradient(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

    class Opaque(Normal):
        def log_prob(self, value):
            return NoGradient.apply(super().log_prob(value))

    loc, positive = torch.zeros(1, 1, 2, requires_grad=True), observations(None, [0.2, 0.4]).rows()
    assert has_density(StudentT(3.0, loc), batch, [loc])
    assert has_density(Beta(1.0 + loc, 2.0), positive, [loc])  # it keeps no parameters
    assert has_density(Censored(Weibull(1.0 + loc, 2.0), upper=1.0), positive, [loc])
    assert not has_density(Opaque(loc, 1.0), batch, [loc])
    assert has_density(Bernoulli(logits=torch.zeros(1, 1, 2)), batch)
    assert not has_density(Sampler(torch.zeros(1, 1, 2), 1.0), batch)


def test_a_constant_says_nothing():
    with pytest.raises(GPSError, match="hardly differ"):
        LogScore().resolve(observations(None, [2.0, 2.0]))


def test_even_noise_is_normal_and_its_mean_hardly_varies():
    torch.manual_seed(0)
    noise = even_normals((400, 1, 64, 3), torch.empty(0))
    assert noise.std() == pytest.approx(1.0, abs=0.01)
    assert float(noise.mean(2).std()) < 0.3 / math.sqrt(64)


def test_cuts_increase_and_begin_one_apart():
    scale = DataScale(torch.tensor(0.0), torch.tensor(1.0))
    cuts = ParameterMap({"cuts": Cuts(4)}, None, scale)
    assert cuts(torch.zeros(1, 1, 1, 4), random=False)["cuts"].flatten().tolist() == pytest.approx(
        [-1.5, -0.5, 0.5, 1.5]
    )
    assert bool((cuts(torch.randn(9, 1, 1, 4), random=False)["cuts"].diff() > 0).all())
