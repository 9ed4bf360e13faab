import numpy as np
import pytest
import shapely
from hypothesis import given, settings
from hypothesis import strategies as st

from gpsuq import GPSError
from gpsuq.spatial import Grid, Window, cells_for
from gpsuq.spatial.grids import TILE

RING = Window(shapely.Point(0.5, 0.5).buffer(0.5).difference(shapely.Point(0.6, 0.5).buffer(0.2)))


@pytest.mark.parametrize("window", [Window.rectangle(0, 3, 0, 1), RING])
@pytest.mark.parametrize("n_cells", [1, 500, 5000])
def test_exposure_sums_to_the_area(window, n_cells):
    grid = Grid.with_cells(window, n_cells)
    assert grid.exposure.sum() == pytest.approx(window.area, rel=1e-9)
    assert grid.n_x % TILE == 0
    assert grid.n_y % TILE == 0


def test_nodes_lie_in_the_window_where_there_is_area():
    grid = Grid.with_cells(RING, 2000)
    whole = grid.exposure > 0.999 * grid.exposure.max()
    assert RING.contains(grid.nodes[whole]).all()
    assert whole.sum() < grid.inside.sum() < grid.n_x * grid.n_y


@settings(max_examples=20)
@given(st.integers(0, 2**31), st.integers(1, 400))
def test_every_point_is_counted_once_where_there_is_area(seed, n):
    rng = np.random.default_rng(seed)
    points = rng.random((4 * n, 2))
    points = points[RING.contains(points)]
    grid = Grid.with_cells(RING, 1000)
    counts = grid.counts(points)
    assert counts.sum() == len(points)
    assert (counts[~grid.inside] == 0).all()


def test_a_point_on_the_edge_counts_to_a_cell_with_area():
    triangle = Window(shapely.Polygon([(0, 0), (1, 0), (0, 1)]))
    grid = Grid(triangle, 16, 16)
    corners = np.array([[1.0, 0.0], [0.0, 1.0], [0.0, 0.0], [0.5, 0.5]])
    counts = grid.counts(corners)
    assert counts.sum() == 4
    assert (counts[~grid.inside] == 0).all()


def test_counts_are_where_the_points_are():
    grid = Grid(Window.rectangle(0, 2, 0, 1), 2, 1)
    assert grid.counts(np.array([[0.1, 0.5], [1.9, 0.5], [1.5, 0.1]])).tolist() == [[1, 2]]


def test_the_resolution_follows_the_points_up_to_a_limit():
    assert cells_for(10) == 1024
    assert cells_for(1000) == 4000
    assert cells_for(10**6) == cells_for(10**4) == 8192


@pytest.mark.parametrize(("arguments", "message"), [((0, 4), "at least one"), ((5000, 5000), "too fine")])
def test_impossible_grids_are_refused(arguments, message):
    with pytest.raises(GPSError, match=message):
        Grid(Window.rectangle(0, 1, 0, 1), *arguments)


@pytest.mark.parametrize("length", [1.0, 10.0, 1e3, 1e7])
def test_long_windows_do_not_get_more_cells(length):
    grid = Grid.with_cells(Window.rectangle(0, length, 0, 1), 4096)
    assert 2000 < grid.n_x * grid.n_y < 8000


def test_cells_must_be_positive():
    with pytest.raises(GPSError, match="at least 1"):
        Grid.with_cells(Window.rectangle(0, 1, 0, 1), 0)


def test_the_overlap_with_a_region_is_its_area_inside():
    grid = Grid.with_cells(RING, 1000)
    region = Window.rectangle(0.2, 1.3, 0.1, 0.45)
    cells, area = grid.overlap(region)
    assert area.sum() == pytest.approx(RING.polygons.intersection(region.polygons).area)
    assert (area <= grid.exposure[grid.inside][cells] * (1 + 1e-9)).all()
    assert len(grid.overlap(Window.rectangle(2, 3, 2, 3))[0]) == 0
