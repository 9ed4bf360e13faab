"""Saved regressions: the same predictions again; damage and nonsense are refused."""

import json

import numpy as np
import pandas as pd
import pytest

from gpsuq import GPSError, GPSRegressor, load

pytestmark = pytest.mark.filterwarnings("ignore::gpsuq.GPSWarning")


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"x": rng.normal(size=120), "site": rng.choice(["a", "b"], 120)})
    y = X["x"] + (X["site"] == "b") + rng.normal(size=120)  # no kind is much better than the others
    model = GPSRegressor(n_chains=4, n_steps=40).fit(X, y).calibrate(X, y, groups=X["site"])
    return model, X, y, model.save(tmp_path_factory.mktemp("saved") / "model")


def test_all_predictions_are_the_same(saved):
    model, X, y, path = saved
    again = load(path)
    for name in ("predict", "predict_quantiles", "uncertainty"):
        np.testing.assert_array_equal(getattr(again, name)(X), getattr(model, name)(X))
    np.testing.assert_array_equal(again.predict_cdf(X, y), model.predict_cdf(X, y))
    groups = X["site"]
    np.testing.assert_array_equal(again.predict_interval(X, groups=groups), model.predict_interval(X, groups=groups))
    assert again.members_ == model.members_
    assert "affine" in again.members_
    assert again.get_params() == model.get_params()
    assert list(again.feature_names_in_) == ["x", "site"]


@pytest.mark.parametrize(
    "change",
    [
        lambda c: c.update(n_features=3),
        lambda c: c.update(center=[1.0, 2.0]),
        lambda c: c.update(scale=[-1.0]),
        lambda c: c["params"].update(n_chains=0),
        lambda c: c["params"].update(family="cauchy"),
        lambda c: c["members"][0].update(n_chains=10**9),
        lambda c: c["members"][0].update(weight=-1.0),
        lambda c: next(m for m in c["members"] if m["name"] == "affine").update(n_chains=3),
        lambda c: c["columns"][1].update(levels=["a", 3]),
        lambda c: next(m for m in c["members"] if "layers" in m)["layers"].update(hidden=[10**8, 10**8]),
    ],
)
def test_configs_that_cannot_be_are_refused(saved, tmp_path, change):
    import shutil

    *_, path = saved
    copy = tmp_path / "model"
    shutil.copytree(path, copy)
    config = json.loads((copy / "config.json").read_text())
    config.pop("digests")
    change(config)
    (copy / "config.json").write_text(json.dumps(config))
    with pytest.raises(GPSError):
        load(copy)


def test_trees_that_point_nowhere_are_refused():
    from gpsuq.regress.storage import _check_trees

    one = np.zeros(1, dtype=np.int32)
    good = {"roots": one, "below": one, "above": one, "column": one, "outcome": np.zeros(1)}
    _check_trees(good, 1)
    for name in ("roots", "below", "above", "column"):
        with pytest.raises(ValueError, match="not there"):
            _check_trees(good | {name: one + 1}, 1)
        with pytest.raises(ValueError, match="not there"):
            _check_trees(good | {name: one - 1}, 1)
