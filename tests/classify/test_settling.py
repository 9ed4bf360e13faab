"""Spread that knows distance, the combined verdict, temperature and members."""

import copy
import pickle

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.datasets import make_moons
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from gpsuq import GPSClassifier, GPSError, Recipe, load
from gpsuq.classify.decisions import auroc, log_loss, risk_coverage, wrong
from gpsuq.classify.members import left_out
from gpsuq.core.noise import affine_layers, noisify

LATE = {"layer": "3", "loss": "log", "members": 1}
EVEN = {"spread": "even", "verdict": "quantile"}
QUICK = Recipe(epochs=6)
STRANGERS = np.array([[6.0, 6.0], [-6.0, 5.0], [0.0, -7.0], [8.0, 0.0]])


@pytest.fixture(scope="module")
def moons():
    X, y = make_moons(1200, noise=0.25, random_state=0)
    return X[:800], np.where(y, "upper", "lower")[:800], X[800:], np.where(y, "upper", "lower")[800:]


@pytest.fixture(scope="module")
def settled(moons):
    X, y, *_ = moons
    return GPSClassifier(recipe=Recipe(epochs=40), random_state=0).fit(X, y)


def test_strangers_are_uncertain_and_familiar_ones_mostly_not(moons, settled):
    _, _, new, labels = moons
    theirs, ours = settled.uncertainty(STRANGERS), settled.uncertainty(new)
    assert theirs.uncertain.all()
    assert ours.uncertain.mean() < 0.25
    assert auroc(ours.strangeness, theirs.strangeness) > 0.99
    assert 0.6 < ours.strangeness.mean() < 1.4  # -log of a p-value
    assert "strangeness" in ours.scores
    paper = GPSClassifier(**EVEN, members=1, recipe=Recipe(epochs=40), random_state=0).fit(*moons[:2])
    paper = paper.uncertainty(STRANGERS)
    assert paper.uncertain.mean() < 0.5  # what was to be mended
    assert np.isnan(paper.strangeness).all()
    assert "strangeness" not in paper.scores
    errors = wrong(ours.mean, settled.encoded(labels))
    by_probability = risk_coverage(ours.error_probability, errors).area
    assert risk_coverage(ours.uqc_shortfall, errors).area < 1.2 * by_probability


def test_draws_of_strangers_spread_more(moons):
    """The same network, before and after it knows distance: familiar draws stay, those of strangers spread."""
    X, y, new, _ = moons
    even = GPSClassifier(**LATE, **EVEN, recipe=QUICK, random_state=0).fit(X[:720], y[:720])
    aware = copy.deepcopy(even).set_params(spread="distance")
    aware.settle(X[:720], y[:720], (X[720:], y[720:]))
    familiar = aware.uncertainty(new).strangeness < 1.0
    np.testing.assert_allclose(aware.sample_proba(new)[familiar], even.sample_proba(new)[familiar], atol=1e-5)
    spread = [model.sample_proba(STRANGERS).std(1).mean() for model in (even, aware)]
    assert spread[1] > 1.5 * spread[0]


def test_a_verdict_is_calibrated_as_any_other(moons, settled):
    _, _, new, labels = moons
    model = copy.deepcopy(settled).calibrate(new, labels, target=0.7, of="coverage")
    assert model.uncertainty(new).uncertain.mean() == pytest.approx(0.3, abs=0.01)
    by_class = model.calibrate(new, labels, target=0.12, by_class=True)
    assert by_class.certain_above_.shape == (2,)
    assert by_class.uncertainty(STRANGERS).uncertain.all()


def test_fewer_draws_give_the_same_verdicts(moons, settled):
    """All but those at the threshold are settled by few draws; at most a share of 5% may differ from many draws."""
    many, quick = settled.uncertainty(moons[2], 4_000), settled.uncertainty(moons[2], error_rate=0.05)
    assert quick.n_draws.min() == 16
    assert quick.n_draws.mean() < 60
    assert (quick.uncertain != many.uncertain).mean() < 0.02
    np.testing.assert_allclose(quick.strangeness, many.strangeness, atol=1e-3)
    with pytest.raises(GPSError, match="error_rate"):
        settled.uncertainty(moons[2], error_rate=1.5)


@pytest.mark.parametrize("members", [1, 2])
def test_more_draws_do_not_run_the_layers_before_the_noise_again(moons, members):
    """However many looks there are, every observation passes them once; a look takes one more to get to the noise."""
    model = GPSClassifier(**LATE, recipe=QUICK, random_state=0).fit(*moons[:2])
    if members == 2:
        model = GPSClassifier.of([model, copy.deepcopy(model)]).settle(*moons[:2], moons[2:])
    rows = []
    first = model.networks_[0].module[0]
    first.register_forward_hook(lambda *passed: rows.append(len(passed[2])))
    quick = model.uncertainty(moons[2], error_rate=0.05)
    assert quick.n_draws.max() > 100
    assert sum(passed for passed in rows if passed > 1) == len(moons[2])
    many = model.uncertainty(moons[2])
    full = quick.n_draws == many.n_draws
    np.testing.assert_allclose(quick.mean[full], many.mean[full], atol=1e-6)
    np.testing.assert_allclose(quick.strangeness, many.strangeness, atol=1e-3)


def test_a_temperature_mends_probabilities_that_are_too_sure(moons):
    X, y, new, labels = moons
    cold = GPSClassifier(**LATE, **EVEN, recipe=QUICK, random_state=0).fit(X, y)
    last = cold.networks_[0].module[-1]
    with torch.no_grad():
        last.weight.mul_(5.0), last.bias.mul_(5.0)
    warm = copy.deepcopy(cold).set_params(verdict="combined")
    warm.settle(X, y, (new[:200], labels[:200]))
    numbers = warm.encoded(labels)[200:]
    assert warm.temperature_ > 2.0
    assert log_loss(warm.predict_proba(new[200:]), numbers) < log_loss(cold.predict_proba(new[200:]), numbers)


@pytest.mark.parametrize("options", [LATE, LATE | {"members": 2}, {}], ids=["one", "two", "default"])
def test_saved_and_loaded_it_says_the_same(tmp_path, moons, options):
    X, y, new, _ = moons
    model = GPSClassifier(**options, recipe=QUICK, random_state=1).fit(X, y)
    model.save(tmp_path / "model")
    other = load(tmp_path / "model")
    assert len(other.networks_) == options.get("members", 5)
    ours, theirs = model.uncertainty(new), other.uncertainty(new)
    for name in ("mean", "uqc", "strangeness", "uncertain"):
        np.testing.assert_array_equal(getattr(ours, name), getattr(theirs, name))
    assert (other.temperature_, other.strangeness_weight_) == (model.temperature_, model.strangeness_weight_)
    assert np.array_equal(pickle.loads(pickle.dumps(model)).predict_proba(new), model.predict_proba(new))


@pytest.mark.parametrize("how", ["networks", "snapshots", "heads"])
def test_members_differ_and_their_draws_are_taken_in_turn(moons, how):
    X, y, new, _ = moons
    options = LATE | EVEN | {"recipe": QUICK, "random_state": 0}
    model = GPSClassifier(**options | {"members": 3}, how=how).fit(X, y)
    draws = model.sample_proba(new, n_draws=60)
    of_member = [draws[:, member::3].mean(1) for member in range(3)]
    assert np.abs(of_member[0] - of_member[1]).max() > 1e-3
    assert np.abs(of_member[1] - of_member[2]).max() > 1e-3
    np.testing.assert_allclose(model.sample_proba(new, n_draws=7), draws[:, :7], atol=1e-6)
    single = GPSClassifier(**options).fit(X, y)
    np.testing.assert_allclose(single.sample_proba(new, n_draws=20), draws[:, ::3], atol=1e-6)  # the first is that one
    if how == "heads":
        trunks = [network.module[1].weight for network in model.networks_]
        torch.testing.assert_close(trunks[0], trunks[1], rtol=0, atol=0)


def test_members_that_were_trained_apart_are_joined_and_settled(moons):
    X, y, *_ = moons
    apart = [GPSClassifier(**LATE, recipe=QUICK, random_state=seed).fit(X[:700], y[:700]) for seed in (0, 1)]
    model = GPSClassifier.of(apart)
    assert model.members == 2
    assert (model.temperature_, model.strangeness_weight_, model.certain_above_) == (1.0, None, 0.5)
    assert model.settle(X[:700], y[:700], (X[700:], y[700:])) is model
    assert model.uncertainty(STRANGERS).uncertain.all()
    with pytest.raises(GPSError, match="at least 2"):
        GPSClassifier.of(apart[:1])
    with pytest.raises(GPSError, match="same classes"):
        GPSClassifier.of([apart[0], GPSClassifier(members=1, recipe=QUICK).fit(X, np.arange(800) % 3)])


def test_stopped_members_go_on(tmp_path, moons, monkeypatch):
    X, y, new, _ = moons
    options = {"members": 2, "recipe": QUICK, "random_state": 0}
    whole = GPSClassifier(**options).fit(X, y)
    from gpsuq.engine import networks

    ended, seen = networks.NetworkTraining.end_step, []

    def interrupted(self):
        ended(self)
        seen.append(1)
        if len(seen) == 80:  # in the second member
            raise KeyboardInterrupt

    monkeypatch.setattr(networks.NetworkTraining, "end_step", interrupted)
    with pytest.raises(KeyboardInterrupt):
        GPSClassifier(**options).fit(X, y, checkpoint=tmp_path)
    monkeypatch.setattr(networks.NetworkTraining, "end_step", ended)
    again = GPSClassifier(**options).fit(X, y, checkpoint=tmp_path)
    np.testing.assert_array_equal(again.predict_proba(new), whole.predict_proba(new))


def perceptron():
    return nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 2))


def test_a_loader_without_validation_data_gives_the_papers_verdict_and_says_so(moons):
    X, y, new, labels = moons
    rows = TensorDataset(torch.from_numpy(X).float(), torch.from_numpy((y == "upper").astype(np.int64)))
    loader = DataLoader(rows, batch_size=100)
    model = GPSClassifier(perceptron(), recipe=QUICK).fit(loader)
    assert "unsettled" in [finding.code for finding in model.findings_]
    assert (model.temperature_, model.strangeness_weight_, model.certain_above_) == (1.0, None, 0.5)
    assert np.isnan(model.uncertainty(new).strangeness).all()
    network = perceptron()
    model = GPSClassifier(network, recipe=QUICK).fit(loader, validation=(new, (labels == "upper").astype(int)))
    assert "unsettled" not in [finding.code for finding in model.findings_]
    assert model.uncertainty(STRANGERS).uncertain.all()


@pytest.mark.parametrize("network", [None, perceptron()], ids=["table", "own"])
def test_of_few_rows_none_are_left_out(moons, network):
    X, y, *_ = moons
    few = GPSClassifier(network, recipe=QUICK).fit(X[:49], y[:49])
    assert len(few.networks_) == 1
    assert [finding.code for finding in few.findings_ if "settled" in finding.code] == ["unsettled"]
    assert few.strangeness_weight_ is None
    enough = GPSClassifier(network, recipe=QUICK).fit(X[:50], y[:50])
    assert len(enough.networks_) == (5 if network is None else 1)
    assert "few-validation" in [finding.code for finding in enough.findings_]
    assert enough.strangeness_weight_ is not None
    few.settle(X[:49], y[:49], (X[49:400], y[49:400]))
    assert "unsettled" not in [finding.code for finding in few.findings_]


def test_each_part_leaves_other_rows_out_and_no_class_is_lost():
    y = np.repeat(["common", "usual", "rare", "single"], [60, 30, 4, 1])
    X = np.arange(len(y))[:, None]
    parts = [left_out(X, y, 5, number, seed=3) for number in range(5)]
    aside = np.concatenate([rows.ravel() for *_, (rows, _) in parts])
    assert len(np.unique(aside)) == len(aside) >= 90
    for rest, labels, (rows, wanted) in parts:
        assert set(labels) == {"common", "usual", "rare", "single"}
        assert sorted([*rest.ravel(), *rows.ravel()]) == X.ravel().tolist()
        assert (wanted == "common").sum() == 12
    assert max(len(left_out(np.zeros((30_000, 1)), np.arange(30_000) % 2, 5, 0, seed=3)[2][1]), 0) == 2000


def test_members_on_parts_are_judged_by_rows_that_they_left_out(moons):
    """Labels without a pattern: what was learned by heart would look certain, rows left out show that it is not."""
    X = moons[0][:120]
    y = np.random.default_rng(0).integers(0, 2, len(X))
    model = GPSClassifier(random_state=0).fit(X, y)
    assert len(model.networks_) == 5
    assert len(model.losses_) == 125  # an eighth of the usual thousand: twice as many gain nothing
    assert log_loss(model.predict_proba(moons[2]), np.arange(len(moons[2])) % 2) < 0.75


def test_members_on_parts_are_the_same_again(moons):
    X, y, new, _ = moons
    model = GPSClassifier(recipe=QUICK, random_state=4).fit(X[:300], y[:300])
    again = clone(model).fit(X[:300], y[:300])
    np.testing.assert_array_equal(again.predict_proba(new), model.predict_proba(new))
    np.testing.assert_array_equal(again.uncertainty(new).uqc, model.uncertainty(new).uqc)
    weights = [network.module[1].weight for network in model.networks_]
    assert not torch.equal(weights[0], weights[1])


def test_features_of_a_trained_network_are_kept_and_watched():
    random = np.random.default_rng(0)
    images = random.normal(size=(400, 1, 6, 6)).astype(np.float32)
    labels = (images.mean((1, 2, 3)) > 0).astype(int)
    network = nn.Sequential(nn.Conv2d(1, 4, 3), nn.Flatten(), nn.Linear(64, 8), nn.ReLU(), nn.Linear(8, 2))
    before = copy.deepcopy(network.state_dict())
    model = GPSClassifier(network, features="keep", recipe=QUICK).fit(images, labels)
    assert model.feature_layers_ == ["2"]
    assert model.networks_[0].layers == ("2",)
    torch.testing.assert_close(model.networks_[0].module[0].weight, before["0.weight"], rtol=0, atol=0)
    assert model.uncertainty(20.0 + images[:20]).uncertain.all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"members": 2, "network": perceptron()}, "different weights"),
        ({"members": 2, "how": "parts", "network": perceptron()}, "different weights"),
        ({"members": 0}, "members"),
        ({"how": "trees"}, "how"),
        ({"loss": "hinge"}, "loss"),
        ({"spread": "far"}, "spread"),
        ({"verdict": "guess"}, "verdict"),
    ],
)
def test_what_cannot_be_is_named(moons, options, message):
    with pytest.raises((GPSError, ValueError), match=message):
        GPSClassifier(**options, recipe=QUICK).fit(*moons[:2])


def test_a_network_with_noise_at_several_layers_is_watched_before_them(moons):
    X, y, *_ = moons
    network = nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 2))
    for given, layer in ((network, ["2", "0"]), (noisify(network, ["2", "0"]), None)):
        model = GPSClassifier(given, layer, spread="distance", recipe=QUICK).fit(X, y)
        assert model.feature_layers_ == ["0"]
        assert (model.uncertainty(STRANGERS).strangeness > 5.0).all()


def test_there_must_be_something_to_settle(moons):
    model = GPSClassifier(**LATE, **EVEN, recipe=QUICK).fit(*moons[:2])
    with pytest.raises(GPSError, match="nothing to settle"):
        model.settle(*moons[:2], moons[2:])


class Skipping(nn.Module):
    """A residual block between two affine layers: noise inside it would meet what went around."""

    def __init__(self):
        super().__init__()
        self.first, self.inside, self.last = nn.Linear(3, 8), nn.Linear(8, 8), nn.Linear(8, 2)

    def forward(self, x):
        x = torch.relu(self.first(x))
        return self.last(x + torch.relu(self.inside(x)))


def test_affine_layers_end_where_noise_cannot_enter():
    assert affine_layers(Skipping(), torch.zeros(2, 3)) == ["last"]
    assert affine_layers(nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2)), torch.zeros(2, 3)) == ["0", "1"]
    with pytest.raises(GPSError, match="no affine layer"):
        affine_layers(nn.Conv1d(1, 2, 1), torch.zeros(2, 1, 3))


def test_a_network_that_watches_nothing_says_so():
    with pytest.raises(GPSError, match="no layer is watched"):
        noisify(nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2)), "0").strangeness(torch.zeros(2, 3))


def test_one_network_is_trained_where_rows_are_very_many_or_classes_small(rng):
    """Several networks pay where rows are few."""
    for n, n_classes, expected in ((20_001, 2, 1), (60, 20, 1), (60, 2, 5)):
        X, y = rng.normal(size=(n, 2)).astype(np.float32), np.arange(n) % n_classes
        model = GPSClassifier(recipe=Recipe(epochs=1, batch_size=5000)).fit(X, y)
        assert len(model.networks_) == expected
