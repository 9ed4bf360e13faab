import numpy as np
import pytest
import shapely

from gpsuq import GPSError, GPSPoissonProcess
from gpsuq.poisson.diagnostics import Expected, covariate_curve, lurking, quadrat_test, residual_map
from gpsuq.spatial import CovariateGrid, Grid, Window, simulate_poisson

RING = Window(shapely.Point(0.5, 0.5).buffer(0.5).difference(shapely.Point(0.6, 0.5).buffer(0.2)))
GRID = Grid.with_cells(RING, 1024)
EAST = CovariateGrid("east", np.array([0.0, 1.0]), np.array([0.0, 1.0]), np.array([[0.0, 1.0], [0.0, 1.0]]))


def slope(points):
    return 600.0 * points[:, 0]


def flat(points):
    return np.full(len(points), 300.0)


@pytest.fixture(scope="module")
def patterns():
    rng = np.random.default_rng(0)
    return [simulate_poisson(slope, RING, rng) for _ in range(60)]


def test_residuals_of_the_truth_are_standard(patterns):
    maps = np.stack([residual_map(Expected.by(slope, [p], GRID)).z for p in patterns])
    inside = (GRID.exposure == GRID.exposure.max()) & (GRID.nodes[..., 0] > 0.3)
    assert abs(maps[:, inside].mean()) < 0.1
    assert 0.85 < maps[:, inside].std() < 1.15
    assert np.isnan(maps[:, ~GRID.inside]).all()


def test_residuals_show_where_points_are_missed(patterns):
    found = residual_map(Expected.by(flat, patterns[:1], GRID))
    x = GRID.nodes[..., 0]
    for each in (found.raw, found.pearson, found.z):
        assert np.nanmean(each[x < 0.2]) < 0 < np.nanmean(each[x > 0.85])
    with pytest.raises(GPSError, match="positive"):
        residual_map(Expected.by(flat, patterns[:1], GRID), bandwidth=0.0)


def test_quadrats_test_the_intensity_exactly(patterns):
    p = [quadrat_test(Expected.by(slope, [pattern], GRID)).p_value for pattern in patterns]
    assert 0.35 < np.mean(p) < 0.65
    assert np.mean(np.array(p) <= 0.1) < 0.25
    test = quadrat_test(Expected.by(flat, patterns[:1], GRID))
    assert test.p_value < 0.01
    assert test.table["observed"].sum() == len(patterns[0])
    assert test.table["area"].sum() == pytest.approx(RING.area)


@pytest.mark.parametrize("covariate", ["x", EAST])
def test_a_lurking_variable_leaves_its_limits(patterns, covariate):
    out = {
        model: np.mean([(c["residual"].abs() > c["upper"]).to_numpy()[5:] for c in curves])
        for model in (slope, flat)
        for curves in [[lurking(Expected.by(model, [p], GRID), covariate) for p in patterns]]
    }
    assert 0.01 < out[slope] < 0.12
    assert out[flat] > 0.5


def test_the_curve_of_a_covariate_covers_the_truth(patterns):
    """600 x over 300 is 2 x; smoothing blunts the ends, which are left out."""
    covered = []
    for pattern in patterns:
        c = covariate_curve(Expected.by(flat, [pattern], GRID), EAST)
        covered.append(((c["lower"] <= 2 * c["value"]) & (2 * c["value"] <= c["upper"]))[15:85].mean())
    assert 0.9 < np.mean(covered) < 0.99
    constant = CovariateGrid("none", EAST.x, EAST.y, np.zeros((2, 2)))
    with pytest.raises(GPSError, match="constant"):
        covariate_curve(Expected.by(flat, patterns[:1], GRID), constant)


def test_types_that_avoid_each_other_leave_the_envelope():
    rng = np.random.default_rng(1)
    oaks = rng.random((80, 2))
    pines = rng.random((400, 2))
    far = np.linalg.norm(pines[:, None] - oaks, axis=-1).min(1) > 0.05
    points = np.concatenate([oaks, pines[far]])
    marks = ["oak"] * 80 + ["pine"] * far.sum()
    model = GPSPoissonProcess(frequency=0.0, n_chains=2, n_steps=2).fit(points, (0, 1, 0, 1), marks=marks)
    between = model.second_order("pcf", ("oak", "pine"), n_simulations=19)
    assert between.p_value == 0.05
    assert (between.observed < between.lower).any()
    with pytest.raises(GPSError, match="no type 'elm'"):
        model.second_order(types=("oak", "elm"), n_simulations=19)
    table = model.cross_validate(n_splits=2)
    assert np.allclose(table["gps"], table["constant"], atol=0.05)
    with pytest.raises(GPSError, match="n_splits"):
        model.cross_validate(n_splits=1)
    with pytest.raises(GPSError, match="no file"):
        model.lurking("elevation")


def test_centroids_on_a_slanted_edge_are_in_the_window():
    """Rounding puts a centroid of such a window a hair outside it."""
    corners = [(0, 0), (400, 0), (400, 200), (300, 250), (0, 200)]
    forest = Window(shapely.Polygon(corners).difference(shapely.box(180, 80, 220, 120)))
    nodes = (grid := Grid.with_cells(forest, 4096)).nodes[grid.inside]
    assert not forest.contains(nodes).all()
    points = simulate_poisson(lambda s: np.full(len(s), 1e-3), forest, np.random.default_rng(0))
    model = GPSPoissonProcess(frequency=0.0, n_chains=2, n_steps=2).fit(points, forest)
    assert np.isfinite(model.residuals().z[model.residuals().grid.inside]).all()
