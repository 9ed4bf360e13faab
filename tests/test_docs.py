"""The code in the guides, the tutorial and the README runs, top to bottom."""

import json
import re
from pathlib import Path

import numpy as np
import pytest

from gpsuq import GPS, Algorithm, __version__

ROOT = Path(__file__).parents[1]
GUIDES = sorted((ROOT / "docs" / "howto").glob("*.md"))
WITHOUT_PYTHON = {"tables"}
_PRODUCTS = "products of its added rows alone"


def python_blocks(text):
    return re.findall(r"^```python\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)


def run(blocks, name):
    """Run blocks one after the other, as a reader would, and give the names that they leave."""
    names = {"__name__": "__main__"}
    exec(compile("\n".join(blocks), name, "exec"), names)
    return names


@pytest.fixture
def elsewhere(tmp_path, monkeypatch):
    """A directory of its own, for what the code writes."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("page", GUIDES, ids=lambda page: page.stem)
@pytest.mark.filterwarnings("ignore::gpsuq.GPSWarning")
@pytest.mark.usefixtures("elsewhere")
def test_the_code_of_a_guide_runs(page):
    blocks = python_blocks(page.read_text())
    assert blocks or page.stem in WITHOUT_PYTHON
    run(blocks, str(page))


def test_there_are_guides():
    assert len(GUIDES) >= 6


@pytest.mark.filterwarnings("ignore::gpsuq.GPSWarning")
@pytest.mark.usefixtures("elsewhere")
def test_the_code_of_the_tutorial_runs(monkeypatch):
    # Its fit is that of the README, which is trained to the end below: here it is only seen to run.
    monkeypatch.setitem(GPS.__init__.__kwdefaults__, "algorithm", Algorithm(n_steps=100))
    page = ROOT / "docs" / "tutorial.md"
    left = run(python_blocks(page.read_text()), str(page))
    assert len(left["uq"].history.fit) == 100


@pytest.mark.slow
def test_the_ten_lines_of_the_readme_say_what_they_do(elsewhere):
    page = ROOT / "README.md"
    section = page.read_text().split("\n## Ten lines for a model of your own\n")[1].split("\n## ")[0]
    blocks = python_blocks(section)
    assert len(blocks) == 1
    uq = run(blocks, str(page))["uq"]
    assert (elsewhere / "theta.png").stat().st_size > 5_000
    pieces = uq.interval(0.8, of="population", kind="highest-density")["theta"]
    assert np.allclose(pieces.mean(1), [-3.0, 3.0], atol=0.5)  # "two pieces, around -3 and 3"


def test_the_cost_of_noise_is_what_the_benchmark_measured():
    rows = json.loads((ROOT / "benchmarks" / "results" / "classifier_cost.json").read_text())["rows"]
    training, judging = rows["training step / plain"], rows["judging / gps"]
    wanted = [training[f"{name}, M = {draws}"] for name in ("gps", _PRODUCTS) for draws in (4, 10)]
    wanted += [judging[name] for name in ("gps, adaptive", "dropout, trunk once", "dropout, full passes")]
    section = (ROOT / "docs" / "paper.md").read_text().split("\n## What noise costs\n")[1].split("\n## ")[0]
    assert [float(number) for number in re.findall(r"^\|.*\| ([\d.]+) \|$", section, flags=re.MULTILINE)] == wanted


def test_the_citation_is_of_this_version():
    yaml = pytest.importorskip("yaml")
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert {"cff-version", "title", "message", "authors", "license"} <= citation.keys()
    assert citation["version"] == __version__
    (paper,) = citation["references"]
    assert [author["family-names"] for author in paper["authors"]] == ["Shin", "Lee", "Liu"]
    assert paper["title"] in (ROOT / "README.md").read_text()
