import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from gpsuq.core.mixtures import component_log_density, log_density, poisson_quantiles, quantiles

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
        assert abs(stats.norm.cdf(value, loc[0], scales).mean() - level) < 1e-6


def test_one_component_is_a_normal():
    assert np.allclose(quantiles([0.025, 0.975], np.array([[3.0], [5.0]]), np.array([2.0])),
                       stats.norm.ppf([0.025, 0.975], [[3.0], [5.0]], 2.0))  # fmt: skip


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
