"""Models in the clothes of other tools: a round trip of each, and what is said where the tool is missing."""

import importlib
import sys

import numpy as np
import pandas as pd
import pytest

from gpsuq import GPSClassifier, GPSError, GPSLinearRegression, GPSRegressor, Recipe, load, noisify

pytestmark = pytest.mark.filterwarnings("ignore::gpsuq.GPSWarning")


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"x": rng.normal(size=60), "z": rng.normal(size=60)})
    return X, X["x"] + 0.1 * rng.normal(size=60)


@pytest.fixture(scope="module")
def line(table):
    return GPSLinearRegression(n_chains=2, spread_weight=3.0).fit(*table)


@pytest.mark.parametrize(
    ("name", "package"), [("skpro", "skpro"), ("mlflow", "mlflow"), ("huggingface", "huggingface_hub")]
)
def test_the_extra_is_named(monkeypatch, name, package):
    monkeypatch.delitem(sys.modules, f"gpsuq.adapters.{name}", raising=False)
    for module in [package, *(loaded for loaded in sys.modules if loaded.startswith(f"{package}."))]:
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(GPSError, match=rf"needs {package}: pip install 'gpsuq\[{name}\]'"):
        importlib.import_module(f"gpsuq.adapters.{name}")


def test_hugging_face_folders(tmp_path, line, table):
    pytest.importorskip("huggingface_hub")
    from gpsuq.adapters.huggingface import Pretrained

    Pretrained(line).save_pretrained(tmp_path / "line")
    assert sorted(path.name for path in (tmp_path / "line").iterdir()) == [
        "README.md",
        "config.json",
        "model.safetensors",
    ]
    for again in (Pretrained.from_pretrained(tmp_path / "line").model, load(tmp_path / "line")):
        assert np.array_equal(again.predict(table[0]), line.predict(table[0]))
    from torch import nn

    network = nn.Sequential(nn.Linear(2, 4), nn.ReLU(), nn.Linear(4, 2))
    Pretrained(noisify(network, "2")).save_pretrained(tmp_path / "noisy")
    assert type(Pretrained.from_pretrained(tmp_path / "noisy", network=network).model).__name__ == "NoisyNetwork"


@pytest.mark.parametrize("kind", ["line", "classifier"])
def test_mlflow_predicts_what_the_command_line_does(tmp_path, line, table, kind):
    pyfunc = pytest.importorskip("mlflow.pyfunc")
    from gpsuq.adapters.mlflow import save_model

    X, y = table
    model = line if kind == "line" else GPSClassifier(recipe=Recipe(epochs=1)).fit(X, y > 0)
    found = pyfunc.load_model(str(save_model(model, tmp_path / "model", coverage=0.8))).predict(X)
    if kind == "line":
        np.testing.assert_array_equal(found["lower"], line.predict_interval(X, 0.8)["lower"])
    else:
        assert {"prediction", "uncertain"} <= set(found)
    files = {path.suffix for path in (tmp_path / "model").rglob("*") if path.is_file()}
    assert not files & {".pkl", ".pickle"}


@pytest.mark.slow
@pytest.mark.parametrize("number", [0, 1])
def test_skpros_own_checks(number):
    pytest.importorskip("skpro")
    from skpro.utils import check_estimator

    from gpsuq.adapters.skpro import SkproRegressor

    results = check_estimator(SkproRegressor.create_test_instances_and_names()[0][number], verbose=False)
    assert len(results) > 30
    assert {name: result for name, result in results.items() if result != "PASSED"} == {}


def test_skpro_has_the_intervals_of_the_regression(table):
    pytest.importorskip("skpro")
    from gpsuq.adapters.skpro import SkproRegressor

    X, y = table
    own = GPSRegressor(n_chains=2, n_steps=2)
    model = SkproRegressor(own).fit(X, y.to_frame("y"))
    expected = own.fit(X, y)
    np.testing.assert_allclose(model.predict_interval(X, coverage=0.8), expected.predict_interval(X, 0.8))
    np.testing.assert_allclose(model.predict_proba(X).mean()["y"], expected.predict(X), atol=0.1)
