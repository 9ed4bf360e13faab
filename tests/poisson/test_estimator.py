import copy
import pickle
import signal

import numpy as np
import pytest
import shapely
import torch
from saved_models import edited
from sklearn.base import clone

import gpsuq
from gpsuq import GPSError, GPSPoissonProcess, GPSWarning
from gpsuq.engine.generative import TrainingState
from gpsuq.poisson.commands import facts
from gpsuq.poisson.findings import of_distances
from gpsuq.poisson.fit import best_clearly
from gpsuq.poisson.tiles import Folds, PatternSource, in_tiles
from gpsuq.spatial import CovariateGrid, Grid, PointPattern, Window, cells_for, simulate_poisson
from gpsuq.spatial.grids import TILE

QUICK = {"n_chains": 4, "n_steps": 20, "waves": 16, "hidden": (16,)}
SQUARE = Window.rectangle(0, 1, 0, 1)


@pytest.fixture(scope="module")
def points():
    rng = np.random.default_rng(1)
    return np.concatenate([rng.random((100, 2)), np.clip(0.3 + 0.08 * rng.normal(size=(150, 2)), 0, 1)])


@pytest.fixture(scope="module")
def model(points):
    return GPSPoissonProcess(n_chains=5, n_steps=80, frequency=1.0, waves=32, hidden=(32,)).fit(points, SQUARE)


def test_the_total_is_the_number_of_points(model, points):
    """Each chain's level is set by the points it saw; over all chains they are all points, about."""
    assert model.integral() == pytest.approx(len(points), rel=0.05)


def test_the_intensity_is_high_where_points_are(model):
    crowded, empty = model.intensity([[0.3, 0.3], [0.9, 0.9]])
    assert crowded > 3.0 * empty
    assert empty == pytest.approx(100.0, rel=0.6)


def test_draws_average_to_the_mean_surface(model):
    spots = np.array([[0.3, 0.3], [0.9, 0.9], [0.5, 0.1]])
    draws = model.sample_intensity(spots, 20_000)
    assert np.allclose(draws.mean(0), model.intensity(spots), rtol=0.05)
    assert (draws > 0).all()


def test_surfaces_have_quantiles_in_order(model):
    surface = model.surface((0.1, 0.5, 0.9))
    assert surface.mean.shape == (model.grid_.n_y, model.grid_.n_x)
    assert (surface.quantiles[0.1] <= surface.quantiles[0.5]).all()
    assert (surface.quantiles[0.5] <= surface.quantiles[0.9]).all()
    assert (surface.sd > 0).all()
    assert float((surface.mean * surface.grid.exposure).sum()) == pytest.approx(model.integral(), rel=0.05)


def test_regions_add_up_and_intervals_hold_their_mean(model):
    halves = [(0, 0.5, 0, 0.25), (0, 0.5, 0.25, 0.5)]
    table = model.region_counts(halves)
    whole = model.region_counts((0, 0.5, 0, 0.5))
    assert table["mean"].sum() == pytest.approx(whole["mean"][0], rel=1e-6)
    assert table["trained"].all()
    for _, row in table.iterrows():
        assert row["count_lower"] < row["mean_lower"] < row["mean"] < row["mean_upper"] < row["count_upper"]


def test_a_region_may_cut_cells(model):
    step = model.grid_.cell_size[0]
    whole, half = model.region_counts([(0.25, 0.25 + step, 0.25, 0.5), (0.25, 0.25 + step / 2, 0.25, 0.5)])["mean"]
    assert half == pytest.approx(whole / 2, rel=1e-6)


def test_larger_regions_than_were_trained_are_named(model):
    with pytest.warns(GPSWarning, match="larger than"):
        table = model.region_counts(SQUARE)
    assert not table["trained"][0]


def test_a_region_outside_is_refused(model):
    with pytest.raises(GPSError, match="outside the window"):
        model.region_counts((2, 3, 2, 3))
    with pytest.raises(GPSError, match="coverage"):
        model.region_counts((0, 0.5, 0, 0.5), coverage=1.0)


def test_a_region_that_leaves_the_window_is_named_and_counted_inside(model):
    inside = model.region_counts((0.8, 1.0, 0.8, 1.0))
    with pytest.warns(GPSWarning, match="1 of the regions leave the window"):
        across = model.region_counts((0.8, 1.2, 0.8, 1.2))
    assert across["mean"][0] == pytest.approx(inside["mean"][0])


def test_simulated_patterns_look_like_the_fit(model):
    patterns = model.simulate(40, random_state=3)
    assert all(SQUARE.contains(pattern).all() for pattern in patterns)
    assert np.mean([len(pattern) for pattern in patterns]) == pytest.approx(model.integral(), rel=0.1)
    crowded = np.mean([((pattern - 0.3) ** 2).sum(1).__lt__(0.04).sum() for pattern in patterns])
    assert crowded == pytest.approx(model.region_counts(shapely.Point(0.3, 0.3).buffer(0.2))["mean"][0], rel=0.15)
    again = model.simulate(2, random_state=3)
    assert np.array_equal(again[0], model.simulate(2, random_state=3)[0])


def test_the_log_likelihood_is_the_formula(model, points):
    by_hand = (np.log(model.intensity(points)).sum() - model.integral()) / len(points)
    assert model.log_likelihood(points) == pytest.approx(by_hand)


def test_goodness_of_fit_does_not_reject_the_pattern_it_was_fitted_to(model):
    envelope = model.goodness_of_fit(19)
    assert envelope.p_value > 0.05
    assert len(envelope.distances) == len(envelope.lower)


def test_a_point_that_is_there_twice_does_not_decide_the_fit(rng):
    points = rng.random((100, 2))
    model = GPSPoissonProcess(**QUICK, frequency=0.0)
    once = model.fit(points, SQUARE).goodness_of_fit(19)
    with pytest.warns(GPSWarning, match="same coordinates"):
        twice = model.fit(np.concatenate([points, points[:1]]), SQUARE).goodness_of_fit(19)
    assert np.allclose(twice.observed, once.observed, atol=0.01)
    assert [finding.code for finding in model.findings_] == ["duplicates"]


def test_a_regular_pattern_is_said_to_keep_apart(rng):
    middles = np.linspace(0.05, 0.95, 10)
    lattice = np.stack(np.meshgrid(middles, middles), -1).reshape(-1, 2) + 0.02 * rng.random((100, 2))
    model = GPSPoissonProcess(**QUICK, frequency=0.0).fit(lattice, SQUARE)
    found = of_distances(model.goodness_of_fit(19))
    assert "keep apart" in found.message
    assert "less variable" in found.message
    single = 0.98 * rng.random((100, 2))
    clumps = np.concatenate([single, single + 0.01])
    found = of_distances(model.fit(clumps, SQUARE).goodness_of_fit(19))
    assert "more variable" in found.message


def test_a_crowd_in_one_place_is_seen_and_80_uniform_points_are_flat(rng):
    """Two thirds of 300 points in one bump, of which one tile could say little."""
    crowd = np.concatenate([rng.random((100, 2)), [0.6, 0.4] + 0.05 * rng.normal(size=(200, 2))])
    model = GPSPoissonProcess(**QUICK).fit(crowd, SQUARE)
    assert model.intensity([[0.6, 0.4]])[0] > 1000.0
    assert model.resolution_ < 0.5
    flat = GPSPoissonProcess(**QUICK).fit(rng.random((80, 2)), SQUARE)
    assert flat.frequency_ == 0.0
    assert flat.intensity([[0.2, 0.7]])[0] == pytest.approx(80.0)
    assert flat.resolution_ == np.inf


def test_a_new_field_is_less_certain_than_this_one(model):
    quarter = (0.5, 1, 0.5, 1)
    here, anew = (model.region_counts(quarter, new_field=new) for new in (False, True))
    assert anew["count_upper"][0] > 1.5 * here["count_upper"][0]
    assert anew["mean"][0] == pytest.approx(250 / 4, rel=0.25)


def test_a_finer_grid_can_be_compared(points):
    quick = GPSPoissonProcess(**QUICK, frequency=0.5, n_cells=1024).fit(points, SQUARE)
    result = quick.compare_grid(4096)
    assert result["n_cells"] == 1024
    assert result["other_n_cells"] == 4096
    assert 0.0 <= result["change"] < 1.0
    assert result["standard_error"] > 0.0


def test_same_seed_same_numbers(points):
    fits = [GPSPoissonProcess(**QUICK, random_state=seed).fit(points, SQUARE) for seed in (3, 3, 4)]
    spots = points[:5]
    assert np.array_equal(fits[0].intensity(spots), fits[1].intensity(spots))
    assert not np.array_equal(fits[0].intensity(spots), fits[2].intensity(spots))
    names = fits[0].smoothness_path_.index.tolist()
    assert names[:3] == ["constant", "waves 0.5", "waves 1.5"]
    assert fits[0].smoothness_path_["weight"].sum() == pytest.approx(1.0)


def test_units_do_not_matter(points):
    here = GPSPoissonProcess(**QUICK, frequency=1.0).fit(points, SQUARE)
    there = GPSPoissonProcess(**QUICK, frequency=1.0).fit(1000.0 * points + 5e4, (5e4, 5.1e4, 5e4, 5.1e4))
    assert np.allclose(here.intensity(points), 1e6 * there.intensity(1000.0 * points + 5e4), rtol=0.02)


def test_polygons_with_holes(points):
    ring = Window(shapely.Point(0.5, 0.5).buffer(0.5).difference(shapely.Point(0.5, 0.5).buffer(0.1)))
    inside = points[ring.contains(points)]
    model = GPSPoissonProcess(**QUICK).fit(inside, ring)
    assert model.integral() == pytest.approx(len(inside), rel=0.1)
    surface = model.surface()
    assert np.isnan(surface.mean[~surface.grid.inside]).all()
    assert ring.contains(model.simulate(1)[0]).all()
    with pytest.raises(GPSError, match="outside the window"):
        model.intensity([[0.5, 0.5]])


def test_covariates_are_used(rng):
    """Points follow a stripe that only the covariate shows: with it the held-out likelihood is higher."""
    axis = np.linspace(0, 1, 33)
    stripes = CovariateGrid("stripes", axis, axis, np.tile(np.sin(6 * np.pi * axis), (33, 1)))
    cloud = rng.random((6000, 2))
    kept = cloud[rng.random(6000) < np.exp(2.0 * stripes.at(cloud) - 2.0)]
    train, test = kept[::2], kept[1::2]
    options = {"n_chains": 4, "n_steps": 60, "frequency": 0.0}
    blind = GPSPoissonProcess(**options).fit(train, SQUARE)
    sees = GPSPoissonProcess(**options).fit(train, SQUARE, covariates=[stripes])
    assert sees.log_likelihood(test) > blind.log_likelihood(test) + 0.1
    with pytest.raises(GPSError, match="does not cover"):
        GPSPoissonProcess(**QUICK).fit(train, (0, 1.5, 0, 1), covariates=[stripes])


def test_replicates_show_the_spread(rng):
    """Thirty replicates whose level varies by a factor exp(0.7 Z): the spread is found; without it, it shrinks."""
    options = {"n_chains": 3, "n_steps": 120, "frequency": 0.0, "waves": 8, "hidden": (16,)}

    def loading(sd):
        patterns = [rng.random((rng.poisson(60 * np.exp(sd * rng.normal() - sd**2 / 2)), 2)) for _ in range(30)]
        model = GPSPoissonProcess(**options).fit(patterns, SQUARE)
        loading = model.fit_.surfaces(np.array([[0.5, 0.5]])).loading
        counts = np.array([len(pattern) for pattern in patterns])
        beyond = np.sqrt(max(0.0, counts.var() - counts.mean())) / counts.mean()
        return float(np.sqrt(np.square(loading).sum(-1)).mean()), beyond

    assert loading(0.0)[0] < 0.15
    found, beyond = loading(0.7)
    assert found == pytest.approx(beyond, rel=0.5)


def test_copies_and_pickles_are_the_same_model(model, points):
    spots = points[:4]
    for other in (pickle.loads(pickle.dumps(model)), copy.deepcopy(model)):
        assert np.array_equal(other.intensity(spots), model.intensity(spots))
    fresh = clone(model)
    assert fresh.get_params() == model.get_params()
    assert not hasattr(fresh, "fit_")


@pytest.mark.parametrize("covariate", [False, True])
def test_saved_models_come_back(tmp_path, points, covariate):
    axis = np.linspace(0, 1, 5)
    grids = [CovariateGrid("x", axis, axis, np.tile(axis, (5, 1)))] if covariate else []
    ring = Window(shapely.box(0, 0, 1, 1).difference(shapely.box(0.9, 0.9, 0.95, 0.95)), "metre")
    model = GPSPoissonProcess(**QUICK).fit([points[ring.contains(points)], points[:50]], ring, covariates=grids)
    model.save(tmp_path / "m")
    again = gpsuq.load(tmp_path / "m")
    assert np.array_equal(again.intensity(points[:5]), model.intensity(points[:5]))
    assert np.array_equal(again.simulate(1)[0], model.simulate(1)[0])
    assert again.get_params() == model.get_params()
    assert again.window_.unit == "metre"
    assert [len(pattern) for pattern in again.points_] == [len(pattern) for pattern in model.points_]
    assert again.smoothness_path_.equals(model.smoothness_path_)
    with pytest.raises(GPSError, match="exists already"):
        model.save(tmp_path / "m")
    (tmp_path / "m" / "model.safetensors").write_bytes(b"no tensors")
    with pytest.raises(GPSError, match="damaged"):
        gpsuq.load(tmp_path / "m")


@pytest.mark.parametrize(
    ("points", "window", "message"),
    [
        (np.empty((0, 2)), SQUARE, "no points"),
        ([], SQUARE, "no points"),
        ([[0.5, 0.5]], SQUARE, "one point is too few"),
        ([[0.5, 0.5], [0.2, np.nan]], SQUARE, "row 1"),
        ([[0.5, 0.5], [0.2, 3.0]], SQUARE, "1 of 2 points lie outside"),
        ([[0.5, 0.5, 1.0]] * 2, SQUARE, r"\(n, 2\)"),
        ([[0.5, 0.5], [0.2, 0.2]], (0, 0, 0, 1), "no area"),
        ([[0.5, 0.5], [0.2, 0.2]], shapely.Polygon([(0, 0), (1, 1), (1, 0), (0, 1)]), "Self-intersection"),
    ],
)
def test_bad_patterns_are_refused(points, window, message):
    with pytest.raises(GPSError, match=message):
        GPSPoissonProcess(**QUICK).fit(points, window)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_cells": 0}, "n_cells"),
        ({"n_cells": 10**8}, "too fine"),
        ({"n_cells": 10**6, "n_chains": 100, "frequency": 1.0}, "do not fit in memory"),
        ({"frequency": -1.0}, "frequency"),
        ({"frequency": "often"}, "frequency"),
        ({"frequency": np.inf}, "frequency"),
        ({"n_steps": 2.5}, "n_steps"),
        ({"hidden": (8, 0)}, "hidden"),
        ({"hidden": 8}, "hidden"),
        ({"n_chains": 1}, "n_chains"),
        ({"n_draws": 1}, "n_draws"),
        ({"n_steps": 0}, "n_steps"),
        ({"hidden": ()}, "hidden"),
        ({"random_state": -1}, "random_state"),
        ({"outside": "keep"}, "outside"),
    ],
)
def test_bad_arguments_are_refused(points, options, message):
    with pytest.raises(GPSError, match=message):
        GPSPoissonProcess(**QUICK | options).fit(points, SQUARE)


def test_a_fit_that_fails_leaves_the_model_as_it_was(model, points):
    other = copy.deepcopy(model)
    with pytest.raises(GPSError, match="n_chains"):
        other.set_params(n_chains=1).fit(points[:50], SQUARE)
    with pytest.raises(GPSError, match="outside the window"):
        other.set_params(n_chains=5).fit(points + 1.0, SQUARE)
    assert np.array_equal(other.intensity(points[:5]), model.intensity(points[:5]))


def test_a_fit_goes_on_from_its_checkpoint(tmp_path, points, monkeypatch):
    """Stopped while the chains are trained: the steps that were taken are not taken again."""
    whole = GPSPoissonProcess(**QUICK).fit(points, SQUARE).intensity(points)
    real, done = TrainingState.next_loss, []

    def next_loss(state):
        done.append(None)
        if len(done) == 15:
            signal.raise_signal(signal.SIGINT)
        return real(state)

    monkeypatch.setattr(TrainingState, "next_loss", next_loss)
    with pytest.raises(KeyboardInterrupt, match="go on from there"):
        GPSPoissonProcess(**QUICK).fit(points, SQUARE, checkpoint=tmp_path / "kept")
    resumed = GPSPoissonProcess(**QUICK).fit(points, SQUARE, checkpoint=str(tmp_path / "kept"))
    assert len(done) == QUICK["n_steps"]
    assert np.array_equal(resumed.intensity(points), whole)
    assert len(list((tmp_path / "kept").iterdir())) == 1


def test_findings_are_kept(tmp_path, rng):
    with pytest.warns(GPSWarning, match="dropped"):
        model = GPSPoissonProcess(**QUICK, outside="drop").fit([*(0.3 * rng.random((20, 2))), [3.0, 3.0]], SQUARE)
    codes = {finding.code for finding in model.findings_}
    assert {"few-points", "dropped-points", "empty-window"} <= codes
    path = model.save(tmp_path / "m")
    assert gpsuq.load(path).findings_ == model.findings_
    assert facts(model)["findings"] == [finding.message for finding in model.findings_]
    assert gpsuq.load(edited(path, lambda config, _: config.pop("findings"))).findings_ == []  # as 0.1 wrote it


def test_rounded_coordinates_are_named(rng):
    rounded = np.round(rng.random((150, 2)), 2)
    with pytest.warns(GPSWarning, match="same coordinates"):
        model = GPSPoissonProcess(**QUICK, frequency=0.0).fit(rounded, SQUARE)
    assert "rounded-coordinates" in {finding.code for finding in model.findings_}
    model.fit(np.unique(np.round(rng.random((150, 2)), 4), axis=0), SQUARE)
    assert model.findings_ == []


def test_two_points_and_duplicates_work():
    with pytest.warns(GPSWarning, match="same coordinates"):
        model = GPSPoissonProcess(**QUICK).fit([[0.5, 0.5], [0.5, 0.5]], SQUARE)
    assert model.integral() == pytest.approx(2.0, rel=0.5)


def test_points_outside_may_be_dropped(points):
    with pytest.warns(GPSWarning, match="were dropped"):
        model = GPSPoissonProcess(**QUICK, frequency=0.0, outside="drop").fit([*points, [2.0, 2.0]], SQUARE)
    assert len(model.points_[0]) == len(points)


def test_an_unfitted_model_says_so():
    with pytest.raises(ValueError, match="not fitted"):
        GPSPoissonProcess().intensity([[0.5, 0.5]])


# --- parts -----------------------------------------------------------------------------------------------------------


def test_tiles_hold_neighbouring_cells():
    cells = np.arange(4 * TILE * TILE).reshape(2 * TILE, 2 * TILE)
    tiles = in_tiles(cells)
    assert tiles.shape == (4, TILE * TILE)
    assert np.array_equal(tiles[1].reshape(TILE, TILE), cells[:TILE, TILE:])


def source(points, n_folds=4):
    grid = Grid.with_cells(SQUARE, cells_for(len(points)))
    inputs = torch.from_numpy(grid.nodes.reshape(-1, 2)).float()
    folds = Folds.split([points], n_folds, n_folds, 0)
    return PatternSource(grid, inputs, [grid.cell_of(points)], folds, 1, 2, 0), grid


def test_every_point_is_left_out_once(points):
    tiles, grid = source(points)
    held = tiles.held_out().y.sum(0)[:, 0]
    assert torch.equal(held, torch.from_numpy(in_tiles(grid.counts(points))).float())
    sizes = tiles.held_out().y.sum((1, 2, 3))
    assert sizes.max() > sizes.min()  # as many as chance left out, or the level would seem to be known


def test_training_and_held_out_exposure_add_up(points):
    tiles, grid = source(points)
    held = torch.exp(tiles.held_out().x[..., -1]).sum().item()
    assert held == pytest.approx(len(points) / 4, rel=1e-4)
    first, _ = tiles.batch(0)
    second, _ = tiles.batch(0)
    assert torch.equal(first.y, second.y)
    assert torch.exp(first.x[..., -1]).sum().item() == pytest.approx(
        0.75 * len(points) * 2 * TILE**2 / grid.n_x**2, rel=1e-4
    )


def test_the_level_is_known_as_well_as_its_count(rng):
    """A constant from n points has a relative standard error of n^(-1/2), and is given one a little larger."""
    fit = GPSPoissonProcess(**QUICK | {"n_chains": 5}, frequency=0.0).fit(rng.random((400, 2)), SQUARE).fit_
    error = np.square(fit.surfaces(np.array([[0.5, 0.5]])).apart).sum()
    assert 1.0 / 400 <= error < 3.0 / 400


def test_more_points_make_the_error_smaller():
    """A bump of contrast 60 on one grid: blocks of 100,000 points are far from a constant, and still found."""
    truth = lambda s: 1.0 + 60.0 * np.exp(-((s - 0.4) ** 2).sum(1) / (2 * 0.1**2))  # noqa: E731
    nodes = Grid(SQUARE, 32, 32).nodes.reshape(-1, 2)
    shape = truth(nodes) / truth(nodes).mean()
    errors = []
    for n in (1000, 100_000):
        points = simulate_poisson(lambda s, n=n: n * truth(s) / truth(nodes).mean(), SQUARE, np.random.default_rng(0))
        model = GPSPoissonProcess(n_chains=2, n_steps=150, n_cells=1024, frequency=1.0).fit(points, SQUARE)
        errors.append(np.sqrt(np.square(model.intensity(nodes) / n - shape).sum() / np.square(shape).sum()))
    assert errors[1] < 0.6 * errors[0]


def test_replicates_may_be_empty_or_small(rng):
    patterns = [rng.random((n, 2)) for n in (0, 1, 2, 40)]
    model = GPSPoissonProcess(**QUICK, frequency=0.0).fit(patterns, SQUARE)
    assert model.integral() == pytest.approx(43 / 4, rel=0.1)
    assert len(model.points_) == 4


def test_patterns_are_taken_as_such(points):
    pattern = PointPattern(points, SQUARE)
    one = GPSPoissonProcess(**QUICK, frequency=0.0).fit(pattern, SQUARE)
    two = GPSPoissonProcess(**QUICK, frequency=0.0).fit([pattern, pattern], SQUARE)
    assert one.integral() == pytest.approx(two.integral(), rel=0.1)


def test_missing_covariates_are_named(points):
    axis = np.linspace(0, 1, 5)
    values = np.tile(axis, (5, 1))
    values[2:4, 2:4] = np.nan  # between fewer, what is known is taken
    with pytest.raises(GPSError, match="'x' is missing inside the window, near"):
        GPSPoissonProcess(**QUICK).fit(points, SQUARE, covariates=[CovariateGrid("x", axis, axis, values)])


@pytest.mark.parametrize("n_chains", [2, 7])
def test_any_number_of_chains_works(points, n_chains):
    model = GPSPoissonProcess(**QUICK | {"n_chains": n_chains}, frequency=0.5).fit(points, SQUARE)
    assert len(model.fit_.level) == n_chains
    assert model.integral() == pytest.approx(len(points), rel=1e-3)


def test_several_islands(points):
    islands = shapely.MultiPolygon([shapely.box(0, 0, 0.4, 1), shapely.box(0.6, 0, 1, 1)])
    inside = points[(points[:, 0] <= 0.4) | (points[:, 0] >= 0.6)]
    model = GPSPoissonProcess(**QUICK, frequency=0.5).fit(inside, islands)
    assert model.integral() == pytest.approx(len(inside), rel=1e-3)


def test_the_best_is_chosen_where_it_is_clearly_better(rng):
    """The scores of the issue: the best of three spreads is taken, not the largest."""
    noise = rng.normal(size=(1, 40)) + 0.01 * rng.normal(size=(3, 40))
    scores = noise + np.array([[-0.706], [-0.748], [-0.656]])
    assert best_clearly("spread", [0.0, 0.5, 1.0], scores).value == 0.5
    assert best_clearly("spread", [0.0, 0.5, 1.0], scores * [[1.0], [0.0], [1.0]] + [[0.0], [0.0], [9.0]]).value == 0.0
