import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from scipy.optimize import brentq
from scipy.special import ndtr, ndtri

from gpsuq.core import mixtures
from gpsuq.core.mixtures import (
    at_normal_scores,
    component_log_density,
    log_density,
    normal_scores,
    poisson_quantiles,
    quantiles,
)

numbers = st.floats(-50, 50)


@settings(max_examples=50, deadline=None)
@given(
    loc=st.lists(numbers, min_size=1, max_size=6),
    scale=st.floats(0.01, 20),
    levels=st.lists(st.floats(0.001, 0.999), min_size=1, max_size=3),
)
def test_quantiles_invert_the_distribution_function(loc, scale, levels):
    loc, scales = np.asarray([loc]), scale * np.linspace(1, 2, len(loc))
    for level, value in zip(levels, quantiles(levels, loc, scales)[0], strict=True):
        assert abs(stats.norm.cdf(value, loc[0], scales).mean() - level) < 1e-5


def test_one_component_is_a_normal():
    assert np.allclose(quantiles([0.025, 0.975], np.array([[3.0], [5.0]]), np.array([2.0])),
                       stats.norm.ppf([0.025, 0.975], [[3.0], [5.0]], 2.0))  # fmt: skip


SCORES = np.array([-7.5, -6.2, ndtri(1e-6), -1.6, -0.3, 0.0, 0.7, 2.0, -ndtri(1e-6), 7.0])
SHAPES = {
    "of all scales": lambda rng, m: (rng.normal(size=m), 10.0 ** rng.uniform(-6, 3, m)),
    "far from 0": lambda rng, m: (1e6 + rng.normal(size=m), rng.uniform(0.01, 0.5, m)),
    "narrow": lambda rng, m: (rng.normal(size=m), np.full(m, 1e-4)),
    "in two heaps": lambda rng, m: (rng.choice([-5.0, 5.0], m) + 0.1 * rng.normal(size=m), rng.uniform(0.1, 1.0, m)),
    "at one place": lambda rng, m: (np.full(m, 3.0), 10.0 ** rng.uniform(-6, 3, m)),
    "alike": lambda rng, m: (np.full(m, 3.0), np.full(m, 2.0)),
}


def by_brentq(score, loc, scale, weight, spread):
    """Solve for one row and one score, by the smaller tail."""
    sign, center = (-1.0 if score > 0 else 1.0), loc @ weight
    ends = loc + scale * score - center
    return center + brentq(
        lambda t: sign * (ndtr(sign * (center + t - loc) / scale) @ weight / ndtr(-abs(score)) - 1.0),
        *(ends.min() - 1e-9 * spread, ends.max() + 1e-9 * spread),
        xtol=1e-14 * spread,
        rtol=1e-14,
        maxiter=1000,
    )


@pytest.mark.parametrize("shape", SHAPES)
def test_solutions_are_those_of_a_slow_solver(shape, rng):
    for size in (2, 3, 17, 60):
        loc, scale = SHAPES[shape](rng, size)
        weight = rng.dirichlet(np.ones(size))
        spread = np.sqrt(weight @ (scale**2 + np.square(loc - weight @ loc)))
        expected = [by_brentq(score, loc, scale, weight, spread) for score in SCORES]
        found = at_normal_scores(SCORES[None], loc[None], scale, weight)[0]
        missed = normal_scores(found[None], loc[None], scale, weight)[0] - SCORES
        assert np.minimum(np.abs(found - expected) / spread, np.abs(missed)).max() < 1e-5


def test_a_row_is_solved_as_it_is_alone(monkeypatch, rng):
    """Also where another row is hard, and wherever parts of the rows and levels end."""
    loc, scale = rng.normal(size=(40, 30)), 10.0 ** rng.uniform(-3, 0, (40, 30))
    scores = 2.0 * rng.normal(size=(40, 7))
    scores[5] = 7.9
    alone = np.concatenate(
        [at_normal_scores(s[None], c[None], w[None]) for s, c, w in zip(scores, loc, scale, strict=True)]
    )
    for cells in (1, 31, 500, 1 << 18):
        monkeypatch.setattr(mixtures, "_CELLS", cells)
        np.testing.assert_allclose(at_normal_scores(scores, loc, scale), alone, rtol=0.0, atol=2e-5)


def test_a_component_without_width_is_a_point():
    found = at_normal_scores(np.array([[-1.0, 1.0]]), np.array([[0.0, 1.0]]), np.array([0.0, 0.0]))
    np.testing.assert_allclose(found, [[0.0, 1.0]], atol=1e-6)
    assert (at_normal_scores(np.array([[-1.0, 1.0]]), np.array([[2.0, 2.0]]), np.array([0.0, 0.0])) == 2.0).all()


def test_components_in_single_precision_are_solved_in_double(rng):
    loc, scale = rng.normal(size=(9, 20)).astype(np.float32), rng.uniform(0.1, 1.0, (9, 20)).astype(np.float32)
    scores = rng.normal(size=(9, 3))
    found = at_normal_scores(scores, loc, scale)
    assert found.dtype == np.float64
    np.testing.assert_array_equal(found, at_normal_scores(scores, loc.astype(float), scale.astype(float)))


def test_normal_scores_are_those_of_either_tail(rng):
    loc, scale, weight = rng.normal(size=(200, 5)), rng.uniform(0.2, 2.0, (200, 5)), rng.dirichlet(np.ones(5))
    y = 8.0 * rng.normal(size=(200, 4))
    standardised = (y[:, :, None] - loc[:, None]) / scale[:, None]
    below, above = ndtr(standardised) @ weight, ndtr(-standardised) @ weight
    expected = np.clip(np.where(below < above, ndtri(below), -ndtri(above)), -8.0, 8.0)
    assert (np.abs(expected) > 6.5).any()
    assert (expected == 8.0).any()
    found = normal_scores(y, loc, scale, weight)
    np.testing.assert_allclose(found, expected, atol=1e-7)
    np.testing.assert_allclose(normal_scores(y[:, 2], loc, scale, weight), expected[:, 2], atol=1e-7)


def test_densities():
    y, loc, scale = np.array([0.5, 40.0]), np.array([[0.0, 1.0], [0.0, 1.0]]), np.array([1.0, 2.0])
    assert np.allclose(component_log_density(y, loc, scale), stats.norm.logpdf(y[:, None], loc, scale))
    expected = np.log(stats.norm.pdf(0.5, [0.0, 1.0], [1.0, 2.0]).mean())
    assert np.isclose(log_density(y, loc, scale)[0], expected)
    assert np.isfinite(log_density(y, loc, scale)).all()


def test_densities_are_finite_however_far_the_observation():
    y, loc, scale = np.array([1e154, -1e200, 1e308]), np.array([[0.0, 1.0]] * 3), np.array([1e-3, 2.0])
    assert np.isfinite(component_log_density(y, loc, scale)).all()
    assert np.isfinite(log_density(y, loc, scale)).all()


def test_poisson_quantiles_are_those_of_the_mixture(rng):
    """The smallest count whose distribution function reaches the level, summed by hand."""
    rates = rng.uniform(0.5, 60.0, size=(4, 7))
    counts = np.arange(200)
    cdf = stats.poisson.cdf(counts, rates[..., None]).mean(1)
    found = poisson_quantiles([0.025, 0.5, 0.975], rates)
    for column, level in enumerate((0.025, 0.5, 0.975)):
        assert found[:, column].tolist() == (cdf >= level).argmax(1).tolist()
