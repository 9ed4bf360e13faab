import numpy as np
import pytest
import shapely

from gpsuq.poisson.baselines import KernelIntensity
from gpsuq.poisson.kernels import adaptive, between_cells, fixed, kernel_candidates, kernel_grid
from gpsuq.spatial import PointPattern, Window

SQUARE = Window.rectangle(0, 1, 0, 1)


def test_the_fixed_kernel_is_the_sum_over_points_away_from_the_edges(rng):
    points = 0.5 + 0.08 * rng.normal(size=(200, 2))
    grid = kernel_grid(SQUARE)
    image = fixed(grid.counts(points).astype(float), 0.05, grid)
    spots = 0.4 + 0.2 * rng.random((50, 2))
    expected = KernelIntensity(PointPattern(points, SQUARE), bandwidth=0.05).intensity(spots)
    assert np.allclose(between_cells(image, grid, spots), expected, rtol=0.02)


def test_adaptive_kernels_are_narrow_where_points_are_dense(rng):
    points = np.concatenate([rng.random((100, 2)), 0.3 + 0.02 * rng.normal(size=(300, 2))])
    grid = kernel_grid(SQUARE)
    counts = grid.counts(points).astype(float)
    plain = fixed(counts, 0.05, grid)
    local = adaptive(counts, plain, [0.05], grid)[0]
    assert local.max() > 1.5 * plain.max()
    assert local[grid.nodes[..., 0] > 0.6].std() < plain[grid.nodes[..., 0] > 0.6].std()


def test_candidates_are_densities_in_a_window_with_a_hole(rng):
    window = Window(shapely.box(0, 0, 2, 1).difference(shapely.box(0.5, 0.3, 0.9, 0.7)))
    points = rng.random((300, 2)) * [2, 1]
    points = points[window.contains(points)]
    grid = kernel_grid(window)
    counts = grid.counts(points)[None]
    names, images = kernel_candidates(counts.astype(float), counts, grid)
    assert len(names) == len(images)
    assert (images * grid.exposure).sum((1, 2, 3)) == pytest.approx(1.0)
    flat = images[0][0][grid.inside] * window.area  # the widest kernel sees a constant, at the edges too
    assert np.abs(flat - 1.0).max() < 0.3
