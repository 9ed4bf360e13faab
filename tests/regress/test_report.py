"""The report of a nonlinear regression: what it says of rows left out, of new rows, and of counts and text."""

import json

import numpy as np
import pandas as pd
import pytest

from gpsuq import GPSError, GPSRegressor
from gpsuq.regress.effects import effect, importance
from gpsuq.regress.left_out import judges
from gpsuq.regress.report import (
    REGRESSION_PARTS,
    checked_regression_page,
    predictive_strips,
    regression_checks,
    regression_page,
)
from gpsuq.reports.page import Picture, Table, Text, render

pytestmark = pytest.mark.filterwarnings("ignore::gpsuq.GPSWarning")


def made(n, seed=0):
    rng = np.random.default_rng(seed)
    X = pd.DataFrame(
        {"dose": rng.uniform(-2, 2, n), "site": rng.choice(["north", "south"], n), "noise": rng.normal(size=n)}
    )
    X.loc[::9, "dose"] = np.nan
    X.loc[::11, "site"] = None
    y = 3.0 * np.sign(X["dose"].fillna(0.0)) + (X["site"] == "south") + rng.normal(size=n)  # trees are best
    return X, y.rename("response")


@pytest.fixture(scope="module")
def fitted():
    X, y = made(150)
    return GPSRegressor(n_chains=4, n_steps=40).fit(X, y), X, y


@pytest.fixture(scope="module")
def checks(fitted):
    model, X, y = fitted
    return regression_checks(model, X, y, fitted=True)


def tables(page):
    found = (block for section in page.sections for block in section.blocks)
    return {block.caption: block.frame for block in found if isinstance(block, Table)}


def texts(page):
    return [block.text for section in page.sections for block in section.blocks if isinstance(block, Text)]


def test_checks_are_json_and_make_the_same_page(fitted, checks):
    model = fitted[0]
    assert set(checks) == set(REGRESSION_PARTS)
    again = json.loads(json.dumps(checks, allow_nan=False))
    page = checked_regression_page(model, again)
    assert render(page) == render(checked_regression_page(model, checks))
    assert page.title == "Regression of response"
    assert checks["importance"]["index"][0] == checks["effects"][0]["name"] == "dose"
    assert isinstance(page.picture, Picture)
    assert sum(isinstance(block, Picture) for section in page.sections for block in section.blocks) == 3
    assert "dose" in page.lead


def test_rows_that_were_fitted_are_judged_by_chains_that_left_them_out(fitted, checks):
    model, X, y = fitted
    new = regression_checks(model, X, y)
    assert checks["left_out"]
    assert not new["left_out"]
    assert checks["crps"] > 1.1 * new["crps"]  # a forest knows its rows by heart
    ranks = model.fit_.ranks[:, 0]
    assert checks["coverage"]["0.9"] == pytest.approx(np.mean(np.abs(ranks - 0.5) <= 0.45))
    assert sum(checks["pit"]) == len(ranks)
    rows = model.explain_rows(X, y, fitted=True)
    assert rows["left_out"].sum() == len(ranks)
    assert np.array_equal(rows["rank"].to_numpy()[model.fit_.rows], ranks)
    assert any("had not seen" in text for text in texts(checked_regression_page(model, checks)))


def test_a_judge_has_not_seen_its_rows(fitted):
    model, X, y = fitted
    found = judges(model, len(X), fitted=True)
    assert len(found) == 4  # a chain of each deal
    assert np.array_equal(np.sort(np.concatenate([judge.places for judge in found])), np.sort(model.fit_.rows))
    for judge in found:
        seen = np.setdiff1d(model.fit_.rows, judge.places)
        own = judge.model.crps(X.iloc[judge.places], y.iloc[judge.places]).mean()
        assert own > 1.1 * judge.model.crps(X.iloc[seen], y.iloc[seen]).mean()


def test_rows_that_are_others_than_those_fitted_are_refused(fitted):
    model, X, y = fitted
    with pytest.raises(GPSError, match="not the rows that were fitted"):
        regression_checks(model, X.head(20), y.head(20), fitted=True)


def test_columns_that_matter_come_first(fitted):
    model, X, y = fitted
    found = importance(model, X, y)
    assert found.index[0] == "dose"
    assert found["dose"] > 2 * abs(found["noise"])
    curve = effect(model, X, "dose")
    assert curve.index.is_monotonic_increasing
    assert (np.diff(curve.to_numpy(), axis=1) >= 0).all()
    assert curve[0.5].iloc[-1] > curve[0.5].iloc[0] + 4
    assert effect(model, X, "site").index.tolist() == ["north", "south"]
    with pytest.raises(GPSError, match="no column 'age'"):
        effect(model, X, "age")


def test_of_very_many_columns_some_are_looked_at(rng):
    X = rng.normal(size=(80, 25))
    model = GPSRegressor(n_chains=4, n_steps=30).fit(X, 3.0 * X[:, 7])
    found = importance(model, X, 3.0 * X[:, 7], n_repeats=1)
    assert len(found) == 20
    assert found.index[0] == "x7"


def test_an_outlier_is_the_most_surprising_row(rng):
    X = pd.DataFrame({"x": rng.normal(size=120)})
    y = X["x"] + 0.1 * rng.normal(size=120)
    y[17] = 9.0
    model = GPSRegressor(n_chains=4, n_steps=60).fit(X, y)
    page = checked_regression_page(model, regression_checks(model, X, y, fitted=True))
    worst = tables(page)["The most surprising rows"]
    assert worst.index[0] == "18"  # they count from 1
    assert worst["outlier"].iloc[0]


def test_strips_are_densities(fitted, monkeypatch):
    model, X, y = fitted
    monkeypatch.setattr("gpsuq.regress.report._STRIP_VALUES", 5000)  # so short a training leaves spikes
    first, second = predictive_strips(model, X.head(2), y.head(2))
    assert first["observed"] == y.iloc[0]
    assert second["name"] == "row 2"
    assert np.trapezoid(first["density"], first["at"]) == pytest.approx(0.99, abs=0.03)
    assert predictive_strips(model, X.head(1))[0]["observed"] is None


def test_counts_are_shown_as_probabilities(rng):
    x = rng.uniform(-1, 1, size=(150, 1))
    y = rng.poisson(np.exp(0.3 * x[:, 0] - 0.7))
    model = GPSRegressor(family="poisson", n_chains=4, n_steps=60).fit(x, y)
    checks = regression_checks(model, x, y, fitted=True)
    strip = checks["strips"][0]
    assert strip["counts"]
    assert strip["at"] == sorted(map(round, strip["at"]))
    assert sum(strip["density"]) == pytest.approx(1.0, abs=0.05)
    assert max(checks["pit"]) < 4 * 150 / 20  # uniform inside steps: most outcomes are 0
    assert dict(checked_regression_page(model, checks).facts)["outcomes"] == "poisson"


def test_a_page_without_rows_says_so(fitted):
    page = regression_page(fitted[0])
    assert any("nothing here says whether predictions hold" in text for text in texts(page))
    assert tables(page)["Generators that were mixed, and how much each counts"].index.tolist() == [*fitted[0].members_]
    with pytest.raises(GPSError, match="both X and y"):
        regression_page(fitted[0], fitted[1])


def test_what_cannot_be_judged_is_refused(fitted, rng):
    model, X, y = fitted
    with pytest.raises(GPSError, match="same number of rows"):
        regression_page(model, X, y.head(10))
    both = GPSRegressor(n_chains=4, n_steps=20).fit(rng.normal(size=(60, 1)), rng.normal(size=(60, 2)))
    with pytest.raises(GPSError, match="single outcome"):
        regression_page(both, np.zeros((2, 1)), np.zeros((2, 2)))


def test_columns_that_say_nothing_are_called_so(rng):
    X, y = rng.normal(size=(200, 1)), rng.normal(size=200)
    model = GPSRegressor(n_chains=4, n_steps=30).fit(X[:100], y[:100])
    checks = regression_checks(model, X[100:], y[100:])
    page = checked_regression_page(model, checks | {"effects": [], "crps": 2 * checks["crps_without_columns"]})
    assert any("say nothing about the outcome" in text for text in texts(page))
    assert any("none of them says anything" in text for text in texts(page))


def test_a_conformal_layer_is_told(fitted):
    X, y = made(200, seed=1)
    model = GPSRegressor(n_chains=4, n_steps=20, conformal=0.3).fit(X, y)
    (told,) = [text for text in texts(regression_page(model)) if "by construction" in text]
    assert "60 rows" in told
    assert "that of 90% lies between the quantiles" in told
    by_site = model.calibrate(X, y, groups=X["noise"] > 0)
    assert any("in each of 2 groups" in text for text in texts(regression_page(by_site, X, y)))


def test_a_regression_plots_itself_and_shows_itself_in_notebooks(fitted):
    model, X, y = fitted
    (ax,) = model.plot(X, y).axes
    assert len(ax.lines[1].get_ydata()) + len(ax.lines[2].get_ydata()) == len(y)
    assert "forest" in model._repr_html_()
    with pytest.raises(GPSError, match="single outcome"):
        GPSRegressor(n_chains=4, n_steps=5).fit(X, np.c_[y, y]).plot(X, np.c_[y, y])
