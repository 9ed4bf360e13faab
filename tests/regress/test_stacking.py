"""Scores of mixtures against scoringrules and Monte Carlo; weights that a mixture has earned."""

import numpy as np
import pytest
import scoringrules
import torch

from gpsuq.regress.stacking import absolute_mean, mixture_crps, stacking_weights

RNG = np.random.default_rng(0)


def test_crps_of_one_normal_is_scoringrules():
    y, loc, scale = RNG.normal(size=20), RNG.normal(size=20), np.exp(RNG.normal(size=20))
    found = mixture_crps(y, loc[:, None], scale[:, None], np.ones(1))
    np.testing.assert_allclose(found, scoringrules.crps_normal(y, loc, scale), rtol=1e-10)


def test_crps_of_a_mixture_agrees_with_samples():
    loc, scale, weight = np.array([[-1.0, 2.0]]), np.array([[0.5, 1.0]]), np.array([0.3, 0.7])
    picked = RNG.random(200_000) < 0.3
    sample = np.where(picked, RNG.normal(-1.0, 0.5, picked.size), RNG.normal(2.0, 1.0, picked.size))
    exact = mixture_crps(np.array([0.4]), loc, scale, weight)[0]
    assert exact == pytest.approx(scoringrules.crps_ensemble(0.4, sample[:20_000]), abs=0.01)


def test_absolute_mean_of_a_point_is_its_distance():
    assert absolute_mean(torch.tensor([-2.0]), torch.tensor([0.0])).item() == pytest.approx(2.0)


def test_weights_go_to_what_is_right():
    y = RNG.normal(size=2000)
    right = np.zeros((2000, 4)), np.ones((2000, 4))
    wrong = np.full((2000, 4), 2.0), np.ones((2000, 4))
    weights = stacking_weights(y, [right[0], wrong[0]], [right[1], wrong[1]])
    assert weights.tolist() == [1.0, 0.0]
    halves = np.where(RNG.random(2000) < 0.5, -3.0, 3.0) + 0.5 * RNG.normal(size=2000)
    locs = [np.full((2000, 2), -3.0), np.full((2000, 2), 3.0), np.zeros((2000, 2))]
    weights = stacking_weights(halves, locs, [np.full((2000, 2), 0.5)] * 3)
    assert weights.sum() == pytest.approx(1.0)
    assert weights[2] == 0.0
    assert weights[0] == pytest.approx(0.5, abs=0.06)


@pytest.mark.parametrize(
    ("loc", "repeats", "least", "most"), [(0.3, 1, 0.1, 0.5), (0.3, 200, 0.0, 0.0), (9.0, 1, 0.0, 0.1)]
)
def test_few_rows_leave_weights_near_equal_unless_they_are_clear(loc, repeats, least, most):
    y = np.tile(np.linspace(-1.5, 1.3, 10), repeats)
    locs = [np.full((len(y), 4), 0.0), np.full((len(y), 4), loc)]
    weights = stacking_weights(y, locs, [np.ones((len(y), 4))] * 2)
    assert weights.sum() == pytest.approx(1.0)
    assert least <= weights[1] <= most


def test_one_predictive_has_all_weight():
    assert stacking_weights(np.zeros(5), [np.zeros((5, 2))], [np.ones((5, 2))]).tolist() == [1.0]
