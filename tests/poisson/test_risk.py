import geopandas
import numpy as np
import pytest

import gpsuq
from gpsuq import GPSError, GPSPoissonProcess
from gpsuq.poisson.risk import relative_risk

SQUARE = (0, 1, 0, 1)
QUICK = {"frequency": 0.0, "n_chains": 2, "n_steps": 2}


@pytest.fixture(scope="module")
def points():
    return np.random.default_rng(3).random((400, 2)) ** [1.0, 2.0]


@pytest.fixture(scope="module")
def truth(points):
    return 0.2 + 0.6 * points[:, 0]


@pytest.fixture(scope="module")
def types(points, truth):
    return np.where(np.random.default_rng(4).random(400) < truth, "oak", "pine")


@pytest.fixture(scope="module")
def risk(points, types):
    return relative_risk(points, types, SQUARE)


def test_the_truth_lies_in_the_intervals(risk):
    truth = 0.2 + 0.6 * risk.grid.nodes[..., 0]
    covered = (risk.lower[0] <= truth) & (truth <= risk.upper[0])
    assert covered.mean() > 0.9
    assert np.sqrt(np.square(risk.probability[0] - truth).mean()) < 0.06


def test_probabilities_of_all_types_sum_to_one(risk, points):
    assert np.allclose(risk.probability.sum(0), 1.0)
    assert np.allclose(risk.at(points[:5]).sum(axis=1), 1.0)
    assert np.isclose(risk.shares.sum(), 1.0)


def test_where_a_type_is_surely_more_likely(risk):
    verdict = risk.verdict("oak")
    middle = risk.grid.nodes[..., 0] < 0.5  # where the truth is the overall share
    assert (verdict[~middle] == 1).mean() > 0.3
    assert (verdict[middle] == -1).mean() > 0.3
    assert not (verdict[middle] == 1).any()
    assert not (verdict[~middle] == -1).any()
    assert np.array_equal(verdict, -risk.verdict("pine"))
    with pytest.raises(GPSError, match="the types are oak, pine"):
        risk.verdict("elm")


def test_ratios_of_types_are_in_order(risk):
    median, lower, upper = risk.ratio("oak", "pine")
    assert (lower < median).all()
    assert (median < upper).all()
    assert median[:, -1].min() > 1.5


def test_random_labels_are_rarely_called_sure(points):
    labels = np.random.default_rng(5).random((5, 400)) < 0.4
    risks = [relative_risk(points, each, SQUARE, n_cells=256) for each in labels]
    assert np.mean([np.abs(risk.verdict("True")).mean() for risk in risks]) < 0.05
    assert min(risk.p_value for risk in risks) > 0.01


def test_three_types_and_maps_with_names(points):
    labels = np.array(["a", "b", "c"])[(3 * points[:, 0]).astype(int)]
    risk = relative_risk(points, labels, SQUARE, n_cells=256)
    assert risk.at([[0.5, 0.5]]).idxmax(axis=1).tolist() == ["b"]
    assert {"a", "a lower", "c upper"} < set(risk.to_frame())
    assert len(risk.plot().axes) == 6  # three maps with bars


def test_a_fit_keeps_types(points, types, tmp_path):
    trees = geopandas.GeoDataFrame({"species": types}, geometry=geopandas.points_from_xy(*points.T))
    model = GPSPoissonProcess(**QUICK, outside="drop")
    with pytest.warns(gpsuq.GPSWarning, match="dropped"):
        model.fit(trees, (0, 1, 0, 0.8), marks="species")
    assert len(model.marks_[0]) == len(model.points_[0]) < 400
    again = gpsuq.load(model.save(tmp_path / "model"))
    assert np.array_equal(again.relative_risk().probability, model.relative_risk().probability)
    with pytest.raises(GPSError, match="marks="):
        GPSPoissonProcess(**QUICK).fit(points, SQUARE).relative_risk()


@pytest.mark.parametrize(
    ("marks", "message"),
    [
        (["a"] * 400, "2 to 20 types, got 1: a"),
        (np.arange(400), "got 400"),
        (["a"] * 399, "400 points and 399 marks"),
        ([None] + ["a"] * 399, "missing in row 0"),
        ("species", "no column 'species'"),
    ],
)
def test_bad_marks_are_refused(points, marks, message):
    with pytest.raises(GPSError, match=message):
        relative_risk(points, marks, SQUARE)
