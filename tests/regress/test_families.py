"""Families of outcomes: mixtures against Monte Carlo, quantiles against the cdf, supports."""

import numpy as np
import pytest
import torch
from torch.distributions import Gumbel

from gpsuq import GPSError, Location, ObservationModel, Scale
from gpsuq.regress.families import FAMILIES, chosen_components, make_family

RNG = np.random.default_rng(0)
ROWS, COMPONENTS = 5, 7
POSITIVE = {"scale", "df", "rate", "size", "precision"}
LEVELS = np.array([-1.6, -0.3, 0.0, 1.2])


def parameters(family):
    found = {}
    for name in family.model.parameters:
        normal = RNG.normal(size=(ROWS, COMPONENTS))
        found[name] = np.exp(0.4 * normal) if name in POSITIVE else normal
        if name == "rate":
            found[name] = 4.0 * found[name]
        if name == "mean":
            found[name] = 1.0 / (1.0 + np.exp(-normal))
    return found


@pytest.fixture(params=[*FAMILIES, "own"])
def family(request):
    if request.param == "own":  # torch knows its cdf
        own = ObservationModel(lambda x, loc, scale: Gumbel(loc, scale), loc=Location(), scale=Scale())
        return make_family(own, None)
    return make_family(request.param, None)


def weights():
    return np.full(COMPONENTS, 1.0 / COMPONENTS)


def test_moments_and_cdf_agree_with_samples(family):
    p, outcome = parameters(family), family.outcome
    many = {name: np.tile(value, (1, 20_000)) for name, value in p.items()}
    drawn = outcome.sample(many, 1).reshape(ROWS, -1, COMPONENTS)
    error = drawn.std(1) / np.sqrt(drawn.shape[1])
    assert (np.abs(drawn.mean(1) - outcome.mean(p)) < 5.0 * error).all()
    if family.name != "student-t":  # its fourth moment is hardly finite, so that the variance of samples says little
        np.testing.assert_allclose(drawn.var(1), outcome.variance(p), rtol=0.15)
    middle = np.floor(drawn[:, :, 0].mean(1)) + (0.0 if outcome.discrete else 0.25)
    share = (drawn <= middle[:, None, None]).mean(1)
    np.testing.assert_allclose(outcome.cdf(middle, p), share, atol=0.02)


def test_quantiles_invert_the_cdf(family):
    p, outcome, weight = parameters(family), family.outcome, weights()
    scores = np.tile(LEVELS, (ROWS, 1))
    found = outcome.at_normal_scores(scores, p, weight)
    assert (np.diff(found, axis=1) >= 0).all()
    from scipy.stats import norm

    for column, level in enumerate(norm.cdf(LEVELS)):
        reached = outcome.cdf(found[:, column], p) @ weight
        if outcome.discrete:
            assert (reached >= level).all()
            assert (outcome.cdf(found[:, column] - 1.0, p) @ weight < level).all()
        else:
            np.testing.assert_allclose(reached, level, atol=1e-6)


def test_density_is_the_slope_of_the_cdf(family):
    p, outcome, weight = parameters(family), family.outcome, weights()
    y = outcome.at_normal_scores(np.full((ROWS, 1), 0.3), p, weight)[:, 0]
    if outcome.discrete:
        slope = (outcome.cdf(y, p) - outcome.cdf(y - 1.0, p)) @ weight
    else:
        slope = (outcome.cdf(y + 1e-4, p) - outcome.cdf(y - 1e-4, p)) @ weight / 2e-4
    np.testing.assert_allclose(np.exp(outcome.log_density(y, p, weight)), slope, rtol=1e-3)


def test_samples_stand_in_where_torch_has_no_cdf():
    class NoCdf(torch.distributions.Normal):
        def cdf(self, value):
            raise NotImplementedError

    own = ObservationModel(lambda x, loc, scale: NoCdf(loc, scale), loc=Location(), scale=Scale())
    outcome = make_family(own, None).outcome
    p = {"loc": np.zeros((1, 4000)), "scale": np.ones((1, 4000))}
    assert (outcome.cdf(np.array([1.0]), p) @ np.full(4000, 1 / 4000))[0] == pytest.approx(0.8413, abs=0.01)


@pytest.mark.parametrize(
    ("name", "y", "words"),
    [
        ("poisson", [1.0, -1.0], "counts"),
        ("poisson", [1.0, 0.5], "row 1: 0.5"),
        ("negative-binomial", [-2.0, 1.0], "counts"),
        ("lognormal", [1.0, 0.0], "positive numbers"),
        ("beta", [0.2, 1.0], "between 0 and 1"),
    ],
)
def test_outcomes_outside_the_support_are_named(name, y, words):
    with pytest.raises(GPSError, match=words):
        make_family(name, None).check(np.array(y))


def test_components_are_drawn_by_their_weights():
    chosen = chosen_components(np.array([0.2, 0.0, 0.8]), 10_000, 0)
    counts = np.bincount(chosen, minlength=3)
    assert counts[1] == 0
    assert counts[2] == pytest.approx(8000, abs=200)
