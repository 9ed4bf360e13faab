"""How commands end, and who speaks of several processes."""

import os
import signal
import threading
import time
import warnings
from types import SimpleNamespace

import pytest
import typer
from invoking import invoke

from gpsuq import GPSLinearRegression
from gpsuq.engine.diagnostics import Finding
from gpsuq.errors import GPSError, GPSWarning, stopped
from gpsuq.speaking import print_json, speaking, watched, without_findings
from paper.record import going_on


def end_of(block):
    """Return the exit code of a block that a command runs."""
    with pytest.raises(typer.Exit) as ended, speaking():
        block()
    return ended.value.exit_code


def terminate():
    assert signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL  # that would end the tests
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(10)


def test_sigterm_unwinds_and_ends_with_its_own_code(tmp_path, capsys):
    def block():
        try:
            terminate()
        finally:
            (tmp_path / "unwound").touch()

    assert end_of(block) == 143
    assert (tmp_path / "unwound").is_file()
    assert "interrupted; give the same command again" in capsys.readouterr().err
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def test_sigterm_and_ctrl_c_say_the_same(tmp_path, capsys):
    (tmp_path / "rows.jsonl").touch()
    said = []
    for stop, code in ((terminate, 143), (lambda: (_ for _ in ()).throw(KeyboardInterrupt), 130)):

        def block(stop=stop):
            with going_on(tmp_path, force=True):
                stop()

        assert end_of(block) == code
        said.append(capsys.readouterr().err)
    assert said[0] == said[1]
    assert f"what was done is in {tmp_path}: give the same command again without --force" in said[0]


def test_a_training_that_was_terminated_says_where_it_is(capsys):
    def block():
        raise stopped(SystemExit(143), "interrupted; what was done is in here")

    assert end_of(block) == 143
    assert capsys.readouterr().err == "interrupted; what was done is in here\n"


def test_other_exits_pass():
    with pytest.raises(SystemExit) as ended, speaking():
        raise SystemExit(3)
    assert ended.value.code == 3


def test_handlers_of_others_and_other_threads_are_left_alone():
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        with speaking():
            assert signal.getsignal(signal.SIGTERM) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGTERM, before)
    spoken = []

    def speak():
        with speaking() as console:
            spoken.append(console)

    thread = threading.Thread(target=speak)
    thread.start()
    thread.join()
    assert spoken


def test_of_several_processes_the_first_speaks_and_all_tell_errors(monkeypatch, capsys):
    def words():
        with speaking() as console:
            console.print("done")
            warnings.warn("careful", GPSWarning, stacklevel=1)
        print_json({"a": 1})
        return capsys.readouterr()

    monkeypatch.setenv("RANK", "0")
    out, err = words()
    assert "done" in out
    assert '"a": 1' in out
    assert "note: careful" in err
    monkeypatch.setenv("RANK", "1")
    assert words() == ("", "")
    assert not watched()

    def fail():
        raise GPSError("no such column")

    assert end_of(fail) == 1
    assert "error: no such column" in capsys.readouterr().err


def test_a_command_that_is_terminated_leaves_no_temporary_files(tmp_path, monkeypatch):
    (tmp_path / "data.csv").write_text("a,y\n1,2\n3,4\n5,7\n", encoding="utf-8")
    seen = []

    def fit(*_, **__):
        seen.extend(tmp_path.iterdir())
        terminate()

    monkeypatch.setattr(GPSLinearRegression, "fit", fit)
    result = invoke("fit", "linear", tmp_path / "data.csv", "--target", "y", "--out", tmp_path / "model")
    assert result.exit_code == 143, result.output
    assert len(seen) > 1  # the folder that becomes the model
    assert [path.name for path in tmp_path.iterdir()] == ["data.csv"]


def test_a_warning_that_is_a_finding_is_not_said_twice():
    estimator = SimpleNamespace(findings_=[Finding("still-falling", "the score still falls")])
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        with without_findings(estimator):
            warnings.warn(GPSWarning("the score still falls"), stacklevel=1)
            warnings.warn(GPSWarning("two columns are the same"), stacklevel=1)
    assert [str(warning.message) for warning in said] == ["two columns are the same"]
