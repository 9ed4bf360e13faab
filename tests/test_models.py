import pytest
import torch
from torch.distributions import Normal

from gpsuq.errors import GPSError
from gpsuq.models import ObservationModel, categorical, linear_regression, normal_location, poisson_counts
from gpsuq.parameters import Location, Real, Scale, Slope

C, N, M = 2, 5, 4


def test_batch_shape_is_chain_observation_draw():
    model = linear_regression()
    parameters = {
        "slope": torch.randn(C, 1, M, 3),
        "sigma": torch.rand(C, 1, M) + 0.1,
        "intercept": torch.randn(C, 1, M),
    }
    x = torch.randn(1, N, 1, 3)
    distribution = model(parameters, x)
    assert distribution.batch_shape == (C, N, M)
    expected = parameters["intercept"][1, 0, 2] + x[0, 3, 0] @ parameters["slope"][1, 0, 2]
    assert torch.isclose(distribution.mean[1, 3, 2], expected)


def test_repeated_measures_become_event_dimensions():
    parameters = {"slope": torch.randn(C, 1, M, 3), "sigma": torch.ones(C, 1, M), "intercept": torch.zeros(C, 1, M)}
    distribution = linear_regression()(parameters, torch.randn(1, N, 1, 7, 3))
    assert distribution.batch_shape == (C, N, M)
    assert distribution.event_shape == (7,)


def test_a_distribution_that_ignores_the_draws_is_expanded():
    model = ObservationModel(lambda theta: Normal(torch.zeros(1, 1, 1), 1.0), theta=Real())
    assert model({"theta": torch.zeros(C, 1, M)}).batch_shape == (C, 1, M)


def test_ready_made_models():
    assert normal_location()({"loc": torch.zeros(C, 1, M), "scale": torch.ones(C, 1, M)}).batch_shape == (C, 1, M)
    assert set(normal_location(1.0).parameters) == {"loc"}
    assert categorical(4)({"logits": torch.zeros(C, N, M, 4)}, torch.zeros(1, N, 1, 2)).batch_shape == (C, N, M)
    assert poisson_counts()({"rate": torch.ones(C, 1, M)}).batch_shape == (C, 1, M)
    assert not linear_regression().parameters["intercept"].random
    assert linear_regression(random_intercept=True).parameters["intercept"].random


def test_bad_models_are_named():
    with pytest.raises(GPSError, match="needs a function"):
        ObservationModel("normal", theta=Real())
    with pytest.raises(GPSError, match="must be declared"):
        ObservationModel(Normal, theta=3)
    with pytest.raises(GPSError, match="no random parameter"):
        ObservationModel(Normal, loc=Location(random=False))
    with pytest.raises(GPSError, match=r"must return a torch\.distributions\.Distribution"):
        ObservationModel(lambda theta: theta, theta=Real())({"theta": torch.zeros(C, 1, M)})
    wrong = ObservationModel(lambda x, slope, scale: Normal((x * slope).sum(0), scale), slope=Slope(), scale=Scale())
    with pytest.raises(GPSError, match="failed for x of shape"):
        wrong({"slope": torch.zeros(C, 1, M, 3), "scale": torch.ones(1, 1, 7)}, torch.zeros(1, N, 1, 3))
    wrong = ObservationModel(lambda theta: Normal(theta.sum(0), 1.0), theta=Real(7))
    with pytest.raises(GPSError, match="trailing dimensions"):
        wrong({"theta": torch.zeros(C, 1, M, 7)})
    with pytest.raises(GPSError, match="needs intercept"):
        linear_regression(intercept=False, random_intercept=True)
