"""Strangeness: p-values of familiar observations, distances that see different strangers, sums in parts."""

import numpy as np
import pytest
import torch
from scipy import stats

from gpsuq.core.familiarity import LARGEST, MOST_FEATURES, Familiarity, FeatureSums


def made(features, y, n_classes=3, *, batch=100):
    sums = FeatureSums(features.shape[1], n_classes)
    for start in range(0, len(features), batch):
        sums.add(features[start : start + batch], y[start : start + batch])
    return sums.familiarity()


@pytest.fixture(scope="module")
def classes():
    """Three classes in five dimensions, features of very different scales and far from 0."""
    generator = torch.Generator().manual_seed(0)
    y = torch.arange(6000) % 3
    features = torch.randn(6000, 5, generator=generator, dtype=torch.float64)
    features[:, 0] += 6.0 * (y == 1)
    features[:, 1] += 6.0 * (y == 2)
    return features * torch.tensor([1.0, 1.0, 1e4, 1e-2, 1.0]) + 10.0, y


@pytest.fixture(scope="module")
def known(classes):
    features, y = classes
    found = made(features[:3000], y[:3000])
    found.calibrate(features[3000:5000].float())
    return found


def test_distances_are_those_of_the_formula(classes):
    features, y = (part[:3000] for part in classes)
    found = made(features, y, batch=999).distances(features[:200].float())
    means = torch.stack([features[y == h].mean(0) for h in range(3)])
    about = features - means[y]
    within, total = (part.T @ part / 3000 for part in (about, features - features.mean(0)))
    # A ridge of a thousandth of the mean variance of features in units of their own; each has its own here.
    scale = features[:999].std(0, correction=0)

    def squared(rows, covariance):
        unit = covariance / torch.outer(scale, scale)
        unit += 1e-3 * unit.diagonal().mean() * torch.eye(5)
        return ((rows / scale) @ torch.linalg.inv(unit) * (rows / scale)).sum(-1)

    far = squared(features[:200, None] - means, within).min(1).values
    near = far - squared(features[:200] - features.mean(0), total)
    np.testing.assert_allclose(found, torch.stack([near, far], 1), rtol=1e-3, atol=1e-3)


def test_strangeness_of_new_familiar_observations_is_minus_log_of_a_p_value(classes, known):
    """A weighted Bonferroni rule is valid, and here not wasteful: at most a share exp(-u) exceeds u, at least half."""
    fresh = known(classes[0][5000:].float())
    for u in (1.0, 2.0, 3.0):
        share = float((fresh > u).double().mean())
        assert 0.5 * np.exp(-u) < share < np.exp(-u) + 3.0 * np.sqrt(np.exp(-u) / len(fresh))


def test_strangers_between_classes_and_far_off_are_told(known):
    center = 10.0 + torch.zeros(1, 5)
    between = center + torch.tensor([[3.0, 3.0, 0.0, 0.0, 0.0]])
    small = center + torch.tensor([[0.0, 0.0, 0.0, 0.1, 0.0]])  # ten standard deviations of the smallest feature
    assert float(known(center)) < 1.5
    assert float(known(between)) > 4.0
    assert float(known(small)) > 4.0
    assert float(known(center + 1e9)) == LARGEST


def test_many_features_are_projected_and_still_tell_strangers():
    generator = torch.Generator().manual_seed(1)
    y = torch.arange(1500) % 2
    features = torch.randn(1500, 3 * MOST_FEATURES, generator=generator) + 0.5 * y[:, None]
    found = made(features[:1000], y[:1000], 2, batch=500)
    assert found.within.shape == (3 * MOST_FEATURES, MOST_FEATURES)
    found.calibrate(features[1000:])
    strangers = 3.0 * torch.randn(50, 3 * MOST_FEATURES, generator=generator)
    assert float(found(strangers).min()) > float(found(features[1000:]).median())
    assert float(found(strangers).median()) > 5.0


@pytest.mark.parametrize("n", [1, 2, 15])
def test_few_or_constant_or_equal_features_give_finite_numbers(n):
    features, y = torch.ones(30, 3), torch.arange(30) % 2
    features[:, 0] = y
    found = made(features, y, 2)
    found.calibrate(features[:n])
    assert torch.isfinite(found(features)).all()
    assert torch.isfinite(found(features + 1e6)).all()


def test_a_class_without_observations_is_left_out():
    features, y = torch.randn(60, 2, generator=torch.Generator().manual_seed(2)), torch.arange(60) % 2
    assert made(features, y, 5).means.shape == (2, 2)


def test_it_is_a_module_whose_numbers_can_be_kept(known, classes):
    other = Familiarity(5, 3)
    other.load_state_dict(known.state_dict())
    rows = classes[0][:50].float()
    torch.testing.assert_close(other(rows), known(rows), rtol=0, atol=0)


def test_p_values_agree_with_the_law_of_a_normal_sample():
    """One class of Normal features: the far distance is chi-squared, and its tail beyond the data is exponential."""
    generator = torch.Generator().manual_seed(3)
    features = torch.randn(40000, 4, generator=generator)
    found = made(features[:20000], torch.zeros(20000, dtype=torch.long), 1)
    found.calibrate(features[20000:])
    row = torch.tensor([[5.0, 0.0, 0.0, 0.0]])
    surprise = -stats.chi2.logsf(25.0, 4) + np.log(0.3)
    assert float(found(row)) == pytest.approx(surprise, rel=0.15)
