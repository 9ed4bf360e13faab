"""`gpsuq fit classifier`, and what can be asked of the model it saves."""

import json
import shutil

import numpy as np
import pandas as pd
import pytest
from invoking import interrupt_networks, invoke
from saved_models import edited
from sklearn.datasets import load_iris

from gpsuq import load, save
from gpsuq.storage import read_config


def words(result):
    return " ".join(result.output.split())


@pytest.fixture(scope="module")
def table():
    """Irises with their names, and a column of text that says nothing."""
    data = load_iris(as_frame=True)
    names = np.array(data.target_names)[data.target]
    return data.data.assign(site=np.where(np.arange(150) % 3 == 0, "south", "north"), species=names)


@pytest.fixture(scope="module")
def fitted(table, tmp_path_factory):
    folder = tmp_path_factory.mktemp("iris")
    table.to_csv(folder / "iris.csv", index=False)
    options = ("--target", "species", "--out", folder / "model", "--json")
    result = invoke("fit", "classifier", folder / "iris.csv", *options)
    assert result.exit_code == 0, result.output
    return folder, json.loads(result.stdout)


def test_held_out_rows_are_judged(fitted, table):
    folder, said = fitted
    assert said["classes"] == ["setosa", "versicolor", "virginica"]
    assert said["judged"] == 30
    assert said["error"] <= 0.15
    verdicts = pd.read_csv(folder / "model" / "verdicts.csv")
    assert len(verdicts) == 30
    assert (table["species"].to_numpy()[verdicts["row"] - 1] == verdicts["truth"]).all()
    assert verdicts["truth"].value_counts().tolist() == [10, 10, 10]
    wrong = verdicts["prediction"] != verdicts["truth"]
    assert wrong.mean() == pytest.approx(said["error"])
    assert "Observations" in (folder / "model" / "report.html").read_text()


def test_the_gallery_names_rows_as_the_verdicts_do(fitted):
    folder, _ = fitted
    verdicts = pd.read_csv(folder / "model" / "verdicts.csv").set_index("row")
    items = json.loads((folder / "model" / "checks.json").read_text())["gallery"]["items"]
    assert [item["title"] for item in items] == [f"row {row}" for row in verdicts.index]
    assert [item["label"] for item in items] == verdicts["truth"].tolist()


@pytest.mark.parametrize(
    ("part", "value"),
    [
        ("gallery", 5),
        ("gallery", {"items": 5}),
        ("gallery", {"levels": 5}),
        ("n", "many"),
        ("by_class", []),
        ("labels", [1, 2]),
    ],
)
def test_damaged_checks_are_named(fitted, tmp_path, part, value):
    model = shutil.copytree(fitted[0] / "model", tmp_path / "model")
    checks = json.loads((model / "checks.json").read_text())
    checks[part] = checks[part] | value if isinstance(value, dict) else value
    (model / "checks.json").write_text(json.dumps(checks))
    edited(model)
    refused = invoke("report", model)
    assert refused.exit_code == 1
    assert "checks.json is damaged" in words(refused)
    assert "delete it, or fit again" in words(refused)


def test_all_files_are_named(fitted):
    folder, said = fitted
    assert sorted(said["files"]) == sorted(map(str, (folder / "model").iterdir()))
    assert str(folder / "model" / "columns.json") in said["files"]
    covered = {"config.json", "model.safetensors", "columns.json", "checks.json"}
    assert set(read_config(folder / "model")["digests"]) == covered


def test_the_saved_model_is_asked(fitted, tmp_path):
    folder, _ = fitted
    model, data = folder / "model", folder / "iris.csv"
    assert "setosa, versicolor, virginica" in words(invoke("summary", model))
    assert json.loads(invoke("summary", model, "--json").stdout)["certain_above"] == load(model).certain_above_
    out = tmp_path / "predicted.csv"
    assert invoke("predict", model, data, "--out", out).exit_code == 0
    predicted = pd.read_csv(out).set_index("row")
    verdicts = pd.read_csv(model / "verdicts.csv").set_index("row")
    assert np.allclose(predicted.loc[verdicts.index, "uqc_shortfall"], verdicts["uqc_shortfall"], atol=1e-5)
    assert np.allclose(predicted.filter(like="probability of").sum(axis=1), 1.0, atol=1e-4)
    page = tmp_path / "page.html"
    assert invoke("report", model, "--data", data, "--target", "species", "--out", page).exit_code == 0
    assert "150" in page.read_text()
    again = tmp_path / "again.html"
    assert invoke("report", model, "--out", again).exit_code == 0
    assert again.read_text() == (model / "report.html").read_text()
    for options, message in (
        (("--data", data, "--target", "colour"), "no column 'colour'"),
        (("--target", "species"), "pass both"),
    ):
        refused = invoke("report", model, *options, "--out", tmp_path / "other.html")
        assert refused.exit_code == 1
        assert message in words(refused)


def test_findings_are_listed(table, tmp_path):
    table.to_csv(tmp_path / "iris.csv", index=False)
    options = ("--target", "species", "--epochs", 3, "--json", "--out", tmp_path / "model")
    said = json.loads(invoke("fit", "classifier", tmp_path / "iris.csv", *options).stdout)["findings"]
    assert ["still falling" in finding for finding in said] == [True]
    assert json.loads(invoke("summary", tmp_path / "model", "--json").stdout)["findings"] == said
    assert f"Note: {said[0]}." in words(invoke("summary", tmp_path / "model"))
    assert "The loss was still falling" in (tmp_path / "model" / "report.html").read_text()


def test_names_of_classes_are_shown_as_they_are(fitted, tmp_path):
    model = load(fitted[0] / "model")
    model.classes_ = np.array(["[bold]", "a[/b]", "c"])
    assert "of [bold], a[/b], c; certain" in words(invoke("summary", save(model, tmp_path / "model")))


def test_a_classifier_without_kept_verdicts_asks_for_data(fitted, tmp_path):
    folder, _ = fitted
    bare = save(load(folder / "model"), tmp_path / "bare")
    refused = invoke("report", bare)
    assert refused.exit_code == 1
    assert "--data FILE" in words(refused)


def test_a_page_of_other_rows_has_a_file_of_its_own(fitted):
    folder, _ = fitted
    before = (folder / "model" / "report.html").read_text()
    refused = invoke("report", folder / "model", "--data", folder / "iris.csv", "--force")
    assert refused.exit_code == 1
    assert "--out FILE.html" in words(refused)
    assert (folder / "model" / "report.html").read_text() == before


def test_labels_that_cannot_be_judged_are_named_by_their_row(fitted, table, tmp_path):
    folder, _ = fitted
    for label, message in ((None, "is empty in row 5"), ("rose", "holds 'rose'")):
        table.assign(species=table["species"].mask(table.index == 4, label)).to_csv(tmp_path / "bad.csv", index=False)
        options = ("--data", tmp_path / "bad.csv", "--target", "species", "--out", tmp_path / "page.html")
        refused = invoke("report", folder / "model", *options)
        assert refused.exit_code == 1
        assert message in words(refused)


def test_a_target_that_cannot_be_shown_is_refused_before_training(table, tmp_path, monkeypatch):
    monkeypatch.setattr("gpsuq.GPSClassifier.fit", None)
    table.to_csv(tmp_path / "iris.csv", index=False)
    for wanted, message in ((0.02, "at least 114 are needed"), (5, "between 0 and 1")):
        options = ("--target", "species", "--target-error", wanted, "--out", tmp_path / "model")
        refused = invoke("fit", "classifier", tmp_path / "iris.csv", *options)
        assert refused.exit_code == 1
        assert message in words(refused)


def test_an_interrupted_fit_goes_on(table, tmp_path, monkeypatch):
    table.to_csv(tmp_path / "iris.csv", index=False)
    command = (
        "fit",
        "classifier",
        tmp_path / "iris.csv",
        "--target",
        "species",
        "--epochs",
        4,
        "--out",
        tmp_path / "m",
    )
    steps = interrupt_networks(monkeypatch, 5)
    stopped = invoke(*command)
    assert stopped.exit_code == 130
    assert "same command again" in words(stopped)
    assert not (tmp_path / "m").exists()
    done = len(steps)
    assert invoke(*command).exit_code == 0
    assert len(steps) - done < 20  # a step an epoch, four epochs of five members: not all of them again
    assert sorted(path.name for path in tmp_path.iterdir()) == ["iris.csv", "m"]


def test_another_command_after_an_interrupted_one_starts_anew(table, tmp_path, monkeypatch):
    table.to_csv(tmp_path / "iris.csv", index=False)
    command = ("fit", "classifier", tmp_path / "iris.csv", "--target", "species", "--epochs", 4)
    interrupt_networks(monkeypatch, 5)
    assert invoke(*command, "--out", tmp_path / "m").exit_code == 130
    again = invoke(*command, "--seed", 7, "--out", tmp_path / "m")
    assert again.exit_code == 0, again.output
    assert invoke(*command, "--seed", 7, "--out", tmp_path / "whole").exit_code == 0
    first, second = ((tmp_path / name / "model.safetensors").read_bytes() for name in ("m", "whole"))
    assert first == second
    assert sorted(path.name for path in tmp_path.iterdir()) == ["iris.csv", "m", "whole"]


def test_the_verdict_can_be_set_by_a_wanted_error(table, tmp_path):
    table.to_csv(tmp_path / "iris.csv", index=False)
    options = ("--target", "species", "--target-error", 0.15, "--holdout", 0.4, "--epochs", 20, "--json")
    result = invoke("fit", "classifier", tmp_path / "iris.csv", *options, "--out", tmp_path / "model")
    assert result.exit_code == 0, result.output
    said = json.loads(result.stdout)
    assert said["judged"] == 30  # the other half of what was held out set the threshold
    assert said["certain_above"] != 0.5


def test_every_class_can_have_a_threshold_of_its_own(table, tmp_path):
    table.to_csv(tmp_path / "iris.csv", index=False)
    options = ("--target", "species", "--target-error", 0.3, "--by-class", "--holdout", 0.5, "--epochs", 60)
    result = invoke("fit", "classifier", tmp_path / "iris.csv", *options, "--out", tmp_path / "model")
    assert result.exit_code == 0, result.output
    assert len(json.loads(invoke("summary", tmp_path / "model", "--json").stdout)["certain_above"]) == 3
    assert "(by class)" in words(invoke("summary", tmp_path / "model"))
    assert "(by class)" in (tmp_path / "model" / "report.html").read_text()
    alone = invoke(
        "fit", "classifier", tmp_path / "iris.csv", "--target", "species", "--by-class", "--out", tmp_path / "n"
    )
    assert alone.exit_code == 1
    assert "add --target-error" in words(alone)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t.assign(species="setosa"), "class"),
        (lambda t: t.assign(species=t["species"].mask(t.index == 7)), "empty in row 8"),
        (lambda t: t.assign(species=t["species"].mask(t.index == 7, "rare")), "'rare' has 1 rows"),
        (lambda t: t.assign(species=np.linspace(0, 1, len(t))), "gpsuq fit linear"),
        (lambda t: t.rename(columns={"species": "kind"}), "no column 'species'"),
        (lambda t: t[["species"]], "no covariates"),
    ],
)
def test_bad_tables_are_named(table, tmp_path, change, message):
    change(table).to_csv(tmp_path / "bad.csv", index=False)
    result = invoke("fit", "classifier", tmp_path / "bad.csv", "--target", "species", "--out", tmp_path / "model")
    assert result.exit_code == 1
    assert message in words(result)
    assert not (tmp_path / "model").exists()
