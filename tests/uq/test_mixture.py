"""Quantiles and probabilities of new observations: exact where the model has a cdf."""

import numpy as np
import pytest
import torch
from torch.distributions import Normal, Poisson, StudentT

from gpsuq import GPS, Algorithm, Conformal, Location, ObservationModel
from gpsuq.core import mixtures
from gpsuq.uq.mixture import mixture_cdf, mixture_quantiles

LEVELS = [0.025, 0.5, 0.9]


def test_quantiles_of_normals_solve_for_the_level():
    torch.manual_seed(0)
    loc = torch.randn(2, 4, 30)  # (chain, observation, draw)
    outcomes = Normal(loc, 0.5).sample((100,)).movedim(2, -1).reshape(-1, 4).numpy()
    found = mixture_quantiles([Normal(loc, 0.5)], outcomes, LEVELS)
    exact = mixtures.quantiles(LEVELS, loc.movedim(1, 0).reshape(4, -1).numpy(), np.full(60, 0.5)).T
    assert found == pytest.approx(exact, abs=2e-3)
    assert np.abs(np.quantile(outcomes, LEVELS, axis=0) - exact).max() > 5e-3  # what was sampled was not exact


def test_quantiles_of_counts_are_the_smallest_that_reach_the_level():
    rates = torch.rand(2, 3, 40) * 9.0
    outcomes = Poisson(rates).sample((20,)).movedim(2, -1).reshape(-1, 3).numpy()
    exact = mixtures.poisson_quantiles(LEVELS, rates.movedim(1, 0).reshape(3, -1).numpy()).T
    assert mixture_quantiles([Poisson(rates)], outcomes, LEVELS).tolist() == exact.tolist()


def test_what_has_no_cdf_is_sampled():
    predictive = StudentT(3.0, torch.zeros(1, 2, 5))
    assert mixture_cdf([predictive], torch.zeros(2)) is None
    outcomes = np.arange(20.0).reshape(10, 2)
    assert (mixture_quantiles([predictive], outcomes, [0.5]) == np.quantile(outcomes, [0.5], axis=0)).all()


@pytest.mark.filterwarnings("ignore::gpsuq.GPSWarning")
def test_conformal_intervals_cover_whatever_the_model_is(rng):
    model = ObservationModel(lambda loc: Normal(loc, 0.1), loc=Location(random=True))
    y, others, new = (rng.standard_t(3, size=n) for n in (60, 200, 2000))
    uq = GPS(model, algorithm=Algorithm(n_steps=20), n_chains=2).fit(y)
    lower, upper = uq.predict_interval(coverage=0.9, conformal=Conformal.of(uq.predict_cdf(others)))[:, 0]
    assert ((new > lower) & (new < upper)).mean() == pytest.approx(0.9, abs=0.05)
