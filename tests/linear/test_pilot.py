import numpy as np
import pytest

from gpsuq.linear.pilot import least_absolute_deviations, m_scale, robust_pilot


def test_the_scale_is_that_of_a_normal_and_resists_a_fifth_of_outliers(rng):
    residuals = 3.0 * rng.normal(size=(1, 50_000))
    assert m_scale(residuals, np.ones(50_000))[0] == pytest.approx(3.0, rel=0.01)
    residuals[0, :10_000] = 1e6
    assert m_scale(residuals, np.ones(50_000))[0] < 9.0


def test_neither_leverage_nor_response_outliers_spoil_the_centre(rng):
    x = rng.normal(size=200)
    y = 1.0 + 2.0 * x + 0.3 * rng.normal(size=200)
    x[:20], y[:20] = 10.0, -30.0  # leverage that turns least squares around
    y[20:30] += 1e6
    design = np.column_stack([x, np.ones(200)])
    pilot = robust_pilot(design, y)
    assert np.allclose(pilot.coefficients, [2.0, 1.0], atol=0.2)  # of all first fits
    assert np.linalg.lstsq(design[:190], y[:190], rcond=None)[0][0] < 0


def test_two_halves_pull_the_centre_to_the_middle(rng):
    x = rng.normal(size=2000)
    y = np.where(np.arange(2000) % 2, x, -x) + 0.1 * rng.normal(size=2000)
    pilot = robust_pilot(x[:, None], y)
    assert abs(pilot.coefficients[0, 0]) < 0.8
    assert pilot.scale > 0.4  # wide enough to see both


def test_it_follows_units_weights_and_shifts(rng):
    design = np.column_stack([rng.normal(size=(100, 2)), np.ones(100)])
    y = design @ [1.0, -2.0, 0.5] + rng.normal(size=100)
    plain = robust_pilot(design, y)
    scaled = robust_pilot(design, 1e3 * y)
    assert np.allclose(scaled.coefficients, 1e3 * plain.coefficients)
    assert scaled.scale == pytest.approx(1e3 * plain.scale)
    shifted = robust_pilot(design, y + design @ [10.0, 20.0, 30.0])
    assert np.allclose(shifted.coefficients, plain.coefficients + np.array([10.0, 20.0, 30.0]), atol=1e-6)
    spoiled = np.r_[y, np.full(60, 1e3)]
    weighted = robust_pilot(np.vstack([design, np.ones((60, 3))]), spoiled, np.r_[np.ones(100), np.zeros(60)])
    assert np.allclose(weighted.coefficients, plain.coefficients, atol=0.2)


def test_least_absolute_deviations_of_a_constant_is_the_median(rng):
    y = rng.standard_cauchy(501)
    assert least_absolute_deviations(np.ones((501, 1)), y, np.ones(501))[0] == pytest.approx(np.median(y), abs=0.02)


def test_hardly_more_rows_than_columns_give_a_unit_only(rng):
    pilot = robust_pilot(rng.normal(size=(5, 4)), np.arange(5.0))
    assert np.array_equal(pilot.coefficients, np.zeros((1, 4)))
    assert pilot.scale > 0
