"""Calibration: coverage that holds whatever the predictive was, and inverse maps."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.special import ndtri
from scipy.stats import t as student_t

from gpsuq.core.calibration import _distance, fit_calibration, fit_scale, identity_calibration

LEVELS = np.array([0.025, 0.05, 0.5, 0.95, 0.975])


@pytest.mark.parametrize(
    "scores",
    [
        lambda rng, X: 2.0 * rng.normal(size=len(X)),
        lambda rng, X: rng.exponential(size=len(X)) - 1.0,
        lambda rng, X: np.exp(0.7 * X[:, 0]) * rng.normal(size=len(X)),
        lambda rng, X: np.abs(X[:, 1]) * rng.standard_t(4, size=len(X)),
    ],
)
def test_new_rows_are_covered_whatever_the_predictive(rng, scores):
    X = rng.normal(size=(6000, 3))
    z = scores(rng, X)
    learned = fit_calibration(X[:2000], z[:2000])
    bounds = learned.predictive_scores(np.array([0.05, 0.95]), X[2000:])
    inside = (bounds[:, 0] <= z[2000:]) & (z[2000:] <= bounds[:, 1])
    assert inside.mean() == pytest.approx(0.9, abs=0.02)


def test_the_scale_follows_x_where_it_does_and_is_constant_where_it_does_not(rng):
    X = rng.normal(size=(3000, 4))
    found = fit_scale(X, np.abs(np.exp(0.5 * X[:, 0]) * rng.normal(size=3000)))
    assert found.coefficients[1] == pytest.approx(0.5, abs=0.1)
    assert np.abs(found.coefficients[2:5]).max() < 0.1
    assert fit_scale(X, np.abs(rng.normal(size=3000))).constant
    assert fit_calibration(X, rng.normal(size=3000), varies=False).scale.constant


def test_the_scale_does_not_grow_beyond_what_was_seen(rng):
    X = rng.uniform(-1, 1, size=(2000, 1))
    found = fit_scale(X, np.abs(np.exp(X[:, 0]) * rng.normal(size=2000)))
    assert found(np.array([[100.0]]))[0] <= 1.05 * found(np.array([[1.0]]))[0]


def test_one_wild_size_does_not_bend_the_scale(rng):
    X = rng.normal(size=(500, 2))
    sizes = np.abs(rng.normal(size=500))
    sizes[X[:, 0].argmax()] = 1e9
    scale = fit_scale(X, sizes)(X)
    assert scale.max() < 5 * np.median(scale)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10_000), st.floats(0.001, 0.999), st.integers(5, 80))
def test_levels_and_scores_are_inverse(seed, level, n):
    rng = np.random.default_rng(seed)
    X, z = rng.normal(size=(n, 2)), rng.standard_t(3, size=n)
    learned = fit_calibration(X, z)
    scores = learned.predictive_scores(np.array([level]), X)[:, 0]
    assert np.allclose(learned.calibrated(scores, X), level, atol=1e-6)


def test_coverage_is_that_of_the_next_row(rng):
    """With n = 19 rows, the largest of them is exceeded with probability 1 / 20."""
    above = []
    for _ in range(2000):
        z = rng.normal(size=20)
        learned = fit_calibration(np.zeros((19, 1)), z[:19], varies=False)
        above.append(z[19] > learned.predictive_scores(np.array([0.95]), np.zeros((1, 1)))[0, 0])
    assert np.mean(above) == pytest.approx(0.05, abs=0.015)


def test_weights_are_frequencies(rng):
    X, z, counts = rng.normal(size=(60, 1)), rng.normal(size=60), rng.integers(1, 4, 60)
    weighted = fit_calibration(X, z, counts.astype(float), varies=False)
    repeated = fit_calibration(np.repeat(X, counts, 0), np.repeat(z, counts), varies=False)
    levels = np.linspace(0.2, 0.8, 13)
    scores = [each.predictive_scores(levels, X[:1]) for each in (weighted, repeated)]
    assert np.allclose(*scores, atol=0.1)


def test_ties_and_constant_columns_are_no_trouble(rng):
    X = np.column_stack([np.ones(100), rng.normal(size=100)])
    learned = fit_calibration(X, np.repeat([-1.0, 1.0], 50))
    assert np.isfinite(learned.predictive_scores(np.array([0.1, 0.5, 0.9]), X)).all()


def test_the_identity_leaves_everything():
    same = identity_calibration(2)
    levels = np.array([0.01, 0.3, 0.999])
    assert np.allclose(same.predictive_scores(levels, np.zeros((1, 2)))[0], ndtri(levels))


def test_few_rows_that_agree_with_students_t_keep_it(rng):
    """20 ranks alone would put the level of 97.5% at the largest row."""
    errors = []
    for _ in range(50):
        z = rng.standard_t(15, size=20)
        for freedom in (15.0, None):
            learned = fit_calibration(np.zeros((20, 1)), z, varies=False, freedom=freedom)
            found = learned.predictive_scores(LEVELS, np.zeros((1, 1)))[0]
            errors.append(np.square(found - student_t.ppf(LEVELS, 15)).mean())
    drawn, ranks = np.reshape(errors, (50, 2)).mean(0)
    assert drawn < 0.3 * ranks


def test_ranks_that_speak_against_students_t_are_believed(rng):
    z = rng.exponential(size=400) - 1.0
    learned = fit_calibration(np.zeros((400, 1)), z, varies=False, freedom=395.0)
    found = learned.predictive_scores(LEVELS, np.zeros((1, 1)))[0]
    assert np.allclose(found, np.quantile(z, LEVELS), atol=0.2)


def test_drawn_levels_and_scores_are_inverse(rng):
    X, z = rng.normal(size=(25, 2)), rng.standard_t(3, size=25)
    learned = fit_calibration(X, z, freedom=3.0)
    scores = learned.predictive_scores(LEVELS, X)
    assert np.allclose(learned.calibrated(scores.T, X), LEVELS[:, None], atol=1e-6)


def test_the_distance_is_that_of_anderson_and_darling(rng):
    u, weight = rng.uniform(size=12), rng.integers(1, 4, 12).astype(float)

    def integrand(at):
        return np.square(weight[u <= at].sum() / weight.sum() - at) / (at * (1.0 - at))

    ends = [0.0, *np.sort(u), 1.0]
    pieces = [quad(integrand, low, high)[0] for low, high in pairwise(ends)]
    assert _distance(u, weight) == pytest.approx(weight.sum() * sum(pieces), rel=1e-5)


@pytest.mark.parametrize("wild", [1.0, 30.0])
def test_rows_apart_count_only_where_the_scale_does_not_cover_them(rng, wild):
    """A corner whose size the scale knows says nothing of other rows; wild rows in it have to be covered."""
    X, z = rng.normal(size=(400, 1)), rng.normal(size=400)
    apart = np.arange(400) < 60
    X[apart], z[apart] = X[apart] + 10.0, 3.0 + 0.1 * z[apart]
    z[:20] *= wild
    learned = fit_calibration(X, z, apart=apart)
    bounds = learned.predictive_scores(np.array([0.05, 0.95]), X)
    inside = (bounds[:, 0] <= z) & (z <= bounds[:, 1])
    if wild == 1.0:
        assert inside[~apart].mean() == pytest.approx(0.9, abs=0.01)
        assert inside[apart].mean() > 0.95
    else:
        assert inside.mean() == pytest.approx(0.9, abs=0.01)


def test_the_identity_of_few_rows_has_their_tails():
    found = identity_calibration(1, 4.0).predictive_scores(LEVELS, np.zeros((1, 1)))[0]
    assert np.allclose(found, student_t.ppf(LEVELS, 4), atol=0.02)
    assert np.allclose(identity_calibration(1, 1e9).calibrated(ndtri(LEVELS), np.zeros((5, 1))), LEVELS, atol=1e-3)
