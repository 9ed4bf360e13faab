"""Estimators in scikit-learn's pipelines and searches: their own methods, weights and groups that find their step."""

import warnings

import numpy as np
import pandas as pd
import polars as pl
import pytest
import sklearn
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, GroupKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler

from gpsuq import GPSLinearRegression, GPSRegressor, GPSWarning

pytestmark = pytest.mark.filterwarnings("ignore::gpsuq.GPSWarning")


@pytest.fixture
def rows(rng):
    X = pd.DataFrame(rng.normal(size=(80, 2)), columns=["a", "b"], index=[f"r{row}" for row in range(80)])
    return X, X["a"] + 0.1 * rng.normal(size=80)


def line():
    return GPSLinearRegression(n_chains=2, spread_weight=3.0)


@pytest.mark.parametrize("kind", ["pandas", "polars"])
def test_intervals_come_out_of_a_pipeline(rows, kind):
    X, y = rows
    pipeline = make_pipeline(StandardScaler(), line()).set_output(transform=kind).fit(X, y)
    found = pipeline[-1].predict_interval(pipeline[:-1].transform(X.head()), 0.9)
    expected = line().fit(X, y).predict_interval(X.head(), 0.9)
    np.testing.assert_allclose(found, expected, rtol=1e-3)
    assert isinstance(found, pl.DataFrame) if kind == "polars" else found.index.equals(X.index[:5])


@pytest.mark.parametrize("model", [line(), GPSRegressor(n_chains=2, n_steps=2)], ids=lambda model: type(model).__name__)
def test_weights_and_groups_find_their_step(rows, model):
    X, y = rows
    given = {"sample_weight": np.arange(80) // 20, "groups": np.arange(80) // 4}
    with sklearn.config_context(enable_metadata_routing=True):
        asked = clone(model).set_fit_request(**dict.fromkeys(given, True))
        routed = make_pipeline(FunctionTransformer(), asked).fit(X, y, **given).predict(X)
    assert np.array_equal(routed, clone(model).fit(X, y, **given).predict(X))
    assert not np.array_equal(routed, clone(model).fit(X, y).predict(X))


def test_a_search_routes_groups_to_folds_and_to_the_fit(rows):
    X, y = rows
    subjects = np.arange(80) // 4
    with sklearn.config_context(enable_metadata_routing=True):
        model = line().set_fit_request(groups=True)
        search = GridSearchCV(model, {"fit_intercept": [True, False]}, cv=GroupKFold(3))
        search.fit(X, y, groups=subjects)
    assert search.best_estimator_.law_ == "equal"
    assert search.predict(X).shape == (80,)


def test_warnings_point_at_the_line_that_fits(rows):
    X, y = rows[0].assign(b=1.0).head(8), rows[1].head(8)
    for fit in (line().fit, make_pipeline(FunctionTransformer(), line()).fit, GPSRegressor(n_chains=2, n_steps=2).fit):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", GPSWarning)
            fit(X, y)
        assert {warning.filename for warning in caught if issubclass(warning.category, GPSWarning)} == {__file__}
