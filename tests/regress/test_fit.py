"""Rounds of training, and where generators start."""

import math

import numpy as np
import pytest
import torch

from gpsuq import GPSRegressor
from gpsuq.core import mixtures
from gpsuq.core.parameters import DataScale, ParameterMap
from gpsuq.regress import fit as module
from gpsuq.regress import judging
from gpsuq.regress.families import make_family


@pytest.mark.parametrize(
    ("last", "longer"),
    [(0.5, True), (0.84, True), (0.9, False), (1.1, False), (-0.5, False)],
)
def test_a_second_round_follows_where_the_score_still_falls(last, longer):
    scores = [2.0] * 22 + [1.0] * 7 + [last]
    assert module._still_falling(scores) is longer
    assert not module._still_falling(scores[-5:])  # too few evaluations to tell


def test_two_rounds_are_kept_only_where_the_second_is_better(monkeypatch):
    rng = np.random.default_rng(0)
    x = rng.uniform(-2, 2, size=(120, 2))
    y = x[:, 0] * x[:, 1] + 0.1 * rng.normal(size=120)
    options = {"n_chains": 4, "n_steps": 60}
    once = GPSRegressor(**options).fit(x, y)
    monkeypatch.setattr(module, "_still_falling", lambda scores: True)
    twice = GPSRegressor(**options).fit(x, y)
    assert all(one <= 60 for one in once.fit_.steps)
    assert all(60 < steps <= 60 + 180 for steps in twice.fit_.steps)
    for kind, scores in once.fit_.held_out.items():
        assert twice.fit_.held_out[kind][: len(scores)] == scores  # the first round is the same
        assert min(twice.fit_.held_out[kind]) <= min(scores)
    assert twice.crps(x, y).mean() < once.crps(x, y).mean()


@pytest.mark.parametrize(("between", "n_chains"), [(0.5, 10), (0.1, 4), (0.0, 10)])
def test_scores_of_all_chains_are_foreseen_by_two(between, n_chains):
    """Chains whose locations differ by a Normal of that variance, around a truth with noise of variance 1."""
    rng = np.random.default_rng(0)
    y, loc = rng.normal(size=20_000), np.sqrt(between) * rng.normal(size=(20_000, n_chains))
    one, two, everyone = (mixtures.normal_scores(y, loc[:, :c], np.ones(c)) for c in (1, 2, n_chains))
    other = mixtures.normal_scores(y, loc[:, 1:2], np.ones(1))
    factor = judging._ensemble_factor(two, np.stack([one, other], axis=1), n_chains)
    assert factor == pytest.approx(everyone.std() / two.std(), abs=0.015)
    assert (factor < 0.99) == (between > 0.0)


def test_scales_start_narrow_and_locations_where_they_are():
    one = torch.ones(2)
    parameters = ParameterMap(make_family("normal", 2).model.parameters, 3, DataScale(0.0 * one, one))
    raw = module._first_raw(parameters)
    started = parameters(raw, random=True)
    assert started["loc"].tolist() == [0.0, 0.0]
    assert started["scale"].tolist() == pytest.approx([0.22, 0.22])
    assert raw.tolist() == pytest.approx([0.0, 0.0, math.log(0.22), math.log(0.22)])


def test_one_wild_row_of_few_counts_no_farther_than_so_many_can_be():
    rng = np.random.default_rng(0)
    scores, known = rng.normal(size=16), rng.normal(size=(16, 2))
    ends = [
        judging._calibration(known, np.append(scores[:-1], last), 0).predictive_scores(np.array([0.05, 0.95]), known)
        for last in (scores[-1], 6.0, 8.0)
    ]
    assert ((ends[0][:, 1] > 1.3) & (ends[0][:, 1] < 2.2)).all()
    np.testing.assert_array_equal(ends[1], ends[2])
    assert (ends[2][:, 1] < 2.5).all()


@pytest.mark.parametrize("size", [0.5, 2.0])
def test_many_rows_say_how_wide_the_predictive_should_be(size):
    rng = np.random.default_rng(0)
    known = rng.normal(size=(4000, 2))
    calibration = judging._calibration(known, size * rng.normal(size=4000), 0)
    assert calibration.predictive_scores(np.array([0.95]), known).mean() == pytest.approx(1.645 * size, rel=0.05)
