"""`python -m paper mnist` on the digits that come with scikit-learn, and `gpsuq data get`."""

import json
from collections import OrderedDict
from dataclasses import replace
from functools import partial

import numpy as np
import pandas as pd
import pytest
import torch
from invoking import invoke
from torch import nn

from gpsuq import noisify
from gpsuq.classify.estimator import OFF_DATA_SPREAD
from gpsuq.datasets import load_images
from gpsuq.engine.settings import Recipe
from gpsuq.errors import GPSError
from paper import features, heads, images, mnist
from paper.image_tables import COVERAGES, calibrated_table, error_at
from paper.networks import feed_forward
from paper.rows import begin


def digits(out, *more):
    return invoke("paper", "mnist", "--data", "digits", "--epochs", 20, "--out", out, *more)


def test_table_1_grows_by_seeds_and_is_not_computed_twice(tmp_path, monkeypatch):
    methods = ("--methods", "plain,dropout,ensemble,gps-0.5")
    result = digits(tmp_path, *methods, "--seeds", "0")
    assert result.exit_code == 0, result.output
    names = {"metrics.json", "table1.md", "risk_coverage.png", "reliability.png", "boxplots.png", "most_uncertain.png"}
    names |= {"report.html"}
    assert names <= {path.name for path in tmp_path.iterdir()}
    metrics = json.loads((tmp_path / "metrics.json").read_text())
    by_method = metrics["results"]["by_method"]
    assert set(by_method) == {"plain", "dropout", "ensemble", "gps-0.5"}
    gps = by_method["gps-0.5"]
    assert gps["error"]["mean"] < 0.1
    assert gps["certain_error"]["mean"] <= gps["error"]["mean"]
    other = gps["at_its_coverage"]["plain"]["error_probability"]
    assert other["gps_minus_it"] == pytest.approx(gps["certain_error"]["mean"] - other["error"])
    assert 0.0 <= gps["noise_auroc_uqc_shortfall"]["mean"] <= 1.0
    assert len((tmp_path / "rows.jsonl").read_text().splitlines()) == 4

    trained = []
    original = images.one_row
    monkeypatch.setattr(images, "one_row", lambda *a, **k: trained.append(a[2:4]) or original(*a, **k))
    assert digits(tmp_path, *methods, "--seeds", "0,1").exit_code == 0
    assert trained == [("plain", 1), ("dropout", 1), ("gps-0.5", 1)]
    assert "± " in (tmp_path / "table1.md").read_text()


def test_table_2_leaves_a_class_out(tmp_path):
    result = digits(tmp_path, "--table", 2, "--methods", "gps-0.5", "--seeds", "0")
    assert result.exit_code == 0, result.output
    row = json.loads((tmp_path / "rows.jsonl").read_text())["row"]
    assert row["unseen_uncertain"] > row["uncertain"]
    assert row["unseen_auroc_uqc_shortfall"] > 0.7
    assert "Uncertain, unseen class" in (tmp_path / "table2.md").read_text()


def test_verdicts_are_calibrated_by_images_that_were_set_aside(tmp_path):
    study = replace(images.with_epochs(mnist.digits_study(), 10), coverage=0.7)
    data, aside = images.split(study, 2)
    assert len(data) + len(aside) == len(study.train.without(study.left_out))
    assert images.split(study, 1) == (study.train, None)
    row = images.one_row(study, 2, "plain", 0, tmp_path, progress=False)
    assert row["calibrated_uncertain"] == pytest.approx(0.3, abs=0.1)  # 62 images were set aside
    assert row["calibrated_certain_error"] <= row["certain_error"]
    assert row["calibrated_unseen_uncertain"] > row["unseen_uncertain"]
    assert images.row_key(study, 2, "plain") != images.row_key(replace(study, coverage=None), 2, "plain")
    assert images.row_key(study, 1, "plain") == images.row_key(replace(study, coverage=None), 1, "plain")
    table = calibrated_table(pd.DataFrame([row])).splitlines()
    assert table[2].startswith(f"| plain | one | {100 * row['calibrated_uncertain']:.1f} |")
    assert table[3].startswith(f"| plain | by class | {100 * row['by_class_uncertain']:.1f} |")
    assert row["by_class_uncertain"] == pytest.approx(0.3, abs=0.1)


def test_heads_are_trained_on_the_features_of_the_plain_network(tmp_path):
    study = replace(images.with_epochs(digits_with_trunk(), 8), head=Recipe(epochs=10))
    train = partial(images.trained, study, seed=0, data=study.train, out=tmp_path, progress=False)
    plain, *heads_, whole = (train(method) for method in ("plain", "gps-0.5", "dropout", "gps-0.5-joint"))
    first = [plain.network_.get_submodule("trunk.1").weight]
    first += [model.network_.module.get_submodule("trunk.1").weight for model in (*heads_, whole)]
    assert torch.equal(first[0], first[1])
    assert torch.equal(first[0], first[2])
    assert not torch.equal(first[0], first[3])
    pixels = study.test.pixels()
    for head in heads_:
        assert len(head.losses_) == 10
        assert head.seconds_ > plain.seconds_
        draws = head.sample_proba(pixels, 20)
        assert draws.shape == (len(pixels), 20, 10)
        assert draws.std(1).max() > 0.01
        assert (head.predict(pixels) == study.test.labels).mean() > 0.9
    assert len(whole.losses_) == 8
    longer = train("plain-head")
    assert torch.equal(longer.network_.get_submodule("trunk.1").weight, plain.network_.get_submodule("trunk.1").weight)
    assert len(longer.losses_) == 10
    assert longer.losses_[-1] < plain.losses_[-1]
    assert (longer.predict(pixels) == study.test.labels).mean() > 0.9
    with pytest.raises(GPSError, match="kept features"):
        images.estimator(replace(study, head=None), "plain-head", study.train, 0, progress=False)
    keys = [images.row_key(study, 1, method) for method in ("gps-0.5", "gps-0.5-joint", "dropout", "dropout-joint")]
    keys += [images.row_key(study, 1, method) for method in ("plain", "plain-head")]
    other = replace(study, head=Recipe(epochs=4))
    keys += [images.row_key(other, 1, "gps-0.5")]
    assert len(set(keys)) == 7
    anew = images.trained(other, "gps-0.5", 0, study.train, tmp_path, progress=False)
    assert len(anew.losses_) == 4  # in the place of the checkpoint with ten epochs


def test_features_are_kept_on_disk(tmp_path, monkeypatch):
    study = digits_with_trunk()
    trunk, head = features.split_network(study.network(study.train, 0.0), study.layer)
    assert [name for name, _ in head.named_children()] == ["head"]
    kept = partial(features.kept_features, trunk, study.train, None, folder=tmp_path)
    first = kept(patch=2)
    assert first.train.shape == (len(study.train), 32)
    assert len(first.off_data) == pytest.approx(0.1 * len(study.train), abs=3)
    expected = features.outputs(trunk, torch.from_numpy(study.train.pixels()))
    assert torch.equal(first.train, expected)
    with monkeypatch.context() as patched:
        patched.setattr(features, "outputs", None)
        assert torch.equal(kept(patch=2).off_data, first.off_data)
    assert not torch.equal(kept(patch=4).off_data, first.off_data)
    (tmp_path / "features.safetensors").write_bytes(b"damaged")
    assert torch.equal(kept(patch=2).train, first.train)


def test_predictions_are_kept_on_disk(tmp_path, monkeypatch):
    study = images.with_epochs(mnist.digits_study(), 1)
    kept = partial(images.plain_predictions, study, 1, 0, 0, tmp_path, progress=False)
    first = kept()["probabilities"]["seen"]
    with monkeypatch.context() as patched:
        patched.setattr(images, "trained", None)
        assert np.array_equal(kept()["probabilities"]["seen"], first)
    (tmp_path / "predictions" / "plain-0-0.safetensors").write_bytes(b"damaged")
    assert np.array_equal(kept()["probabilities"]["seen"], first)


def test_a_network_without_a_trunk_cannot_keep_features():
    with pytest.raises(GPSError, match="layers before '0'"):
        features.split_network(nn.Sequential(nn.Linear(2, 2)), "0")


def digits_with_trunk():
    def network(data, dropout):
        trunk = nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.ReLU())
        head = feed_forward(32, len(data.classes), width=32, depth=1, dropout=dropout)
        return nn.Sequential(OrderedDict(trunk=trunk, head=head))

    return replace(mnist.digits_study(), network=network, layer="head.0", off_data_patch=2)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--table", 3), "tables 1 and 2"),
        (("--methods", "magic"), "unknown method"),
        (("--methods", "gps-half"), "a positive number behind gps-"),
        (("--methods", "gps-0"), "a positive number behind gps-"),
        (("--methods", "gps-inf-alert"), "a positive number behind gps-"),
        (("--seeds", "a"), "whole numbers"),
    ],
)
def test_bad_options_are_refused(tmp_path, options, message):
    result = digits(tmp_path, *options)
    assert result.exit_code == 1
    assert message in result.output
    assert invoke("paper", "mnist", "--data", "faces").exit_code == 1


def test_rows_of_other_settings_are_not_mixed(tmp_path):
    options = ("--methods", "plain", "--seeds", "0", "--data", "digits", "--out", tmp_path)
    assert invoke("paper", "mnist", "--epochs", 1, *options).exit_code == 0
    result = invoke("paper", "mnist", "--epochs", 2, *options)
    assert result.exit_code == 1
    assert "other settings" in result.output
    assert invoke("paper", "mnist", "--epochs", 2, *options, "--force").exit_code == 0
    row = json.loads((tmp_path / "rows.jsonl").read_text())["row"]
    assert len(row["losses"]) == 2


def test_a_row_is_kept_while_what_it_depends_on_is_the_same(tmp_path):
    study = mnist.digits_study()
    key = partial(images.row_key, study, 1)
    rows = begin(tmp_path, key, force=False)
    for method in ("plain", "gps-0.5"):
        rows.append({"method": method, "seed": 0})
    key = partial(images.row_key, replace(study, spread_weight=0.7), 1)
    again = begin(tmp_path, key, force=False)
    assert again.has("plain", 0)
    assert not again.has("gps-0.5", 0)
    again.append({"method": "gps-0.5", "seed": 0})
    assert len((tmp_path / "rows.jsonl").read_text().splitlines()) == 3  # the row of other settings is left alone
    assert len(begin(tmp_path, key, force=False).frame()) == 2


def test_rows_of_another_network_of_the_same_name_are_refused(tmp_path):
    study = mnist.digits_study()
    begin(tmp_path, partial(images.row_key, study, 1), force=False).append({"method": "plain", "seed": 0})
    other = replace(study, network=lambda data, dropout: nn.Sequential(nn.Flatten(), nn.Linear(64, len(data.classes))))
    with pytest.raises(GPSError, match="rows of other settings"):
        begin(tmp_path, partial(images.row_key, other, 1), force=False)


def test_a_forced_start_leaves_no_numbers_of_rows_that_it_deleted(tmp_path):
    for name in ("rows.jsonl", "metrics.json"):
        (tmp_path / name).write_text("")
    for name in ("models", "predictions"):
        (tmp_path / name).mkdir()
    begin(tmp_path, str, force=True)
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def some_cifar10(tmp_path, monkeypatch, rng):
    """Random images in the official files, 20 in each."""
    monkeypatch.setattr("gpsuq.datasets.images._CIFAR_IMAGES", 20)
    monkeypatch.setenv("GPSUQ_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("GPSUQ_DATA", raising=False)
    folder = tmp_path / "home" / "cifar10"
    folder.mkdir(parents=True)
    for name in (*(f"data_batch_{number}.bin" for number in range(1, 6)), "test_batch.bin"):
        labels = rng.permutation(np.tile(np.arange(10, dtype=np.uint8), 2))[:, None]
        pixels = rng.integers(0, 256, (20, 3072), dtype=np.uint8)
        (folder / name).write_bytes(np.concatenate([labels, pixels], 1).tobytes())
    return folder


@pytest.mark.parametrize(("network", "table"), [("paper", 2), ("modern", 1)])
def test_both_networks_for_cifar10(some_cifar10, tmp_path, network, table):
    options = ("--network", network, "--table", table, "--methods", "plain,gps-0.5", "--epochs", 1)
    result = invoke("paper", "cifar10", *options, "--out", tmp_path / "out")
    assert result.exit_code == 0, result.output
    rows = [json.loads(line)["row"] for line in (tmp_path / "out" / "rows.jsonl").read_text().splitlines()]
    assert [row["method"] for row in rows] == ["plain", "gps-0.5"]
    assert ("unseen_uncertain" in rows[1]) == (table == 2)
    selective = (tmp_path / "out" / f"table{table}_coverage.md").read_text().splitlines()
    assert [line.split(" | ")[0] for line in selective[2:4]] == ["| plain", "| gps-0.5"]
    assert float(selective[2].split(" | ")[1]) == pytest.approx(100 * rows[0]["error"], abs=0.01)
    published = [line for line in selective if "self-adaptive training (published) | 6.05 | 3.37" in line]
    assert len(published) == (table == 1)  # Table 2 has other classes
    assert (tmp_path / "out" / "table2_calibrated.md").exists() == (table == 2)
    quality = (tmp_path / "out" / f"table{table}_quality.md").read_text().splitlines()
    assert ("AUROC, unseen class" in quality[0]) == (table == 2)
    assert float(quality[2].split(" | ")[2]) == pytest.approx(rows[0]["log_loss"], rel=1e-3)
    metrics = json.loads((tmp_path / "out" / "metrics.json").read_text())
    assert f"--network {network} --epochs 1" in metrics["command"]
    assert metrics["settings"]["augment"].startswith("ShiftAndFlip" if network == "paper" else "WindowsFirst")


def test_a_missing_cifar10_file_and_an_unknown_network_are_named(some_cifar10, tmp_path):
    result = invoke("paper", "cifar10", "--network", "huge", "--out", tmp_path / "out")
    assert result.exit_code == 1
    assert "paper, modern" in result.output
    (some_cifar10 / "data_batch_3.bin").unlink()
    result = invoke("paper", "cifar10", "--out", tmp_path / "out")
    assert result.exit_code == 1
    assert "data_batch_3.bin" in result.output
    assert "gpsuq data get cifar10" in " ".join(result.output.split())


def test_heads_on_the_features_of_one_trunk(some_cifar10, tmp_path, monkeypatch):
    """Every factor has its table; what is there is not trained again; noise weights are decayed where asked for."""
    monkeypatch.setattr("paper.images._STRANGE_IMAGES", 20)
    factors = {"ratio": (0.1, 0.5), "place": ("head input", "every layer"), "off_data": ("16", "grain, 3 boxes")}
    monkeypatch.setattr(heads, "FACTORS", factors)
    options = ("paper", "heads", "--seeds", "0,1", "--epochs", 1, "--out", tmp_path / "out")
    result = invoke(*options)
    assert result.exit_code == 0, result.output
    rows = [json.loads(line)["row"] for line in (tmp_path / "out" / "rows.jsonl").read_text().splitlines()]
    varied = (
        (0.5, "every layer", "grain, 3 boxes"),
        (0.1, "every layer", "grain, 3 boxes"),
        (0.5, "head input", "grain, 3 boxes"),
        (0.5, "every layer", "16"),
    )
    assert [(row["seed"], row["ratio"], row["place"], row["off_data"]) for row in rows] == [
        (seed, *setting) for seed in (0, 1) for setting in varied
    ]
    table = (tmp_path / "out" / "table_heads.md").read_text()
    assert [line.split(" | ")[1] for line in table.splitlines()[2:]] == [
        *("0.1", "0.5", "head input", "every layer", "16", "grain, 3 boxes")
    ]
    assert "ShiftAndFlip" in json.loads((tmp_path / "out" / "metrics.json").read_text())["settings"]["augment"]
    monkeypatch.setattr(heads, "prepared", None)
    assert invoke(*options).exit_code == 0
    monkeypatch.setattr("paper.cifar10._WINDOWS", 0.0)
    result = invoke(*options)
    assert result.exit_code == 1
    assert "other settings" in " ".join(result.output.split())  # the trunk would be another one


@pytest.mark.parametrize(
    ("method", "ratio", "weights"),
    [
        ("gps-0.5", 0.5, (0.2, OFF_DATA_SPREAD)),
        ("gps-0.25-joint", 0.25, (0.2, OFF_DATA_SPREAD)),
        ("gps-0.5-alert", 0.5, images.ALERT_WEIGHTS),
        ("gps-1-alert-joint", 1.0, images.ALERT_WEIGHTS),
        ("gps-0.5-on-data", 0.5, (0.0, 0.0)),
    ],
)
def test_names_of_methods_say_ratio_and_weights(method, ratio, weights):
    study = replace(mnist.digits_study(), spread_weight=0.2)
    model = images.estimator(study, method, study.train, 0, progress=False)
    assert (model.ratio, model.spread_weight, model.off_data_spread) == (ratio, *weights)
    keys = {images.row_key(study, 1, name) for name in ("gps-0.5", "gps-0.5-alert", "gps-0.5-on-data")}
    assert len(keys) == 3


def test_noise_weights_can_be_decayed_in_a_study():
    network = noisify(nn.Sequential(nn.Linear(4, 3)), "0")
    groups = heads.DecayedNoise(noise_decay=0.3, weight_decay=0.2).make_optimizer(network).param_groups
    decay = {id(parameter): group["weight_decay"] for group in groups for parameter in group["params"]}
    layer = network.noisy_layers[0]
    assert [decay[id(p)] for p in (layer.noise_weight, layer.weight, layer.bias)] == [0.3, 0.2, 0.0]


def test_errors_below_the_lowest_coverage_are_not_made_up():
    assert np.isnan(error_at(0.3, np.linspace(0.0, 0.1, len(COVERAGES))))
    assert error_at(1.0, np.linspace(0.0, 0.1, len(COVERAGES))) == pytest.approx(0.1)


def test_data_get_says_what_it_wrote(tmp_path, monkeypatch):
    monkeypatch.setenv("GPSUQ_HOME", str(tmp_path))
    monkeypatch.delenv("GPSUQ_DATA", raising=False)
    result = invoke("data", "get", "mnist", "--source", "local")
    assert result.exit_code == 1
    assert "GPSUQ_DATA is not set" in result.output
    assert "known are" in invoke("data", "get", "faces").output


@pytest.mark.data
def test_a_slice_of_mnist_makes_sense(tmp_path):
    try:
        train, test = load_images("mnist"), load_images("mnist", "test")
    except GPSError:
        pytest.skip("MNIST is not here")
    known, some = train.without(1).rows(slice(0, 3000)), test.rows(slice(0, 1000))
    study = images.with_epochs(mnist.mnist_study(), 3)
    model = images.estimator(study, "gps-0.5", known, 0, progress=False).fit(known.pixels(), known.labels)
    seen = some.without(1)
    verdicts = model.uncertainty(seen.pixels(), 60)
    found = images.quality(verdicts, seen.labels)
    assert found["error"] < 0.08
    assert found["certain_error"] < found["error"]
    unseen = model.uncertainty(some.rows(some.labels == 1).pixels(), 60)
    assert unseen.uncertain.mean() > 2.0 * verdicts.uncertain.mean()
    assert np.isfinite(found["aurc_uqc_shortfall"])
