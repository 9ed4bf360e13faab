"""What machines read: one JSON document, files that are named, exit codes, and a page that lists every command."""

import json
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import typer
from invoking import invoke

from gpsuq import load
from gpsuq.cli import COMMANDS, app
from gpsuq.datasets import download
from paper.__main__ import app as experiments

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "commands.md"

pytestmark = pytest.mark.filterwarnings("ignore::gpsuq.GPSWarning")


def said(*arguments):
    """Return the one document that a command prints."""
    result = invoke(*arguments, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


@pytest.fixture(scope="module")
def saved():
    """Models that earlier versions wrote: nothing has to be fitted."""
    return Path(__file__).parents[1] / "data" / "format1"


def test_predictions_are_written_and_named(saved, tmp_path):
    pd.DataFrame(np.zeros((3, 2)), columns=["a", "b"]).to_csv(tmp_path / "new.csv", index=False)
    out = tmp_path / "predicted.csv"
    assert said("predict", saved / "linear", tmp_path / "new.csv", "--out", out) == {"rows": 3, "files": [str(out)]}
    assert len(pd.read_csv(out)) == 3
    assert [row["row"] for row in said("predict", saved / "linear", tmp_path / "new.csv")] == [1, 2, 3]


def test_small_numbers_keep_their_digits(saved, tmp_path, monkeypatch):
    pd.DataFrame(np.zeros((3, 2)), columns=["a", "b"]).to_csv(tmp_path / "new.csv", index=False)
    predicted = np.array([1.2345678901234567e-11, -2e-300, np.nan])
    monkeypatch.setattr("gpsuq.GPSLinearRegression.predict", lambda *_: predicted)
    found = [row["mean"] for row in said("predict", saved / "linear", tmp_path / "new.csv")]
    assert found == [1.2345678901234567e-11, -2e-300, None]
    summary = load(saved / "linear").summary() * 1e-12
    monkeypatch.setattr("gpsuq.GPSLinearRegression.summary", lambda *_: summary)
    parameters = said("summary", saved / "linear")["parameters"]
    assert {name: row["mean"] for name, row in parameters.items()} == summary["mean"].to_dict()


def test_a_report_is_named_with_its_facts(saved, tmp_path):
    path = tmp_path / "page.html"
    told = said("report", saved / "linear", "--out", path)
    assert told["files"] == [str(path)]
    assert told["title"] == "Linear regression"
    assert told["facts"]["covariates"] == "2"


def test_simulations_are_written_and_named(saved, tmp_path):
    out = tmp_path / "simulated.csv"
    document = said("simulate", saved / "poisson", "-n", 3, "--out", out)
    assert document["patterns"] == 3
    assert document["files"] == [str(out)]
    assert sum(document["points"]) == len(pd.read_csv(out))
    assert len(said("simulate", saved / "poisson", "-n", 3)) == sum(document["points"])


@pytest.mark.parametrize(
    "options", [("collapse", "--steps", 4), ("mnist", "--data", "digits", "--methods", "plain", "--seeds", 0)]
)
def test_experiments_give_their_numbers(options, tmp_path):
    more = ("--epochs", 1) if options[0] == "mnist" else ()
    document = said("paper", *options, *more, "--out", tmp_path / "out")
    assert document["command"].startswith(f"python -m paper {options[0]}")
    assert document["results"] == json.loads((tmp_path / "out" / "metrics.json").read_text())["results"]
    assert all(Path(file).is_file() for file in document["files"])


def test_the_demo_names_its_page(tmp_path, monkeypatch):
    files = [tmp_path / "a.csv", tmp_path / "report.html"]
    monkeypatch.setattr("gpsuq.cli.demonstration.run", lambda out, progress: (files, ["Irises: so."]))
    assert said("demo", "--out", tmp_path) == {"findings": ["Irises: so."], "files": list(map(str, files))}


def test_the_page_of_the_demo_is_named_as_it_is(tmp_path, monkeypatch):
    monkeypatch.setattr("gpsuq.cli.demonstration.run", lambda out, progress: ([out / "report.html"], []))
    out = tmp_path / "[red]"
    assert f"Open {out / 'report.html'} in a browser" in invoke("demo", "--out", out).stdout


def test_data_sets_are_named(tmp_path, monkeypatch):
    (tmp_path / "mnist").mkdir()
    (tmp_path / "mnist" / "images").touch()
    monkeypatch.setattr(download, "get", lambda name, **_: tmp_path / name)
    assert said("data", "get", "mnist") == {"name": "mnist", "files": [str(tmp_path / "mnist" / "images")]}


def test_exit_codes(tmp_path, monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    assert invoke("--version").exit_code == 0
    assert invoke("summary", tmp_path).exit_code == 1
    assert invoke("summary").exit_code == 2
    assert invoke("summarise").exit_code == 2
    monkeypatch.setattr("gpsuq.storage.load", interrupted)
    assert invoke("summary", tmp_path).exit_code == 130


def test_help_shows_exit_codes_examples_and_commands_in_order():
    shown = invoke("--help").stdout
    for code in ("0 done", "1 an error", "2 wrong usage", "130 interrupted"):
        assert code in " ".join(shown.split())
    places = [re.search(rf"^\W+{name}\s", shown, re.MULTILINE).start() for name in COMMANDS]
    assert places == sorted(places)
    for group in ((), ("fit",), ("data",)):
        assert "Example: gpsuq" in invoke(*group, "--help").stdout
    assert "Example: python -m paper" in invoke("paper", "--help").stdout


def leaves(command, path=()):
    """Return every command that does something, by its words."""
    if not hasattr(command, "commands"):
        return {path: command}
    return {
        words: leaf for name, item in command.commands.items() for words, leaf in leaves(item, (*path, name)).items()
    }


def test_the_order_names_every_command():
    assert sorted(COMMANDS) == sorted(typer.main.get_command(app).commands)


@pytest.mark.parametrize(("command", "program"), [("$ gpsuq ", app), ("$ python -m paper ", experiments)])
def test_the_page_of_commands_has_an_example_of_each(command, program):
    known = leaves(typer.main.get_command(program))
    lines = [line for line in PAGE.read_text().splitlines() if line.startswith(command)]
    examples = [line.removeprefix(command).split() for line in lines]
    found = set()
    for words in examples:
        (path,) = (path for path in known if tuple(words[: len(path)]) == path)
        found.add(path)
        options = {option for parameter in known[path].params for option in parameter.opts}
        assert {word for word in words if word.startswith("-")} <= options, words
    assert found == set(known)
