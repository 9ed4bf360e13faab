import numpy as np
import pytest

from gpsuq.spread import choose_spread

WEIGHTS = (0.0, 0.1, 3.0)


def scores(rng, means, noise=0.1):
    row = rng.normal(size=500)
    return np.stack([mean + row + noise * rng.normal(size=500) for mean in means])


def test_equal_coefficients_are_presumed(rng):
    assert choose_spread(WEIGHTS, scores(rng, [0.0, 0.0, 0.004])).weight == 3.0
    assert choose_spread(WEIGHTS, scores(rng, [0.5, 0.2, 0.0])).weight == 3.0


def test_spread_is_refitted_without_penalty_where_it_costs_nothing(rng):
    choice = choose_spread(WEIGHTS, scores(rng, [0.0001, 0.0, 0.2]))
    assert choice.weight == 0.0
    assert choice.table.loc[3.0, "excess"] == pytest.approx(0.2, abs=0.02)
    assert choice.table.loc[3.0, "standard_error"] == pytest.approx(0.1 * np.sqrt(2 / 500), rel=0.2)


def test_a_penalty_that_clearly_helps_is_kept(rng):
    assert choose_spread(WEIGHTS, scores(rng, [0.2, 0.0, 0.2])).weight == 0.1


def test_groups_are_not_presumed_equal(rng):
    values = scores(rng, [0.0, 0.0, 0.004])
    assert choose_spread(WEIGHTS, values, presume_equal=False).weight < 3.0
