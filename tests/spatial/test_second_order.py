import numpy as np
import pytest

from gpsuq import GPSError
from gpsuq.spatial import Window, l_function, simulate_poisson
from gpsuq.spatial.second_order import global_envelope, summary_function

SQUARE = Window.rectangle(0, 1, 0, 1)
R = np.array([0.02, 0.05, 0.1, 0.2])


def slope(points):
    return 100.0 + 600.0 * points[:, 0]


@pytest.mark.parametrize("cross", [False, True])
@pytest.mark.parametrize(("summary", "truth"), [("K", np.pi * R**2), ("L", R), ("pcf", np.ones(4))])
def test_poisson_processes_have_known_summaries(summary, truth, cross):
    """The mean of 20 patterns of an intensity that is known; tolerance four standard errors."""
    rng, found = np.random.default_rng(0), []
    for _ in range(20):
        points, others = (simulate_poisson(slope, SQUARE, rng) for _ in range(2))
        options = {"others": others, "other_intensity": slope} if cross else {}
        found.append(summary_function(points, SQUARE, R, summary=summary, intensity=slope, **options))
    error = np.std(found, axis=0, ddof=1) / np.sqrt(20)
    assert (np.abs(np.mean(found, axis=0) - truth) < 4 * error + 0.01 * truth).all()


def test_l_is_that_of_l_function():
    points = np.random.default_rng(1).random((100, 2))
    assert np.allclose(summary_function(points, SQUARE, R, summary="L"), l_function(points, SQUARE, R))


def test_an_envelope_holds_whole_curves_with_its_coverage():
    rng = np.random.default_rng(2)
    tests = [global_envelope(R, *_curves(rng), "pcf") for _ in range(400)]
    p = np.array([test.p_value for test in tests])
    out = np.array([((t.observed < t.lower) | (t.observed > t.upper)).any() for t in tests])
    assert np.array_equal(out, p <= 0.05)
    assert 0.02 < out.mean() < 0.09
    with pytest.raises(GPSError, match="too few"):
        global_envelope(R, R, [R] * 10, "pcf")


def _curves(rng):
    curves = rng.normal(size=(40, 4)).cumsum(axis=1)
    return curves[0], curves[1:]


def test_summaries_are_named():
    with pytest.raises(GPSError, match='"K", "L" or "pcf"'):
        summary_function(np.zeros((2, 2)), SQUARE, R, summary="g")
