"""Saved models: the same model again, refused where anything was changed, replaced in one operation."""

import errno
import json
import os
import resource
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import small_models
from saved_models import edited

from gpsuq import MLP, GPSError, GPSLinearRegression, load, storage
from gpsuq.files import exchange
from gpsuq.reports.saved import read_checks, write_checks
from gpsuq.storage.directories import replaced
from gpsuq.tables.encoding import Encoding

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
    monkeypatch.setattr("gpsuq.storage.tensors_as_bytes", interrupted)
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
        (lambda d: (d / "config.json").write_text("[" * 100_000), "nested too deep"),
        (lambda d: os.truncate(d / "config.json", 1 << 40), "has 1,099,511,627,776 bytes"),
        (lambda d: (d / "model.safetensors").unlink(), "damaged or incomplete"),
        (lambda d: (d / "model.safetensors").write_bytes(b"\x80\x04cos\nsystem\n"), "damaged or incomplete"),
        (lambda d: (d / "model.safetensors").write_bytes(b"\x00\x00\x00\x00\x00\x01\x00\x00"), "its head has"),
        (lambda d: change_text(d, '"n_chains": 3', '"n_chains": 2'), "config.json was changed"),
        (lambda d: edited(d, format=99), "format 99"),
        (lambda d: edited(d, type="Surprise"), "Surprise"),
        (lambda d: edited(d, params={}), "damaged or incomplete"),
        (lambda d: edited(d, trained_chains=7), "damaged or incomplete"),
        (lambda d: edited(d, lambda config, _: config["params"].update(n_draws=-1)), "n_draws"),
        (lambda d: edited(d, n_features=3), "n_features"),
        (lambda d: edited(d, scale=0.0), "scale cannot be 0"),
        (lambda d: edited(d, scale=True), "scale cannot be True"),
        (lambda d: edited(d, level=[1.0]), "level cannot be"),
        (lambda d: edited(d, kind="surprise"), "kind cannot be 'surprise'"),
        (lambda d: edited(d, bulk=-1.0), "bulk cannot be -1.0"),
        (lambda d: change_text(d, '"level": ', '"level": NaN, "a": '), "NaN is no finite number"),
        (lambda d: change_text(d, '"level": ', '"level": 1e999, "a": '), "1e999 is no finite number"),
        (lambda d: edited(d, feature_names=["a"]), "damaged or incomplete: feature_names must hold 2 names"),
        (lambda d: edited(d, set_first("centers", np.nan)), "centers holds numbers that are not finite"),
        (lambda d: edited(d, set_first("units/matrix", np.inf)), "units/matrix holds numbers that are not finite"),
    ],
)
def test_damaged_models_are_refused(fitted, tmp_path, damage, message):
    fitted[0].save(tmp_path / "model")
    damage(tmp_path / "model")
    with pytest.raises(GPSError, match=message):
        load(tmp_path / "model")


def change_text(directory, old, new):
    path = directory / "config.json"
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


def set_first(name, number):
    def change(_, tensors):
        tensors[name].view(-1)[0] = number

    return change


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("linear", lambda config: config.update(n_chains=10**9)),
        ("linear", lambda config: config["params"]["generator"].update(hidden=[50_000, 50_000])),
        ("linear", lambda config: config["params"]["generator"].update(noise_dim=10**9)),
        ("linear", lambda config: config.update(chains=[0] * 10_000)),
        ("linear", lambda config: config.update(sigma_range=[-1.0, 3.0])),
        ("poisson", lambda config: config["params"].update(waves=10**9)),
        ("poisson", lambda config: config["params"].update(hidden=[50_000, 50_000])),
        ("poisson", lambda config: config["params"].update(noise_dim=10**9)),
        ("poisson", lambda config: config.update(grid=[50_000, 50_000])),
        ("poisson", lambda config: config.update(points=[-10, 40])),
        ("poisson", lambda config: config.update(stretch=-1.0)),
        ("uq", lambda config: config.update(n_chains=10**9)),
        ("uq", lambda config: config["generator"].update(hidden=[50_000, 50_000])),
        ("uq", lambda config: config.update(n_features=10**10)),
        ("uq", lambda config: config.update(chains=[-1])),
        ("uq", lambda config: config.update(dtype="save")),
        ("default", lambda config: config.update(input_shape=[10**10])),
        ("default", lambda config: config["classes"].update(labels=list(range(10**4)), type="int64")),
        ("default", lambda config: config["fitted"].update(uqc_level_=2.0)),
        ("default", lambda config: config["params"].update(ratio=-1.0)),
        ("ensemble", lambda config: config["params"].update(n_members=10**9)),
        ("classifier", lambda config: config.update(noise_dims=[10**9])),
    ],
)
def test_a_config_cannot_ask_for_what_the_tensors_do_not_have(tmp_path, name, change):
    shutil.copytree(Path(__file__).parent / "data" / "format1" / name, tmp_path / "model")
    path = tmp_path / "model" / "config.json"
    config = json.loads(path.read_text())
    change(config)
    path.write_text(json.dumps(config))
    with pytest.raises(GPSError, match="damaged or incomplete"):
        load(tmp_path / "model", **small_models.CODE[name])


@pytest.mark.parametrize("name", ["config.json", "model.safetensors"])
def test_no_flipped_byte_is_loaded(fitted, tmp_path, name):
    model, X = fitted
    path = model.save(tmp_path / "model") / name
    content, expected, rng = path.read_bytes(), model.predict(X), np.random.default_rng(0)
    for place in rng.integers(len(content), size=60):
        flipped = bytearray(content)
        flipped[place] ^= int(rng.integers(1, 256))
        path.write_bytes(flipped)
        with pytest.raises(GPSError, match=r"damaged|does not know|has format"):
            load(path.parent)
    path.write_bytes(content.replace(b" ", b"\t", 1))
    with pytest.raises(GPSError, match="damaged"):
        load(path.parent)
    path.write_bytes(content)
    assert np.array_equal(load(path.parent).predict(X), expected)


@pytest.mark.parametrize("name", ["config.json", "model.safetensors"])
@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir, lambda path: path.symlink_to("/dev/zero")])
def test_only_ordinary_files_are_read(fitted, tmp_path, name, make):
    path = fitted[0].save(tmp_path / "model") / name
    path.unlink()
    make(path)
    with pytest.raises(GPSError, match=r"no ordinary file|Is a directory"):
        load(path.parent)


def test_files_of_two_models_are_refused(fitted, tmp_path):
    first = fitted[0].save(tmp_path / "first")
    second = edited(fitted[0].save(tmp_path / "second"), level=5.0)
    (second / "model.safetensors").rename(first / "model.safetensors")
    with pytest.raises(GPSError, match="do not belong together"):
        load(first)


def test_a_model_that_is_replaced_meanwhile_is_read_again(fitted, tmp_path, monkeypatch):
    model, _ = fitted
    directory = model.save(tmp_path / "model")
    read, swaps = storage.read_config, []

    def replaced_after(path):
        config = read(path)
        if len(swaps) < 2:
            swaps.append(path)
            edited(model.save(tmp_path / "other", force=True), level=float(len(swaps)))
            assert exchange(tmp_path / "other", directory)
        return config

    monkeypatch.setattr(storage, "read_config", replaced_after)
    assert load(directory).fit_.units.level == 2.0


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


def test_a_model_is_replaced_in_one_operation(fitted, tmp_path, monkeypatch):
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
    if not exchange(tmp_path / "first", tmp_path / "second"):
        pytest.skip("this file system cannot exchange names")
    monkeypatch.setattr("gpsuq.storage.directories._move", interrupted)
    fitted[0].save(tmp_path / "first", force=True)
    assert load(fitted[0].save(tmp_path / "first", force=True)).n_features_in_ == 2


def failing_moves(monkeypatch, times, *, to, error=None):
    """Let the first moves to a path fail where names cannot be exchanged."""
    replace, failed = os.replace, []

    def failing(source, target):
        if Path(target) == to and len(failed) < times:
            failed.append(source)
            raise error or OSError(errno.ENOSPC, "disk full")
        replace(source, target)

    monkeypatch.setattr(os, "replace", failing)
    monkeypatch.setattr("gpsuq.storage.directories.exchange", lambda *_: False)


def test_a_move_that_fails_puts_the_old_model_back(fitted, tmp_path, monkeypatch):
    model, X = fitted
    model.save(tmp_path / "model")
    failing_moves(monkeypatch, 1, to=tmp_path / "model")
    with pytest.raises(GPSError, match=r"disk full.*is as it was"):
        model.save(tmp_path / "model", force=True)
    assert np.array_equal(load(tmp_path / "model").predict(X), model.predict(X))
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_an_old_model_that_cannot_be_put_back_is_kept_until_the_next_save(fitted, tmp_path, monkeypatch):
    model, X = fitted
    model.save(tmp_path / "model")
    with monkeypatch.context() as patched:
        failing_moves(patched, 2, to=tmp_path / "model")
        with pytest.raises(GPSError, match="it is kept as") as raised:
            model.save(tmp_path / "model", force=True)
    (kept,) = tmp_path.iterdir()
    assert str(kept) in str(raised.value)
    assert np.array_equal(load(kept).predict(X), model.predict(X))
    with pytest.raises(GPSError, match="exists already"):
        model.save(tmp_path / "model")
    assert [path.name for path in tmp_path.iterdir()] == ["model"]
    assert np.array_equal(load(tmp_path / "model").predict(X), model.predict(X))


def interrupted(*_):
    raise KeyboardInterrupt


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS, errno.EDQUOT])
@pytest.mark.parametrize("call", ["write", "fsync"])
def test_a_disk_that_is_full_leaves_the_old_model(fitted, tmp_path, monkeypatch, number, call):
    model, X = fitted
    model.save(tmp_path / "model")

    def full(*_):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fsync", full) if call == "fsync" else monkeypatch.setattr(Path, "open", full)
    with pytest.raises(GPSError, match=f"could not be written .*{os.strerror(number)}.*is as it was"):
        model.save(tmp_path / "model", force=True)
    monkeypatch.undo()
    assert np.array_equal(load(tmp_path / "model").predict(X), model.predict(X))
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_files_that_may_not_grow_leave_the_old_model(fitted, tmp_path):
    """The system itself refuses here: it limits the size of files, which even root is bound by."""
    model, X = fitted
    model.save(tmp_path / "model")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
    try:
        with pytest.raises(GPSError, match=r"could not be written .*too large.*is as it was"):
            model.save(tmp_path / "model", force=True)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert np.array_equal(load(tmp_path / "model").predict(X), model.predict(X))
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_a_place_where_nothing_can_be_made_is_named(fitted, tmp_path):
    (tmp_path / "file").write_text("mine")
    with pytest.raises(GPSError, match="could not be written"):
        fitted[0].save(tmp_path / "file" / "model")
    assert (tmp_path / "file").read_text() == "mine"


def test_the_next_save_deletes_what_a_killed_one_left(fitted, tmp_path):
    model, X = fitted
    model.save(tmp_path / "model")
    for name in (".model.new", ".model.old"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text("half")
    (tmp_path / ".model.lock").touch()
    (tmp_path / "model" / ".report.html.new").touch()
    model.save(tmp_path / "model", force=True)
    assert [path.name for path in tmp_path.iterdir()] == ["model"]
    assert np.array_equal(load(tmp_path / "model").predict(X), model.predict(X))


def test_a_second_writer_is_told_at_once(fitted, tmp_path):
    model, _ = fitted
    with replaced(tmp_path / "model", force=False) as folder:
        (folder / "new").write_text("hours of work")
        with pytest.raises(GPSError, match="is being written by another process"):
            model.save(tmp_path / "model")
    assert (tmp_path / "model" / "new").read_text() == "hours of work"
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_the_files_of_a_model_are_on_disk_before_it_takes_its_place(fitted, tmp_path, monkeypatch):
    replace, fsync, events = os.replace, os.fsync, []
    monkeypatch.setattr(os, "replace", lambda a, b: (events.append(Path(b).name), replace(a, b))[1])
    monkeypatch.setattr(os, "fsync", lambda file: (events.append("fsync"), fsync(file))[1])
    fitted[0].save(tmp_path / "model")
    assert events == ["fsync", "model.safetensors", "fsync", "config.json", "model"]


def test_a_colleague_may_read_what_was_saved(fitted, tmp_path):
    before = os.umask(0o022)
    try:
        path = fitted[0].save(tmp_path / "model")
    finally:
        os.umask(before)
    assert path.stat().st_mode & 0o777 == 0o755
    assert {file.stat().st_mode & 0o777 for file in path.iterdir()} == {0o644}


def test_files_that_are_read_with_a_model_are_part_of_it(fitted, tmp_path):
    with replaced(tmp_path / "model", force=False) as folder:
        Encoding({"site": ("north", "south")}).write(folder)
        write_checks({"n": 80}, folder)
        storage.write_model(fitted[0], folder)
    path = tmp_path / "model"
    assert Encoding.read(path).levels == {"site": ("north", "south")}
    assert read_checks(path, ["n"]) == {"n": 80}
    (path / "columns.json").write_text('{"site": ["south", "north"]}')
    (path / "checks.json").write_text('{"n": 81}')
    with pytest.raises(GPSError, match=r"columns\.json is damaged .*changed"):
        Encoding.read(path)
    with pytest.raises(GPSError, match=r"checks\.json is damaged .*changed"):
        read_checks(path, ["n"])


@pytest.mark.parametrize("text", ["[]", '{"a": 5}', '{"a": [1, 2]}', '{"a": ["one"]}', "[" * 100_000, "{"])
def test_columns_that_are_none_are_refused(tmp_path, text):
    (tmp_path / "columns.json").write_text(text)
    with pytest.raises(GPSError, match=r"columns\.json is damaged"):
        Encoding.read(tmp_path)
