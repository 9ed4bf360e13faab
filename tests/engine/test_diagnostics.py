import warnings

import numpy as np
import pytest
from torch.distributions import Normal

from gpsuq import GPS, MMD, Algorithm, EnergyDistance, Gaussian, GPSWarning, Location, ObservationModel, Scale
from gpsuq.core.models import linear_regression
from gpsuq.datasets import scissors


def codes(gps, *data):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", GPSWarning)
        return {finding.code for finding in gps.fit(*data).findings}


LOCATION = ObservationModel(Normal, loc=Location(), scale=Scale())


def test_a_healthy_fit_warns_of_nothing(rng):
    y = np.where(rng.random(600) < 0.5, -2.0, 2.0) + 0.7 * rng.normal(size=600)
    model = ObservationModel(lambda loc: Normal(loc, 0.7), loc=Location())
    assert codes(GPS(model, algorithm=Algorithm(n_steps=400), n_chains=2), y) == set()


def test_collapsed_spread_is_said(rng):
    X = rng.normal(size=(300, 1))
    gps = GPS(linear_regression(), algorithm=Algorithm(n_steps=400), n_chains=2, spread_weight=50.0)
    with pytest.warns(GPSWarning, match="hardly differ"):
        findings = gps.fit(X, X[:, 0] + rng.normal(size=300)).findings
    assert "spread-collapsed" in {finding.code for finding in findings}


def test_noise_that_went_into_spread_is_said(rng):
    """A model that leaves next to nothing to noise explains all of y by spread."""
    model = ObservationModel(lambda loc: Normal(loc, 0.02), loc=Location())
    assert "noise-collapsed" in codes(GPS(model, algorithm=Algorithm(n_steps=300), n_chains=2), rng.normal(size=400))


def test_a_score_that_is_still_falling_is_said(rng):
    y = np.where(rng.random(300) < 0.5, -2.0, 2.0) + 0.3 * rng.normal(size=300)
    algorithm = Algorithm(n_steps=150, learning_rate=2e-3, schedule="constant")
    assert "still-falling" in codes(GPS(LOCATION, distance=MMD(Gaussian()), algorithm=algorithm), y)


def test_an_explosion_is_said(rng):
    algorithm = Algorithm(n_steps=100, learning_rate=3.0, schedule="constant", clip=None)
    model = ObservationModel(lambda loc: Normal(loc, 1.0), loc=Location())
    gps = GPS(model, distance=EnergyDistance(), algorithm=algorithm, holdout=0.0)
    assert "got-worse" in codes(gps, rng.normal(size=200))


def test_few_observations_are_said(rng, short):
    X = rng.normal(size=(20, 8))
    assert "few-observations" in codes(GPS(linear_regression(), algorithm=short), X, rng.normal(size=20))


def test_a_chain_that_got_stuck_is_said():
    """Chain 0 is penalised into a point mass, which on scissors fits far worse than the others."""
    data = scissors(500, seed=0)
    gps = GPS(
        linear_regression(intercept=False), algorithm=Algorithm(n_steps=400), n_chains=2, spread_weight=(20.0, 0.0)
    )
    with pytest.warns(GPSWarning, match="chain 0 fits clearly worse than chain 1"):
        gps.fit(data.X, data.y)


def test_findings_do_not_need_a_mean(rng, short):
    from torch.distributions import Cauchy

    model = ObservationModel(Cauchy, loc=Location(), scale=Scale())
    found = codes(GPS(model, algorithm=short), rng.standard_cauchy(100))
    assert "spread-collapsed" not in found
