import pytest
import torch
from torch.distributions import Normal

from gpsuq.core.models import ObservationModel, categorical, linear_regression, normal_location, poisson_counts
from gpsuq.core.parameters import Location, Real, Scale, Slope
from gpsuq.errors import GPSError

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


def test_with_a_pivot_all_lines_cross_in_one_point():
    model = linear_regression(pivot=True)
    slope = torch.randn(2, 1, 7, 3)
    pivot = torch.randn(2, 1, 1, 3)
    parameters = {
        "slope": slope,
        "sigma": torch.ones(2, 1, 7),
        "intercept": torch.full((2, 1, 7), 4.0),
        "pivot": pivot.expand(2, 1, 7, 3),
    }
    at_pivot = model(parameters, pivot[0].reshape(1, 1, 1, 3)).mean
    assert torch.allclose(at_pivot[0], torch.full_like(at_pivot[0], 4.0), atol=1e-5)
    for options in ({"intercept": False}, {"random_intercept": True}):
        with pytest.raises(GPSError, match="pivot"):
            linear_regression(pivot=True, **options)


def test_shared_draws_and_repeated_measures_give_the_same_means_as_products_written_out():
    model = linear_regression()
    slope, x = torch.randn(2, 1, 7, 3), torch.randn(1, 5, 1, 4, 3)
    parameters = {"slope": slope, "sigma": torch.ones(2, 1, 7), "intercept": torch.zeros(2, 1, 7)}
    assert torch.allclose(model(parameters, x).mean, (x * slope[..., None, :]).sum(-1), atol=1e-5)
    assert torch.allclose(model(parameters, x[..., 0, :]).mean, (x[..., 0, :] * slope).sum(-1), atol=1e-5)
