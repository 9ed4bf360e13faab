"""The test of equal coefficients: its level under noise of any law, its power, and what is neither."""

import numpy as np
import pytest

from gpsuq.linear.equal import fit_equal
from gpsuq.linear.evidence import LEVEL, gather_evidence
from gpsuq.linear.pilot import robust_pilot
from gpsuq.linear.sample import Rows


def evidence(X, y, seed=0, weight=None):
    design = np.column_stack([(X - X.mean(0)) / X.std(0), np.ones(len(X))])
    weight = np.ones(len(y)) if weight is None else weight
    rows = Rows(design, y, weight, X)
    fit = fit_equal(rows, robust_pilot(design, y, weight).coefficients[1])
    return gather_evidence(rows, fit, seed=seed)


NOISE = {
    "normal": lambda rng, n: rng.normal(size=n),
    "laplace": lambda rng, n: rng.laplace(size=n),
    "t3": lambda rng, n: rng.standard_t(3, size=n),
    "skewed": lambda rng, n: rng.exponential(size=n),
}


@pytest.mark.parametrize("noise", NOISE)
def test_noise_of_any_law_is_no_difference(noise):
    """40 data sets at a level of 2%: five rejections or more have a probability below 0.1%."""
    found = 0
    for seed in range(40):
        rng = np.random.default_rng(seed)
        X = rng.normal(size=(150, 4))
        found += evidence(X, X.sum(1) + NOISE[noise](rng, 150), seed).differ
    assert found < 5


def test_a_curve_is_called_one_and_is_no_difference():
    """30 data sets at a level of 2%: four rejections or more have a probability below 0.3%."""
    found = []
    for seed in range(30):
        rng = np.random.default_rng(seed)
        X = rng.normal(size=(300, 3))
        found.append(evidence(X, X.sum(1) + X[:, 0] ** 2 + rng.normal(size=300), seed))
    assert all(each.curved and each.curvature > 0.3 for each in found)
    assert sum(each.differ for each in found) < 4


@pytest.mark.parametrize(
    "slopes",
    [
        lambda rng: rng.choice([-1.0, 1.0], 400),
        lambda rng: rng.normal(size=400),
        lambda rng: rng.choice([0.0, 2.0, -3.0], 400, p=[0.6, 0.3, 0.1]),
    ],
)
def test_differences_are_found(rng, slopes):
    X = rng.normal(size=(400, 3))
    found = evidence(X, slopes(rng) * X[:, 0] + X[:, 1] + 0.5 * rng.normal(size=400))
    assert found.p_value <= LEVEL
    assert not found.curved
    assert found.detectable is None


def test_a_rare_subgroup_is_found():
    """A tenth of the rows has another slope: shows in the size of few residuals, by their distance from the centre."""
    found = 0
    for seed in range(10):
        rng = np.random.default_rng(seed)
        X = rng.normal(size=(1000, 3))
        slopes = np.where(rng.random(1000) < 0.1, -3.0, 1.0)
        found += evidence(X, slopes * X[:, 0] + X[:, 1] + X[:, 2] + 0.5 * rng.normal(size=1000), seed).differ
    assert found == 10


def test_an_effect_that_varies_is_found_for_a_binary_column(rng):
    treated = rng.integers(0, 2, 500).astype(float)
    X = np.column_stack([treated, rng.normal(size=500)])
    assert evidence(X, treated * (1 + 1.5 * rng.normal(size=500)) + 0.7 * rng.normal(size=500)).differ


def test_a_few_rows_in_a_corner_are_outliers(rng):
    X = rng.normal(size=(100, 1))
    y = X[:, 0] + 0.3 * rng.normal(size=100)
    X[:6], y[:6] = 6.0, -20.0
    assert not evidence(X, y).differ


def test_what_would_have_been_found_shrinks_with_n():
    rng = np.random.default_rng(1)
    X = rng.normal(size=(2000, 2))
    y = X.sum(1) + rng.normal(size=2000)
    few, many = evidence(X[:100], y[:100]), evidence(X, y)
    assert not few.differ
    assert many.detectable < few.detectable


def test_frequencies_count_like_rows(rng):
    X = rng.normal(size=(300, 1))
    y = rng.choice([-1.0, 1.0], 300) * X[:, 0] + 0.2 * rng.normal(size=300)
    assert evidence(X, y, weight=rng.integers(1, 4, 300).astype(float)).differ
