"""What all network classifiers promise to programs around them: threads may share them, and generators stay put."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from gpsuq import GPSClassifier, GPSError, Recipe
from gpsuq.classify.baselines import DropoutClassifier, EnsembleClassifier, PlainClassifier

X = np.random.default_rng(0).normal(size=(64, 3)).astype(np.float32)
Y = np.where(X[:, 0] > 0, "right", "left")


def network():
    return nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.5), nn.Linear(8, 2))


def unfitted(kind, seed=0):
    return kind(network, recipe=Recipe(epochs=2), random_state=seed)


@pytest.mark.parametrize("kind", [GPSClassifier, DropoutClassifier])
def test_threads_share_a_classifier(kind, threads):
    model = unfitted(kind).fit(X, Y)
    calls = [(X[number % 50 :][:5], 1 + number % 60, (None, 0.1)[number % 2]) for number in range(200)]

    def scores(call):
        x, n_draws, error_rate = call
        return model.uncertainty(x, n_draws, error_rate=error_rate).uqc

    for alone, together in zip(map(scores, calls), threads.map(scores, calls), strict=True):
        assert np.array_equal(alone, together)


@pytest.mark.parametrize("kind", [GPSClassifier, PlainClassifier])
def test_fits_in_threads_are_those_one_by_one(kind, threads):
    def fitted(seed):
        return unfitted(kind, seed).fit(X, Y).sample_proba(X, 5)

    for alone, together in zip(map(fitted, range(4)), threads.map(fitted, range(4)), strict=True):
        assert np.array_equal(alone, together)


@pytest.mark.parametrize("kind", [GPSClassifier, DropoutClassifier, PlainClassifier, EnsembleClassifier])
def test_fit_and_prediction_neither_move_nor_heed_torchs_generator(kind):
    def drawn():
        state = torch.get_rng_state()
        model = unfitted(kind).fit(X, Y)
        found = model.sample_proba(X, 10), model.predict_proba(DataLoader(TensorDataset(torch.from_numpy(X))))
        assert torch.equal(torch.get_rng_state(), state)
        return np.concatenate([each.ravel() for each in found])

    torch.manual_seed(1)
    first = drawn()
    torch.manual_seed(2)
    assert np.array_equal(drawn(), first)


def test_a_fit_to_a_loader_leaves_torchs_generator_alone():
    loader = DataLoader(TensorDataset(torch.from_numpy(X), torch.from_numpy(X[:, 0] > 0)), batch_size=16, shuffle=True)
    state = torch.get_rng_state()
    unfitted(GPSClassifier).fit(loader)
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("kind", [GPSClassifier, PlainClassifier])
def test_probabilities_that_are_none_are_refused(kind):
    model = unfitted(kind).fit(X, Y)
    with torch.no_grad():
        next(model.network_.parameters()).fill_(3e38)
    with pytest.raises(GPSError, match="NaN or infinite outputs"):
        model.predict_proba(1e3 * X)
