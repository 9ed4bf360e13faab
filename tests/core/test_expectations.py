import itertools
import math

import numpy as np
import pytest
import scoringrules
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.distributions import (
    Bernoulli,
    Binomial,
    Categorical,
    Distribution,
    Exponential,
    Gamma,
    Independent,
    MixtureSameFamily,
    NegativeBinomial,
    Normal,
    OneHotCategorical,
    Pareto,
    Poisson,
    StudentT,
    Uniform,
    Weibull,
)
from torch.distributions import Laplace as LaplaceDistribution

from gpsuq.core import expectations, forms, outcomes, supports
from gpsuq.core.censored import Censored
from gpsuq.core.expectations import (
    draw_shifts,
    exact_score,
    kernel_score,
    register_kernel_mean,
    register_kernel_pair,
)
from gpsuq.core.kernels import AdaptiveGaussian, Energy, Gaussian, Kernel, Laplace, Mixture
from gpsuq.core.ordinal import Ordinal
from gpsuq.core.truncated import Truncated
from gpsuq.core.zero_inflated import ZeroInflated
from gpsuq.errors import GPSError

C, N, M = 2, 3, 6


def parameters(*shape, low=-1.0, high=1.0, seed=0, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    return low + (high - low) * torch.rand(*shape, generator=generator, dtype=dtype)


def observe(distribution: Distribution, seed: int = 0):
    """One outcome of draw 0 of chain 0 for each observation, shaped like observations."""
    torch.manual_seed(seed)
    return distribution.sample()[:1, :, :1]


def monte_carlo(kernel: Kernel, distribution: Distribution, y, encode, events, size=40_000):
    """Both terms by brute force: many independent outcomes of every draw, all pairs of different draws."""
    torch.manual_seed(1)
    first, second = (encode(distribution.sample((size,))) for _ in range(2))
    fit = -2 * kernel(first, encode(y), events).mean((0, 3))
    pairs = [
        kernel(first[:, :, :, m], second[:, :, :, k], events).mean(0) for m in range(M) for k in range(M) if m != k
    ]
    return fit, torch.stack(pairs).mean(0)


SCALARS = {
    "normal-gaussian": (Gaussian(0.8), Normal(parameters(C, N, M), parameters(C, N, M, low=0.2, seed=1))),
    "normal-energy": (Energy(), Normal(parameters(C, N, M), parameters(C, N, M, low=0.2, seed=1))),
    "bernoulli-gaussian": (Gaussian(0.8), Bernoulli(parameters(C, N, M, low=0.1, high=0.9))),
    "bernoulli-laplace": (Laplace(0.8), Bernoulli(parameters(C, N, M, low=0.1, high=0.9))),
    "poisson-gaussian": (Gaussian(9.0), Poisson(parameters(C, N, M, low=0.5, high=6.0))),
    "poisson-energy": (Energy(), Poisson(parameters(C, N, M, low=0.5, high=6.0))),
    "binomial-gaussian": (Gaussian(9.0), Binomial(7, parameters(C, N, M, low=0.1, high=0.9))),
    "negative-binomial-gaussian": (
        Gaussian(9.0),
        NegativeBinomial(parameters(C, N, M, low=1.0, high=5.0), parameters(C, N, M, low=0.2, high=0.7, seed=1)),
    ),
    "normal-mixture": (
        Mixture((Gaussian(0.5), Gaussian(4.0), Energy()), (0.5, 0.2, 0.3)),
        Normal(parameters(C, N, M), parameters(C, N, M, low=0.2, seed=1)),
    ),
}


@pytest.mark.parametrize("name", SCALARS)
def test_closed_forms_agree_with_monte_carlo(name):
    kernel, distribution = SCALARS[name]
    y = observe(distribution)
    exact = kernel_score(kernel, distribution, y, n_pairs=None)
    fit, pair = monte_carlo(kernel, distribution, y, lambda t: t, 0)
    tolerance = 0.02 * float(fit.abs().mean())
    assert torch.allclose(exact.fit, fit, atol=tolerance)
    assert torch.allclose(exact.pair, pair, atol=tolerance)


NORMAL = Normal(parameters(C, N, M), parameters(C, N, M, low=0.2, seed=1))
SHARE = parameters(C, N, M, low=0.1, high=0.6, seed=2)
TWO = Categorical(parameters(C, N, M, 2, low=0.1, seed=3))
BOTH = Mixture((Gaussian(0.5), Energy()), (0.5, 0.2))

COMPOSED = {
    "tobit": (BOTH, Censored(NORMAL, lower=0.0)),
    "censored-on-both-sides": (BOTH, Censored(NORMAL, -0.5, 0.7)),
    "censored-here-and-there": (BOTH, Censored(NORMAL, upper=torch.tensor([0.2, math.inf, 1.0])[None, :, None])),
    "truncated": (BOTH, Truncated(NORMAL, -0.5, 0.7)),
    "truncated-far-away": (BOTH, Truncated(NORMAL, lower=2.5)),
    "zeros-and-normal": (BOTH, ZeroInflated(NORMAL, SHARE)),
    "zeros-and-tobit": (BOTH, ZeroInflated(Censored(NORMAL, lower=0.0), SHARE)),
    "normals": (BOTH, MixtureSameFamily(TWO, Normal(parameters(C, N, M, 2), 0.5))),
    "tobits": (BOTH, MixtureSameFamily(TWO, Censored(Normal(parameters(C, N, M, 2), 0.5), lower=0.0))),
    "poissons": (Gaussian(9.0), MixtureSameFamily(TWO, Poisson(parameters(C, N, M, 2, low=0.5, high=6.0)))),
    "zeros-and-poisson": (Energy(), ZeroInflated(Poisson(parameters(C, N, M, low=0.5, high=6.0)), SHARE)),
    "zeros-and-binomial": (Gaussian(9.0), ZeroInflated(Binomial(7, parameters(C, N, M, low=0.1, high=0.9)), SHARE)),
    "at-least-one": (Gaussian(9.0), Truncated(Poisson(parameters(C, N, M, low=0.5, high=6.0)), lower=1)),
    "at-most-four": (Gaussian(9.0), Censored(Poisson(parameters(C, N, M, low=0.5, high=6.0)), upper=4)),
    "ordinal": (BOTH, Ordinal(parameters(C, N, M), parameters(C, 1, 1, 3, seed=4))),
}


@pytest.mark.parametrize("name", COMPOSED)
def test_what_is_composed_of_closed_forms_is_exact(name):
    """Against brute force, whose standard error is at most 0.005 for kernels and distances of order one."""
    kernel, distribution = COMPOSED[name]
    y = observe(distribution)
    exact = exact_score(kernel, distribution, y)
    assert exact is not None
    exact = kernel_score(kernel, distribution, y, n_pairs=None)
    fit, pair = monte_carlo(kernel, distribution, y, lambda t: t, 0)
    tolerance = 0.015 * max(1.0, float(fit.abs().mean()))
    assert torch.allclose(exact.fit, fit, atol=tolerance)
    assert torch.allclose(exact.pair, pair, atol=tolerance)


@pytest.mark.parametrize("kernel", [Gaussian(0.5), Gaussian(14.0), Energy()], ids=str)
def test_two_truncated_normals_are_exact_to_four_digits(kernel):
    """Against a fine grid, for laws that are narrow, wide and cut off far from their centre."""
    loc = torch.tensor([0.3, -0.5, 3.0, 0.0, -2.0, 0.0], dtype=torch.float64)[None, None, :]
    scale = torch.tensor([1.0, 1.2, 0.5, 0.05, 0.5, 2.0], dtype=torch.float64)[None, None, :]
    law = Truncated(Normal(loc, scale), -1.0, 2.0)
    pair = kernel_score(kernel, law, torch.zeros(1, 1, 1, dtype=torch.float64), n_pairs=None).pair
    grid = torch.linspace(-1.0, 2.0, 4001, dtype=torch.float64)
    density = law.log_prob(grid[:, None, None, None]).exp()[:, 0, 0]
    density[[0, -1]] *= 0.5  # the rule of trapezoids
    density = density / density.sum(0)
    each = density.T @ kernel(grid[:, None], grid[None, :]) @ density
    brute = (each.sum() - each.trace()) / (M * (M - 1))
    assert float(pair) == pytest.approx(float(brute), abs=5e-5)


MAKE = {
    "tobit": lambda r: Censored(Normal(r, 0.6), lower=0.0),
    "truncated": lambda r: Truncated(Normal(r, r.exp()), -0.5, 0.7),
    "zeros": lambda r: ZeroInflated(Normal(r, 0.6), torch.sigmoid(r)),
    "zeros-and-counts": lambda r: ZeroInflated(Poisson(r.exp()), torch.sigmoid(r)),
    "normals": lambda r: MixtureSameFamily(
        Categorical(logits=torch.stack([r, -r], -1)), Normal(torch.stack([r, 1 - r], -1), 0.6)
    ),
    "at-least-one": lambda r: Truncated(Poisson(r.exp()), lower=1),
    "piled-up": lambda r: Censored(Poisson(r.exp()), upper=3),
    "ordinal": lambda r: Ordinal(r, torch.tensor([-1.0, 0.5], dtype=torch.float64)),
    "binary": lambda r: Independent(Bernoulli(logits=r[..., None] + torch.arange(3.0, dtype=r.dtype)), 1),
    "classes": lambda r: Independent(
        Categorical(logits=torch.stack([r, -r, 2 * r, r * r], -1).unflatten(-1, (2, 2))), 1
    ),
}


@pytest.mark.parametrize("name", MAKE)
@pytest.mark.parametrize("kernel", [Mixture((Gaussian(0.7), Gaussian(5.0))), Energy()], ids=["gaussians", "energy"])
def test_gradients_are_those_of_finite_differences(name, kernel):
    make, raw = MAKE[name], parameters(1, 2, 4).requires_grad_()
    if make(raw).event_shape and isinstance(kernel, Energy):
        pytest.skip("sampled")
    y = observe(make(raw.detach()))
    assert torch.autograd.gradcheck(lambda r: kernel_score(kernel, make(r), y, n_pairs=None).score, raw, atol=1e-5)


def test_exact_means_no_randomness():
    for kernel, distribution in SCALARS.values():
        y = observe(distribution)
        first, second = (kernel_score(kernel, distribution, y) for _ in range(2))
        assert torch.equal(first.score, second.score)


@pytest.mark.parametrize("kernel", [Gaussian(0.8), Energy(), lambda: None], ids=["gaussian", "energy", "own"])
def test_categories_are_compared_as_one_hot_vectors(kernel):
    if not isinstance(kernel, Kernel):
        from gpsuq.core.kernels import CallableKernel

        kernel = CallableKernel(lambda a, b: (a * b).sum(-1))
    distribution = Categorical(logits=parameters(C, N, M, 4))
    y = observe(distribution)
    exact = kernel_score(kernel, distribution, y)
    fit, pair = monte_carlo(kernel, distribution, y, lambda t: torch.nn.functional.one_hot(t, 4).double(), 1)
    assert torch.allclose(exact.fit, fit, atol=0.02)
    assert torch.allclose(exact.pair, pair, atol=0.02)
    one_hot = kernel_score(
        kernel, OneHotCategorical(logits=distribution.logits), torch.nn.functional.one_hot(y, 4).double()
    )
    assert torch.allclose(one_hot.score, exact.score)


def test_the_categorical_score_is_the_brier_score_of_the_mean():
    probabilities = parameters(1, 1, 2000, 3, low=0.0).softmax(-1)
    y = torch.zeros(1, 1, 1, dtype=torch.long)
    score = kernel_score(Gaussian(1.0), Categorical(probabilities), y).score
    mean = probabilities.mean(2).squeeze()
    c = np.exp(-2.0)
    brier = float(mean.square().sum() - 2 * mean[0])
    assert float(score) == pytest.approx((1 - c) * brier + c - 2 * c, abs=2e-3)


def test_vectors_of_categories_multiply():
    logits = parameters(C, N, M, 2, 3)
    distribution = Independent(Categorical(logits=logits), 1)
    y = observe(distribution)
    exact = kernel_score(Gaussian(2.0), distribution, y, n_pairs=None)
    assert exact.score.shape == (C, N)
    fit, pair = monte_carlo(Gaussian(2.0), distribution, y, lambda t: torch.nn.functional.one_hot(t, 3).double(), 2)
    assert torch.allclose(exact.fit, fit, atol=0.02)
    assert torch.allclose(exact.pair, pair, atol=0.02)
    one_hot = Independent(OneHotCategorical(logits=logits), 1)
    other = kernel_score(Gaussian(2.0), one_hot, torch.nn.functional.one_hot(y, 3).double(), n_pairs=None)
    assert torch.allclose(other.score, exact.score)
    torch.manual_seed(0)
    sampled = kernel_score(Gaussian(2.0), distribution, y, n_outcomes=400, n_pairs=None)
    assert torch.allclose(sampled.score, exact.score, atol=0.15)


def test_binomials_with_different_totals_are_enumerated():
    total = torch.tensor([3.0, 5.0, 7.0], dtype=torch.float64)[None, :, None]
    distribution = Binomial(total, parameters(C, N, M, low=0.1, high=0.9))
    y = torch.minimum(torch.full((1, N, 1), 4.0, dtype=torch.float64), total)
    exact = kernel_score(Gaussian(4.0), distribution, y, n_pairs=None)
    fit, pair = monte_carlo(Gaussian(4.0), distribution, y, lambda t: t, 0)
    assert torch.allclose(exact.fit, fit, atol=0.02)
    assert torch.allclose(exact.pair, pair, atol=0.02)


def test_a_mixture_of_kernels_is_exact_for_vectors_of_counts():
    distribution = Independent(Poisson(parameters(C, N, M, 2, low=0.5, high=4.0)), 1)
    y = observe(distribution)
    kernel = Mixture((Gaussian(1.0), Gaussian(9.0)))
    first, second = (kernel_score(kernel, distribution, y).score for _ in range(2))
    assert torch.equal(first, second)


@pytest.mark.parametrize(
    "distribution",
    [Uniform(parameters(C, N, M), 3.0), Pareto(1.0, 2.0 + parameters(C, N, M)), Exponential(1.5 + parameters(C, N, M))],
    ids=lambda d: type(d).__name__,
)
def test_continuous_supports_are_not_mistaken_for_counts(distribution):
    assert torch.isfinite(kernel_score(Gaussian(1.0), distribution, torch.ones(1, N, 1)).score).all()


def test_a_diverged_chain_does_not_spoil_the_others():
    rate = torch.full((C, N, M), 3.0)
    rate[1] = torch.nan
    score = kernel_score(Gaussian(4.0), Poisson(rate, validate_args=False), torch.ones(1, N, 1)).score
    assert torch.isfinite(score[0]).all()
    assert torch.isnan(score[1]).all()


def test_tables_of_probabilities_stay_small(monkeypatch):
    monkeypatch.setattr("gpsuq.core.supports.MAX_TABLE", 100)
    distribution = Poisson(torch.full((C, N, M), 3.0))
    first, second = (kernel_score(Gaussian(4.0), distribution, torch.ones(1, N, 1)).score for _ in range(2))
    assert not torch.equal(first, second)  # sampled


BINARY = Independent(Bernoulli(parameters(C, N, M, 3, low=0.1, high=0.9)), 1)

VECTORS = {
    "binary": BINARY,
    "zeros-and-poisson": Independent(
        ZeroInflated(Poisson(parameters(C, N, M, 2, low=0.5, high=4.0)), parameters(C, N, M, 1, low=0.1, high=0.5)), 1
    ),
    "tobit": Independent(Censored(Normal(parameters(C, N, M, 2), 0.7), lower=0.0), 1),
    "normal": Independent(Normal(parameters(C, N, M, 3), parameters(C, N, M, 3, low=0.3, seed=1)), 1),
    "poisson": Independent(Poisson(parameters(C, N, M, 2, low=0.5, high=4.0)), 1),
}


@pytest.mark.parametrize("name", VECTORS)
def test_independent_coordinates_multiply(name):
    kernel, distribution = Gaussian(4.0), VECTORS[name]
    y = observe(distribution)
    exact = kernel_score(kernel, distribution, y, n_pairs=None)
    fit, pair = monte_carlo(kernel, distribution, y, lambda t: t, 1)
    assert torch.allclose(exact.fit, fit, atol=0.02)
    assert torch.allclose(exact.pair, pair, atol=0.02)


@pytest.mark.parametrize("n_outcomes", [None, 3])
@pytest.mark.parametrize("name", VECTORS)
def test_a_masked_coordinate_is_as_good_as_none(name, n_outcomes):
    distribution = VECTORS[name]
    y = observe(distribution)
    mask = torch.ones_like(y, dtype=torch.bool)
    mask[..., 1] = False
    y_broken = torch.where(mask, y, 99.0)
    torch.manual_seed(0)
    masked = kernel_score(Gaussian(4.0), distribution, y_broken, mask=mask, n_outcomes=n_outcomes)
    if n_outcomes is None:
        base = distribution.base_dist
        kept = [i for i in range(y.shape[-1]) if i != 1]
        rebuild = {
            "normal": lambda: Normal(base.loc[..., kept], base.scale[..., kept]),
            "poisson": lambda: Poisson(base.rate[..., kept]),
            "binary": lambda: Bernoulli(base.probs[..., kept]),
            "zeros-and-poisson": lambda: ZeroInflated(Poisson(base.base_dist.rate[..., kept]), base.share[..., kept]),
            "tobit": lambda: Censored(Normal(base.base_dist.loc[..., kept], 0.7), lower=0.0),
        }
        smaller = Independent(rebuild[name](), 1)
        assert torch.allclose(masked.score, kernel_score(Gaussian(4.0), smaller, y[..., kept]).score)
    else:
        torch.manual_seed(0)
        other = kernel_score(Gaussian(4.0), distribution, y, mask=mask, n_outcomes=n_outcomes)
        assert torch.equal(masked.score, other.score)


def test_a_panel_of_binary_choices_identifies_the_spread_of_their_probabilities():
    """Eight choices of a person: laws with equal margins and another dependence have another, higher score."""
    torch.manual_seed(0)
    shape, n = (1, 1, 400, 8), 1000
    mixed, pooled = (torch.where(torch.rand(1, 1, 400, 1) < 0.5, 0.2, 0.8), torch.full((1, 1, 400, 1), 0.5))
    truth = torch.where(torch.rand(1, n, 1, 1) < 0.5, 0.2, 0.8)
    y = Bernoulli(truth.expand(1, n, 1, 8)).sample()
    for kernel in (Gaussian(2.0), AdaptiveGaussian().resolve(y[0, :, 0])):
        right, wrong = (
            kernel_score(kernel, Independent(Bernoulli(p.expand(shape)), 1), y, n_pairs=2).score
            for p in (mixed, pooled)
        )
        gap = (wrong - right)[0]
        assert float(gap.mean()) > 4.5 * float(gap.std()) / n**0.5


def test_scores_of_many_binary_coordinates_stay_in_range():
    """The rule of the bandwidth grows with the coordinates, so that 500 factors, or those chosen, do not vanish."""
    torch.manual_seed(0)
    y = torch.randint(0, 2, (1, 5, 1, 500)).float()
    kernel = Gaussian("robust").resolve(y[0, :, 0])
    logits = torch.zeros(1, 5, 4, 500, requires_grad=True)
    terms = kernel_score(kernel, Independent(Bernoulli(logits=logits), 1), y)
    assert 0.01 < float(terms.pair.detach().min()) < 1.0
    terms.score.sum().backward()
    assert int((logits.grad[0, 0, 0] != 0).sum()) == 64  # those that were chosen, so that memory stays bounded


@pytest.mark.parametrize("length", [64, 65])
def test_some_coordinates_stand_for_all(length):
    """At 64 the score is that of all; one more is a step to a kernel that sees nearly the same."""
    generator = torch.Generator().manual_seed(0)
    probabilities = torch.rand(1, 8, 6, length, generator=generator, dtype=torch.float64)
    y = torch.randint(0, 2, (1, 8, 1, length), generator=generator).double()
    kernel = Gaussian(length / 2)
    plain = kernel(y, torch.zeros_like(y), 1)  # by hand: Bernoulli variables with P = 0
    none = Independent(Bernoulli(torch.zeros_like(probabilities)), 1)
    assert torch.allclose(kernel_score(kernel, none, y).fit, -2 * plain.squeeze(2), atol=1e-9 if length == 64 else 0.05)
    full = Independent(Bernoulli(probabilities), 1)
    masked = kernel_score(kernel, full, y, mask=torch.ones_like(y, dtype=torch.bool), n_pairs=None)  # all of them
    chosen = kernel_score(kernel, full, y, n_pairs=None)
    assert torch.allclose(masked.score, chosen.score, atol=1e-9 if length == 64 else 0.02)


def test_outcomes_that_are_placed_are_unbiased_and_less_noisy():
    """Against many samples within 4.5 standard errors, for censored durations with and without zeros, and mixtures."""
    scale = parameters(1, 1, 4, low=0.5, high=2.0)
    y = torch.full((1, 1, 1), 0.8, dtype=torch.float64)
    two = Categorical(torch.ones(1, 1, 4, 2, dtype=torch.float64))
    for law in (
        Censored(Weibull(scale, 1.5), upper=1.5),
        ZeroInflated(Weibull(scale, 1.5), 0.3),
        MixtureSameFamily(two, Weibull(torch.stack([scale, 2 * scale], -1), 1.5)),
    ):
        fit, pair = monte_carlo_of_four(law, y)
        torch.manual_seed(0)
        found = [kernel_score(Gaussian(1.0), law, y, n_pairs=None) for _ in range(400)]
        for term, truth in ((torch.stack([t.fit for t in found]), fit), (torch.stack([t.pair for t in found]), pair)):
            assert abs(float(term.mean()) - truth) < 4.5 * float(term.std()) / 20 + 2e-3
        if isinstance(law, Censored):
            sampled = torch.stack(
                [kernel_score(Gaussian(1.0), law, y, n_outcomes=8, n_pairs=None).score for _ in range(400)]
            )
            placed = torch.stack([t.score for t in found])
            assert float(placed.var()) < 0.25 * float(sampled.var())


def monte_carlo_of_four(law, y, size=200_000):
    torch.manual_seed(1)
    first, second = law.sample((size,))[:, 0, 0], law.sample((size,))[:, 0, 0]
    kernel = Gaussian(1.0)
    pairs = [kernel(first[:, m], second[:, k]).mean() for m in range(4) for k in range(4) if m != k]
    return -2 * float(kernel(first, y.squeeze()).mean()), float(torch.stack(pairs).mean())


def test_sample_scores_agree_with_scoringrules():
    outcomes = parameters(1, 4, 9)
    y = parameters(1, 4, 1, seed=5)
    points = Normal(outcomes, torch.full_like(outcomes, 1e-9))  # each draw is its one outcome
    for options in ({"n_pairs": None}, {"n_pairs": None, "n_outcomes": 1}):
        gaussian = kernel_score(Gaussian(2.0), points, y, **options).score
        theirs = scoringrules.gksuv_ensemble(y[0, :, 0].numpy(), outcomes[0].numpy(), estimator="fair")
        assert np.allclose(gaussian[0].numpy(), 2 * theirs - 1, atol=1e-6)
        energy = kernel_score(Energy(), points, y, **options).score
        crps = scoringrules.crps_ensemble(y[0, :, 0].numpy(), outcomes[0].numpy(), estimator="fair")
        assert np.allclose(energy[0].numpy(), 2 * crps, atol=1e-6)
    vectors = parameters(1, 4, 9, 3)
    cloud = Independent(Normal(vectors, torch.full_like(vectors, 1e-9)), 1)
    target = parameters(1, 4, 1, 3, seed=6)
    ours = kernel_score(Gaussian(2.0), cloud, target, n_pairs=None).score
    theirs = scoringrules.gksmv_ensemble(target[0, :, 0].numpy(), vectors[0].numpy(), estimator="fair")
    assert np.allclose(ours[0].numpy(), 2 * theirs - 1, atol=1e-6)


def test_the_energy_score_of_one_normal_is_twice_its_crps():
    loc, scale = torch.full((1, 1, 2), 0.1), torch.full((1, 1, 2), 1.2)
    score = kernel_score(Energy(), Normal(loc, scale), torch.full((1, 1, 1), 0.3)).score
    assert float(score) == pytest.approx(2 * scoringrules.crps_normal(0.3, 0.1, 1.2), rel=1e-5)


# --- only different draws are paired ---------------------------------------------------------------------------------


@pytest.mark.parametrize("n_outcomes", [None, 1, 2, 5])
@pytest.mark.parametrize("n_pairs", [None, 1, 2])
def test_two_outcomes_of_one_draw_are_never_paired(n_outcomes, n_pairs):
    """Draws lie so far apart that only outcomes of one draw could be similar: the second term must vanish."""
    loc = torch.arange(M, dtype=torch.float64).mul(1e4).expand(C, N, M)
    distributions = [Normal(loc, torch.full_like(loc, 1e-3)), Poisson(loc / 40)] if n_outcomes != 1 else []
    for distribution in distributions or [Normal(loc, torch.full_like(loc, 1e-3))]:
        y = distribution.mean[:1, :, -1:]  # counts far beyond all of y would be one
        terms = kernel_score(Gaussian(1.0), distribution, y, n_outcomes=n_outcomes, n_pairs=n_pairs)
        assert float(terms.pair.abs().max()) < 1e-6


@pytest.mark.parametrize("n_pairs", [None, 2])
@pytest.mark.parametrize("kind", ["poisson", "negative-binomial", "zero-inflated"])
def test_large_counts_in_blocks_have_the_score_of_single_ones(kind, n_pairs, monkeypatch):
    torch.manual_seed(0)
    rate = (3.0 + torch.randn(1, 20, 12, dtype=torch.float64)).exp()
    y = torch.poisson(rate[:, :, :1]).clamp(0, 200)
    several = NegativeBinomial(torch.tensor(5.0, dtype=torch.float64), logits=(rate / 5.0).log())
    distribution = {"poisson": Poisson(rate), "negative-binomial": several, "zero-inflated": ZeroInflated(several, 0.2)}
    blocks = supports.support_table(distribution[kind], y)
    in_blocks = kernel_score(Gaussian(100.0), distribution[kind], y, n_pairs=n_pairs)
    monkeypatch.setattr(supports, "_wide", lambda base: False)
    monkeypatch.setattr(expectations, "poisson_sums", lambda *_: None)
    single = supports.support_table(distribution[kind], y)
    assert len(blocks[0]) < 0.5 * len(single[0])
    alone = kernel_score(Gaussian(100.0), distribution[kind], y, n_pairs=n_pairs)
    assert torch.allclose(in_blocks.score, alone.score, atol=6e-4)


def test_counts_far_beyond_what_was_observed_are_one():
    rate = torch.full((1, 1, 4), 1e6)
    for distribution in (Poisson(rate), NegativeBinomial(torch.tensor(2.0), logits=rate.log())):
        terms = kernel_score(Gaussian(1.0), distribution, torch.tensor([[[3.0]]]), n_pairs=2)
        assert float(terms.pair) == pytest.approx(1.0, abs=1e-3)  # all of its mass is in the last point
        assert float(terms.fit) == pytest.approx(0.0, abs=1e-3)


def test_categories_of_one_draw_are_never_paired():
    sure = torch.eye(4).expand(C, N, 4, 4)  # draw m always gives class m
    terms = kernel_score(Gaussian(0.01), Categorical(sure), torch.zeros(1, N, 1))
    assert float(terms.pair.abs().max()) < 1e-6


@settings(max_examples=40, deadline=None)
@given(n_draws=st.integers(2, 9))
def test_all_shifts_are_all_pairs(n_draws):
    values = torch.randn(1, 1, n_draws, generator=torch.Generator().manual_seed(n_draws), dtype=torch.float64)
    distribution = Normal(values, torch.full_like(values, 0.3))
    pair = kernel_score(Gaussian(1.0), distribution, torch.zeros(1, 1, 1), n_pairs=None).pair
    each = [
        kernel_score(Gaussian(1.0), Normal(values[..., [a, b]], 0.3), torch.zeros(1, 1, 1)).pair
        for a, b in itertools.combinations(range(n_draws), 2)
    ]
    assert float(pair) == pytest.approx(float(torch.stack(each).mean()), rel=1e-9)
    assert sum(weight for _, weight in draw_shifts(n_draws, None)) == pytest.approx(1.0)


def test_a_few_pairs_estimate_all_pairs_without_bias():
    torch.manual_seed(0)
    loc = torch.randn(1, 4000, 12, dtype=torch.float64)
    distribution = Normal(loc, torch.full_like(loc, 0.5))
    few, all_pairs = (
        kernel_score(Gaussian(1.0), distribution, torch.zeros(1, 4000, 1), n_pairs=k).pair for k in (2, None)
    )
    difference = few - all_pairs
    assert abs(float(difference.mean())) < 4 * float(difference.std()) / 4000**0.5


# --- gradients -------------------------------------------------------------------------------------------------------


def gradient(distribution_of, raw, y, **options):
    raw = raw.clone().requires_grad_()
    kernel_score(Gaussian(2.0), distribution_of(raw), y, **options).score.sum().backward()
    return raw.grad


@pytest.mark.parametrize(
    ("make", "y"),
    [
        (lambda raw: Normal(raw, torch.full_like(raw, 0.7)), 0.3),
        (lambda raw: Poisson(raw.exp()), 2.0),
        (lambda raw: Bernoulli(logits=raw), 1.0),
    ],
    ids=["reparameterised", "score-function", "score-function-binary"],
)
def test_sampled_gradients_are_unbiased(make, y):
    raw = parameters(1, 1, 4)
    observed = torch.full((1, 1, 1), y, dtype=torch.float64)
    exact = gradient(make, raw, observed, n_pairs=None)
    torch.manual_seed(0)
    sampled = torch.stack([gradient(make, raw, observed, n_outcomes=4, n_pairs=None) for _ in range(3000)])
    error = sampled.std(0) / 3000**0.5
    assert ((sampled.mean(0) - exact).abs() < 4.5 * error).all()


def test_the_baseline_lowers_the_variance(monkeypatch):

    # y far from all outcomes: rewards have a mean, which is what a baseline takes away.
    raw, y = parameters(1, 1, 4), torch.full((1, 1, 1), 30.0, dtype=torch.float64)

    def make(r):
        return Poisson(r.exp())

    def variance():
        torch.manual_seed(0)
        return torch.stack([gradient(make, raw, y, n_outcomes=5) for _ in range(300)]).var(0).sum()

    with_baseline = variance()

    def plain(distribution, outcomes, rewards):
        return (distribution.log_prob(outcomes) * rewards.detach()).mean((0, 3))

    monkeypatch.setattr(outcomes, "_score_function", plain)
    assert with_baseline < 0.7 * variance()


def test_continuous_distributions_without_closed_form_are_sampled():
    loc = parameters(C, N, M)
    for distribution in (StudentT(4.0, loc, 1.0), LaplaceDistribution(loc, 1.0), Gamma(loc.exp(), 1.0)):
        terms = kernel_score(Gaussian(1.0), distribution, torch.ones(1, N, 1, dtype=torch.float64))
        assert terms.fit.shape == terms.pair.shape == (C, N)
        assert torch.isfinite(terms.score).all()


def test_huge_counts_fall_back_to_sampling():
    rate = torch.full((1, 2, 4), 1e5)
    terms = kernel_score(Gaussian(1e5), Poisson(rate), torch.full((1, 2, 1), 1e5))
    assert torch.isfinite(terms.score).all()


def test_observations_without_covariates_share_one_pair_term():
    distribution = Normal(parameters(C, 1, M), parameters(C, 1, M, low=0.2, seed=1))
    terms = kernel_score(Gaussian(1.0), distribution, torch.linspace(-1, 1, 7, dtype=torch.float64)[None, :, None])
    assert terms.fit.shape == (C, 7)
    assert terms.score.shape == (C, 7)


class Silent(Distribution):
    """A distribution that can do nothing."""

    arg_constraints = {}  # noqa: RUF012

    def __init__(self, loc):
        self.loc = loc
        super().__init__(loc.shape, validate_args=False)

    @property
    def support(self):
        return torch.distributions.constraints.real


class Density(Silent):
    """A density of one's own, and nothing else."""

    def log_prob(self, value):
        return Normal(self.loc, 0.5).log_prob(value)


class Bare(Distribution):
    """A density without support, arguments or anything else."""

    def __init__(self, loc):
        self.loc = loc
        super().__init__(loc.shape, validate_args=False)

    log_prob = Density.log_prob


class Counts(Density):
    """Probabilities of counts of one's own, and nothing else."""

    def log_prob(self, value):
        return Poisson(self.loc.exp(), validate_args=False).log_prob(value)

    @property
    def support(self):
        return torch.distributions.constraints.nonnegative_integer


class Sampler(Silent):
    """A sampler of one's own through which gradients pass, called ``sample``."""

    def sample(self, sample_shape=torch.Size()):
        return self.loc + 0.5 * torch.randn(*sample_shape, *self.loc.shape, dtype=self.loc.dtype)


class Rounded(Sampler):
    """A sampler of one's own through which no gradient passes."""

    def sample(self, sample_shape=torch.Size()):
        return super().sample(sample_shape).detach().round()


class Both(Rounded):
    """A sampler without gradients, and probabilities."""

    def sample(self, sample_shape=torch.Size()):
        return Normal(self.loc, 0.5).sample(sample_shape)

    log_prob = Density.log_prob


@pytest.mark.parametrize(("kind", "n"), [(Density, 30), (Bare, 30), (Sampler, 1000), (Both, 1000)])
def test_a_sampler_or_a_density_of_ones_own_is_enough(kind, n):
    """Scores and gradients agree with the closed form of the same law, within 4.5 standard errors and 1%."""
    raw, y = parameters(1, 3, 4), torch.tensor([-3.0, 0.2, 3.0], dtype=torch.float64)[None, :, None]

    def score_and_gradient(make):
        leaf = raw.clone().requires_grad_()
        score = kernel_score(Gaussian(2.0), make(leaf), y).score
        return torch.cat([score.detach().flatten(), torch.autograd.grad(score.sum(), leaf)[0].flatten()])

    exact = score_and_gradient(lambda r: Normal(r, 0.5))
    torch.manual_seed(0)
    found = torch.stack([score_and_gradient(kind) for _ in range(n)])
    error = found.std(0) / n**0.5
    assert ((found.mean(0) - exact).abs() < 4.5 * error + 0.01 * exact.abs() + 1e-3).all()


def test_probabilities_of_counts_of_ones_own_are_summed():
    raw, y = parameters(1, 3, 4), torch.tensor([0.0, 1.0, 5.0], dtype=torch.float64)[None, :, None]
    own, poisson = (kernel_score(Gaussian(2.0), law, y).score for law in (Counts(raw), Poisson(raw.exp())))
    assert torch.allclose(own, poisson, atol=1e-5)


def test_a_distribution_for_which_nothing_fits_is_named():
    y, loc = torch.zeros(1, 1, 1), torch.zeros(1, 1, 4, requires_grad=True)
    with pytest.raises(GPSError, match=r"Silent: it needs rsample.*or sample.*and log_prob.*it has neither"):
        kernel_score(Gaussian(1.0), Silent(loc), y)
    with pytest.raises(GPSError, match=r"Rounded cannot be trained.*differentiable.*log_prob"):
        kernel_score(Gaussian(1.0), Rounded(loc), y)
    with torch.no_grad():  # judging needs no gradient
        assert torch.isfinite(kernel_score(Gaussian(1.0), Rounded(loc), y).score).all()
    with pytest.raises(GPSError, match="not for single numbers"):
        kernel_score(Energy(), Independent(Density(torch.zeros(1, 1, 4, 2)), 1), torch.zeros(1, 1, 1, 2))


def test_bad_counts_are_errors():
    distribution = Normal(parameters(1, 1, 4), torch.tensor(1.0, dtype=torch.float64))
    y = torch.zeros(1, 1, 1)
    with pytest.raises(GPSError, match="n_outcomes"):
        kernel_score(Gaussian(1.0), distribution, y, n_outcomes=0)
    with pytest.raises(GPSError, match="n_pairs"):
        kernel_score(Gaussian(1.0), distribution, y, n_pairs=0)
    with pytest.raises(GPSError, match="at least 2"):
        kernel_score(Gaussian(1.0), Normal(torch.zeros(1, 1, 1), 1.0), y)
    with pytest.raises(GPSError, match="leave-one-out"):
        kernel_score(Gaussian(1.0), Poisson(torch.ones(1, 1, 4)), y, n_outcomes=1)
    assert Exponential(torch.ones(1, 1, 4)).has_rsample


# --- which closed form is found --------------------------------------------------------------------------------------


class Height(Normal):
    """A user's subclass, with arguments of its own."""

    arg_constraints = {"cm": torch.distributions.constraints.real}  # noqa: RUF012

    def __init__(self, cm):
        self.cm = cm
        super().__init__(cm, torch.full_like(cm, 7.0))


class Wide(Gaussian):
    """A kernel that is the Gaussian one under another name."""


@pytest.mark.parametrize("kernel", [Gaussian(50.0), Energy(), Mixture((Gaussian(50.0), Energy()))])
def test_a_subclass_has_the_closed_form_of_its_base(kernel):
    cm = 170.0 + parameters(C, N, M, high=20.0)
    y = torch.full((1, N, 1), 175.0, dtype=torch.float64)
    plain = Normal(cm, torch.full_like(cm, 7.0))
    for wrap in (lambda d: d, lambda d: Independent(d, 0)):
        found, expected = (kernel_score(kernel, wrap(distribution), y) for distribution in (Height(cm), plain))
        assert torch.equal(found.fit, expected.fit)
        assert torch.equal(found.pair, expected.pair)
    assert torch.equal(kernel_score(Wide(50.0), Height(cm), y).score, kernel_score(Gaussian(50.0), plain, y).score)


def test_the_most_specific_closed_form_is_taken(monkeypatch):

    class Taller(Height):
        pass

    for name in ("_MEANS", "_PAIRS"):
        monkeypatch.setattr(forms, name, dict(getattr(forms, name)))
    register_kernel_mean(Gaussian, Height)(lambda kernel, y, p: torch.full_like(p["cm"] + y, 0.25))
    distribution = Taller(parameters(C, N, M))
    y = torch.zeros(1, N, 1)
    both_of_normal = kernel_score(Gaussian(), Normal(distribution.loc, distribution.scale), y)
    assert torch.equal(kernel_score(Gaussian(), distribution, y).fit, both_of_normal.fit)  # Height has no pair yet
    register_kernel_pair(Gaussian, Height)(lambda kernel, p, q: torch.full_like(p["cm"], 0.125))
    terms = kernel_score(Gaussian(), distribution, y)
    assert (float(terms.fit.max()), float(terms.pair.max())) == (-0.5, 0.125)
    for kernel in (Wide(), Mixture((Gaussian(), Wide()))):
        assert torch.equal(kernel_score(kernel, distribution, y).fit, terms.fit)


def test_what_redefines_the_kernel_or_the_law_is_sampled():
    class Cauchy(Gaussian):
        def __call__(self, a, b, event_dims=0, mask=None):
            return 1.0 / (1.0 + (a - b).square() / self.value)

    class Folded(Normal):
        def rsample(self, sample_shape=torch.Size()):
            return super().rsample(sample_shape).abs()

    y, loc = torch.zeros(1, N, 1), parameters(C, N, M)
    for kernel, distribution in ((Cauchy(), Normal(loc, 1.0)), (Gaussian(), Folded(loc, 1.0))):
        assert exact_score(kernel, distribution, y) is None
        assert torch.isfinite(kernel_score(kernel, distribution, y).score).all()
    assert exact_score(Gaussian(), Normal(loc, 1.0), y) is not None
