"""Commands on Parquet files and folders that are read in parts: they do what they do with a table in memory."""

import json

import numpy as np
import pandas as pd
import pytest
from invoking import invoke

from gpsuq.tables import parquet, streaming

pytestmark = pytest.mark.filterwarnings("ignore::gpsuq.GPSWarning")


@pytest.fixture
def table(rng):
    n = 600
    x, site = rng.normal(size=n), rng.choice(["north", "south"], n)
    return pd.DataFrame({"x": x, "site": site, "y": 2.0 * x + (site == "south") + rng.normal(size=n)})


@pytest.fixture
def folder(tmp_path, table, monkeypatch):
    """A folder of two files, of which 200 rows are held at most, and 90 at once."""
    monkeypatch.setattr(streaming, "SAMPLE", 200)
    monkeypatch.setattr("gpsuq.tables.sample.SAMPLE", 200)
    monkeypatch.setattr(parquet, "BLOCK", 90)
    path = tmp_path / "data"
    path.mkdir()
    table[:250].to_parquet(path / "a.parquet")
    table[250:].to_parquet(path / "b.parquet")
    return path


def ran(*arguments):
    result = invoke(*arguments)
    assert result.exit_code == 0, result.output
    return result.output


@pytest.mark.slow
def test_a_folder_is_fitted_predicted_and_judged(tmp_path, folder, table):
    told = json.loads(ran("fit", "linear", folder, "--target", "y", "--out", tmp_path / "model", "--json"))
    assert told["rows"] == 600
    means = {name: row["mean"] for name, row in told["parameters"].items()}
    assert means == pytest.approx({"x": 2.0, "site=south": 1.0, "intercept": 0.0, "sigma": 1.0}, abs=0.25)
    rows = pd.read_csv(tmp_path / "model" / "rows.csv")
    assert len(rows) == 200
    assert rows["row"].between(1, 600).all()
    page = (tmp_path / "model" / "report.html").read_text(encoding="utf-8")
    assert "600 rows" in page
    assert "a sample of 200 rows" in page
    assert "a sample of 200 rows" in _report(tmp_path, "--out", tmp_path / "again.html")

    ran("predict", tmp_path / "model", folder, "--out", tmp_path / "streamed.parquet")
    table.to_csv(tmp_path / "data.csv", index=False)
    ran("predict", tmp_path / "model", tmp_path / "data.csv", "--out", tmp_path / "held.csv")
    streamed, held = pd.read_parquet(tmp_path / "streamed.parquet"), pd.read_csv(tmp_path / "held.csv")
    assert streamed["row"].tolist() == list(range(1, 601))
    # Quantiles are solved for the rows of a part together, until all of them are close.
    pd.testing.assert_frame_equal(streamed, held, check_dtype=False, rtol=1e-4)
    printed = ran("predict", tmp_path / "model", folder)
    assert len(printed.splitlines()) == 601

    judged = _report(tmp_path, "--data", folder, "--target", "y", "--out", tmp_path / "judged.html")
    assert "sample of the 600 rows" in judged
    assert "<dt>rows</dt><dd>200</dd>" in judged

    table.loc[400, "site"] = "west"
    table[250:].to_parquet(folder / "b.parquet")
    failed = invoke("predict", tmp_path / "model", folder, "--out", tmp_path / "strange.parquet")
    assert failed.exit_code == 1
    assert "'west' in row 401" in failed.output.replace("\n", " ")
    assert not list(tmp_path.glob("*strange*"))


def _report(tmp_path, *options):
    ran("report", tmp_path / "model", *options)
    return options[-1].read_text(encoding="utf-8")


def test_rows_left_out_are_counted(tmp_path, folder, table):
    table.loc[[5, 300], "x"] = np.nan
    table[:250].to_parquet(folder / "a.parquet")
    table[250:].to_parquet(folder / "b.parquet")
    options = ("fit", "linear", folder, "--target", "y", "--out", tmp_path / "model")
    failed = invoke(*options)
    assert failed.exit_code == 1
    assert "a.parquet: missing" in failed.output.replace("\n", "")
    assert not (tmp_path / "model").exists()
    assert "2 of 600 rows have missing values" in ran(*options, "--drop-missing")


def test_what_cannot_be_streamed_is_told(tmp_path, folder):
    failed = invoke("fit", "linear", folder, "--target", "y", "--groups", "site", "--out", tmp_path / "model")
    assert failed.exit_code == 1
    assert "--groups needs a table in memory" in failed.output


def test_csv_becomes_parquet(tmp_path, table):
    table.to_csv(tmp_path / "data.csv", index=False)
    told = json.loads(ran("data", "convert", tmp_path / "data.csv", "--out", tmp_path / "data.parquet", "--json"))
    assert told == {"rows": 600, "files": [str(tmp_path / "data.parquet")]}
    pd.testing.assert_frame_equal(pd.read_parquet(tmp_path / "data.parquet"), table)
    failed = invoke("data", "convert", tmp_path / "data.csv", "--out", tmp_path / "data.parquet")
    assert failed.exit_code == 1
    assert "--force" in failed.output
