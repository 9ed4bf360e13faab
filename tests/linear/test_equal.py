"""One coefficient vector with a noise law: as good as least squares, deaf to what is wild, right when masked."""

import numpy as np
import pytest

from gpsuq.linear.equal import NoiseLaw, bounded, fit_equal, near_least_squares, weighted_least_squares
from gpsuq.linear.pilot import robust_pilot
from gpsuq.linear.sample import Rows


def rows(design, y):
    return Rows(design, y, np.ones(len(y)), design[:, :-1])


def fitted(design, y):
    return fit_equal(rows(design, y), robust_pilot(design, y).coefficients[1])


def with_level(x):
    return np.column_stack([x, np.ones(len(x))])


def test_normal_noise_is_least_squares(rng):
    design = with_level(rng.normal(size=(400, 3)))
    y = design @ [1.0, -2.0, 0.5, 3.0] + rng.normal(size=400)
    fit = fitted(design, y)
    least = np.linalg.lstsq(design, y, rcond=None)[0]
    assert np.abs(fit.coefficients - least).max() < 0.3 / np.sqrt(400)
    assert fit.noise.sd == pytest.approx(1.0, abs=0.1)


def test_few_rows_of_normal_noise_are_least_squares(rng):
    """A robust start explains half of 20 rows by chance: that is no reason to leave the others out."""
    same = 0
    for _ in range(20):
        design = with_level(rng.normal(size=(20, 5)))
        y = design @ np.ones(6) + rng.normal(size=20)
        same += np.allclose(fitted(design, y).coefficients, np.linalg.lstsq(design, y, rcond=None)[0], atol=1e-6)
    assert same >= 14


def test_few_rows_with_a_wild_value_are_not(rng):
    design = with_level(rng.normal(size=(20, 3)))
    y = design @ np.ones(4) + 0.1 * rng.normal(size=20)
    y[3] += 50.0
    assert np.abs(fitted(design, y).coefficients - 1.0).max() < 0.2


def test_wild_values_have_no_say(rng):
    design = with_level(rng.normal(size=(200, 2)))
    y = design @ [1.0, 2.0, 0.0] + rng.normal(size=200)
    before = fitted(design, y).coefficients
    y[:20] += 1e6
    assert np.abs(fitted(design, y).coefficients - before).max() < 0.15


def test_a_far_corner_does_not_mask_itself(rng):
    """13% bad leverage points, and good ones behind them: the likelihood alone would follow the bad ones."""
    x = rng.normal(size=(150, 3))
    y = 1.0 + x @ [0.1, 0.05, -0.05] + 0.3 * rng.normal(size=150)
    x[:20], y[:20] = 8.0 + 0.5 * rng.normal(size=(20, 3)), 12.0
    x[20:28] = 9.0 + 0.5 * rng.normal(size=(8, 3))
    y[20:28] = 1.0 + x[20:28] @ [0.1, 0.05, -0.05]
    fit = fitted(with_level(x), y)
    assert np.allclose(fit.coefficients, [0.1, 0.05, -0.05, 1.0], atol=0.15)
    assert (np.abs(y - with_level(x) @ fit.coefficients) > 4 * fit.bulk)[:28].sum() == 20


def test_peaked_noise_is_used(rng):
    """Under Laplace noise the median is efficient: the fit must beat least squares clearly."""
    errors = []
    for _ in range(30):
        design = with_level(rng.normal(size=(300, 5)))
        y = design @ np.ones(6) + rng.laplace(size=300)
        errors.append(
            [np.square(c - 1.0).sum() for c in (fitted(design, y).coefficients, np.linalg.lstsq(design, y)[0])]
        )
    ours, least = np.mean(errors, axis=0)
    assert ours < 0.85 * least


def test_precision_falls_with_the_residual_and_to_nothing():
    noise = NoiseLaw(np.array([1.0, 10.0]), np.array([0.9, 0.1]), 1.0)
    precision = noise.precision(np.array([0.0, 2.0, 5.0, 50.0]))
    assert (np.diff(precision) < 0).all()
    assert precision[-1] < 1e-4
    step = 1e-6
    at = np.array([0.3, 1.7])
    slope = ((at + step) * noise.precision(at + step) - (at - step) * noise.precision(at - step)) / (2 * step)
    assert np.allclose(noise.curvature(at), slope, atol=1e-3)


def test_a_curve_is_fitted_by_least_squares_but_wild_rows_are_not(rng):
    x = rng.uniform(0, 3, size=(300, 1))
    design, y = with_level(x), np.exp(x[:, 0]) + 0.1 * rng.normal(size=300)
    least = np.linalg.lstsq(design, y, rcond=None)[0]
    robust = fitted(design, y)
    near = near_least_squares(rows(design, y), robust, seed=0, straight=False)
    assert np.allclose(near.coefficients, least, atol=0.15)
    assert np.abs(robust.coefficients - least).max() > np.abs(near.coefficients - least).max()
    y[5] += 1e4
    again = near_least_squares(rows(design, y), fitted(design, y), seed=0, straight=False)
    assert np.allclose(again.coefficients, near.coefficients, atol=0.15)


def test_rows_with_little_noise_tell_the_line(rng):
    errors = []
    for _ in range(10):
        x = rng.normal(size=(400, 3))
        design, noise = with_level(x), np.exp(0.7 * x[:, 0]) * rng.normal(size=400)
        y = design @ np.ones(4) + noise
        fits = [near_least_squares(rows(design, y), fitted(design, y), seed=0, straight=s) for s in (0, 1)]
        errors.append([np.square(fit.coefficients - 1.0).sum() for fit in fits])
        assert fits[1].counts(noise, fits[1].sizes(x))[x[:, 0].argmin()] > fits[0].counts(noise, fits[0].sizes(x)).max()
    plain, weighted = np.mean(errors, 0)
    assert weighted < 0.5 * plain


def test_bounded_weights_are_one_and_then_fall():
    weights = bounded(np.array([0.0, 24.9, 25.0, 50.0, 1e300]))
    assert weights[:3].tolist() == [1.0, 1.0, 1.0]
    assert weights[3] == pytest.approx(0.25)
    assert weights[4] == 0.0


def test_columns_without_variation_do_not_break_least_squares():
    design = np.column_stack([np.arange(5.0), np.zeros(5)])
    assert np.allclose(weighted_least_squares(design, 2.0 * np.arange(5.0), np.ones(5)), [2.0, 0.0])
