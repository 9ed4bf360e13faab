"""Units of a table: the same directions by columns and by rows, and tables with many more columns than rows."""

import warnings

import numpy as np
import pytest

from gpsuq import GPSLinearRegression, GPSWarning
from gpsuq.linear import units


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("shape", [(8, 30), (12, 12), (30, 8)])
def test_axes_are_the_same_by_columns_and_by_rows(shape, intercept):
    rng = np.random.default_rng(0)
    X, weights = rng.normal(size=shape) * 10.0 ** rng.integers(-3, 4, shape[1]), rng.integers(1, 4, shape[0]) * 1.0
    X[:, 3] = 7.0
    constant = np.ptp(X, axis=0) == 0
    block = (X - X.mean(0)) / np.abs(X).max(0) + (not intercept) * ~constant
    means, moment = weights @ block / weights.sum(), (block.T * weights) @ block / weights.sum()
    columns = units._axes_by_columns(means, moment, constant, intercept=intercept)
    rows = units._axes_by_rows(block, weights, constant, intercept=intercept)
    assert np.allclose(columns.center, rows.center)
    assert np.allclose(columns.spread, rows.spread)
    assert np.array_equal(columns.constant, rows.constant)
    rank = int((rows.values > 1e-10).sum())
    assert rank == min(shape[0] - intercept, shape[1] - 1)
    assert np.allclose(columns.values[-rank:], rows.values[-rank:])
    along = np.abs((columns.vectors[:, -rank:] * rows.vectors[:, -rank:]).sum(0))
    assert np.allclose(along, 1.0)  # a direction has no sign


@pytest.fixture(scope="module")
def wide():
    rng = np.random.default_rng(1)
    X = rng.normal(size=(30, 1700))
    y = X[:, 7] + 0.1 * rng.normal(size=30)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", GPSWarning)
        return GPSLinearRegression().fit(X, y), X, y


@pytest.mark.filterwarnings("ignore::gpsuq.GPSWarning")
def test_many_columns_never_make_a_matrix_of_their_own(wide, monkeypatch):
    _, X, y = wide
    asked = []
    monkeypatch.setattr(units, "_axes_by_columns", lambda *arguments: asked.append(arguments))  # (p, p)
    model = GPSLinearRegression(n_chains=2).fit(X, y)
    assert not asked
    assert np.isfinite(model.coef_).all()


def test_equal_draws_of_many_columns_share_their_memory(wide, monkeypatch):
    model, X, _ = wide
    slopes = model.draws_["slope"]
    assert slopes.shape == (20, 512, 1700)
    assert slopes.strides[1] == 0
    monkeypatch.setattr(units, "_NUMBERS", np.inf)
    model._set_fit(model.fit_, model.seed_)
    for name, values in model.draws_.items():
        assert values.strides[1] > 0
        assert np.allclose(values[:, :3], slopes[:, :3] if name == "slope" else values[:, :3])
    assert np.allclose(X @ model.coef_ + model.intercept_, model.predict(X))


def test_a_figure_shows_the_largest_of_many_coefficients(wide):
    model, _, _ = wide
    axis = model.plot_coefficients(truth=np.zeros(1700)).axes[0]
    sizes = np.abs(model.coef_ * model.fit_.units.spread)
    names = [label.get_text() for label in axis.get_yticklabels()]
    assert names == [f"x{place}" for place in np.argsort(-sizes, kind="stable")[:30]]
    assert "the 30 largest of 1,700" in axis.get_xlabel()


def test_a_summary_that_was_changed_is_not_given_again():
    X = np.random.default_rng(0).normal(size=(30, 2))
    model = GPSLinearRegression(n_chains=2, spread_weight=3.0).fit(X, X @ [1.0, 2.0])
    first = model.summary()
    first["mean"] = 0.0
    assert model.summary()["mean"].any()
    before = model.summary()
    assert not model.fit(X, -X[:, 0]).summary().equals(before)


def test_messages_name_some_of_many_columns():
    rng, model = np.random.default_rng(0), GPSLinearRegression(n_chains=2, spread_weight=3.0)
    X = np.column_stack([np.ones((40, 100)), rng.normal(size=(40, 2))])
    with pytest.warns(GPSWarning, match=r"columns x0, .*, x19 and 80 more are constant"):
        model.fit(X, X[:, -1] + 0.1 * rng.normal(size=40))
    X = np.tile(rng.normal(size=(60, 2)), 30)
    with pytest.warns(GPSWarning, match=r"columns x0, .*, x19 and 40 more depend on each other"):
        model.fit(X, X[:, -1] + 0.1 * rng.normal(size=60))
