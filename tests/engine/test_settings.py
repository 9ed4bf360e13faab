import math

import pytest

from gpsuq.engine.settings import Algorithm, Algorithm1
from gpsuq.errors import GPSError


def test_algorithm1_is_the_papers():
    paper = Algorithm1()
    assert (paper.n_draws, paper.n_outcomes, paper.batch_size) == (10, 5, 100)
    assert (paper.optimizer, paper.sum_over_draws, paper.shared_noise) == ("sgd", True, False)
    assert [paper.rate(t - 1, 100) for t in (1, 4, 100)] == pytest.approx([0.01, 0.005, 0.001])


def test_cosine_falls_from_the_learning_rate_to_zero():
    algorithm = Algorithm(learning_rate=0.2)
    assert algorithm.rate(0, 100) == pytest.approx(0.2)
    assert algorithm.rate(50, 100) == pytest.approx(0.1)
    assert algorithm.rate(100, 100) == pytest.approx(0.0)
    assert Algorithm(schedule="constant", learning_rate=0.2).rate(77, 100) == 0.2


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"n_draws": 1}, "M"),
        ({"n_outcomes": 0}, "J"),
        ({"n_steps": 0}, "n_steps"),
        ({"batch_size": 0}, "batch_size"),
        ({"learning_rate": 0.0}, "learning_rate"),
        ({"learning_rate": math.nan}, "learning_rate"),
        ({"clip": -1.0}, "clip"),
        ({"optimizer": "lbfgs"}, "optimizer"),
        ({"schedule": "linear"}, "schedule"),
    ],
)
def test_bad_settings_are_named(options, match):
    with pytest.raises(GPSError, match=match):
        Algorithm(**options)
