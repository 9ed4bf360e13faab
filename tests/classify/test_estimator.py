"""GPSClassifier and its opponents: verdicts that mean something, scikit-learn's rules, bad input."""

import copy
import pickle

import numpy as np
import pandas as pd
import pytest
import torch
from lightning_fabric import Fabric
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.utils.estimator_checks import parametrize_with_checks
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from gpsuq import GPSClassifier, GPSError, GPSWarning, PaperRecipe, Recipe, noisify
from gpsuq.classify.baselines import DropoutClassifier, DropoutNetwork, EnsembleClassifier, PlainClassifier
from gpsuq.classify.decisions import selective_error
from gpsuq.classify.estimator import SPREAD_WEIGHTS
from gpsuq.classify.off_data import shuffled_patches
from gpsuq.datasets import load_images
from gpsuq.engine.sources import ArrayBatches
from gpsuq.errors import DivergenceError
from paper.networks import feed_forward

QUICK = Recipe(epochs=30)
PAPER = {"layer": None, "spread": "even", "verdict": "quantile"}


def network(dropout=0.0, classes=10):
    return nn.Sequential(nn.Flatten(), feed_forward(64, classes, width=32, depth=2, dropout=dropout))


def small(classes=10):
    return network(classes=classes)


def dropped():
    return network(dropout=0.2)


@pytest.fixture(scope="module")
def digits():
    return load_images("digits"), load_images("digits", "test")


@pytest.fixture(scope="module")
def model(digits):
    train, _ = digits
    return GPSClassifier(small, random_state=1, recipe=QUICK).fit(train.pixels(), train.labels)


@parametrize_with_checks([GPSClassifier(recipe=Recipe(epochs=40)), PlainClassifier(recipe=Recipe(epochs=200))])
def test_scikit_learns_rules(estimator, check):
    assert check(estimator) is None  # it raises where a rule is broken


def test_digits_are_read_and_verdicts_help(model, digits):
    _, test = digits
    verdicts = model.uncertainty(test.pixels())
    found = selective_error(verdicts.mean, test.labels, verdicts.uncertain)
    assert found.full < 0.06
    assert found.certain < 0.6 * found.full
    assert 0.0 < found.uncertain_share < 0.3
    assert np.allclose(verdicts.mean, model.predict_proba(test.pixels()), atol=1e-6)
    assert np.array_equal(verdicts.prediction, model.predict(test.pixels()))
    assert verdicts.n_draws.tolist() == [200] * len(test)


def test_an_unseen_class_is_more_uncertain_than_the_seen(digits):
    train, test = digits
    known = train.without(1)
    model = GPSClassifier(lambda: small(9), recipe=QUICK).fit(known.pixels(), known.labels)
    unseen = model.uncertainty(test.rows(test.labels == 1).pixels())
    seen = model.uncertainty(test.without(1).pixels())
    assert unseen.uncertain.mean() > 2.0 * seen.uncertain.mean()
    assert unseen.mutual_information.mean() > 1.5 * seen.mutual_information.mean()


def test_draws_do_not_depend_on_what_else_is_asked(model, digits):
    pixels = digits[1].pixels()[:30]
    whole = model.sample_proba(pixels, 120)
    assert whole.shape == (30, 120, 10)
    assert np.allclose(model.sample_proba(pixels[:3], 120), whole[:3], atol=1e-5)
    assert np.allclose(model.sample_proba(pixels, 60), whole[:, :60], atol=1e-5)
    assert whole.std(1).max() > 0.01
    assert np.allclose(whole.sum(-1), 1.0, atol=1e-5)


def test_adaptive_draws_are_fewer_and_agree(model, digits):
    pixels = digits[1].pixels()
    all_draws = model.uncertainty(pixels, 400)
    adaptive = model.uncertainty(pixels, 400, error_rate=0.02)
    assert adaptive.n_draws.mean() < 200
    assert (adaptive.uncertain != all_draws.uncertain).mean() < 0.02
    assert len(adaptive) == len(pixels)
    close = np.abs(adaptive.mean - all_draws.mean).max(1)
    assert np.median(close) < 0.02  # rows are in their places


def test_names_of_classes_are_kept(digits):
    train, test = digits
    names = np.array(["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"])
    model = GPSClassifier(small, recipe=QUICK).fit(train.pixels(), names[train.labels])
    assert set(model.classes_) == set(names)
    assert (model.predict(test.pixels()) == names[test.labels]).mean() > 0.9
    ordered = GPSClassifier(small, recipe=Recipe(epochs=1)).fit(train.pixels(), names[train.labels], classes=names)
    assert ordered.classes_.tolist() == names.tolist()


def test_loaders_and_arrays_are_both_taken(digits):
    train, test = digits
    data = TensorDataset(torch.from_numpy(train.pixels()), torch.from_numpy(train.labels))
    loader = DataLoader(data, batch_size=50, shuffle=True, generator=torch.Generator().manual_seed(0))
    model = GPSClassifier(small, recipe=QUICK).fit(loader)
    assert (model.predict(test.pixels()) == test.labels).mean() > 0.9


def test_a_fabric_of_the_users_trains_the_same_network(digits):
    train, test = digits
    short = Recipe(epochs=2)
    pixels = test.pixels()[:20]
    fits = [
        GPSClassifier(small, "1.0", recipe=short, random_state=0, fabric=fabric).fit(train.pixels(), train.labels)
        for fabric in (None, Fabric(accelerator="cpu", devices=1))
    ]
    assert np.array_equal(*(model.sample_proba(pixels) for model in fits))


def test_the_papers_recipe_runs_with_sampled_outcomes(digits):
    train, _ = digits
    model = GPSClassifier(small, recipe=PaperRecipe(epochs=6)).fit(train.pixels(), train.labels)
    assert np.mean(model.losses_[3:]) < np.mean(model.losses_[:3])


def test_a_trained_network_keeps_its_weights(digits):
    train, test = digits
    plain = PlainClassifier(small, recipe=QUICK).fit(train.pixels(), train.labels)
    gentle = Recipe(epochs=1, learning_rate=1e-4)
    model = GPSClassifier(plain.network_, recipe=gentle).fit(train.pixels(), train.labels)
    assert (model.predict(test.pixels()) == test.labels).mean() > 0.9
    ready = GPSClassifier(noisify(plain.network_, "1.0"), recipe=gentle).fit(train.pixels(), train.labels)
    assert ready.network_.noise_dim == 32


def test_a_head_is_trained_on_features_that_are_kept(digits):
    train, test = digits
    plain = PlainClassifier(small, recipe=QUICK).fit(train.pixels(), train.labels)
    model = GPSClassifier(plain.network_, "1.3", features="keep", recipe=QUICK).fit(train.pixels(), train.labels)
    kept = plain.network_[1][:2].state_dict()
    assert kept
    for name, value in model.network_.module[1][:2].state_dict().items():
        assert torch.equal(value, kept[name])
    errors = [(each.predict(test.pixels()) != test.labels).mean() for each in (plain, model)]
    assert errors[1] < errors[0] + 0.015
    assert 0.0 < model.uncertainty(test.pixels()).uncertain.mean() < 0.5


@pytest.mark.parametrize(
    ("argument", "value"),
    [
        ("network", 3),
        ("recipe", "paper"),
        ("fabric", "cpu"),
        ("progress", "loud"),
        ("layer", 0),
        ("ratio", 0.0),
        ("ratio", float("nan")),
        ("spread_weight", "guess"),
        ("spread_weight", float("inf")),
        ("off_data_spread", 1.0),
        ("off_data_spread", -0.1),
        ("off_data_patch", 0),
        ("off_data_patch", 2.5),
        ("off_data_patch", "4"),
        ("features", "guess"),
    ],
)
def test_arguments_are_checked(argument, value):
    with pytest.raises(GPSError, match=f"'{argument}' parameter of GPSClassifier must be"):
        GPSClassifier(**{argument: value}).fit(np.eye(4), [0, 1, 0, 1])


def test_kept_features_need_a_network():
    with pytest.raises(GPSError, match="pass network="):
        GPSClassifier(features="keep").fit(np.eye(4), [0, 1, 0, 1])


def test_a_short_training_is_found_and_an_ensemble_finds_what_its_members_do(rng):
    x = rng.normal(size=(200, 2))
    short = PlainClassifier(recipe=Recipe(epochs=3)).fit(x, x[:, 0] > 0)
    assert [finding.code for finding in short.findings_] == ["still-falling"]
    assert EnsembleClassifier.of([short, short]).findings_ == short.findings_
    assert PlainClassifier(recipe=Recipe(epochs=1)).fit(x, x[:, 0] > 0).findings_ == []


def test_a_reward_for_spread_spreads(digits, model):
    train, test = digits
    spread = GPSClassifier(small, random_state=1, recipe=QUICK, spread_weight=-0.3).fit(train.pixels(), train.labels)
    assert spread.uncertainty(test.pixels()).variance.mean() > 2 * model.uncertainty(test.pixels()).variance.mean()


def test_a_reward_off_the_data_spreads_what_is_unlike_them(digits):
    train, test = digits
    without = GPSClassifier(small, **PAPER, random_state=1, recipe=QUICK, off_data_spread=0.0)
    without.fit(train.pixels(), train.labels)
    rng = np.random.default_rng(0)
    strange = rng.permuted(test.pixels(), axis=0)  # every pixel from another image
    more = clone(without).set_params(off_data_spread=0.05).fit(train.pixels(), train.labels)
    assert more.uncertainty(strange).uncertain.mean() > without.uncertainty(strange).uncertain.mean() + 0.05
    seen, seen_without = (each.uncertainty(test.pixels()).uncertain.mean() for each in (more, without))
    assert seen < seen_without + 0.05


def test_patches_of_other_images_are_off_the_data(digits):
    train, test = digits
    torch.manual_seed(0)
    strange = shuffled_patches(torch.from_numpy(test.pixels()), 500, 4)
    without = GPSClassifier(small, **PAPER, random_state=1, recipe=QUICK, off_data_spread=0.0, off_data_patch=4)
    more = clone(without).set_params(off_data_spread=0.2)
    shares = [each.fit(train.pixels(), train.labels).uncertainty(strange).uncertain.mean() for each in (without, more)]
    assert shares[1] > shares[0] + 0.2
    flat = torch.rand(20, 1, 1, 1).expand(20, 1, 8, 8)
    taken = more._off_data(flat, 30).unfold(2, 4, 4).unfold(3, 4, 4)
    assert torch.equal(taken, taken[..., :1, :1].expand_as(taken))


def test_several_sizes_of_patches_share_the_inputs_unlike_the_data():
    torch.manual_seed(0)
    x = torch.arange(50.0)[:, None, None, None].expand(50, 1, 8, 8)
    taken = GPSClassifier(off_data_patch=[None, 4, 8])._off_data(x, 31)
    different = torch.tensor([len(image.unique()) for image in taken])
    assert len(taken) == 31
    assert (different[:11] > 4).all()
    assert ((different[11:21] > 1) & (different[11:21] <= 4)).all()
    assert (different[21:] == 1).all()


@pytest.mark.parametrize("patch", [[], [4, 0], (4, "4")])
def test_the_size_of_patches_is_checked(patch):
    with pytest.raises(GPSError, match="off_data_patch must be"):
        GPSClassifier(off_data_patch=patch).fit(np.eye(4), [0, 1, 0, 1])


def test_the_price_of_spread_can_be_chosen_by_validation_data(digits):
    train, test = digits
    data = train.rows(slice(0, 400))
    quick = GPSClassifier(small, recipe=Recipe(epochs=5), spread_weight="auto")
    chosen = quick.fit(data.pixels(), data.labels, validation=(test.pixels(), test.labels))
    assert chosen.spread_weight_ == chosen.spread_path_["aurc"].idxmin()
    assert tuple(chosen.spread_path_.index) == SPREAD_WEIGHTS
    assert chosen.predict(test.pixels()).shape == (len(test),)
    alone = GPSClassifier(small, recipe=Recipe(epochs=1), spread_weight="auto").fit(data.pixels(), data.labels)
    assert alone.spread_path_ is not None
    with pytest.raises(GPSError, match="needs validation"):
        quick.fit(DataLoader(TensorDataset(torch.zeros(4, 1, 8, 8), torch.zeros(4))))


def test_calibration_sets_the_levels(digits, model):
    _, test = digits
    mine = copy.deepcopy(model)
    half = np.arange(len(test)) % 2 == 0
    mine.calibrate(test.pixels()[half], test.labels[half], target=0.8, of="coverage")
    assert mine.uncertainty(test.pixels()[~half]).uncertain.mean() == pytest.approx(0.2, abs=0.08)
    mine.calibrate(test.pixels()[half], test.labels[half], target=0.05)
    verdicts = mine.uncertainty(test.pixels()[half])
    assert selective_error(verdicts.mean, test.labels[half], verdicts.uncertain).certain <= 0.05
    with pytest.raises(GPSError, match="error"):
        mine.calibrate(test.pixels(), test.labels, target=0.5, of="luck")


def test_calibration_by_class_reaches_every_class(digits, model):
    _, test = digits
    mine = copy.deepcopy(model)
    assert mine.calibrate(test.pixels(), None, target=0.7, of="coverage", by_class=True) is mine
    verdicts = mine.uncertainty(test.pixels())
    best = verdicts.uqc.argmax(1)
    for number in range(len(mine.classes_)):
        assert (~verdicts.uncertain)[best == number].mean() == pytest.approx(0.7, abs=1 / (best == number).sum())
    again = mine.uncertainty(test.pixels(), error_rate=0.02)
    assert (again.uncertain == verdicts.uncertain).mean() > 0.97
    assert again.n_draws.mean() < verdicts.n_draws.mean()
    with pytest.raises(GPSError, match="class 0: no threshold"):
        mine.calibrate(test.pixels(), test.labels, target=0.001, by_class=True)


def test_copies_are_equal(digits):
    train, test = digits
    model = GPSClassifier(network(), recipe=Recipe(epochs=1)).fit(train.pixels(), train.labels)
    expected = model.predict_proba(test.pixels()[:5])
    assert np.array_equal(pickle.loads(pickle.dumps(model)).predict_proba(test.pixels()[:5]), expected)
    assert np.array_equal(copy.deepcopy(model).predict_proba(test.pixels()[:5]), expected)
    again = clone(model).fit(train.pixels(), train.labels)
    assert np.array_equal(again.predict_proba(test.pixels()[:5]), expected)


@pytest.mark.parametrize(
    "make",
    [
        lambda: PlainClassifier(small, recipe=QUICK),
        lambda: DropoutClassifier(dropped, recipe=QUICK),
        lambda: EnsembleClassifier(small, n_members=2, recipe=QUICK),
    ],
)
def test_opponents_have_the_same_face(make, digits):
    train, test = digits
    model = make().fit(train.pixels(), train.labels)
    verdicts = model.uncertainty(test.pixels())
    assert selective_error(verdicts.mean, test.labels, verdicts.uncertain).full < 0.08
    samples = model.sample_proba(test.pixels()[:4], 20)
    assert samples.shape == (4, {"PlainClassifier": 1, "EnsembleClassifier": 2}.get(type(model).__name__, 20), 10)
    assert np.allclose(model.sample_proba(test.pixels()[1:2], 20), samples[1:2], atol=1e-5)


def test_dropout_draws_equal_the_slow_way():
    torch.manual_seed(0)
    drawn = DropoutNetwork(network(dropout=0.5)).eval()
    x = torch.randn(3, 1, 8, 8)
    fast = drawn.sample(x, slice(0, 4), seed=0)
    assert fast.shape == (3, 4, 10)
    one = drawn.sample(x, slice(2, 3), seed=0)
    assert torch.allclose(one[:, 0], fast[:, 2], atol=1e-5)
    assert fast.std(1).min() > 0
    for p, mean in ((0.5, 1.0), (1.0, 0.0)):
        masks = DropoutNetwork(nn.Sequential(nn.Dropout(p))).sample(torch.ones(1, 32), slice(0, 4000), seed=0)
        assert masks.mean() == pytest.approx(mean, abs=0.02)
    with pytest.raises(GPSError, match=r"no nn\.Dropout"):
        DropoutNetwork(network())


class Reused(nn.Module):
    """Dropout layers registered in another order than they are called, one of them twice."""

    def __init__(self):
        super().__init__()
        self.late, self.early = nn.Dropout(0.5), nn.Dropout(0.5)
        self.first, self.last = nn.Linear(8, 8), nn.Linear(8, 2)

    def forward(self, x):
        return self.last(self.late(self.early(self.first(self.early(x)))))


def test_dropout_layers_are_sampled_as_they_are_called():
    drawn = DropoutNetwork(Reused()).eval()
    fast = drawn.sample(torch.randn(3, 8), slice(0, 6), seed=0)
    assert fast.shape == (3, 6, 2)
    with pytest.raises(GPSError, match="Dropout2d"):
        DropoutNetwork(nn.Sequential(nn.Dropout2d(), nn.Dropout()))


def test_a_stopped_fit_goes_on_and_other_settings_do_not_join_it(digits, tmp_path, monkeypatch):
    train, test = digits
    data = train.rows(slice(0, 300))
    recipe = Recipe(epochs=4)
    whole = GPSClassifier(small, recipe=recipe).fit(data.pixels(), data.labels)
    given = ArrayBatches.epoch

    def stopped(batches, number, start):
        if number == 2:
            raise KeyboardInterrupt
        yield from given(batches, number, start)

    monkeypatch.setattr(ArrayBatches, "epoch", stopped)
    with pytest.raises(KeyboardInterrupt, match=r"step [0-9]+ of [0-9]+; .*goes on from there"):
        GPSClassifier(small, recipe=recipe).fit(data.pixels(), data.labels, checkpoint=tmp_path)
    monkeypatch.undo()
    resumed = GPSClassifier(small, recipe=recipe).fit(data.pixels(), data.labels, checkpoint=tmp_path)
    assert np.array_equal(resumed.predict_proba(test.pixels()), whole.predict_proba(test.pixels()))
    with pytest.raises(GPSError, match="other data, settings or seed"):
        GPSClassifier(small, recipe=recipe).fit(data.pixels(), data.labels, augment=torch.relu, checkpoint=tmp_path)
    with pytest.raises(GPSError, match="other data, settings or seed"):
        GPSClassifier(small, recipe=recipe, spread_weight=-0.1).fit(data.pixels(), data.labels, checkpoint=tmp_path)
    with pytest.raises(GPSError, match="other data, settings or seed"):
        GPSClassifier(small, recipe=recipe, ratio=0.25).fit(data.pixels(), data.labels, checkpoint=tmp_path)


def test_bars_are_shown_on_standard_error_when_asked_for(digits, capsys):
    train, test = digits
    model = GPSClassifier(small, recipe=Recipe(epochs=1), progress=True).fit(train.pixels(), train.labels)
    model.uncertainty(test.pixels(), 2000)
    out, err = capsys.readouterr()
    assert out == ""
    assert "training" in err
    assert "drawing" in err
    assert f"{len(test)}/{len(test)}" in err
    model.set_params(progress=False).uncertainty(test.pixels(), 2000)
    assert capsys.readouterr().err == ""


def test_a_loader_resumes_in_the_same_order(digits, tmp_path):
    train, test = digits
    data = TensorDataset(torch.from_numpy(train.pixels()[:301]), torch.from_numpy(train.labels[:301]))

    def loader():
        return DataLoader(data, batch_size=50, shuffle=True, generator=torch.Generator().manual_seed(5))

    whole = GPSClassifier(small, recipe=Recipe(epochs=3)).fit(loader())
    GPSClassifier(small, recipe=Recipe(epochs=3)).fit(loader(), checkpoint=tmp_path)
    again = GPSClassifier(small, recipe=Recipe(epochs=3)).fit(loader(), checkpoint=tmp_path)
    assert np.array_equal(again.predict_proba(test.pixels()), whole.predict_proba(test.pixels()))
    assert len(again.predict(DataLoader(data, batch_size=64))) == 301
    once = iter(list(loader()))
    with pytest.raises(GPSError, match="same number"):
        GPSClassifier(small, recipe=Recipe(epochs=2)).fit(once)


def test_adaptive_draws_follow_a_calibrated_threshold(digits, model):
    pixels = digits[1].pixels()
    for threshold in (1.0 - 1e-16, 0.2):
        mine = copy.deepcopy(model)
        mine.certain_above_ = threshold
        agreed = mine.uncertainty(pixels).uncertain == mine.uncertainty(pixels, error_rate=0.02).uncertain
        assert agreed.mean() > 0.97


@pytest.mark.parametrize(
    "make",
    [
        lambda: GPSClassifier(recipe=Recipe(epochs=1)),
        lambda: GPSClassifier(spread_weight="auto", recipe=Recipe(epochs=1)),
        lambda: EnsembleClassifier(n_members=2, recipe=Recipe(epochs=1)),
    ],
)
def test_a_second_fit_forgets_the_names_of_columns(make, rng):
    table = pd.DataFrame(rng.normal(size=(40, 2)), columns=["dose", "age"])
    model = make().fit(table, table["dose"] > 0)
    assert list(model.feature_names_in_) == ["dose", "age"]
    assert not hasattr(model.fit(table.to_numpy(), table["dose"] > 0), "feature_names_in_")


def test_a_first_fit_that_fails_is_no_fit(digits):
    train, _ = digits
    model = GPSClassifier(small, recipe=Recipe(epochs=2, learning_rate=float("inf")))
    with pytest.raises(DivergenceError):
        model.fit(train.pixels()[:200], train.labels[:200])
    with pytest.raises(NotFittedError):
        model.predict(train.pixels())


@pytest.mark.parametrize("make", [GPSClassifier, PlainClassifier])
def test_a_fit_that_fails_leaves_the_one_before(digits, make, monkeypatch):
    x, y = digits[0].pixels()[:200], digits[0].labels[:200]
    model = make(small, recipe=Recipe(epochs=2)).fit(x, y)
    before = vars(model).copy()

    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("gpsuq.classify.network.train", interrupted)
    model.set_params(network=None)
    with pytest.raises(KeyboardInterrupt):
        model.fit(x.reshape(200, -1), [f"digit {label}" for label in y])
    assert vars(model) == before | {"network": None}


def test_ensembles_need_members_that_agree(digits):
    train, _ = digits
    members = [
        PlainClassifier(small, recipe=Recipe(epochs=1), random_state=s).fit(train.pixels(), train.labels)
        for s in (0, 1)
    ]
    joined = EnsembleClassifier.of(members)
    assert joined.sample_proba(train.pixels()[:2]).shape == (2, 2, 10)
    with pytest.raises(GPSError, match="at least 2"):
        EnsembleClassifier.of(members[:1])
    with pytest.raises(GPSError, match="n_members"):
        EnsembleClassifier(small, n_members=1).fit(train.pixels(), train.labels)
    with pytest.raises(GPSError, match="function that makes"):
        EnsembleClassifier(network()).fit(train.pixels(), train.labels)


IMAGES = np.zeros((4, 1, 8, 8), dtype=np.float32)


class Empty:
    def __iter__(self):
        return iter(())


@pytest.mark.parametrize(
    ("x", "y", "message"),
    [
        (IMAGES, [0, 1, 0], "4 observations but y has 3"),
        (IMAGES, None, "labels are missing"),
        (IMAGES, [0, 0, 0, 0], "one class only"),
        (IMAGES, [0.0, 1.0, np.nan, 1.0], "row 2"),
        (IMAGES, ["a", float("nan"), "b", "a"], "row 1"),
        (IMAGES, np.array(["a", 1, "b", 2], dtype=object), "one type"),
        (IMAGES, [0.5, 1.0, 0.2, 1.0], "continuous"),
        (IMAGES, np.array(["a", None, "b", "a"], dtype=object), "row 1"),
        (IMAGES, [[0, 1]] * 4, "one label for each"),
        (np.full((4, 1, 8, 8), np.nan), [0, 1, 0, 1], "NaN"),
        (np.full((4, 1, 8, 8), "x"), [0, 1, 0, 1], "must hold numbers"),
        (np.zeros((4, 1, 9, 9)), [0, 1, 0, 1], "fails on inputs of shape"),
        (IMAGES, [0, 1, 2, 1], "10 outputs for 3 classes"),
        (Empty(), None, "yields nothing"),
        ([1.0, 2.0], None, "labels are missing|Expected 2D"),
    ],
)
def test_bad_training_data_are_refused(x, y, message):
    with pytest.raises(ValueError, match=message):
        GPSClassifier(small, recipe=QUICK).fit(x, y)


def test_messages_show_labels_as_they_were_given():
    x = np.random.default_rng(0).normal(size=(40, 2))
    with pytest.raises(GPSError, match=r"one class only \(7\)"):
        GPSClassifier().fit(x, np.full(40, 7))
    with pytest.raises(GPSError, match=r"different labels, got \['a', 'a'\]"):
        GPSClassifier().fit(x, np.repeat(["a", "b"], 20), classes=["a", "a"])
    model = GPSClassifier(recipe=Recipe(epochs=1)).fit(x, np.repeat(np.array(["a", "b"], dtype=object), 20))
    with pytest.raises(GPSError, match=r"label 1 in row 0 is none of the classes \['a', 'b'\]"):
        model.calibrate(x, np.ones(40, dtype=int), target=0.1)
    with pytest.raises(GPSError, match=r"label 'c' in row 0 is none of the classes \['a', 'b'\]"):
        model.encoded(["c"])


def test_digits_that_float32_cannot_hold_are_said(rng):
    x, quick = rng.normal(size=(60, 2)), Recipe(epochs=1)
    far, y = x + np.array([1e8, 10.0]), x[:, 0] > 0
    with pytest.warns(GPSWarning, match=r"in x0, and float32 keeps only seven digits: subtract a constant"):
        GPSClassifier(recipe=quick).fit(far, y)
    with pytest.warns(GPSWarning, match=r"in when, and float32"):
        PlainClassifier(recipe=quick).fit(pd.DataFrame(far, columns=["when", "where"]), y)
    with pytest.warns(GPSWarning, match=r"in x0, and float32"):
        GPSClassifier(recipe=quick).fit(DataLoader(TensorDataset(torch.tensor(far), torch.tensor(y)), batch_size=20))
    x[:, 1] = 0.1  # warns of nothing: a constant has no digits to lose
    GPSClassifier(recipe=quick).fit(x, y)


def test_bad_questions_are_refused(model, digits):
    with pytest.raises(GPSError, match="trained on"):
        model.predict(np.zeros((2, 1, 9, 9)))
    with pytest.raises(GPSError, match="n_draws"):
        model.uncertainty(IMAGES, 0)
    with pytest.raises(GPSError, match="need a network"):
        GPSClassifier().fit(IMAGES, [0, 1, 0, 1])
    with pytest.raises(GPSError, match="no affine layer"):
        GPSClassifier(nn.Sequential(nn.Flatten())).fit(np.zeros((4, 1, 1, 2)), [0, 1, 0, 1])
    with pytest.raises(GPSError, match="none of the classes"):
        GPSClassifier(small).fit(IMAGES, [0, 1, 2, 3], classes=range(3))
    with pytest.raises(GPSError, match="it made a"):
        GPSClassifier(lambda: 3).fit(IMAGES, [0, 1, 0, 1])
    with pytest.raises(GPSError, match="pairs"):
        GPSClassifier(small).fit(DataLoader(TensorDataset(torch.zeros(4, 1, 8, 8))))
