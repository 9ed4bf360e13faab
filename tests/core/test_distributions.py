"""Censored, truncated, zero-inflated and ordinal outcomes: what they are, and what they refuse."""

import math

import pytest
import torch
from torch.distributions import (
    Bernoulli,
    Exponential,
    Gamma,
    Independent,
    LogNormal,
    MultivariateNormal,
    NegativeBinomial,
    Normal,
    Poisson,
    Weibull,
)

from gpsuq import Censored, GPSError, Ordinal, Truncated, ZeroInflated
from gpsuq.core.bounded import has_quantiles

ONE = torch.ones((), dtype=torch.float64)
SIZE = 100_000

LAWS = {
    "tobit": Censored(Normal(0.3 * ONE, 1.2), lower=0.0),
    "both-sides": Censored(Normal(0.3 * ONE, 1.2), -1.0, 1.0),
    "weibull": Censored(Weibull(ONE, 1.5), upper=1.2),
    "counts-piled-up": Censored(Poisson(2.0 * ONE), upper=4),
    "counts-between": Censored(NegativeBinomial(3.0 * ONE, 0.5), lower=1, upper=6),
    "truncated": Truncated(Normal(0.3 * ONE, 1.2), 0.0, 1.0),
    "far-away": Truncated(Normal(0.0 * ONE, 1.0), lower=3.0),
    "at-least-one": Truncated(Poisson(2.0 * ONE), lower=1),
    "at-most": Truncated(Exponential(ONE), upper=2.0),
    "many-zeros": ZeroInflated(Poisson(2.0 * ONE), 0.3),
    "rain": ZeroInflated(LogNormal(0.0 * ONE, 0.5), 0.3),
    "logistic": Ordinal(0.3 * ONE, torch.tensor([1.0, -1.0, 0.0], dtype=torch.float64)),
    "probit": Ordinal(0.3 * ONE, torch.tensor([-1.0, 0.5], dtype=torch.float64), latent="normal"),
}


@pytest.mark.parametrize("name", LAWS)
def test_moments_cdf_and_probabilities_are_those_of_samples(name):
    """Within 4.5 standard errors; moments are sums over nodes, with an error of their own below 0.5%."""
    law = LAWS[name]
    torch.manual_seed(0)
    outcomes = law.sample((SIZE,))
    assert bool(law.support.check(outcomes).all())
    mean, variance = outcomes.mean(), outcomes.var()
    assert abs(float(law.mean - mean)) < 4.5 * float((variance / SIZE).sqrt()) + 0.005 * float(mean.abs())
    fourth = float((outcomes - mean).pow(4).mean() - variance.square()) ** 0.5
    assert abs(float(law.variance - variance)) < 4.5 * fourth / SIZE**0.5 + 0.01 * float(variance)
    for value in outcomes[:5]:
        share = float((outcomes <= value).double().mean())
        assert abs(float(law.cdf(value)) - share) < 4.5 * 0.5 / SIZE**0.5
        equal = float((outcomes == value).double().mean())
        if equal > 0.01:  # an atom
            assert abs(float(law.log_prob(value).exp()) - equal) < 4.5 * 0.5 / SIZE**0.5


@pytest.mark.parametrize("name", ["tobit", "both-sides", "weibull", "truncated", "at-most", "rain"])
def test_densities_and_atoms_add_up_to_one(name):
    law = LAWS[name]
    low, high = (float(getattr(law, side, default)) for side, default in (("lower", 0.0), ("upper", math.inf)))
    low, high = max(low, 0.0 if name in ("weibull", "at-most") else -8.0), min(high, 12.0)
    grid = torch.linspace(low, high, 40_001, dtype=torch.float64)
    inside = torch.trapezoid(law.log_prob(grid[1:-1]).exp(), grid[1:-1])
    atoms = [float(law.log_prob(end * ONE).exp()) for end in (low, high) if float(_atom(law, end)) > 0]
    assert float(inside) + sum(atoms) == pytest.approx(1.0, abs=2e-3)


def _atom(law, end):
    torch.manual_seed(0)
    return (law.sample((2000,)) == end).double().mean()


def test_quantiles_go_back_and_forth():
    levels = torch.linspace(0.05, 0.95, 7, dtype=torch.float64)
    for name in ("truncated", "at-most"):
        assert torch.allclose(LAWS[name].cdf(LAWS[name].icdf(levels)), levels)
    piled_up = LAWS["tobit"]
    assert float(piled_up.icdf(0.01 * ONE)) == 0.0
    assert torch.allclose(piled_up.cdf(piled_up.icdf(levels[3:])), levels[3:])


def test_bounds_may_differ_between_observations():
    upper = torch.tensor([1.0, math.inf, 2.0])[None, :, None]
    law = Censored(Weibull(torch.ones(2, 1, 4), 1.5), upper=upper)
    assert law.batch_shape == (2, 3, 4)
    outcomes = law.sample((50,))
    assert float(outcomes[:, :, 0].max()) == 1.0
    assert float(outcomes[:, :, 1].max()) > 2.0
    assert torch.isfinite(law.log_prob(torch.tensor([1.0, 1.5, 2.0])[None, :, None])).all()
    wide = law.expand(torch.Size([5, 2, 3, 4]))
    assert wide.sample().shape == (5, 2, 3, 4)


def test_gradients_of_log_probabilities_are_finite_at_atoms_and_inside():
    loc = torch.zeros(4, requires_grad=True)
    values = torch.tensor([-1.0, 0.2, 1.0, 0.9])
    Censored(Normal(loc, 0.5), -1.0, 1.0).log_prob(values).sum().backward()
    assert torch.isfinite(loc.grad).all()
    assert float(loc.grad[0]) < 0 < float(loc.grad[2])  # what is piled up below pulls down


def test_censored_outcomes_carry_gradients():
    """E min(X, 1) of an exponential with scale s is s (1 - exp(-1 / s)); within 4.5 standard errors."""
    scale = torch.full((SIZE,), 2.0, requires_grad=True)
    torch.manual_seed(0)
    Censored(Exponential(1.0 / scale), upper=1.0).rsample().sum().backward()
    truth = 1.0 - math.exp(-0.5) * 1.5
    assert abs(float(scale.grad.mean()) - truth) < 4.5 * float(scale.grad.std()) / SIZE**0.5


def test_cut_points_need_no_order():
    location = torch.zeros(2, 3)
    one, other = (Ordinal(location, torch.tensor(cuts)).probs for cuts in ([1.0, -1.0], [-1.0, 1.0]))
    assert torch.equal(one, other)
    assert one.shape == (2, 3, 3)
    assert Ordinal(location, torch.zeros(2, 1, 4)).batch_shape == (2, 3)


def test_which_laws_have_quantiles():
    assert [has_quantiles(law) for law in (LAWS["weibull"], LAWS["truncated"], Gamma(1.0, 1.0), Poisson(1.0))] == [
        True,
        True,
        False,
        False,
    ]
    assert not has_quantiles(Truncated(Gamma(1.0, 1.0), upper=2.0))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Censored(Normal(0.0, 1.0)), "lower bound, an upper bound"),
        (lambda: Truncated(Normal(0.0, 1.0), 1.0, 0.0), "below the upper"),
        (lambda: Censored(3.0, 0.0), "needs a torch distribution, got float"),
        (lambda: Censored(MultivariateNormal(torch.zeros(2), torch.eye(2)), 0.0), "not for vectors"),
        (lambda: ZeroInflated(Independent(Poisson(torch.ones(2)), 1), 0.1), "not for vectors"),
        (lambda: ZeroInflated("Poisson", 0.1), "needs a torch distribution, got str"),
        (lambda: Ordinal(torch.zeros(2), torch.zeros(3), latent="cauchy"), "logistic"),
        (lambda: Ordinal(torch.zeros(2), torch.tensor(0.0)), "last dimension"),
        (lambda: Truncated(Gamma(1.0, 1.0), lower=900.0).sample(), "hardly any outcome of Gamma"),
    ],
)
def test_what_cannot_be_is_named(make, message):
    with pytest.raises(GPSError, match=message):
        make()


def test_values_outside_are_refused_where_arguments_are_checked():
    for law, value in (
        (Censored(Normal(0.0, 1.0), lower=0.0, validate_args=True), -1.0),
        (Truncated(Poisson(1.0), lower=1, validate_args=True), 0.0),
        (ZeroInflated(Poisson(1.0), 0.5, validate_args=True), 0.5),
        (Ordinal(torch.zeros(1), torch.zeros(2), validate_args=True), 3.0),
    ):
        with pytest.raises(ValueError, match="support"):
            law.log_prob(torch.tensor(value))
    with pytest.raises(ValueError, match="share"):
        ZeroInflated(Poisson(1.0), 1.5, validate_args=True)


def test_binary_outcomes_may_be_inflated():
    law = ZeroInflated(Bernoulli(0.5 * ONE), 0.2)
    assert float(law.mean) == pytest.approx(0.4)
    assert float(law.log_prob(ONE).exp()) == pytest.approx(0.4)
