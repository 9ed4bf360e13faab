"""The code in the guides, the tutorial and the README runs, top to bottom."""

import json
import re
import tomllib
from functools import partial
from pathlib import Path
from pkgutil import resolve_name

import numpy as np
import pytest
from test_house import FLOORS
from torch import nn

from benchmarks import ten_models
from gpsuq import GPS, Algorithm, GPSPoissonProcess, GPSRegressor, Recipe, __version__

ROOT = Path(__file__).parents[1]
TEN = ROOT / "docs" / "howto" / "ten-models.md"
GUIDES = sorted({*(ROOT / "docs" / "howto").glob("*.md")} - {TEN})
COMING_FROM = sorted({*(ROOT / "docs" / "coming-from").glob("*.md")} - {ROOT / "docs" / "coming-from" / "index.md"})
_PRODUCTS = "products of its added rows alone"


def python_blocks(text):
    return re.findall(r"^```python\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)


def section(page, title):
    return (ROOT / page).read_text().split(f"\n## {title}\n")[1].split("\n## ")[0]


def rows(text):
    """All rows of tables, as lists of cells; headers are left out."""
    lines = re.findall(r"^\|(.*)\|$", text, flags=re.MULTILINE)
    rules = [number for number, line in enumerate(lines) if set(line) <= set("-|: ")]
    dropped = {*rules, *(number - 1 for number in rules)}
    return [[cell.strip() for cell in line.split("|")] for number, line in enumerate(lines) if number not in dropped]


def run(blocks, name, **given):
    """Run blocks one after the other, as a reader would, and return the names that they leave."""
    names = {"__name__": "__main__"} | given
    exec(compile("\n".join(blocks), name, "exec"), names)
    return names


@pytest.fixture
def elsewhere(tmp_path, monkeypatch):
    """A directory of its own, for what the code writes."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("page", [*GUIDES, *COMING_FROM], ids=lambda page: page.stem)
@pytest.mark.filterwarnings("ignore::gpsuq.GPSWarning")
@pytest.mark.usefixtures("elsewhere")
def test_the_code_of_a_guide_runs(page):
    blocks = python_blocks(page.read_text())
    assert blocks
    run(blocks, str(page))


@pytest.mark.slow
@pytest.mark.parametrize("title", ten_models.TRUTH)
@pytest.mark.filterwarnings("ignore::gpsuq.GPSWarning")
def test_each_of_ten_models_finds_the_truth(title, monkeypatch):
    """In a short training: means within 0.3 (of their size, if that is larger), laws within 0.5 of their scale."""
    monkeypatch.setitem(GPS.__init__.__kwdefaults__, "n_chains", 2)
    head, sections = ten_models.models()
    monkeypatch.setattr("gpsuq.gps.DEFAULT_ALGORITHM", Algorithm(n_steps=300, batch_size=100, n_draws=20))
    monkeypatch.setitem(GPS.__init__.__kwdefaults__, "n_chains", 2)
    names, *_ = ten_models.fitted(head, *sections[title], seed=1)
    for label, found in ten_models.judged(title, names).items():
        assert found["mean"] == pytest.approx(found["truth"], rel=0.3, abs=0.3), label
        assert found.get("w1", 0.0) < 0.5, label


def test_all_of_the_ten_models_are_known():
    _, sections = ten_models.models()
    assert len(sections) == 10
    assert list(sections) == list(ten_models.TRUTH)
    assert all(len(part.splitlines()) <= 16 for parts in sections.values() for part in parts)


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
def test_the_model_of_the_readme_says_what_it_does(elsewhere):
    (block,) = python_blocks(section("README.md", "A model of your own"))
    uq = run([block], "README.md")["uq"]
    assert (elsewhere / "theta.png").stat().st_size > 5_000
    pieces = uq.interval(0.8, of="population", kind="highest-density")["theta"]
    assert np.allclose(pieces.mean(1), [-3.0, 3.0], atol=0.5)  # "two pieces, around -3 and 3"


@pytest.mark.filterwarnings("ignore::gpsuq.GPSWarning")
def test_the_table_of_the_readme_is_fitted(rng):
    X = rng.normal(size=(100, 2))
    y = X[:, 0] + rng.normal(size=100)
    (block,) = python_blocks(section("README.md", "A table"))
    model = run([block], "README.md", X=X, y=y, X_new=X[:3])["model"]
    assert not model.heterogeneous_


@pytest.mark.filterwarnings("ignore::gpsuq.GPSWarning")
def test_the_curve_of_the_readme_is_fitted(rng, monkeypatch):
    for name, value in (("n_chains", 4), ("n_steps", 20)):
        monkeypatch.setitem(GPSRegressor.__init__.__kwdefaults__, name, value)
    X = rng.normal(size=(100, 2))
    y = X[:, 0] ** 2 + 0.1 * rng.normal(size=100)
    (block,) = python_blocks(section("README.md", "A curve"))
    model = run([block], "README.md", X=X, y=y, X_new=X[:3], X_val=X, y_val=y)["model"]
    assert model.conformal_.n_rows == 100


@pytest.mark.filterwarnings("ignore::gpsuq.GPSWarning")
def test_the_point_pattern_of_the_readme_is_fitted(rng, elsewhere, monkeypatch):
    for name, value in (("n_chains", 2), ("n_steps", 5)):
        monkeypatch.setitem(GPSPoissonProcess.__init__.__kwdefaults__, name, value)
    corners = [[0, 0], [1, 0], [1, 1], [0, 1], [0, 0]]
    (elsewhere / "window.geojson").write_text(json.dumps({"type": "Polygon", "coordinates": [corners]}))
    (block,) = python_blocks(section("README.md", "A point pattern"))
    model = run([block], "README.md", points=rng.random((60, 2)), regions=[(0, 0.5, 0, 0.5)])["model"]
    assert model.integral() == pytest.approx(60, rel=0.2)


def test_the_network_of_the_readme_is_fitted(rng, monkeypatch):
    monkeypatch.setattr("gpsuq.classify.network.Recipe", partial(Recipe, epochs=20))

    class Network(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc1, self.fc2 = nn.Linear(4, 8), nn.Linear(8, 2)

        def forward(self, x):
            return self.fc2(self.fc1(x.flatten(1)).relu())

    images = rng.normal(size=(400, 2, 2)).astype(np.float32)
    labels = (images[:, 0, 0] > 0).astype(int)
    given = {"images": images, "labels": labels, "images_val": images, "labels_val": labels, "new_images": images[:5]}
    (block,) = python_blocks(section("README.md", "A network"))
    verdicts = run([block], "README.md", network=Network(), **given)["verdicts"]
    assert verdicts.uncertain.shape == (5,)


def test_the_readme_takes_a_minute():
    readme = (ROOT / "README.md").read_text()
    found = rows(readme)
    assert 5 <= len(found) <= 12
    assert re.findall(r"^\|[-|: ]+\|$", readme, flags=re.MULTILINE) == ["|---|---|---|"]  # one table
    for cells in found:
        words = re.sub(r"\]\([^)]*\)", "", " ".join(cells)).split()
        assert len(words) <= 25, cells
        assert "](" in cells[-1], f"no link: {cells}"


PAGES = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "benchmarks/README.md")]
PAGES += [path for ending in ("md", "rst") for path in (ROOT / "docs").rglob(f"*.{ending}") if "auto" not in str(path)]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_what_a_page_names_is_there(page):
    text = page.read_text()
    for target in re.findall(r"\]\(([^)#:]+)\)", text):
        assert (page.parent / target).exists(), target
    for path in re.findall(r"`((?:src|paper|tests|benchmarks|results|docs)/[\w./]+)`", text):
        assert (ROOT / path).exists() or "NAME" in path or "_build" in path, path
    for name in re.findall(r"\b(?:gpsuq|paper)(?:\.(?!py\b|md\b)[A-Za-z]\w*)+(?!\w|[./-]\w)", text):
        assert resolve_name(name) is not None
    for module, names in re.findall(r"^from ((?:gpsuq|paper)[\w.]*) import ([\w, ]+)", text, flags=re.MULTILINE):
        for name in names.split(","):
            assert resolve_name(f"{module}:{name.strip()}") is not None
    for name in re.findall(r"python -m paper ([a-z][\w-]*)", text):
        assert name in experiments(), name


def experiments():
    """The names of all commands of ``python -m paper``."""
    commands = resolve_name("paper.__main__:app").registered_commands
    return {command.name or command.callback.__name__ for command in commands}


def test_contributing_shows_the_house_that_stands():
    floors = rows(section("CONTRIBUTING.md", "The house").split("Beside the package")[0])
    shown = [re.findall(r"`(\w+)`", cells[0]) for cells in floors]
    assert shown == FLOORS


def test_the_cost_of_noise_is_what_the_benchmark_measured():
    measured = json.loads((ROOT / "benchmarks" / "results" / "classifier_cost.json").read_text())["rows"]
    training, judging = measured["training step / plain"], measured["judging / gps"]
    wanted = [training[f"{name}, M = {draws}"] for name in ("gps", "gps by default", _PRODUCTS) for draws in (4, 10)]
    by_default = ("gps by default", "gps by default, adaptive")
    wanted += [judging[name] for name in ("gps, adaptive", *by_default, "dropout, trunk once", "dropout, full passes")]
    assert [float(cells[-1]) for cells in rows(section("docs/paper.md", "What noise costs"))] == wanted


def test_the_recipe_is_of_this_version_and_asks_for_the_same_packages():
    yaml = pytest.importorskip("yaml")
    recipe = yaml.safe_load((ROOT / "conda" / "recipe.yaml").read_text())
    assert recipe["context"]["version"] == __version__
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    named = {"torch": "pytorch", "matplotlib": "matplotlib-base"}
    wanted = [dependency.replace(">=", " >=").split() for dependency in project["dependencies"]]
    wanted = [f"{named.get(name, name)} {version}" for name, version in wanted]
    assert recipe["requirements"]["run"] == [f"python {project['requires-python']}", *wanted]


def test_the_changelog_has_this_version():
    assert f"\n## {__version__}\n" in (ROOT / "CHANGELOG.md").read_text()


def test_the_citation_is_of_this_version():
    yaml = pytest.importorskip("yaml")
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert {"cff-version", "title", "message", "authors", "license"} <= citation.keys()
    assert citation["version"] == __version__
    (paper,) = citation["references"]
    assert [author["family-names"] for author in paper["authors"]] == ["Shin", "Lee", "Liu"]
    assert paper["title"] in (ROOT / "README.md").read_text()
