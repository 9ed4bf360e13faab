"""The conformal layer: coverage by construction, in every group, whatever the predictive; bad input."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpsuq import Conformal, GPSError


def test_coverage_is_right_over_many_calibrations_whatever_the_predictive():
    rng = np.random.default_rng(0)
    covered = []
    for _ in range(3000):
        ranks = rng.beta(0.3, 0.6, size=40)  # of a predictive that is biased and too narrow
        low, high = Conformal.of(ranks[:39]).levels(0.9, 1)[0]
        covered.append(low <= ranks[39] <= high)
    # At least 90%, and at most 1 / 40 more; three standard errors are .016.
    assert 0.9 - 0.016 < np.mean(covered) < 0.925 + 0.016


def test_every_group_has_coverage_of_its_own():
    rng = np.random.default_rng(1)
    groups = np.repeat(["easy", "hard"], 2000)
    ranks = np.concatenate([rng.beta(5, 5, 2000), rng.beta(0.4, 0.4, 2000)])
    conformal = Conformal.of(ranks, groups)
    assert conformal.grouped
    new = np.concatenate([rng.beta(5, 5, 2000), rng.beta(0.4, 0.4, 2000)])
    levels = conformal.levels(0.9, 4000, groups)
    inside = (levels[:, 0] <= new) & (new <= levels[:, 1])
    for name in ("easy", "hard"):
        assert inside[groups == name].mean() == pytest.approx(0.9, abs=0.025)
    assert Conformal.of(ranks).levels(0.9, 1)[0, 0] > levels[-1, 0]


def test_too_few_rows_say_so_by_levels_zero_and_one():
    assert Conformal.of([0.2, 0.7]).levels(0.95, 1).tolist() == [[0.0, 1.0]]


@given(st.lists(st.floats(0.0, 1.0), min_size=1, max_size=60), st.floats(0.05, 0.95), st.floats(0.01, 0.04))
def test_more_coverage_never_makes_narrower_intervals(ranks, coverage, more):
    conformal = Conformal.of(ranks)
    narrow, wide = (conformal.levels(level, 1)[0] for level in (coverage, coverage + more))
    assert wide[0] <= narrow[0] <= narrow[1] <= wide[1]
    inside = np.mean((np.array(ranks) >= narrow[0] - 1e-12) & (np.array(ranks) <= narrow[1] + 1e-12))
    assert inside >= coverage - 1e-9


def test_bad_input_is_named():
    for ranks in ([], [0.2, 1.2], [0.1, np.nan], [[0.1]]):
        with pytest.raises(GPSError, match="ranks must be probabilities"):
            Conformal.of(ranks)
    with pytest.raises(GPSError, match="label for each"):
        Conformal.of([0.1, 0.2], ["a"])
    grouped, plain = Conformal.of([0.1, 0.2], ["a", "b"]), Conformal.of([0.1])
    with pytest.raises(GPSError, match="which group"):
        grouped.levels(0.9, 1)
    with pytest.raises(GPSError, match="groups c were not"):
        grouped.levels(0.9, 1, ["c"])
    with pytest.raises(GPSError, match="without groups"):
        plain.levels(0.9, 1, ["a"])
    with pytest.raises(GPSError, match="each of the 2 rows"):
        grouped.levels(0.9, 2, ["a"])
