import json

import numpy as np
import pandas as pd
import pytest
from invoking import invoke

WINDOW = {"type": "rectangle", "xrange": [0, 2], "yrange": [0, 1], "units": ["metre", "metres", "1.0"]}


@pytest.fixture
def files(tmp_path, rng):
    (tmp_path / "w.json").write_text(json.dumps(WINDOW))
    table = pd.DataFrame(rng.random((60, 2)) * [2, 1], columns=["x", "y"]).assign(year=np.arange(60) % 2)
    table.to_csv(tmp_path / "p.csv", index=False)
    return tmp_path


def fit(files, *more, points="p.csv"):
    return invoke(
        "fit", "poisson", files / points, "--window", files / "w.json", "--out", files / "m", "--steps", 3, *more
    )


def test_fit_summary_simulate(files):
    result = fit(files)
    assert result.exit_code == 0, result.output
    assert "60 points" in result.stdout
    assert {path.name for path in (files / "m").iterdir()} == {
        "config.json", "model.safetensors", "intensity.csv", "intensity.png", "envelope.png", "report.html"
    }  # fmt: skip
    surface = pd.read_csv(files / "m" / "intensity.csv")
    assert surface["area"].sum() == pytest.approx(2.0)
    assert float(surface["area"] @ surface["mean"]) == pytest.approx(60, rel=0.2)
    assert "60 points" in invoke("summary", files / "m").stdout

    result = invoke("simulate", files / "m", "-n", 3, "--out", files / "s.csv")
    assert result.exit_code == 0, result.output
    simulated = pd.read_csv(files / "s.csv")
    assert list(simulated.columns) == ["pattern", "x", "y"]
    assert set(simulated["pattern"]) == {1, 2, 3}
    assert invoke("simulate", files / "m", "-n", 3, "--out", files / "s.csv").exit_code == 1
    assert invoke("simulate", files / "m").stdout.startswith("pattern,x,y")
    assert "predicts no rows" in invoke("predict", files / "m", files / "p.csv").output
    assert fit(files).exit_code == 1
    assert fit(files, "--force").exit_code == 0


def test_replicates_and_types_are_columns(files):
    table = pd.read_csv(files / "p.csv")
    table.assign(species=np.where(table["x"] < 1, "oak", "pine")).to_csv(files / "p.csv", index=False)
    result = fit(files, "--replicate", "year", "--mark", "species")
    assert result.exit_code == 0, result.output
    config = json.loads((files / "m" / "config.json").read_text())
    assert config["points"] == [30, 30]
    assert set(config["marks"][1]) == {"oak", "pine"}
    html = (files / "m" / "report.html").read_text()
    assert "Where each type is more likely" in html
    assert "points per m²" in html


@pytest.mark.parametrize(
    ("content", "options", "message"),
    [
        (
            "x,y\n0.5,0.5\n3,0.5\n",
            [],
            "1 of 2 points lie outside the window, row 2 (the first row below the header is 1)",
        ),
        ("x,y,g\n0.5,0.5,b\n1,0.5,a\n,0.5,a\n3,0.5,b\n", ["--replicate", "g", "--drop-missing"], "the window, row 4 ("),
        ("x,y\n", [], "no rows"),
        ("", [], "empty"),
        ("x,y\n0.5,0.5\n", [], "one point is too few"),
        ("x,y\n0.5,0.5\n0.1,\n", [], "missing"),
        ("a,b\n0.5,0.5\n", [], "no column 'x'"),
        ("x,y\n0.5,0.5\n0.1,0.2\n", ["--covariate", "none.csv"], "no file"),
    ],
)
def test_bad_points_are_one_line_of_error(files, content, options, message):
    (files / "bad.csv").write_text(content)
    result = fit(files, *options, points="bad.csv")
    assert result.exit_code == 1
    assert message in " ".join(result.output.split())
    assert not (files / "m").exists()


def test_points_without_coordinates_may_be_dropped(files):
    with (files / "p.csv").open("a") as file:
        file.write("0.5,,0\n")
    refused = fit(files)
    assert refused.exit_code == 1
    assert "--drop-missing" in " ".join(refused.output.split())
    result = fit(files, "--drop-missing")
    assert result.exit_code == 0, result.output
    assert "1 of 61 rows have missing values and were left out" in " ".join(result.stderr.split())
    assert "60 points" in result.stdout


def test_points_outside_may_be_dropped(files):
    with (files / "p.csv").open("a") as file:
        file.write("5,5,0\n")
    result = fit(files, "--drop-outside")
    assert result.exit_code == 0, result.output
    assert "1 of 61 points lie outside the window and were dropped" in " ".join(result.output.split())


def test_a_linear_model_is_not_simulated(tmp_path, rng):
    pd.DataFrame({"a": rng.normal(size=30), "y": rng.normal(size=30)}).to_csv(tmp_path / "t.csv", index=False)
    done = invoke("fit", "linear", tmp_path / "t.csv", "--target", "y", "--steps", 3, "--out", tmp_path / "m")
    assert done.exit_code == 0, done.output
    assert "only a Poisson process" in " ".join(invoke("simulate", tmp_path / "m").output.split())


@pytest.mark.parametrize("name", ["poisson", "block-counts"])
def test_poisson_experiments_run_whole(tmp_path, name):
    result = invoke("paper", name, "--replicates", 1, "--steps", 3, "--out", tmp_path / name)
    assert result.exit_code == 0, result.output
    assert json.loads((tmp_path / name / "metrics.json").read_text())["results"]


@pytest.mark.filterwarnings("ignore::gpsuq.GPSWarning")
@pytest.mark.usefixtures("data_directory")
def test_real_patterns_run_whole(tmp_path, monkeypatch):
    from paper import patterns

    monkeypatch.setattr(patterns, "_THINNINGS", 1)
    monkeypatch.setattr(patterns, "PATTERNS", {"longleaf, octagon with a hole": patterns.longleaf_with_hole})
    result = invoke("paper", "patterns", "--steps", 2, "--out", tmp_path)
    assert result.exit_code == 0, result.output
    assert "bei" in json.loads((tmp_path / "metrics.json").read_text())["results"]["log_likelihood_per_point"]
