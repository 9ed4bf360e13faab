import json

import numpy as np
import pandas as pd
import pytest
from invoking import invoke

from gpsuq import __version__
from gpsuq.cli import examination


def test_version_and_help():
    assert invoke("--version").stdout.strip() == __version__
    assert "predict" in invoke("--help").stdout
    assert "--replicates" in invoke("paper", "scissors", "--help").stdout


@pytest.mark.filterwarnings("ignore::gpsuq.GPSWarning")
def test_scissors_write_metrics_figures_and_configuration(tmp_path):
    result = invoke("paper", "scissors", "--seed", 3, "--replicates", 2, "--steps", 20, "--out", tmp_path)
    assert result.exit_code == 0, result.output
    record = json.loads((tmp_path / "metrics.json").read_text())
    assert record["command"].startswith("python -m paper scissors --seed 3 --replicates 2 --steps 20 --out")
    assert list(record["results"]["per_seed"]) == ["3", "4"]
    assert record["settings"]["algorithm"]["n_steps"] == 20
    assert {"torch", "python", "threads"} <= record["environment"].keys()
    assert abs(record["results"]["per_seed"]["3"]["posterior_mean"]) < 0.2
    assert (tmp_path / "scissors.png").stat().st_size > 10_000
    assert "scissors.png" in result.stdout


@pytest.mark.filterwarnings("ignore::gpsuq.GPSWarning")
def test_the_other_experiments_run_whole(tmp_path, monkeypatch):
    from paper import draws, noise_dim

    monkeypatch.setattr(draws, "DRAWS", (2, 5))
    monkeypatch.setattr(draws, "_REPEATS", 5)
    monkeypatch.setattr(noise_dim, "DIMENSIONS", (1, 4))
    for name in ("draws", "noise-dim", "collapse"):
        options = [] if name == "collapse" else ["--replicates", 2]
        result = invoke("paper", name, *options, "--steps", 12, "--out", tmp_path / name)
        assert result.exit_code == 0, result.output
        record = json.loads((tmp_path / name / "metrics.json").read_text())
        assert record["results"]
        assert list((tmp_path / name).glob("*.png"))
    table = json.loads((tmp_path / "draws" / "metrics.json").read_text())["results"]["table"]
    variance = {(row["M"], row["J"]): row["gradient_variance"] for row in table}
    assert variance[5, "exact"] < variance[2, "1"]


def test_results_are_not_overwritten_unasked(tmp_path):
    (tmp_path / "metrics.json").write_text("{}")
    result = invoke("paper", "collapse", "--out", tmp_path)
    assert result.exit_code == 1
    assert "--force" in result.output
    assert (tmp_path / "metrics.json").read_text() == "{}"


@pytest.fixture
def table(tmp_path):
    rng = np.random.default_rng(0)
    data = pd.DataFrame(rng.normal(size=(60, 2)), columns=["dose", "age"]).assign(site="north")
    data["response"] = 2.0 * data["dose"] + rng.normal(size=60)
    data.to_csv(tmp_path / "data.csv", index=False)
    return tmp_path / "data.csv"


def fit(table, *options, target="response"):
    out = table.parent / "model"
    return invoke("fit", "linear", table, "--target", target, "--steps", 8, "--out", out, *options)


@pytest.mark.filterwarnings("ignore::gpsuq.GPSWarning")
def test_fit_summary_predict(table):
    result = fit(table, "--drop", "site")
    assert result.exit_code == 0, result.output
    model = table.parent / "model"
    assert {path.name for path in model.iterdir()} == {
        *("config.json", "model.safetensors", "summary.csv", "rows.csv", "coefficients.png"),
        *("checks.json", "report.html"),
    }
    assert pd.read_csv(model / "summary.csv")["parameter"].tolist() == ["dose", "age", "intercept", "sigma"]
    assert len(pd.read_csv(model / "rows.csv")) == 60
    shown = invoke("summary", model)
    assert shown.exit_code == 0
    assert "dose" in shown.stdout
    predicted = invoke("predict", model, table)
    assert predicted.stdout.splitlines()[0] == "row,mean,lower,upper"
    assert len(predicted.stdout.splitlines()) == 61
    written = invoke("predict", model, table, "--out", table.parent / "new.csv", "--coverage", 0.5)
    assert written.exit_code == 0
    narrow = pd.read_csv(table.parent / "new.csv")
    assert ((narrow["lower"] < narrow["mean"]) & (narrow["mean"] < narrow["upper"])).all()


@pytest.mark.filterwarnings("ignore::gpsuq.GPSWarning")
def test_names_of_columns_are_shown_as_they_are(table):
    names = {"dose": "height [cm]", "age": "a[/cm]"}
    pd.read_csv(table).rename(columns=names).to_csv(table, index=False)
    result = fit(table, "--drop", "site")
    assert result.exit_code == 0, result.output
    for shown in (result, invoke("summary", table.parent / "model")):
        for name in names.values():
            assert name in shown.stdout


@pytest.mark.filterwarnings("ignore::gpsuq.GPSWarning")
def test_a_models_directory_is_not_overwritten_unasked(table):
    (table.parent / "model").mkdir()
    result = fit(table, "--drop", "site")
    assert result.exit_code == 1
    assert "--force" in result.output
    assert fit(table, "--drop", "site", "--force").exit_code == 0
    (table.parent / "new.csv").write_text("mine")
    result = invoke("predict", table.parent / "model", table, "--out", table.parent / "new.csv")
    assert result.exit_code == 1
    assert (table.parent / "new.csv").read_text() == "mine"


@pytest.mark.parametrize(
    ("content", "target", "message"),
    [
        (None, "price", "no column 'price'"),
        (None, "response", "holds nothing but 'north'"),
        ("", "y", "is empty"),
        ("x,y\n", "y", "no rows"),
        ("x,y\n1,2\n,3\n4,5\n", "y", "row 2 ("),
        ("y\n1\n2\n", "y", "no covariates"),
        ("x,y\n1,2\n", "y", "at least 2 rows"),
        ('x,y\n1,"2\n', "y", "cannot be read"),
    ],
)
def test_bad_tables_are_one_line_of_error(table, content, target, message):
    if content is not None:
        table.write_text(content)
    result = fit(table, target=target)
    assert result.exit_code == 1
    assert message in " ".join(result.output.split())
    assert not (table.parent / "model").exists()


def test_what_is_missing_is_named(table):
    result = fit(table.parent / "nowhere.csv")
    assert result.exit_code == 1
    assert "no file" in result.output
    assert invoke("summary", table.parent).exit_code == 1
    assert "no saved model" in " ".join(invoke("predict", table.parent, table).output.split())


@pytest.mark.filterwarnings("ignore::gpsuq.GPSWarning")
def test_predicting_needs_the_columns_of_the_fit(table):
    assert fit(table, "--drop", "site").exit_code == 0
    other = table.parent / "other.csv"
    other.write_text("dose\n1\n")
    assert "lacks the columns age" in " ".join(invoke("predict", table.parent / "model", other).output.split())


@pytest.mark.filterwarnings("ignore::gpsuq.GPSWarning")
def test_regression_experiments_run_whole_and_go_on_where_they_stopped(tmp_path, monkeypatch):
    from paper import contamination, influence

    monkeypatch.setattr(contamination, "SETTINGS", {"0%": {}, "t, 2 df": {"tails": 2.0}})
    monkeypatch.setattr(influence, "MOVES", (0.0, 100.0))
    for name in ("outliers", "classical", "contamination", "influence"):
        result = invoke("paper", name, "--replicates", 1, "--steps", 4, "--out", tmp_path / name)
        assert result.exit_code == 0, result.output
        assert json.loads((tmp_path / name / "metrics.json").read_text())["results"]
        assert list((tmp_path / name).glob("*.png"))
    done = (tmp_path / "outliers" / "replicates.jsonl").read_text()
    (tmp_path / "outliers" / "metrics.json").unlink()
    result = invoke("paper", "outliers", "--replicates", 2, "--steps", 4, "--out", tmp_path / "outliers")
    assert result.exit_code == 0
    assert (tmp_path / "outliers" / "replicates.jsonl").read_text().startswith(done)
    ratios = json.loads((tmp_path / "outliers" / "metrics.json").read_text())["results"]["ratios"]
    assert ratios["error_gps_over_tukey"]["standard_error"] > 0


def test_real_tables_need_their_directory(tmp_path, monkeypatch):
    monkeypatch.delenv("GPSUQ_DATA", raising=False)
    assert "GPSUQ_DATA" in invoke("paper", "tables", "--out", tmp_path).output
    monkeypatch.setenv("GPSUQ_DATA", str(tmp_path / "nowhere"))
    assert "is not a directory" in invoke("paper", "tables", "--out", tmp_path / "b").output


@pytest.mark.data
@pytest.mark.filterwarnings("ignore::gpsuq.GPSWarning")
def test_real_tables_run_whole(tmp_path, data_directory):
    result = invoke("paper", "tables", "--steps", 10, "--out", tmp_path / "tables")
    assert result.exit_code == 0, result.output
    assert len(list((tmp_path / "tables").glob("*.png"))) == 4


def test_the_doctor_says_what_is_here_and_what_works(monkeypatch):
    monkeypatch.setattr(examination, "checks", lambda: {"good": lambda: None, "bad": lambda: "a sine is missed"})
    result = invoke("doctor")
    assert result.exit_code == 1
    for fact in (
        f"gpsuq             {__version__}",
        "threads",
        "data directory",
        "good              works",
        "a sine is missed",
    ):
        assert fact in result.stdout
    assert "do not work here: bad" in " ".join(result.stderr.split())
    monkeypatch.setattr(examination, "checks", lambda: {"good": lambda: None})
    told = json.loads(invoke("doctor", "--json").stdout)
    assert told["facts"]["torch"]
    assert told["checks"]["good"]["wrong"] is None


def test_a_check_of_the_doctor_that_breaks_is_told():
    assert examination.tried(lambda: 1 / 0)["wrong"] == "ZeroDivisionError: division by zero"
    assert list(examination.checks()) == ["linear", "regression", "classifier", "Poisson process"]
