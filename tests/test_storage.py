import json
import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from safetensors.torch import load_file, save_file

from gpsuq import MLP, GPSError, GPSLinearRegression, load
from gpsuq.storage import replaced

pytestmark = pytest.mark.filterwarnings("ignore::gpsuq.GPSWarning")


@pytest.fixture(scope="module")
def fitted():
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(80, 2)), columns=["a", "b"])
    model = GPSLinearRegression(n_chains=3, n_steps=12, n_draws=8, generator=MLP(hidden=(8, 8)))
    return model.fit(X, X["a"] + rng.normal(size=80)), X


def test_a_saved_model_is_the_same_model(fitted, tmp_path):
    model, X = fitted
    again = load(model.save(tmp_path / "model"))
    assert again.sample_parameters(50).equals(model.sample_parameters(50))
    assert np.array_equal(again.predict(X), model.predict(X))
    assert again.predict_interval(X).equals(model.predict_interval(X))
    assert again.summary().equals(model.summary())
    assert again.explain_rows(X, X["a"]).equals(model.explain_rows(X, X["a"]))
    assert (again.law_, again.p_value_, again.detectable_) == (model.law_, model.p_value_, model.detectable_)
    assert again.feature_names_in_.tolist() == ["a", "b"]
    assert again.get_params()["n_chains"] == 3
    assert again.fit_.findings == model.fit_.findings


def test_what_is_there_is_not_overwritten_unasked(fitted, tmp_path):
    model, _ = fitted
    model.save(tmp_path / "model")
    with pytest.raises(GPSError, match="exists already"):
        model.save(tmp_path / "model")
    model.save(tmp_path / "model", force=True)
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_an_interrupted_save_leaves_the_old_model(fitted, tmp_path, monkeypatch):
    model, X = fitted
    model.save(tmp_path / "model")
    monkeypatch.setattr("gpsuq.storage.tensors_as_bytes", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        model.save(tmp_path / "model", force=True)
    assert np.array_equal(load(tmp_path / "model").predict(X), model.predict(X))
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda d: (d / "config.json").unlink(), "no saved model"),
        (lambda d: (d / "config.json").write_text("{"), "damaged"),
        (lambda d: (d / "config.json").write_text("[]"), "damaged"),
        (lambda d: (d / "model.safetensors").unlink(), "damaged or incomplete"),
        (lambda d: (d / "model.safetensors").write_bytes(b"\x80\x04cos\nsystem\n"), "damaged or incomplete"),
        (lambda d: edit(d, format=99), "format 99"),
        (lambda d: edit(d, type="Surprise"), "Surprise"),
        (lambda d: edit(d, params={}), "damaged or incomplete"),
        (lambda d: edit(d, trained_chains=7), "damaged or incomplete"),
        (lambda d: edit(d, feature_names=["a"]), "damaged or incomplete: feature_names must hold 2 names"),
        (
            lambda d: edit_tensor(d, "centers", np.nan),
            "damaged or incomplete: centers holds numbers that are not finite",
        ),
        (lambda d: edit_tensor(d, "units/matrix", np.inf), "units/matrix holds numbers that are not finite"),
    ],
)
def test_damaged_models_are_refused(fitted, tmp_path, damage, message):
    fitted[0].save(tmp_path / "model")
    damage(tmp_path / "model")
    with pytest.raises(GPSError, match=message):
        load(tmp_path / "model")


def edit(directory, **changes):
    path = directory / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def edit_tensor(directory, name, number):
    tensors = load_file(directory / "model.safetensors")
    tensors[name].view(-1)[0] = number
    save_file(tensors, directory / "model.safetensors")


def test_only_fitted_estimators_are_saved(tmp_path):
    with pytest.raises(ValueError, match="not fitted"):
        GPSLinearRegression().save(tmp_path / "model")


def test_force_replaces_models_only(fitted, tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("years of work")
    with pytest.raises(GPSError, match=r"thesis\.txt"):
        fitted[0].save(tmp_path / "mine", force=True)
    (tmp_path / "file").write_text("a file")
    with pytest.raises(GPSError, match="a file"):
        fitted[0].save(tmp_path / "file", force=True)
    assert (tmp_path / "mine" / "thesis.txt").read_text() == "years of work"


@pytest.mark.parametrize(("force", "name"), [(False, "config.json"), (True, "thesis.txt")])
def test_what_came_while_a_model_was_made_is_left_and_the_model_kept(tmp_path, force, name):
    def slow():
        with replaced(tmp_path / "model", force=force) as folder:
            (folder / "new").write_text("hours of work")
            (tmp_path / "model").mkdir()
            (tmp_path / "model" / name).write_text("of another process")

    with pytest.raises(GPSError, match="is kept as") as raised:
        slow()
    assert (tmp_path / "model" / name).read_text() == "of another process"
    (kept,) = (path for path in tmp_path.iterdir() if path.name != "model")
    assert str(kept) in str(raised.value)
    assert (kept / "new").read_text() == "hours of work"


def test_a_link_stays_and_what_it_points_to_is_replaced(fitted, tmp_path):
    model, X = fitted
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    model.save(tmp_path / "link", force=True)
    assert (tmp_path / "link").is_symlink()
    assert np.array_equal(load(tmp_path / "real").predict(X), model.predict(X))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link", "real"]


@pytest.fixture
def no_more_moves_to(monkeypatch):
    """Let the first moves to a path fail."""

    def no_more_moves_to(path, times):
        replace, failed = os.replace, []

        def failing(source, target):
            if Path(target) == path and len(failed) < times:
                failed.append(source)
                raise OSError("disk full")
            replace(source, target)

        monkeypatch.setattr(os, "replace", failing)

    return no_more_moves_to


def test_a_swap_that_fails_puts_the_old_model_back(fitted, tmp_path, no_more_moves_to):
    model, X = fitted
    model.save(tmp_path / "model")
    no_more_moves_to(tmp_path / "model", 1)
    with pytest.raises(OSError, match="disk full"):
        model.save(tmp_path / "model", force=True)
    assert np.array_equal(load(tmp_path / "model").predict(X), model.predict(X))
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_an_old_model_that_cannot_be_put_back_is_kept(fitted, tmp_path, no_more_moves_to):
    model, X = fitted
    model.save(tmp_path / "model")
    no_more_moves_to(tmp_path / "model", 2)
    with pytest.raises(GPSError, match="it is kept as") as raised:
        model.save(tmp_path / "model", force=True)
    (kept,) = tmp_path.iterdir()
    assert str(kept) in str(raised.value)
    assert np.array_equal(load(kept).predict(X), model.predict(X))


def test_a_swap_that_is_interrupted_when_done_keeps_the_new_model(fitted, tmp_path, monkeypatch):
    model, X = fitted
    model.save(tmp_path / "model")
    replace = os.replace

    def interrupted(source, target):
        replace(source, target)
        if Path(target) == tmp_path / "model":
            raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        model.save(tmp_path / "model", force=True)
    assert np.array_equal(load(tmp_path / "model").predict(X), model.predict(X))


def test_the_files_of_a_model_are_on_disk_before_it_takes_its_place(fitted, tmp_path, monkeypatch):
    replace, fsync, events = os.replace, os.fsync, []
    monkeypatch.setattr(os, "replace", lambda a, b: (events.append(Path(b).name), replace(a, b))[1])
    monkeypatch.setattr(os, "fsync", lambda file: (events.append("fsync"), fsync(file))[1])
    fitted[0].save(tmp_path / "model")
    assert events == ["fsync", "config.json", "fsync", "model.safetensors", "model"]


def test_a_colleague_may_read_what_was_saved(fitted, tmp_path):
    before = os.umask(0o022)
    try:
        path = fitted[0].save(tmp_path / "model")
    finally:
        os.umask(before)
    assert path.stat().st_mode & 0o777 == 0o755
    assert {file.stat().st_mode & 0o777 for file in path.iterdir()} == {0o644}
