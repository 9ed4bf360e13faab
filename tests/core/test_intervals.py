import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gpsuq.core.intervals import between_chains, equal_tailed, highest_density, mean_interval
from gpsuq.engine.chains import ChainPlan, ChainWeights
from gpsuq.errors import GPSError


def test_equal_tailed_intervals_are_quantiles(rng):
    draws = rng.normal(size=(100_000, 2))
    assert equal_tailed(draws, 0.9) == pytest.approx(np.array([[-1.645] * 2, [1.645] * 2]), abs=0.03)


def test_highest_density_regions_have_a_piece_for_each_mode(rng):
    draws = np.concatenate([rng.normal(-1, 0.1, 4000), rng.normal(1, 0.1, 4000)])
    pieces = highest_density(draws, 0.9)
    assert pieces == pytest.approx(np.array([[-1.17, -0.83], [0.83, 1.17]]), abs=0.05)
    assert highest_density(rng.normal(size=8000), 0.95) == pytest.approx(np.array([[-1.96, 1.96]]), abs=0.25)


@settings(max_examples=30, deadline=None)
@given(exponent=st.integers(-12, 12), seed=st.integers(0, 100))
def test_highest_density_regions_follow_the_units(exponent, seed):
    draws = np.random.default_rng(seed).normal(size=500)
    scale = 10.0**exponent
    assert highest_density(draws * scale, 0.8) == pytest.approx(highest_density(draws, 0.8) * scale, rel=1e-6)


def test_many_spikes_give_ordered_pieces(rng):
    draws = np.concatenate([rng.normal(center, 0.05, 300) for center in np.linspace(0, 10, 15)])
    pieces = highest_density(draws, 0.9)
    assert (pieces[:, 1] >= pieces[:, 0]).all()
    assert (pieces[1:, 0] > pieces[:-1, 1]).all()
    inside = ((draws[:, None] >= pieces[:, 0]) & (draws[:, None] <= pieces[:, 1])).any(1).mean()
    assert inside > 0.85


def test_draws_that_do_not_vary_are_a_point():
    assert highest_density(np.full(100, 3.0), 0.9).tolist() == [[3.0, 3.0]]


def test_intervals_for_the_mean_cover_as_they_say():
    """The mean of 200 numbers, 1,000 times, by 6 chains of balanced weights: 95% covered (standard error 0.7%)."""
    weights = ChainWeights(ChainPlan(6, holdout=0.0), 200_000, None, seed=1)(torch.arange(200_000)).numpy()
    weights = weights.reshape(6, 1000, 200)
    values = np.random.default_rng(0).normal(size=(1000, 200))
    chains = (weights * values).sum(2) / weights.sum(2)
    assert np.allclose(chains.mean(0), values.mean(1), atol=0.02)  # balanced: hardly noisier than one fit to all
    assert np.sqrt((between_chains(chains) ** 2).mean()) == pytest.approx(1 / np.sqrt(200), rel=0.03)
    lower, upper = mean_interval(chains, 0.95)
    assert ((lower < 0) & (upper > 0)).mean() == pytest.approx(0.95, abs=0.02)


def test_bad_requests_are_named(rng):
    for coverage in (0.0, 1.0, 95, -0.1):
        with pytest.raises(GPSError, match="coverage"):
            equal_tailed(np.zeros(5), coverage)
    with pytest.raises(GPSError, match="at least 2 chains"):
        mean_interval(np.zeros((1, 3)), 0.9)
    with pytest.raises(GPSError, match="one number"):
        highest_density(np.zeros((5, 2)), 0.9)
