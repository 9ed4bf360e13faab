"""What is asked of an experiment, and the command that it writes down."""

import json
from pathlib import Path

import pytest
from invoking import invoke

from gpsuq.errors import GPSError
from paper import designs, published, uci
from paper.record import Asked
from paper.rows import begin


def test_the_command_repeats_what_was_asked():
    asked = Asked("draws", Path("there"), range(3, 5), {"seed": 3, "replicates": 2, "steps": None})
    assert asked.command == "python -m paper draws --seed 3 --replicates 2 --out there"
    assert (asked.seed, asked.ends) == (3, [3, 4])


@pytest.mark.parametrize(
    ("module", "words", "recorded"),
    [
        (designs, "designs --seed 1 --replicates 2 --steps 9", "designs --seed 1 --replicates 2"),
        (published, "published --seed 1 --steps 9", "published --seed 1"),
        (uci, "uci --seed 1 --steps 9", "uci"),
    ],
)
def test_options_that_change_nothing_are_not_written_down(tmp_path, monkeypatch, module, words, recorded):
    monkeypatch.setattr(module, "run", lambda asked: [asked.write({}, {})])
    result = invoke("paper", *words.split(), "--out", tmp_path)
    assert result.exit_code == 0, result.output
    command = json.loads((tmp_path / "metrics.json").read_text())["command"]
    assert command == f"python -m paper {recorded} --out {tmp_path}"


def test_numbers_that_json_lacks_are_null(tmp_path):
    path = Asked("mine", tmp_path, [0], {}).write({"bound": float("inf")}, {"error": float("nan")})
    record = json.loads(path.read_text())
    assert (record["settings"], record["results"]) == ({"bound": None}, {"error": None})


def test_results_are_refused_unless_forced(tmp_path):
    (tmp_path / "metrics.json").write_text("{}")
    with pytest.raises(GPSError, match="--force"):
        Asked("mine", tmp_path, [0], {}).prepare()
    Asked("mine", tmp_path, [0], {}, force=True).prepare()
    assert not (tmp_path / "metrics.json").exists()


def test_a_second_run_into_one_directory_is_told_at_once(tmp_path, monkeypatch):
    monkeypatch.setattr(uci, "run", lambda asked: [asked.write({}, {})])
    with Asked("uci", tmp_path / "out", [0], {}).alone():
        result = invoke("paper", "uci", "--out", tmp_path / "out")
    assert result.exit_code == 1
    assert "is being written by another process" in result.stderr
    assert not (tmp_path / "out").exists()
    assert invoke("paper", "uci", "--out", tmp_path / "out").exit_code == 0
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_damaged_rows_are_told(tmp_path):
    (tmp_path / "rows.jsonl").write_text('{"key": "a", "row": {"meth')
    with pytest.raises(GPSError, match=r"rows\.jsonl is damaged .*--force"):
        begin(tmp_path, str, force=False)
