import numpy as np
import pytest

from gpsuq.poisson.stacking import em_weights, stacked


def test_weights_are_where_the_likelihood_is_highest(rng):
    density = rng.gamma(2.0, size=(500, 3))
    weights = em_weights(density)
    assert weights.sum() == pytest.approx(1.0)
    likelihood = lambda w: np.log(density @ w).mean()  # noqa: E731
    for other in np.eye(3):
        assert likelihood(0.98 * weights + 0.02 * other) < likelihood(weights) + 1e-6


def test_noise_does_not_win_and_a_lone_crowd_does(rng):
    """Twenty candidates that are right as often as wrong, then one that is right about a tenth of the points."""
    n, fold = 300, rng.integers(5, size=300)
    noise = np.exp(0.3 * rng.normal(size=(1, n, 20)) - 0.045)
    noise[..., 0] = 1.0
    assert np.array_equal(stacked(noise, fold).weights, np.eye(20)[0])
    crowd = np.ones((1, n, 2))
    crowd[0, :30, 1], crowd[0, 30:, 1] = 40.0, 0.1
    found = stacked(crowd, fold)
    assert found.gain > 2.0 * found.standard_error
    assert 0.0 < found.weights[1] < 1.0
