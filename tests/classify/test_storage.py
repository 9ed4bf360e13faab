"""Saved classifiers, noisy networks and UQ distributions."""

import json
import warnings

import numpy as np
import pandas as pd
import pytest
import torch
from saved_models import edited
from torch import nn
from torch.distributions import Normal

from gpsuq import (
    GPS,
    Algorithm,
    FromModule,
    GPSClassifier,
    GPSError,
    GPSWarning,
    Location,
    ObservationModel,
    Recipe,
    Scale,
    Slope,
    load,
    noisify,
    save,
)
from gpsuq.classify.baselines import DropoutClassifier, EnsembleClassifier, PlainClassifier
from gpsuq.errors import MissingCodeError

RECIPE = Recipe(epochs=3)


def own(classes=3, dropout=0.0):
    return nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(dropout), nn.Linear(8, classes))


def dropped():
    return own(dropout=0.2)


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 4)).astype(np.float32)
    return X, np.array(["a", "b", "c"])[(X[:, 0] > -0.5).astype(int) + (X[:, 0] > 0.5)]


@pytest.mark.parametrize(
    ("model", "network"),
    [
        (GPSClassifier(recipe=RECIPE), None),
        (GPSClassifier(own, "4", ratio=0.3, recipe=RECIPE, random_state=3), own),
        (GPSClassifier(own, "0", recipe=RECIPE, spread_weight="auto"), own),
        (GPSClassifier(own, ("0", "4"), ratio=0.4, recipe=RECIPE), own),
        (PlainClassifier(recipe=RECIPE), None),
        (DropoutClassifier(dropped, recipe=RECIPE), dropped),
        (EnsembleClassifier(own, n_members=2, recipe=RECIPE), own),
    ],
    ids=["default", "own", "auto", "two", "plain", "dropout", "ensemble"],
)
def test_a_saved_classifier_is_the_same_classifier(model, network, data, tmp_path):
    X, y = data
    frame = pd.DataFrame(X, columns=list("pqrs"))
    model.fit(frame, y)
    model.calibrate(frame, y, target=0.8, of="coverage", by_class=isinstance(model, GPSClassifier))
    again = load(model.save(tmp_path / "model"), network=network)
    assert np.array_equal(again.sample_proba(frame, 20), model.sample_proba(frame, 20))
    first, second = model.uncertainty(frame, 20), again.uncertainty(frame, 20)
    assert np.array_equal(first.uncertain, second.uncertain)
    assert np.array_equal(again.certain_above_, model.certain_above_)
    assert list(again.predict(frame)) == list(model.predict(frame))
    assert again.losses_ == model.losses_
    assert again.findings_ == model.findings_
    assert list(again.feature_names_in_) == list("pqrs")
    if isinstance(model, GPSClassifier):
        assert again.spread_weight_ == model.spread_weight_
        assert (again.spread_path_ is None) == (model.spread_path_ is None)
    assert json.loads((tmp_path / "model" / "config.json").read_text())["type"] == type(model).__name__


@pytest.mark.parametrize("threshold", [[0.5, 0.5], "high", [0.1, 0.2, None], [[0.1], [0.2], [0.3]]])
def test_damaged_thresholds_are_refused(threshold, data, tmp_path):
    path = GPSClassifier(recipe=RECIPE).fit(*data).save(tmp_path / "model")
    edited(path, lambda config, _: config["fitted"].update(certain_above_=threshold))
    with pytest.raises(GPSError, match="damaged or incomplete"):
        load(path)


def test_a_model_saved_before_there_were_findings_has_none(data, tmp_path):
    path = GPSClassifier(recipe=RECIPE).fit(*data).save(tmp_path / "model")
    assert load(edited(path, lambda config, _: config.pop("findings"))).findings_ == []


@pytest.mark.parametrize("labels", [[0, 1, 2], [True, False, True], [1.0, 2.0, 5.0], ["x", "yy", "z"]])
def test_labels_keep_their_type(labels, data, tmp_path):
    X, y = data
    labels = np.array(labels)[np.searchsorted(["a", "b", "c"], y)]
    model = GPSClassifier(recipe=RECIPE).fit(X, labels)
    again = load(model.save(tmp_path / "model"))
    assert again.classes_.dtype == model.classes_.dtype
    assert np.array_equal(again.classes_, model.classes_)


def test_an_ensemble_of_trained_members_is_saved(data, tmp_path):
    members = [PlainClassifier(own, recipe=RECIPE, random_state=seed).fit(*data) for seed in (0, 1)]
    model = EnsembleClassifier.of(members)
    again = load(model.save(tmp_path / "model"), network=own)
    assert np.array_equal(again.predict_proba(data[0]), model.predict_proba(data[0]))


def test_your_own_network_is_asked_for_and_checked(data, tmp_path):
    model = GPSClassifier(own, "4", recipe=RECIPE).fit(*data)
    path = model.save(tmp_path / "model")
    with pytest.raises(GPSError, match=r"holds no code: pass it, as in gpsuq.load\(path, network=...\)"):
        load(path)
    for wrong, message in (
        (lambda: own(classes=4), "size mismatch"),
        (lambda: nn.Sequential(nn.Linear(4, 3)), "no layer '4'"),
        (nn.Linear, "missing 2 required positional arguments"),
        (lambda: "network", "it made a str"),
    ):
        with pytest.raises(MissingCodeError, match=r"(?s)network that was passed does not fit.*Sequential") as raised:
            load(path, network=wrong)
        assert message in str(raised.value)
    with pytest.raises(GPSError, match="not net="):
        load(path, net=own)


def test_labels_that_json_cannot_hold_are_refused(data, tmp_path):
    X, y = data
    model = GPSClassifier(recipe=RECIPE).fit(X, y)
    model.classes_ = np.array(["2020-01-01", "2020-01-02", "2020-01-03"], dtype="datetime64[D]")
    with pytest.raises(GPSError, match="use strings or numbers"):
        model.save(tmp_path / "model")
    assert not (tmp_path / "model").exists()


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("classes", {"type": "O", "labels": ["a"]}),
        ("input_shape", "x"),
        ("noise_dims", [7]),
        ("input_shape", [300_000_000]),
        ("fitted", {}),
        ("feature_names", ["a"]),
        ("feature_names", "abcd"),
        ("feature_names", [1, 2, 3, 4]),
    ],
)
def test_a_damaged_description_is_refused(key, value, data, tmp_path):
    path = GPSClassifier(recipe=RECIPE).fit(*data).save(tmp_path / "model")
    with pytest.raises(GPSError, match="damaged") as raised:
        load(edited(path, **{key: value}))
    assert "was changed" not in str(raised.value)


def test_a_noisy_network_is_saved(tmp_path):
    torch.manual_seed(0)
    network = noisify(own(), ("0", "4"), 0.4).eval()  # 2 and 3 numbers: no one ratio any more
    path = save(network, tmp_path / "network")
    again = load(path, network=own())
    x, noise = torch.randn(5, 4), torch.randn(1, 6, network.noise_dim)
    assert torch.equal(again(x, noise=noise), network(x, noise=noise))
    assert not again.training
    with pytest.raises(GPSError, match=r"network=\.\.\."):
        load(path)
    with pytest.raises(MissingCodeError, match=r"network that was passed does not fit the saved model .*positional"):
        load(path, network=nn.Linear)


def test_infinities_in_a_network_of_ones_own_are_no_damage(tmp_path):
    network = own()
    network.register_buffer("mask", torch.tensor([0.0, -torch.inf]))
    path = save(noisify(network, "4"), tmp_path / "network")
    assert load(path, network=network).module.mask[1] == -torch.inf
    with torch.no_grad():
        network[0].weight[0, 0] = torch.nan
    save(noisify(network, "4"), path, force=True)
    with pytest.raises(GPSError, match=r"damaged or incomplete: network/module\.0\.weight holds numbers that are not"):
        load(path, network=network)


def line(x, slope, scale):
    return Normal((x * slope).sum(-1), scale)


@pytest.fixture(scope="module")
def regression():
    rng = np.random.default_rng(1)
    X = pd.DataFrame(rng.normal(size=(150, 2)), columns=["u", "v"])
    return X, X["u"].to_numpy() + 0.3 * rng.normal(size=150)


@pytest.mark.parametrize("generator", [None, FromModule(nn.Linear(3, 3), 3)], ids=["mlp", "own"])
def test_a_saved_uq_distribution_is_the_same(generator, regression, tmp_path):
    X, y = regression
    model = ObservationModel(line, slope=Slope(), scale=Scale())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", GPSWarning)  # so short a training is still falling
        uq = GPS(model, generator, algorithm=Algorithm(n_steps=60), n_chains=2).fit(X, y)
    path = uq.save(tmp_path / "uq")
    again = load(path, model=ObservationModel(line, slope=Slope(), scale=Scale()), generator=generator)
    for name, draws in uq.draws(300).items():
        assert np.array_equal(draws, again.draws(300)[name])
    assert np.array_equal(uq.predict_interval(X[:5]), again.predict_interval(X[:5]))
    assert torch.equal(uq.history.score(), again.history.score())
    pd.testing.assert_frame_equal(uq.summary(), again.summary())
    with pytest.raises(GPSError, match=r"pass it, as in gpsuq.load\(path, model=...\)"):
        load(path)
    with pytest.raises(MissingCodeError, match="takes the ObservationModel of the fit, not a function"):
        load(path, model=line)
    with pytest.raises(GPSError, match="other parameters"):
        load(path, model=ObservationModel(lambda mu: Normal(mu, 1.0), mu=Location()))
    if generator is not None:
        with pytest.raises(GPSError, match="generator="):
            load(path, model=model)
        for wrong in (FromModule(nn.Linear(2, 3), 2), FromModule(nn.Linear(3, 2), 3), nn.Linear(3, 3), "generator"):
            with pytest.raises(MissingCodeError, match="generator that was passed does not fit"):
                load(path, model=model, generator=wrong)
