"""pickle, copy.deepcopy and sklearn.clone: what comes back is the same model."""

import copy
import pickle

import numpy as np
import pytest
from sklearn.base import clone
from torch import nn

from gpsuq import GPS, GPSClassifier, Recipe
from gpsuq.classify.baselines import DropoutClassifier, EnsembleClassifier, PlainClassifier
from gpsuq.core.models import normal_location


def network() -> nn.Module:
    return nn.Sequential(nn.Linear(3, 16), nn.ReLU(), nn.Dropout(0.2), nn.Linear(16, 2))


COPIES = {"pickle": lambda item: pickle.loads(pickle.dumps(item)), "deepcopy": copy.deepcopy}


@pytest.mark.parametrize("copied", COPIES.values(), ids=COPIES)
def test_uq_distributions_are_copied(copied, short, rng):
    uq = GPS(normal_location(), algorithm=short, n_chains=2).fit(rng.normal(size=60))
    other = copied(uq)
    assert np.array_equal(other.draws(50)["loc"], uq.draws(50)["loc"])
    assert other.summary().equals(uq.summary())


@pytest.mark.parametrize("kind", [GPSClassifier, PlainClassifier, DropoutClassifier, EnsembleClassifier])
def test_classifiers_are_copied_and_cloned(kind, rng):
    X = rng.normal(size=(100, 3)).astype(np.float32)
    y = np.where(X[:, 0] > 0, "yes", "no")
    model = kind(network, recipe=Recipe(epochs=2)).fit(X, y)
    expected = model.sample_proba(X, n_draws=20)
    for copied in COPIES.values():
        assert np.array_equal(copied(model).sample_proba(X, n_draws=20), expected)
    assert np.array_equal(clone(model).fit(X, y).sample_proba(X, n_draws=20), expected)
