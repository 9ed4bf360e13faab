import numpy as np
import pytest

from gpsuq.poisson.errors import ErrorField, bias_factor, chance_in_blocks, length_of, noise_variance, typical
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
    modes = ErrorField(length, 1.0, level).modes(grid, spots, np.full(3, level))
    found, expected = modes.T @ modes, np.cov(relative.T)
    assert np.allclose(np.diag(found), np.diag(expected), rtol=0.2)
    assert found[0, 1] == pytest.approx(expected[0, 1], rel=0.3)
    assert found[2, 2] > 1.5 * found[0, 0]  # half of the points are missing at an edge


def test_the_length_of_a_constant_is_the_window():
    grid = Grid(SQUARE, 32, 32)
    assert length_of(1.0, grid) > 1.0
    assert noise_variance(length_of(25.0, grid), grid) == pytest.approx(25.0, rel=0.01)
    error = ErrorField(length_of(1.0, grid), 1.0, 400.0).modes(grid, np.array([[0.2, 0.7]]), np.array([400.0]))
    assert np.square(error).sum() == pytest.approx(1.0 / 400, rel=0.01)


def test_the_errors_of_a_mixture_fall_with_the_root_of_the_intensity():
    """Sixteen times as many points: half of the relative error; a fixed kernel has a quarter, an adaptive one all."""
    grid = Grid(SQUARE, 32, 32)
    modes = ErrorField(0.1, 1.5, 200.0).modes(grid, np.full((3, 2), 0.5), np.array([50.0, 200.0, 800.0]))
    sd = np.sqrt(np.square(modes).sum(0))
    assert sd[0] / sd[2] == pytest.approx(2.0)
    assert sd[1] == pytest.approx(np.sqrt(sd[0] * sd[2]))


def test_level_and_length_explain_the_variance_they_were_read_off():
    grid = Grid(SQUARE, 32, 32)
    intensity = np.exp(2.0 * grid.nodes[:, :, 0].ravel()) * 50.0
    field = ErrorField(0.12, 1.0, float(np.exp(np.log(intensity).mean())))
    places = grid.nodes.reshape(-1, 2)
    level, length = typical(intensity, np.square(field.modes(grid, places, intensity)).sum(0), grid)
    assert level == pytest.approx(field.level)
    assert length == pytest.approx(0.12, rel=0.1)


def test_blocks_see_less_noise_than_places():
    grid = Grid(SQUARE, 32, 32)
    small, large = (
        chance_in_blocks(np.array([300.0 * area]), np.array([area]), 0.05, 300.0, grid)[0] / (300.0 * area) ** 2
        for area in (1e-4, 1e-2)
    )
    assert small == pytest.approx(noise_variance(0.05, grid) / 300.0, rel=0.05)
    assert 0.5 < large / small < 0.9


def test_bias_is_seen_by_what_was_left_out(rng):
    """Estimates by four fifths of the points that are off by a fifth on top of chance that was known; 400 blocks."""
    true = rng.uniform(50.0, 150.0, size=400)
    counted = rng.poisson(true / 5.0, size=(2, 5, 400)).astype(float)
    right = true + 0.05 * true * rng.normal(size=400)
    biased = right * np.where(rng.random(400) < 0.5, 0.8, 1.2)
    chance = np.square(0.05 * true)
    factors = [bias_factor(counted, np.broadcast_to(one, counted.shape), chance) for one in (true, right, biased)]
    assert factors[0] == 1.0
    assert 1.0 <= factors[1] < 2.0
    assert factors[2] == 6.0
    few = counted[..., :2]
    assert bias_factor(few, np.broadcast_to(true[:2], few.shape), 1e-9 * true[:2]) == pytest.approx(2.25, abs=0.01)
    assert bias_factor(few, np.broadcast_to(true[:2], few.shape), np.zeros(2)) == 2.25


def test_twins_in_one_fold_are_not_taken_for_crowds(rng):
    """Every point twice, both in one fold: products of counts of different folds do not see the pairs."""
    true = np.full(400, 50.0)
    counted = 2.0 * rng.poisson(true / 10.0, size=(1, 5, 400))
    estimated = np.broadcast_to(true, counted.shape)
    assert bias_factor(counted, estimated, 0.005 * true**2) < 1.5
