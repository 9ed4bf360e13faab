import numpy as np
import pytest
import shapely

from gpsuq import GPSError
from gpsuq.spatial import Grid, Window, l_envelope, l_function, simulate_poisson

SQUARE = Window.rectangle(0, 1, 0, 1)


def slope(points):
    return 400.0 * points[:, 0]


def test_simulated_counts_are_poisson(rng):
    """Mean and variance of the counts in both halves, 300 patterns; means 50 and 150, tolerance four errors."""
    halves = []
    for _ in range(300):
        points = simulate_poisson(slope, SQUARE, rng)
        left = int((points[:, 0] < 0.5).sum())
        halves.append((left, len(points) - left))
    counts = np.array(halves)
    for column, mean in ((0, 50.0), (1, 150.0)):
        assert abs(counts[:, column].mean() - mean) < 4 * np.sqrt(mean / 300)
        assert abs(counts[:, column].var(ddof=1) / mean - 1) < 4 * np.sqrt(2 / 299)
    assert abs(np.corrcoef(counts.T)[0, 1]) < 4 / np.sqrt(300)


def test_a_bound_that_is_too_low_is_raised(rng):
    """A peak that neither a corner nor the middle of a cell shows; without restarts some 50 points would be missing."""

    def peak(points):
        return 100.0 + 3000.0 * np.exp(-((points - [0.37, 0.3]) ** 2).sum(1) / (2 * 0.06**2))

    grid = Grid(SQUARE, 2, 2)
    expected = 100.0 + 3000.0 * 2 * np.pi * 0.06**2
    counts = [len(simulate_poisson(peak, SQUARE, rng, grid=grid)) for _ in range(100)]
    assert abs(np.mean(counts) - expected) < 4 * np.sqrt(expected / 100)


def test_points_stay_in_the_window(rng):
    ring = Window(shapely.Point(0, 0).buffer(1).difference(shapely.Point(0, 0).buffer(0.5)))
    points = simulate_poisson(lambda s: np.full(len(s), 500.0), ring, rng)
    assert ring.contains(points).all()
    assert abs(len(points) - 500 * ring.area) < 4 * np.sqrt(500 * ring.area)


@pytest.mark.parametrize(
    ("intensity", "message"),
    [
        (lambda s: -np.ones(len(s)), "negative"),
        (lambda s: np.full(len(s), np.nan), "finite"),
        (lambda s: np.full(len(s), 1e12), "too many"),
    ],
)
def test_bad_intensities_are_refused(rng, intensity, message):
    with pytest.raises(GPSError, match=message):
        simulate_poisson(intensity, SQUARE, rng)


def test_l_is_r_for_a_poisson_process(rng):
    """Mean of L over 40 patterns within 4% of r, homogeneous and weighted by the intensity."""
    r = np.linspace(0, 0.2, 11)
    flat = np.mean([l_function(rng.random((300, 2)), SQUARE, r) for _ in range(40)], 0)
    sloped = np.mean(
        [
            l_function(simulate_poisson(lambda s: 100 + 800 * s[:, 0], SQUARE, rng), SQUARE, r,
                       intensity=lambda s: 100 + 800 * s[:, 0])
            for _ in range(40)
        ],
        0,
    )  # fmt: skip
    assert np.allclose(flat[2:], r[2:], rtol=0.04)
    assert np.allclose(sloped[2:], r[2:], rtol=0.04)


def test_l_agrees_between_a_rectangle_and_the_same_polygon(rng):
    points = rng.random((200, 2))
    r = np.linspace(0, 0.2, 11)
    notched = Window(shapely.box(0, 0, 1, 1).difference(shapely.box(0, 0, 1e-3, 1e-3)))
    assert not notched.is_rectangle
    points = points[notched.contains(points)]
    assert np.allclose(l_function(points, SQUARE, r), l_function(points, notched, r), rtol=0.01)


def test_the_envelope_sees_clusters(rng):
    parents = rng.random((15, 2))
    clustered = np.clip(np.repeat(parents, 15, 0) + 0.02 * rng.normal(size=(225, 2)), 0, 1)
    flat = [rng.random((225, 2)) for _ in range(39)]
    assert l_envelope(clustered, flat, SQUARE).p_value == 1 / 40
    assert l_envelope(rng.random((225, 2)), flat, SQUARE).p_value > 0.1
    with pytest.raises(GPSError, match="at least 2"):
        l_envelope(clustered, flat[:1], SQUARE)


def test_replicates_are_judged_by_their_mean(rng):
    flat = [[rng.random((60, 2)) for _ in range(4)] for _ in range(19)]
    observed = [rng.random((60, 2)) for _ in range(4)]
    envelope = l_envelope(observed, flat, SQUARE)
    assert np.allclose(envelope.observed, np.mean([l_function(pattern, SQUARE) for pattern in observed], axis=0))
    assert envelope.p_value > 0.05
    one = l_envelope(observed[0], [patterns[0] for patterns in flat], SQUARE)
    assert (envelope.upper - envelope.lower)[10:].mean() < 0.8 * (one.upper - one.lower)[10:].mean()


def test_fewer_than_two_points_have_no_l():
    assert (l_function(np.zeros((1, 2)), SQUARE) == 0).all()


@pytest.mark.parametrize("distances", [[0.2, 0.1], [0.1, 0.1], [-0.1, 0.1], [], [np.nan, 0.1]])
def test_distances_must_increase(distances, rng):
    points = rng.random((20, 2))
    with pytest.raises(GPSError, match="increasing"):
        l_function(points, SQUARE, distances)
    with pytest.raises(GPSError, match="increasing"):
        l_envelope(points, [points, points], SQUARE, distances)
