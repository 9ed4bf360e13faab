from itertools import pairwise

import numpy as np
import pytest

from gpsuq.linear.rows import principal_direction, split_points


@pytest.mark.parametrize(("centres", "expected"), [((0.0,), 0), ((-1.0, 1.0), 1), ((-3.0, 0.0, 3.0), 2)])
def test_modes_are_split_at_their_valleys(rng, centres, expected):
    values = np.concatenate([c + 0.2 * rng.normal(size=600) for c in centres])
    points = split_points(values)
    assert len(points) == expected
    assert np.allclose(points, [(a + b) / 2 for a, b in pairwise(centres)], atol=0.5)


def test_a_few_strays_are_no_subgroup(rng):
    assert len(split_points(np.r_[rng.normal(size=2000), 30.0, 31.0])) == 0
    assert len(split_points(np.full(100, 2.0))) == 0


def test_strays_beside_a_mode_do_not_hide_the_next(rng):
    values = np.r_[-2.0, -1.9, 0.02 * rng.normal(size=500), 5.0 + 0.5 * rng.normal(size=400)]
    assert len(split_points(values)) == 1


def test_the_direction_of_most_spread(rng):
    draws = rng.normal(size=(500, 1)) * [[3.0, -4.0]] + 0.1 * rng.normal(size=(500, 2))
    assert np.allclose(principal_direction(draws), [-0.6, 0.8], atol=0.02)
