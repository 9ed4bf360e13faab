"""Inputs in files and streams: the fit of arrays in memory, without their copy."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset

from gpsuq import GPSClassifier, GPSError, Recipe
from gpsuq.classify.inputs import Mapped

RECIPE = Recipe(epochs=2, batch_size=20)


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
    model = GPSClassifier(network, recipe=RECIPE).fit(mapped, labels)
    assert sorted(set(copied)) == [20, 100]  # the example that shows the size of features; batches
    assert copied.count(100) == 1
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
