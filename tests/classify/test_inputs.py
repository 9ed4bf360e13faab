"""Inputs in files and streams: the fit of arrays in memory, without their copy."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

from gpsuq import GPSClassifier, GPSError, Recipe, load, noisify
from gpsuq.classify.inputs import Mapped

RECIPE = Recipe(epochs=2, batch_size=20)
pytestmark = pytest.mark.filterwarnings("ignore:the network is sure:gpsuq.GPSWarning")  # after two epochs


def network():
    return nn.Sequential(nn.Flatten(), nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, 2))


@pytest.fixture
def images(tmp_path, rng):
    labels = rng.integers(0, 2, 100)
    pixels = (rng.integers(0, 100, (100, 1, 4, 4)) + 100 * labels[:, None, None, None]).astype(np.uint8)
    np.save(tmp_path / "images.npy", pixels)
    return np.load(tmp_path / "images.npy", mmap_mode="r"), labels


def test_an_array_in_a_file_is_fitted_as_in_memory(images):
    mapped, labels = images
    held = np.array(mapped)
    found = [GPSClassifier(network, recipe=RECIPE).fit(each, labels) for each in (mapped, held)]
    probabilities = [model.predict_proba(each) for model, each in zip(found, (mapped, held), strict=True)]
    assert np.array_equal(*probabilities)
    assert np.array_equal(*(model.uncertainty(mapped, error_rate=0.01).uncertain for model in found))


def test_no_more_than_a_batch_is_copied(images, monkeypatch):
    copied = []
    real = Mapped.__getitem__

    def counted(self, rows):
        result = real(self, rows)
        copied.append(len(result))
        return result

    monkeypatch.setattr(Mapped, "__getitem__", counted)
    mapped, labels = images
    model = GPSClassifier(network, spread="even", verdict="quantile", recipe=RECIPE).fit(mapped, labels)
    assert sorted(set(copied)) == [20, 100]  # the example that shows the size of features; batches
    assert copied.count(100) == 1
    copied.clear()
    GPSClassifier(network, recipe=RECIPE).fit(mapped, labels)  # a fifth is set aside, and not copied either
    assert max(copied) == 80
    assert copied.count(80) == 2  # the example, and the rows whose features are learned
    copied.clear()
    model.uncertainty(mapped)
    assert set(copied) == {20}


def test_rows_that_are_not_finite_are_named_however_far_down(tmp_path):
    pixels = np.zeros((2500, 1, 4, 4), dtype=np.float32)
    pixels[[1200, 2400], 0, 1, 1] = np.nan
    np.save(tmp_path / "images.npy", pixels)
    mapped = np.load(tmp_path / "images.npy", mmap_mode="r")
    with pytest.raises(GPSError, match="X has NaN or infinite values in row 1200"):
        GPSClassifier(network, recipe=RECIPE).fit(mapped, np.arange(2500) % 2)


class Endless(IterableDataset):
    """Rows that come one by one, and whose number is not known."""

    def __init__(self, x, y):
        self.x, self.y = x, y

    def __iter__(self):
        return zip(self.x, self.y, strict=True)


def test_a_stream_of_rows_is_fitted(images):
    mapped, labels = images
    stream = Endless(torch.from_numpy(np.array(mapped)).float() / 255.0, torch.from_numpy(labels))
    model = GPSClassifier(network, recipe=Recipe(epochs=20)).fit(DataLoader(stream, batch_size=20))
    assert (model.predict(np.array(mapped) / 255.0) == labels).mean() > 0.9


class OfTokens(nn.Module):
    """A transformer on sequences of ten words."""

    def __init__(self):
        super().__init__()
        self.words, self.places = nn.Embedding(10, 16), nn.Parameter(torch.zeros(6, 16))
        layer = nn.TransformerEncoderLayer(16, nhead=2, dim_feedforward=16, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, num_layers=1)
        self.hidden, self.last = nn.Linear(16, 16), nn.Linear(16, 2)

    def forward(self, x):
        return self.last(torch.relu(self.hidden(self.encoder(self.words(x) + self.places).mean(1))))


@pytest.fixture(scope="module")
def sequences():
    """Sequences of words 0 to 7; the class is whether the word 7 is among them."""
    words = np.random.default_rng(0).integers(0, 8, (600, 6))
    return words, np.where((words == 7).any(1), "with", "without")


@pytest.mark.parametrize("how", ["arrays", "loader"])
def test_tokens_stay_integers(sequences, how, tmp_path):
    X, y = sequences
    recipe = Recipe(epochs=8, batch_size=20)
    model = GPSClassifier(OfTokens, loss="log", recipe=recipe)
    if how == "arrays":
        model.fit(X[:400], y[:400], validation=(X[400:500], y[400:500]))
    else:
        rows = TensorDataset(torch.from_numpy(X[:400]), torch.from_numpy(np.unique(y[:400], return_inverse=True)[1]))
        model.fit(DataLoader(rows, batch_size=20, shuffle=True), validation=(X[400:500], (y[400:500] == "without") * 1))
    assert model.integers_
    right = model.predict(X[500:]) == (y[500:] if how == "arrays" else (y[500:] == "without"))
    assert right.mean() > 0.9
    assert model.network_.layers == ("hidden",)
    model.save(tmp_path / "model")
    again = load(tmp_path / "model", network=OfTokens)
    assert np.array_equal(again.predict_proba(X[500:]), model.predict_proba(X[500:]))
    with pytest.raises(GPSError, match="X must hold integers"):
        again.predict(X + 0.5)


def test_a_network_that_takes_numbers_gets_numbers(sequences):
    model = GPSClassifier(lambda: nn.Sequential(nn.Linear(6, 2)), recipe=RECIPE).fit(*sequences)
    assert not model.integers_


@pytest.mark.parametrize("layer", ["encoder.layers.0.linear1", "encoder.layers.0.self_attn.out_proj"])
def test_layers_inside_a_transformer_are_refused_with_the_reason(layer):
    with pytest.raises(GPSError, match=r"is inside an nn\..*without calling it"):
        noisify(OfTokens(), layer)


def test_the_first_layer_is_one_that_takes_noise(sequences):
    assert GPSClassifier(OfTokens, recipe=RECIPE).fit(*sequences).network_.layers == ("hidden",)
