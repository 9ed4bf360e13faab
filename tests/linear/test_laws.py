"""Laws that can be written down: EM finds what made the data, and densities are those of the mixture."""

import numpy as np
import pytest
from scipy import stats

from gpsuq.linear.laws import Law, inverses, lines_law, normal_law, refit_lines
from gpsuq.linear.sample import Sample


def rows(X, y, weight=None):
    n = len(y)
    design = np.column_stack([X, np.ones(n)])[:, None]
    weights = np.ones(n) if weight is None else weight
    return Sample(design, y[:, None], np.ones((n, 1), dtype=bool), weights, X[:, None])


def test_a_normal_law_is_found(rng):
    X = rng.normal(size=(4000, 2))
    root = np.linalg.cholesky([[1.0, 0.6], [0.6, 0.5]])
    theta = np.array([1.0, -1.0]) + rng.normal(size=(4000, 2)) @ root.T
    law = normal_law(rows(X, 2.0 + (X * theta).sum(1) + 0.5 * rng.normal(size=4000)), random_level=False)
    assert np.allclose(law.mean[0], [1.0, -1.0, 2.0], atol=0.1)
    covariance, variance = law.moments()
    assert np.allclose(covariance[:2, :2], root @ root.T, atol=0.12)
    assert np.sqrt(variance) == pytest.approx(0.5, abs=0.1)
    assert covariance[2, 2] < 0.05  # the level has no spread of its own


def test_repeated_measures_tell_a_random_level_from_sigma(rng):
    n, measures = 300, 6
    X = rng.normal(size=(n, measures, 1))
    level, slope = 2.0 * rng.normal(size=(n, 1)), 1.0 + 0.5 * rng.normal(size=(n, 1))
    y = level + slope * X[..., 0] + 0.5 * rng.normal(size=(n, measures))
    mask = np.arange(measures) < rng.integers(3, measures + 1, n)[:, None]  # ragged
    design = np.concatenate([X, np.ones_like(X)], 2) * mask[..., None]
    sample = Sample(design, y * mask, mask, np.ones(n), X)
    law = normal_law(sample, random_level=True)
    covariance, variance = law.moments()
    assert np.sqrt(np.diag(covariance)) == pytest.approx([0.5, 2.0], abs=0.2)
    assert np.sqrt(variance) == pytest.approx(0.5, abs=0.05)


def test_a_tenth_of_the_rows_is_found_as_a_line(rng):
    X = rng.normal(size=(1000, 1))
    theta = rng.choice([0.0, 2.0, -3.0], 1000, p=[0.6, 0.3, 0.1])
    law = lines_law(rows(X, 1.0 + theta * X[:, 0] + 0.3 * rng.normal(size=1000)), rng)
    assert law.mean[:, 0] == pytest.approx([-3.0, 0.0, 2.0], abs=0.15)
    assert law.share == pytest.approx([0.1, 0.6, 0.3], abs=0.06)
    assert np.allclose(law.mean[:, 1], 1.0, atol=0.1)


def test_levels_share_their_slopes(rng):
    X = rng.normal(size=(600, 1))
    y = np.where(rng.random(600) < 0.4, 5.0, 0.0) + 2.0 * X[:, 0] + 0.5 * rng.normal(size=600)
    law = lines_law(rows(X, y), rng, same_slopes=True)
    assert np.allclose(law.mean[:, 0], 2.0, atol=0.1)
    assert np.ptp(law.mean[:, 0]) < 1e-9
    assert sorted(law.mean[:, 1].round(1)) == pytest.approx([0.0, 5.0], abs=0.2)


def test_lines_need_rows(rng):
    X = rng.normal(size=(14, 2))
    assert lines_law(rows(X, rng.normal(size=14)), rng) is None


def test_one_wild_row_does_not_move_a_law(rng):
    X = rng.normal(size=(500, 1))
    y = rng.choice([-1.0, 1.0], 500) * X[:, 0] + 0.2 * rng.normal(size=500)
    law = lines_law(rows(X, y), np.random.default_rng(0))
    y[3] = 1e5
    again = refit_lines(rows(X, y), law)
    assert np.allclose(again.mean, law.mean, atol=0.05)
    normal = normal_law(rows(X, y), random_level=False)
    assert normal.moments()[0][0, 0] < 2.0


def test_weights_are_frequencies(rng):
    X = rng.normal(size=(120, 1))
    y = X[:, 0] * (1.0 + rng.normal(size=120)) + 0.3 * rng.normal(size=120)
    counts = rng.integers(1, 4, 120)
    weighted = normal_law(rows(X, y, counts.astype(float)), random_level=False)
    repeated = normal_law(rows(np.repeat(X, counts, 0), np.repeat(y, counts)), random_level=False)
    assert np.allclose(weighted.mean, repeated.mean, atol=1e-6)
    assert np.allclose(weighted.moments()[0], repeated.moments()[0], atol=1e-6)


LAW = Law(
    np.array([0.3, 0.7]),
    np.array([[1.0, 0.0], [-1.0, 2.0]]),
    np.array([[[0.5, 0.0], [0.0, 0.2]], [[0.0, 0.0], [0.0, 0.0]]]),
    np.array([0.5, 1.0]),
)


def test_the_density_of_a_group_is_that_of_the_mixture(rng):
    design = np.array([[[1.0, 1.0], [2.0, 1.0], [0.0, 0.0]]])
    sample = Sample(design, np.array([[0.5, 1.0, 0.0]]), np.array([[True, True, False]]), np.ones(1), design)
    by_hand = 0.0
    for share, mean, loadings, sigma in zip(LAW.share, LAW.mean, LAW.loadings, LAW.sigma, strict=True):
        A = design[0, :2]
        covariance = A @ loadings @ loadings.T @ A.T + sigma**2 * np.eye(2)
        by_hand += share * stats.multivariate_normal(A @ mean, covariance).pdf([0.5, 1.0])
    assert LAW.log_density(sample)[0] == pytest.approx(np.log(by_hand))


def test_draws_have_the_moments_of_the_law(rng):
    coefficients, sigma = LAW.draws(rng.normal(size=(200_000, LAW.noise_dim)))
    covariance, variance = LAW.moments()
    assert np.allclose(coefficients.mean(0), LAW.center, atol=0.01)
    assert np.allclose(np.cov(coefficients.T), covariance, atol=0.02)
    assert np.square(sigma).mean() == pytest.approx(variance, abs=0.01)
    design = np.array([[2.0, 1.0]])
    loc, scale = LAW.components(design)
    outcome = coefficients @ design[0] + sigma * rng.normal(size=200_000)
    assert LAW.share @ loc[0] == pytest.approx(outcome.mean(), abs=0.02)
    second = LAW.share @ (loc[0] ** 2 + scale[0] ** 2)
    assert second == pytest.approx(np.square(outcome).mean(), rel=0.02)


def test_a_law_moves_without_changing_its_shape():
    moved = LAW.around(np.array([5.0, 5.0]))
    assert np.allclose(moved.center, 5.0)
    assert np.allclose(moved.moments()[0], LAW.moments()[0])


def test_covariances_without_noise_have_inverses():
    vectors = np.random.default_rng(0).normal(size=(4, 3, 1))
    assert np.isfinite(inverses(vectors @ vectors.swapaxes(1, 2))).all()
    assert np.isfinite(inverses(np.ones((2, 3, 3)))).all()
