import numpy as np
import pytest

from gpsuq.poisson.errors import ErrorField, bias_factor, length_of, noise_variance
from gpsuq.poisson.kernels import fixed
from gpsuq.spatial import Grid, Window

SQUARE = Window.rectangle(0, 1, 0, 1)


def test_modes_have_the_variance_and_reach_of_smoothed_noise(rng):
    """Kernel estimates of 300 Poisson patterns, 2,000 points each: variance and correlation, tolerance a fifth."""
    grid, length, level = Grid(SQUARE, 64, 64), 0.08, 2000.0
    counts = rng.poisson(level / grid.inside.size, size=(300, 64, 64)).astype(float)
    spots = np.array([[0.5, 0.5], [0.58, 0.5], [0.5, 0.02]])
    cells = grid.cell_of(spots)
    relative = fixed(counts, length, grid).reshape(300, -1)[:, cells] / level - 1.0
    modes = ErrorField(length, 1.0).modes(grid, spots, np.full(3, level))
    found, expected = modes.T @ modes, np.cov(relative.T)
    assert np.allclose(np.diag(found), np.diag(expected), rtol=0.2)
    assert found[0, 1] == pytest.approx(expected[0, 1], rel=0.3)
    assert found[2, 2] > 1.5 * found[0, 0]  # half of the points are missing at an edge


def test_the_length_of_a_constant_is_the_window():
    grid = Grid(SQUARE, 32, 32)
    assert length_of(1.0, grid) > 1.0
    assert noise_variance(length_of(25.0, grid), grid) == pytest.approx(25.0, rel=0.01)
    error = ErrorField(length_of(1.0, grid), 1.0).modes(grid, np.array([[0.2, 0.7]]), np.array([400.0]))
    assert np.square(error).sum() == pytest.approx(1.0 / 400, rel=0.01)


def test_bias_is_seen_by_what_was_left_out(rng):
    """Estimates that are off by a fifth on top of chance that was known."""
    true = rng.uniform(50.0, 150.0, size=400)
    chance = 0.05 * true
    counts = rng.poisson(true).astype(float)
    right = true + chance * rng.normal(size=400)
    biased = right * np.where(rng.random(400) < 0.5, 0.8, 1.2)
    assert bias_factor(right, counts, chance**2) < 2.0
    assert bias_factor(biased, counts, chance**2) > 4.0
    assert bias_factor(true[:2], counts[:2], 1e-9 * true[:2]) == pytest.approx(1.5, abs=0.01)
