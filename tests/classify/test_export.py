"""Export to ONNX: trunk and head say what the network says, whatever the numbers of rows and draws."""

import json

import numpy as np
import pytest
import torch
from torch import nn

from gpsuq import GPSClassifier, GPSError, Recipe
from gpsuq.classify import export as module
from gpsuq.classify.decisions import combined_criterion

onnxruntime = pytest.importorskip("onnxruntime")
RNG = np.random.default_rng(0)
IMAGES = RNG.normal(size=(120, 1, 8, 8)).astype(np.float32)
LABELS = np.where(IMAGES.mean((1, 2, 3)) > 0, "bright", "dark")
QUICK = Recipe(epochs=1)


class Joined(nn.Module):
    """A network whose layers are not in the order in which they are called."""

    def __init__(self):
        super().__init__()
        self.last = nn.Linear(8, 2)
        self.trunk = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten())
        self.first = nn.Linear(4 * 36, 8)

    def forward(self, x):
        return self.last(torch.relu(self.first(self.trunk(x))))


def run(directory, x, noise):
    """Return logits, and what the trunk gave: features, and strangeness where it knows."""
    trunk, head = (onnxruntime.InferenceSession(directory / name) for name in ("trunk.onnx", "head.onnx"))
    seen = dict(zip(("features", "strangeness"), trunk.run(None, {"x": x}), strict=False))
    wanted = [taken.name for taken in head.get_inputs()]
    return head.run(None, {name: (seen | {"noise": noise})[name] for name in wanted})[0], seen


@pytest.mark.parametrize(("layer", "width"), [("first", 144), ("last", 8), (["last", "first"], 144)])
def test_parts_say_what_the_network_says(tmp_path, layer, width):
    model = GPSClassifier(Joined(), layer, recipe=QUICK).fit(IMAGES, LABELS)
    directory = model.export_onnx(tmp_path / "out")
    assert sorted(file.name for file in directory.iterdir()) == ["head.onnx", "trunk.onnx", "verdict.json"]
    for rows, draws in ((1, 1), (7, 40)):
        noise = RNG.normal(size=(draws, model.network_.noise_dim)).astype(np.float32)
        found, seen = run(directory, IMAGES[:rows], noise)
        with torch.no_grad():
            wanted = model.network_.eval()(torch.from_numpy(IMAGES[:rows]), noise=torch.from_numpy(noise)[None])
        assert found.shape == (rows, draws, 2)
        assert seen["features"].shape == (rows, width)
        np.testing.assert_allclose(found, wanted, atol=1e-4)


def test_a_table_without_a_trunk_and_its_verdict(tmp_path):
    random = np.random.default_rng(1)
    X = random.normal(size=(200, 3))
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 2))
    model = GPSClassifier(network, "0", spread="even", verdict="quantile", recipe=QUICK).fit(X, X[:, 0] > 0)
    model.calibrate(X, X[:, 0] > 0, target=0.8, of="coverage")
    directory = model.export_onnx(tmp_path / "out")
    about = json.loads((directory / "verdict.json").read_text())
    assert about["classes"] == [False, True]
    assert about["input_shape"] == [3]
    assert about["certain_above"] == model.certain_above_
    noise = random.normal(size=(4_000, about["noise_dim"])).astype(np.float32)
    logits, seen = run(directory, X.astype(np.float32), noise)
    np.testing.assert_array_equal(seen["features"], X.astype(np.float32))
    p = np.exp(logits - logits.max(-1, keepdims=True))
    p /= p.sum(-1, keepdims=True)
    above = np.quantile(p, about["uqc_level"], axis=1).max(1) - about["certain_above"]
    clear = np.abs(above) > 0.02  # other draws, so a row at the threshold may fall on either side
    assert clear.mean() > 0.5
    np.testing.assert_array_equal(above[clear] <= 0, model.uncertainty(X, n_draws=4_000).uncertain[clear])


def test_strangeness_travels_from_the_trunk_to_the_head(tmp_path):
    random = np.random.default_rng(1)
    X = random.normal(size=(300, 3))
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 2))
    model = GPSClassifier(network, "2", recipe=QUICK).fit(X, X[:, 0] > 0)
    directory = model.export_onnx(tmp_path / "out")
    about = json.loads((directory / "verdict.json").read_text())
    assert about["temperature"] == model.temperature_
    assert about["strangeness_weight"] == model.strangeness_weight_
    rows = np.concatenate([X[:5], 9.0 + X[:5]]).astype(np.float32)
    noise = random.normal(size=(20, about["noise_dim"])).astype(np.float32)
    found, given = run(directory, rows, noise)
    strangeness = given["strangeness"]
    with torch.no_grad():
        wanted, seen = model.networks_[0].judged(torch.from_numpy(rows), noise=torch.from_numpy(noise)[None])
    np.testing.assert_allclose(strangeness, seen.strangeness, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)
    assert strangeness[5:].min() > strangeness[:5].max()


def test_members_are_side_by_side_and_give_the_verdicts_of_all(tmp_path):
    """The default of a table: five members, each with features and strangeness of its own, and one verdict."""
    random = np.random.default_rng(1)
    X = random.normal(size=(200, 3))
    model = GPSClassifier(recipe=Recipe(epochs=20)).fit(X, X[:, 0] > 0)
    directory = model.export_onnx(tmp_path / "out")
    about = json.loads((directory / "verdict.json").read_text())
    rows = np.concatenate([X, 9.0 + X[:5]]).astype(np.float32)
    noise = np.concatenate([model._noise(about["noise_dim"], slice(0, 40), 0)]).astype(np.float32)
    logits, seen = run(directory, rows, noise)
    assert logits.shape == (205, 5 * 40, 2)
    verdicts = model.uncertainty(rows)
    np.testing.assert_allclose(seen["strangeness"], verdicts.strangeness, rtol=1e-3, atol=1e-3)
    p = np.exp(logits / about["temperature"] - (logits / about["temperature"]).max(-1, keepdims=True))
    mean = (p / p.sum(-1, keepdims=True)).mean(1)
    best = combined_criterion(mean, seen["strangeness"], about["strangeness_weight"]).max(1)
    clear = np.abs(best - about["certain_above"]) > 0.02  # four of five members have other draws here
    assert clear.mean() > 0.8
    np.testing.assert_array_equal(best[clear] <= about["certain_above"], verdicts.uncertain[clear])
    assert verdicts.uncertain[200:].all()


def test_what_is_there_is_kept_unless_forced(tmp_path):
    model = GPSClassifier(Joined(), "first", recipe=QUICK).fit(IMAGES, LABELS)
    directory = model.export_onnx(tmp_path / "out")
    with pytest.raises(GPSError, match="exists already"):
        model.export_onnx(directory)
    assert model.export_onnx(directory, force=True) == directory
    (directory / "thesis.txt").write_text("mine")
    with pytest.raises(GPSError, match=r"thesis\.txt"):
        model.export_onnx(directory, force=True)


def test_an_export_that_is_off_is_not_written(tmp_path, monkeypatch):
    model = GPSClassifier(Joined(), "first", recipe=QUICK).fit(IMAGES, LABELS)
    monkeypatch.setattr(module, "_TOLERANCE", -1.0)
    with pytest.raises(GPSError, match="nothing was written"):
        model.export_onnx(tmp_path / "out")
    assert not (tmp_path / "out").exists()
