"""The peers of the linear regression, and the studies that stand it beside them."""

import os

import numpy as np
import pandas as pd
import pytest

from paper import designs, mean_coverage, uci
from paper.peers import PEERS, MixtureOfLines, RandomCoefficients, fit_quietly, interval_score


@pytest.mark.parametrize("name", PEERS)
def test_every_peer_predicts_plain_data(rng, name):
    X = rng.normal(size=(1200, 2))
    y = 1.0 + X @ [1.0, -2.0] + rng.normal(size=1200)
    fitted = fit_quietly(PEERS[name], X[:600], y[:600])
    lower, upper = fitted.interval(X[600:], 0.9)
    assert ((lower <= y[600:]) & (y[600:] <= upper)).mean() == pytest.approx(0.9, abs=0.04)
    assert np.sqrt(np.mean(np.square(fitted.predict(X[600:]) - y[600:]))) < 1.1


def test_lines_and_random_coefficients_find_their_own_laws(rng):
    X = rng.normal(size=(800, 1))
    two = rng.choice([-1.0, 1.0], 800) * X[:, 0] + 0.2 * rng.normal(size=800)
    assert sorted(MixtureOfLines().fit(X, two).lines[:, 1].round(1)) == [-1.0, 1.0]
    spread = (1.0 + 0.8 * rng.normal(size=800)) * X[:, 0] + 0.5 * rng.normal(size=800)
    slopes = RandomCoefficients().fit(X, spread).sample_slopes(20_000, rng)
    assert (slopes.mean(), slopes.std()) == pytest.approx((1.0, 0.8), abs=0.1)


def test_a_peer_that_fails_is_none(rng):
    X = np.column_stack([rng.integers(0, 2, 60), rng.normal(size=60)]).astype(float)
    X[:, 0] = 0.0  # MAD of zero, and a column without variation
    assert fit_quietly(PEERS["MM"], X, rng.normal(size=60)) is None


def test_the_interval_score_punishes_what_lies_outside():
    bounds, y = np.array([[0.0, 0.0], [1.0, 1.0]]), np.array([0.5, 2.0])
    assert interval_score(bounds, y, 0.9) == pytest.approx((1.0 + 1.0 + 20.0) / 2)


@pytest.mark.parametrize("name", designs.DESIGNS)
def test_designs_are_what_they_say(name):
    design = designs.DESIGNS[name]
    rng = np.random.default_rng(0)
    X, y, theta = design.sample(4000, rng, spoil=False)
    assert X.shape == theta.shape == (4000, X.shape[1])
    assert np.isfinite(y).all()
    if design.mean is not None:
        assert np.allclose(theta.mean(0), design.mean, atol=0.12)
    assert (theta.std(0).max() > 1e-9) == bool(design.differs)


def test_a_design_is_measured_beside_all_peers():
    row = designs.one_replicate("small spread", 0)
    assert row["differ"]
    assert row["score oracle"] < row["score GPS"] < row["score least squares"]
    assert 0.8 < row["coverage GPS"] < 0.97
    results = {"small spread": designs.summarise(pd.DataFrame([row]))}
    assert designs.markdown(results).count("\n") == 2
    assert "failed" in designs.shown_score(None, 1.0)


@pytest.mark.data
@pytest.mark.skipif("GPSUQ_DATA" not in os.environ, reason="needs the data directory")
def test_a_published_split_is_read_and_measured():
    X, _, new, _ = uci.read_split("yacht", 0)
    assert (len(X), len(new)) == (277, 31)
    assert not set(map(tuple, X)) >= set(map(tuple, new))
    row = uci.one_split("yacht", 0)
    assert row["score GPS"] < row["score least squares"]
    assert row["rmse GPS"] < 1.02 * row["rmse least squares"]
    assert uci.markdown({"yacht": uci.summarise(pd.DataFrame([row]))}).startswith("| table")


def test_mean_coverage_is_that_of_the_designs():
    row = mean_coverage.one_replicate("normal", 0)
    assert row["coverage"] == designs.one_replicate("normal", 0)["mean coverage"]
