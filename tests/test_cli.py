import json

import pytest
from typer.testing import CliRunner

from gpsuq import __version__
from gpsuq.cli import app

runner = CliRunner()


def invoke(*arguments):
    return runner.invoke(app, [str(argument) for argument in arguments])


def test_version_and_help():
    assert invoke("--version").stdout.strip() == __version__
    assert "experiment" in invoke("--help").stdout
    assert "--replicates" in invoke("experiment", "scissors", "--help").stdout


@pytest.mark.filterwarnings("ignore::gpsuq.GPSWarning")
def test_scissors_write_metrics_figures_and_configuration(tmp_path):
    result = invoke("experiment", "scissors", "--seed", 3, "--replicates", 2, "--steps", 20, "--out", tmp_path)
    assert result.exit_code == 0, result.output
    record = json.loads((tmp_path / "metrics.json").read_text())
    assert record["command"].startswith("gpsuq experiment scissors --seed 3 --replicates 2 --steps 20 --out")
    assert list(record["results"]["per_seed"]) == ["3", "4"]
    assert record["settings"]["algorithm"]["n_steps"] == 20
    assert {"torch", "python", "threads"} <= record["environment"].keys()
    assert abs(record["results"]["per_seed"]["3"]["posterior_mean"]) < 0.2
    assert (tmp_path / "scissors.png").stat().st_size > 10_000
    assert "scissors.png" in result.stdout


@pytest.mark.filterwarnings("ignore::gpsuq.GPSWarning")
def test_the_other_experiments_run_whole(tmp_path, monkeypatch):
    from gpsuq.experiments import draws, noise_dim

    monkeypatch.setattr(draws, "DRAWS", (2, 5))
    monkeypatch.setattr(draws, "_REPEATS", 5)
    monkeypatch.setattr(noise_dim, "DIMENSIONS", (1, 4))
    for name in ("draws", "noise-dim", "collapse"):
        options = [] if name == "collapse" else ["--replicates", 2]
        result = invoke("experiment", name, *options, "--steps", 12, "--out", tmp_path / name)
        assert result.exit_code == 0, result.output
        record = json.loads((tmp_path / name / "metrics.json").read_text())
        assert record["results"]
        assert list((tmp_path / name).glob("*.png"))
    table = json.loads((tmp_path / "draws" / "metrics.json").read_text())["results"]["table"]
    variance = {(row["M"], row["J"]): row["gradient_variance"] for row in table}
    assert variance[5, "exact"] < variance[2, "1"]


def test_results_are_not_overwritten_unasked(tmp_path):
    (tmp_path / "metrics.json").write_text("{}")
    result = invoke("experiment", "collapse", "--out", tmp_path)
    assert result.exit_code == 1
    assert "--force" in result.output
    assert (tmp_path / "metrics.json").read_text() == "{}"
