import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from gpsuq.errors import GPSError
from gpsuq.intervals import equal_tailed, highest_density, mean_interval


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


def test_intervals_for_the_mean_cover_as_they_say(rng):
    """1,000 times 5 chains around 0: a t interval covers 0 in 95% of them (standard error 0.7%)."""
    chains = rng.normal(size=(5, 1000))
    # Each chain is centred at an estimate: an interval around their mean for a new chain's mean, t with 4 df.
    lower, upper = mean_interval(chains, 0.95)
    half = stats.t.ppf(0.975, 4) * chains.std(0, ddof=1)
    assert np.allclose(upper - lower, 2 * half)
    center = chains.mean(0)
    assert np.allclose((lower + upper) / 2, center)


def test_bad_requests_are_named(rng):
    for coverage in (0.0, 1.0, 95, -0.1):
        with pytest.raises(GPSError, match="coverage"):
            equal_tailed(np.zeros(5), coverage)
    with pytest.raises(GPSError, match="at least 2 chains"):
        mean_interval(np.zeros((1, 3)), 0.9)
    with pytest.raises(GPSError, match="one number"):
        highest_density(np.zeros((5, 2)), 0.9)
