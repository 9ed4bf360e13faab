import numpy as np
import pytest
import torch
from scipy.stats import wasserstein_distance
from torch.distributions import Independent, Normal, Poisson

from gpsuq.core.distances import MMD, EnergyDistance, SlicedWasserstein
from gpsuq.core.kernels import Energy, Gaussian
from gpsuq.core.observations import observations
from gpsuq.errors import GPSError, GPSWarning


def test_mmd_of_a_sample_with_itself_is_smallest(rng):
    """The mean score is lowest for the law that the data come from, also against a point mass."""
    data = observations(None, rng.normal(size=4000))
    batch = data.rows()
    candidates = {
        "true": Normal(torch.zeros(1, 1, 64), 1.0),
        "mixture": Normal(torch.tensor([-0.8, 0.8]).repeat(32)[None, None], 0.6),
        "narrow": Normal(torch.zeros(1, 1, 64), 0.6),
        "shifted": Normal(torch.full((1, 1, 64), 0.4), 1.0),
    }
    for distance in (MMD(Gaussian()), EnergyDistance()):
        scores = {name: float(distance.terms(d, batch).score.mean()) for name, d in candidates.items()}
        assert min(scores, key=scores.get) in ("true", "mixture")
        assert scores["true"] < scores["narrow"]
        assert scores["true"] < scores["shifted"]


def test_any_positive_definite_function_is_a_kernel(rng):
    data = observations(None, rng.normal(size=20))
    own = MMD(lambda a, b: torch.exp(-(a - b).square().sum(-1))).resolve(data)
    torch.manual_seed(0)
    sampled = own.terms(Normal(torch.zeros(1, 1, 400), 1.0), data.rows(), 20).score
    exact = MMD(Gaussian()).terms(Normal(torch.zeros(1, 1, 400), 1.0), data.rows()).score
    assert torch.allclose(sampled, exact, atol=0.05)


def test_energy_distance_is_mmd_with_the_energy_kernel():
    assert EnergyDistance().kernel == Energy()


def test_only_an_adaptive_kernel_asks_to_be_refined():
    assert MMD().refine(0.5).kernel == Gaussian(7.0)
    assert MMD(Gaussian()).refine(0.5) is None


def test_sliced_wasserstein_is_the_wasserstein_distance_in_one_dimension(rng):
    y = rng.normal(size=400)
    data = observations(None, y)
    distance = SlicedWasserstein(n_replicates=1).resolve(data)
    torch.manual_seed(1)
    predictive = Normal(torch.full((1, 1, 400), 0.7), 0.5)
    value = float(distance.terms(predictive, data.rows()).score.mean())
    torch.manual_seed(1)
    sample = predictive.expand((1, 400, 400)).rsample()[0, torch.arange(400), torch.arange(400)]
    assert value == pytest.approx(wasserstein_distance(y, sample.numpy()) / y.std(), rel=1e-4)


def test_sliced_wasserstein_gives_each_observation_a_draw_of_its_own():
    """Half the draws at -1, half at 1, and data to match: a single draw for all would be a distance of 1."""
    y = np.repeat([-1.0, 1.0], 50)
    data = observations(None, y)
    loc = torch.tensor([-1.0, 1.0]).repeat(50)[None, None]
    value = SlicedWasserstein().resolve(data).terms(Normal(loc, 1e-4), data.rows()).score.mean()
    assert float(value) < 0.05


def test_sliced_wasserstein_handles_vectors_and_covariates(rng):
    data = observations(rng.normal(size=(30, 2)), rng.normal(size=(30, 3)))
    loc = torch.zeros(2, 30, 6, 3, requires_grad=True)
    terms = SlicedWasserstein().resolve(data).terms(Independent(Normal(loc, 1.0), 1), data.rows())
    assert terms.score.shape == (2, 30)
    terms.score.sum().backward()
    assert torch.isfinite(loc.grad).all()


def test_limits_of_sliced_wasserstein_are_said(rng):
    with pytest.warns(GPSWarning, match="hardly sees y"):
        SlicedWasserstein().resolve(observations(rng.normal(size=(30, 9)), rng.normal(size=30)))
    data = observations(None, rng.normal(size=30))
    resolved = SlicedWasserstein().resolve(data)
    with pytest.raises(GPSError, match="reparameterised"):
        resolved.terms(Poisson(torch.ones(1, 1, 4)), data.rows())
    with pytest.raises(GPSError, match="no observation weights"):
        resolved.check_weights(True)
    with pytest.raises(GPSError, match="padded"):
        SlicedWasserstein().resolve(observations(None, [[1.0], [1.0, 2.0]]))
    with pytest.raises(GPSError, match="resolve"):
        SlicedWasserstein().terms(Normal(torch.zeros(1, 1, 4), 1.0), data.rows())
    with pytest.raises(GPSError, match="n_projections"):
        SlicedWasserstein(n_projections=0)
    with pytest.raises(GPSError, match="n_pairs"):
        MMD(n_pairs=0)
