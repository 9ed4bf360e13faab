import pytest
import torch
from torch.distributions import Bernoulli, Categorical, Distribution, Normal

from gpsuq.core.models import ObservationModel, categorical, linear_regression, normal_location, poisson_counts
from gpsuq.core.parameters import Location, Positive, Real, Scale, Slope
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


# --- observations with several measures ------------------------------------------------------------------------------


def test_a_panel_is_written_as_for_one_person():
    """What the model says of every person and draw is what its function says of one person's tensors alone."""

    def function(x, slope, level, sd):
        return Normal((x * slope).sum(-1) + level, sd)

    model = ObservationModel(function, slope=Slope(), level=Real(), sd=Scale())
    x = torch.randn(1, N, 1, 7, 3)
    parameters = {"slope": torch.randn(C, 1, M, 3), "level": torch.randn(C, 1, M), "sd": torch.rand(C, 1, M)}
    panel = model(parameters, x, one_y=(7,))
    assert (panel.batch_shape, panel.event_shape) == ((C, N, M), (7,))
    alone = function(x[0, 3, 0], *(value[1, 0, 2] for value in parameters.values()))
    assert torch.allclose(panel.mean[1, 3, 2], alone.mean)
    assert torch.allclose(panel.stddev[1, 3, 2], alone.stddev)


def test_choices_among_alternatives_with_constants():
    model = ObservationModel(
        lambda x, taste, constant: Categorical(logits=(x * taste).sum(-1) + constant),
        taste=Real("features"), constant=Real(4),
    )  # fmt: skip
    taste, constant, x = torch.randn(C, 1, M, 2), torch.randn(C, 1, M, 4), torch.randn(1, N, 1, 7, 4, 2)
    choices = model({"taste": taste, "constant": constant}, x, one_y=(7,))
    assert (choices.batch_shape, choices.event_shape) == ((C, N, M), (7,))
    alone = torch.softmax((x[0, 3, 0] * taste[1, 0, 2]).sum(-1) + constant[1, 0, 2], -1)
    assert torch.allclose(choices.base_dist.probs[1, 3, 2], alone, atol=1e-6)
    one_choice = ObservationModel(lambda x, taste: Categorical(logits=(x * taste).sum(-1)), taste=Slope())
    assert one_choice({"taste": taste}, x[:, :, :, 0], one_y=()).event_shape == ()


def test_an_image_with_a_label_has_no_measures():
    seen = []
    model = ObservationModel(lambda x, logits: seen.append(logits.shape) or Categorical(logits=logits), logits=Real(10))
    model({"logits": torch.zeros(C, N, M, 10)}, torch.zeros(1, N, 1, 28, 28), one_y=())
    assert seen == [(C, N, M, 10)]


def test_measures_that_all_have_one_law_are_expanded():
    model = ObservationModel(lambda x, level: Bernoulli(logits=level), level=Real())
    flat = model({"level": torch.zeros(C, 1, M)}, torch.zeros(1, N, 1, 7, 3), one_y=(7,))
    assert flat.event_shape == (7,)


def test_arguments_and_declarations_must_agree():
    with pytest.raises(GPSError, match=r"takes scale, which is not declared: pass scale=Real\(\)"):
        ObservationModel(lambda x, slope, scale: Normal((x * slope).sum(-1), scale), slope=Slope())
    with pytest.raises(GPSError, match=r"declares scale, but .* \(it takes x, slope\): add scale"):
        ObservationModel(lambda x, slope: Normal((x * slope).sum(-1), 1.0), slope=Slope(), scale=Scale())
    for function in (lambda x=None, *, rate: Normal(rate, 1.0), lambda *args, **kwargs: Normal(kwargs["rate"], 1.0)):
        model = ObservationModel(function, rate=Positive())  # does with and without covariates
        for x in (None, torch.zeros(1, N, 1, 2)):
            assert model({"rate": torch.ones(C, 1, M)}, x).batch_shape == (C, 1, M)


def test_covariates_that_are_missing_or_not_wanted_are_named():
    theta = {"theta": torch.zeros(C, 1, M)}
    wants = ObservationModel(lambda w, theta: Normal(theta + w[..., 0], 1.0), theta=Real())
    with pytest.raises(GPSError, match=r"takes w, .* call fit\(X, y\), or declare w"):
        wants(theta)
    refuses = ObservationModel(lambda theta: Normal(theta, 1.0), theta=Real())
    with pytest.raises(GPSError, match=r"takes none .* function\(x, theta\), or call fit\(y\)"):
        refuses(theta, torch.zeros(1, N, 1, 2))


def test_a_sum_over_everything_is_named_with_its_line():
    model = ObservationModel(lambda x, slope: Normal((x * slope).sum(), 1.0), slope=Slope())
    with pytest.raises(GPSError, match="has lost chains, observations or draws") as caught:
        model({"slope": torch.zeros(C, 1, M, 3)}, torch.zeros(1, N, 1, 3), one_y=())
    message = str(caught.value)
    assert "made      Normal of batch shape ()" in message
    assert f"expected  batch shape ({C}, {N}, {M})" in message
    assert "test_models.py, line" in message
    assert "Normal((x * slope).sum(), 1.0)" in message


def test_a_distribution_that_cannot_be_expanded_is_named():
    class Own(Distribution):
        def __init__(self, loc):
            super().__init__(loc.shape, validate_args=False)

    model = ObservationModel(lambda theta: Own(theta.mean(2, keepdim=True)), theta=Real())
    with pytest.raises(GPSError, match=r"Own has batch shape .* and no method expand"):
        model({"theta": torch.zeros(C, 1, M)})
