import numpy as np
import pytest
import torch
from torch.distributions import (
    Bernoulli,
    Beta,
    Binomial,
    Categorical,
    Distribution,
    Gamma,
    Independent,
    Normal,
    Pareto,
    Poisson,
    StudentT,
    Uniform,
)

from gpsuq import (
    GPS,
    MMD,
    Algorithm,
    GPSError,
    Location,
    ObservationModel,
    Positive,
    Real,
    Scale,
    SlicedWasserstein,
    Slope,
)
from gpsuq.core.observations import observations
from gpsuq.engine.trial import check_support, support

LINE = ObservationModel(lambda x, slope, sd: Normal((x * slope).sum(-1), sd), slope=Slope(), sd=Scale())


def test_a_check_shows_shapes_support_and_score(rng):
    X, y = rng.normal(size=(12, 5, 2)), rng.normal(size=(12, 5))
    found = GPS.check(LINE, X, y)
    assert found.shapes == {"x": (5, 2), "y": (5,), "slope": (1, 2), "sd": (1,)}
    assert (found.n_observations, found.distribution, found.event_shape) == (12, "Normal", (5,))
    assert found.exact
    assert str(found).splitlines()[1:] == [
        "  x             (5, 2)",
        "  y             (5,)",
        "  slope         (1, 2)",
        "  sd            (1,)",
        "  distribution  Normal, event shape (5,)",
        "  support       any number",
        "  score         exact",
    ]


def test_a_check_knows_when_outcomes_are_sampled(rng):
    y = rng.normal(size=20)
    model = ObservationModel(lambda loc, scale: StudentT(4.0, loc, scale), loc=Location(), scale=Scale())
    assert GPS.check(model, y).exact  # by its density
    assert "sampled" in str(GPS.check(model, y, distance=MMD()))
    assert not GPS.check(ObservationModel(Normal, loc=Location(), scale=Scale()), y, distance=SlicedWasserstein()).exact


def test_a_check_takes_ragged_groups_and_raises_what_a_fit_raises(rng):
    X, y = rng.normal(size=(12, 2)), rng.normal(size=12)
    assert GPS.check(LINE, X, y, groups=[1, 1, 1, 2, 2, 3, 3, 3, 3, 4, 4, 5]).shapes["x"] == (4, 2)
    with pytest.raises(GPSError, match="outside the support"):
        GPS.check(ObservationModel(Poisson, rate=Positive()), y)


def test_dimensions_that_were_mixed_up_do_not_fit_by_chance(rng):
    """With as many draws as measures and one chain, draws would pass for measures."""
    model = ObservationModel(lambda x, slope: Normal((x * slope[..., 0, :]).sum(-1), 1.0), slope=Slope())
    gps = GPS(model, algorithm=Algorithm(n_steps=1, n_draws=20), n_chains=1, holdout=0.0)
    with pytest.raises(GPSError, match="failed for x of shape"):
        gps.train(rng.normal(size=(30, 20, 2)), rng.normal(size=(30, 20)))


@pytest.mark.parametrize(
    ("model", "y", "match"),
    [
        (ObservationModel(Normal, loc=Location(), scale=Scale()), np.zeros((9, 1)), r"pass y\[:, 0\]"),
        (
            ObservationModel(lambda loc: Independent(Normal(loc, 1.0), 1), loc=Location(4)),
            np.arange(36.0).reshape(4, 9),
            r"transposed, pass y\.T",
        ),
        (ObservationModel(Normal, loc=Location(), scale=Scale()), np.zeros((9, 3)), r"expand\(\*value\.shape, 3\)"),
        (ObservationModel(lambda loc: Normal(loc, 1.0), loc=Location(3)), np.arange(9.0), "is one number"),
    ],
)
def test_observations_of_another_shape_come_with_what_to_change(model, y, match):
    with pytest.raises(GPSError, match=match) as caught:
        GPS.check(model, y)
    assert "an observation in y has shape" in str(caught.value)
    assert "made      Normal of batch shape" in str(caught.value)


def test_a_sum_over_measures_is_named(rng):
    model = ObservationModel(lambda x, slope: Normal((x * slope).sum((-1, -2)), 1.0), slope=Slope())
    with pytest.raises(GPSError, match=r"each of \(5,\) measures: keep their dimensions"):
        GPS.check(model, rng.normal(size=(12, 5, 2)), rng.normal(size=(12, 5)))


@pytest.mark.parametrize(
    ("distribution", "y", "match"),
    [
        (
            Bernoulli(torch.full((1, 1, 2), 0.5)),
            [0, 1, 3],
            r"\(0 or 1\).*row 2: 3\.0.*Categorical for classes",
        ),
        (Poisson(torch.ones(1, 1, 2)), [4, -2], r"1 observation outside .* \(0, 1, 2, \.\.\.\).*suit Normal"),
        (Poisson(torch.ones(1, 1, 2)), [0.5, 3.0], "LogNormal"),
        (Poisson(torch.ones(1, 1, 2)), [0.0, 0.5], "Beta"),
        (
            Categorical(torch.ones(1, 1, 2, 3)),
            [1, 2, 3],
            r"\(whole numbers from 0 to 2\).*pass y - 1",
        ),
        (Beta(torch.ones(1, 1, 2), 1.0), [0.0, 7.0], "Poisson"),
    ],
)
def test_a_wrong_support_is_named_with_what_would_suit(distribution, y, match):
    with pytest.raises(GPSError, match=match):
        check_support(distribution, observations(None, y).rows())


def test_supports_in_words():
    class Silent(Distribution):
        def __init__(self):
            super().__init__(validate_args=False)

    one = torch.ones(1)
    assert support(Gamma(one, one)) == "0 or above"
    assert support(Uniform(0 * one, one)) == "numbers from 0 to 1"
    assert support(Binomial(torch.tensor([3, 9]), one / 2)) == "whole numbers from 0 to 9"
    assert support(Pareto(one, one)).startswith("GreaterThan")
    assert support(Silent()) == "not stated"


def test_a_check_of_alternatives(rng):
    model = ObservationModel(lambda x, taste: Categorical(logits=(x * taste).sum(-1)), taste=Real("features"))
    found = GPS.check(model, rng.normal(size=(12, 5, 3, 2)), rng.integers(3, size=(12, 5)))
    assert found.shapes["taste"] == (1, 1, 2)
    assert found.support == "whole numbers from 0 to 2"
