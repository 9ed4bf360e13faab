"""What a classifier says of set-ups that would fail in silence."""

import numpy as np
import pytest
import torch
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from gpsuq import GPSClassifier, GPSWarning, Recipe
from gpsuq.classify.findings import ALARMING, Trained, setup_findings

QUICK = Recipe(epochs=20)


def layers(*last):
    return lambda: nn.Sequential(nn.Linear(2, 16), nn.ReLU(), nn.Linear(16, 2), *last)


def codes(model):
    return {finding.code for finding in model.findings_}


@pytest.fixture(scope="module")
def table():
    X = np.random.default_rng(0).normal(size=(300, 2))
    return X, np.where(X[:, 0] > 0, "right", "left")


def test_a_good_set_up_is_not_blamed(table):
    assert codes(GPSClassifier(layers(), recipe=QUICK).fit(*table)) <= {"still-falling", "few-validation"}


@pytest.mark.filterwarnings("ignore:the network is sure:gpsuq.GPSWarning")  # and wrong, another finding
def test_columns_that_nobody_scaled(table):
    X, y = table
    X = X * [1.0, 1e3]
    with pytest.warns(GPSWarning, match=r"StandardScaler\(\)"):
        assert "unscaled" in codes(GPSClassifier(layers(), recipe=QUICK).fit(X, y))
    scaled = make_pipeline(StandardScaler(), GPSClassifier(layers(), recipe=QUICK)).fit(X, y)
    assert "unscaled" not in codes(scaled[-1])
    assert "unscaled" not in codes(GPSClassifier(recipe=QUICK).fit(X, y))  # its own network scales them

    def normalised():
        return nn.Sequential(nn.BatchNorm1d(2), *layers()())

    assert "unscaled" not in codes(GPSClassifier(normalised, recipe=QUICK).fit(X, y))


@pytest.mark.filterwarnings("ignore::gpsuq.GPSWarning")
def test_a_softmax_at_the_end(table):
    model = GPSClassifier(layers(nn.Softmax(-1)), layer="0", recipe=QUICK).fit(*table)
    assert "softmax" in codes(model)
    assert "softmax" in ALARMING
    assert "softmax" not in codes(GPSClassifier(layers(nn.LogSoftmax(-1)), layer="0", recipe=QUICK).fit(*table))


def test_labels_that_are_rare_and_a_loader(table):
    X, y = table
    rows = np.r_[np.flatnonzero(y == "left"), np.flatnonzero(y == "right")[:6]]
    labels = (y[rows] == "right").astype(np.int64)
    loader = DataLoader(TensorDataset(torch.from_numpy(X[rows]).float(), torch.from_numpy(labels)), 20, shuffle=True)
    found = [GPSClassifier(layers(), recipe=QUICK).fit(*data) for data in ((X[rows], labels), (loader,))]
    assert all("imbalanced" in codes(model) for model in found)
    [message] = [finding.message for finding in found[0].findings_ if finding.code == "imbalanced"]
    assert message.startswith("class '1' has 5 observations")  # one of six was set aside


@pytest.mark.parametrize(
    ("logits", "expected"),
    [
        (torch.zeros(100, 1, 2) + torch.tensor([0.2, 0.0]), {"one-class"}),
        (9.0 * torch.eye(2)[torch.arange(100) // 50][:, None], {"too-sure"}),  # sure, and right in half
        (3.0 * (torch.eye(2)[torch.arange(100) % 2] - 0.5)[:, None].expand(-1, 5, -1), {"no-spread"}),
        (3.0 * torch.eye(2)[torch.arange(100) % 2][:, None] + 0.1 * torch.arange(5.0)[:, None], set()),
    ],
)
def test_what_the_network_makes_of_its_training_data(logits, expected):
    y = torch.arange(100) % 2
    seen = Trained(nn.Linear(2, 2), torch.randn(100, 2), y, logits, np.array(["a", "b"]), np.array([50, 50]))
    assert {finding.code for finding in setup_findings(seen)} == expected


def test_validation_data_that_were_too_few(table):
    X, y = table
    model = GPSClassifier(recipe=QUICK).fit(X, y)
    assert "few-validation" in codes(model)
    many = np.random.default_rng(1).normal(size=(1000, 2))
    noisy = np.where(many[:, 0] + 0.3 * np.random.default_rng(2).normal(size=1000) > 0, "right", "left")
    assert "few-validation" not in codes(model.settle(X, y, (many, noisy)))
