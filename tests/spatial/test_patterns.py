import numpy as np
import pytest

from gpsuq import GPSError, GPSWarning
from gpsuq.spatial import point_pattern, thin

SQUARE = (0, 1, 0, 1)


@pytest.mark.parametrize(
    ("points", "message"),
    [
        (np.empty((0, 2)), "no points"),
        ([], "no points"),
        ([[0.5, np.nan]], "row 0"),
        ([[0.5, 0.5], [np.inf, 0.5]], "row 1"),
        ([[0.5, 0.5, 0.5]], r"\(n, 2\)"),
        ([0.5, 0.5], r"\(n, 2\)"),
        ([["a", "b"]], "numbers"),
        ([[0.5, 0.5], [2.0, 0.5], [0.5, -1.0]], r"2 of 3 points lie outside the window \(row 1, 2\)"),
    ],
)
def test_bad_points_are_refused(points, message):
    with pytest.raises(GPSError, match=message):
        point_pattern(points, SQUARE)


def test_points_outside_may_be_dropped():
    with pytest.warns(GPSWarning, match="1 of 3 points lie outside the window and were dropped"):
        pattern = point_pattern([[0.5, 0.5], [2.0, 0.5], [0.1, 0.1]], SQUARE, outside="drop")
    assert len(pattern) == 2


def test_dropping_all_points_is_an_error():
    with pytest.warns(GPSWarning, match="dropped"), pytest.raises(GPSError, match="no points"):
        point_pattern([[2.0, 0.5]], SQUARE, outside="drop")


def test_duplicates_are_named():
    with pytest.warns(GPSWarning, match="2 points have the same coordinates"):
        point_pattern([[0.5, 0.5]] * 3, SQUARE)


def test_thinning_splits_at_random(rng):
    points = rng.random((1000, 2))
    kept, rest = thin(points, 0.3, seed=1)
    assert len(kept) + len(rest) == 1000
    assert 240 < len(kept) < 360
    assert not set(map(tuple, kept)) & set(map(tuple, rest))
    with pytest.raises(GPSError, match="between 0 and 1"):
        thin(points, 1.0, seed=1)
