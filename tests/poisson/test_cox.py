import numpy as np
import pytest

from gpsuq.datasets import log_gaussian_cox
from gpsuq.poisson.cox import StationaryField, fit_stationary
from gpsuq.spatial import Grid, Window

SQUARE = Window.rectangle(0, 1, 0, 1)


def test_draws_have_mean_one_and_the_covariance(rng):
    draws = StationaryField(0.36, 0.15).draws(Grid(SQUARE, 32, 32), 500, rng)
    assert draws.mean() == pytest.approx(1.0, abs=0.03)
    logs = np.log(draws)
    assert logs.var(0).mean() == pytest.approx(0.36, rel=0.1)
    apart = np.mean((logs[:, :, :-8] - logs.mean()) * (logs[:, :, 8:] - logs.mean()))
    assert apart == pytest.approx(0.36 * np.exp(-0.25 / 0.15), abs=0.02)


def test_the_field_is_found_again_and_none_where_there_is_none(rng):
    """Ten replicates of a Cox process with variance 0.36: tolerance a half, as K is noisy."""
    patterns = [pattern.points for pattern in log_gaussian_cox(10, 0)]
    assert fit_stationary(patterns, SQUARE, None).variance == pytest.approx(0.36, rel=0.5)
    none = fit_stationary([rng.random((300, 2)) for _ in range(5)], SQUARE, None)
    assert none.variance < 0.1 or none.length < 0.02
    assert fit_stationary([np.array([[0.5, 0.5]])], SQUARE, None).variance == 0.0
