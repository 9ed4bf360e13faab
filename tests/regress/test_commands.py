"""`gpsuq fit regression` and what is asked of a saved one: text and gaps in a CSV, JSON, predictions, going on."""

import json

import numpy as np
import pandas as pd
import pytest
from invoking import invoke

import gpsuq
from gpsuq import GPSRegressor
from gpsuq.engine.generative import TrainingState
from gpsuq.regress import commands
from gpsuq.regress.families import FAMILIES

pytestmark = pytest.mark.filterwarnings("ignore::gpsuq.GPSWarning")


@pytest.fixture(autouse=True)
def few_chains(monkeypatch):
    monkeypatch.setitem(GPSRegressor.__init__.__kwdefaults__, "n_chains", 4)


@pytest.fixture
def data(tmp_path):
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"dose": rng.uniform(-2, 2, 90), "site": rng.choice(["north", "so[u]th"], 90)})
    table["smoker"] = rng.random(90) < 0.5
    table["response"] = 3.0 * table["dose"] + (table["site"] == "north") + 0.3 * rng.normal(size=90)
    table.loc[[3, 8], "dose"] = np.nan
    table.loc[[4, 8], "site"] = None
    table.to_csv(tmp_path / "data.csv", index=False)
    return tmp_path / "data.csv"


def fit(data, *options, target="response"):
    out = data.parent / "model"
    return invoke("fit", "regression", data, "--target", target, "--steps", 30, "--out", out, *options)


def said(result):
    return " ".join(result.output.split())


def test_fit_summary_predict_report(data):
    result = fit(data)
    assert result.exit_code == 0, result.output
    model = data.parent / "model"
    assert {path.name for path in model.iterdir()} == {
        *("config.json", "model.safetensors", "rows.csv", "regression.png", "checks.json", "report.html")
    }
    assert (model / "regression.png").stat().st_size > 10_000
    rows = pd.read_csv(model / "rows.csv")
    assert rows["row"].tolist() == list(range(1, 91))  # rows with gaps stay
    assert rows["left_out"].all()
    assert "Of rows that were left out, these hold: 50% intervals" in said(result)

    shown = invoke("summary", model)
    assert shown.exit_code == 0
    for words in ("dose", "numbers, some missing", "text, 3 levels", "Outcomes are normal. Generators:"):
        assert words in shown.stdout

    predicted = invoke("predict", model, data)
    lines = predicted.stdout.splitlines()
    assert lines[0] == "row,mean,lower,upper"
    assert len(lines) == 91
    table = pd.read_csv(data)
    written = invoke("predict", model, data, "--out", data.parent / "new.csv", "--coverage", 0.5)
    assert written.exit_code == 0, written.output
    narrow = pd.read_csv(data.parent / "new.csv")
    loaded = gpsuq.load(model)
    wanted = loaded.predict_interval(table.drop(columns="response"), 0.5)
    assert np.allclose(narrow[["lower", "upper"]], wanted)
    assert np.allclose(narrow["mean"], loaded.predict(table.drop(columns="response")))

    before = (model / "report.html").read_text()
    (model / "report.html").unlink()
    assert invoke("report", model).exit_code == 0
    assert (model / "report.html").read_text() == before
    page = data.parent / "new.html"
    judged = invoke("report", model, "--data", data, "--target", "response", "--out", page)
    assert judged.exit_code == 0, judged.output
    assert "Regression of response" in page.read_text()
    refused = invoke("report", model, "--data", data, "--out", data.parent / "other.html")
    assert refused.exit_code == 1
    assert "--target" in refused.output


def test_json_is_all_that_is_printed(data):
    result = fit(data, "--json", "--drop", "smoker")
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert found["columns"] == {"dose": "numbers, some missing", "site": "text, 3 levels"}
    assert found["rows"] == 90
    assert found["left_out"] is True
    assert set(found["inside"]) == {"0.5", "0.8", "0.9", "0.95"}
    assert sum(found["members"].values()) == pytest.approx(1.0)
    again = json.loads(invoke("summary", data.parent / "model", "--json", "--coverage", 0.8).stdout)
    assert again["coverage"] == 0.8
    assert again["members"] == found["members"]
    rows = json.loads(invoke("predict", data.parent / "model", data, "--json").stdout)
    assert rows[0].keys() == {"row", "mean", "lower", "upper"}


@pytest.mark.parametrize(
    ("content", "options", "message"),
    [
        (None, {"target": "price"}, "no column 'price'"),
        (None, {"target": "site"}, "columns site hold text"),
        ("x,y\n1,2\n3,\n4,5\n6,7\n", {}, "missing or infinite values in columns y, row 2 ("),
        ("x,y\n1,2\ninf,3\n4,5\n", {}, "infinite values in columns x, row 2 ("),
        ("x,y\n1,2\n2,2\n4,2\n", {}, "y is constant"),
        ("x,y\n,1\n,2\n,4\n", {}, "column 'x' holds nothing but missing values"),
        ("y\n1\n2\n", {}, "no covariates"),
        ("x,y\n1,2\n", {}, "at least 2 rows"),
        ("x,y\n1,2\n2,oops\n3,4\n4,5\n5,6\n6,7\n", {}, "columns y hold text, such as 'oops' in row 2"),
        ("x,y\n1,2\noops,3\n3,4\n4,5\n5,6\n6,7\n", {}, "'oops' in row 2"),
        ("x,y\n1,2\n2,-1\n3,4\n", {"family": "lognormal"}, 'family="lognormal" is for positive numbers'),
        ("x,y\n1,2\n2,3\n3,4\n", {"family": "gamma"}, "'family' parameter"),
        ("x,y\n1,2\n2,3\n3,4\n", {"conformal": 1.5}, "'conformal' parameter"),
    ],
)
def test_bad_input_is_one_line_of_error(data, content, options, message):
    if content is not None:
        data.write_text(content)
    target = options.pop("target", "response" if content is None else "y")
    result = fit(data, *(word for name, value in options.items() for word in (f"--{name}", value)), target=target)
    assert result.exit_code == 1, result.output
    assert message in said(result)
    assert not (data.parent / "model").exists()


def test_rows_without_a_target_are_left_out_where_asked(data):
    table = pd.read_csv(data)
    table.loc[[0, 5], "response"] = np.nan
    table.to_csv(data, index=False)
    refused = fit(data)
    assert refused.exit_code == 1
    assert "rows 1, 6 (" in said(refused)
    assert "--drop-missing" in refused.output
    result = fit(data, "--drop-missing")
    assert result.exit_code == 0, result.output
    assert "2 of 90 rows have missing values and were left out" in said(result)
    rows = pd.read_csv(data.parent / "model" / "rows.csv")["row"].tolist()
    assert rows == [row for row in range(1, 91) if row not in (1, 6)]  # their numbers in the file; gaps in dose stay


def test_groups_weights_and_a_conformal_layer(data):
    table = pd.read_csv(data).assign(subject=np.repeat(range(30), 3), count=1)
    table.loc[7, "count"] = 0
    table.to_csv(data, index=False)
    options = ("--groups", "subject", "--weights", "count", "--json")
    whole = fit(data, *options)
    assert whole.exit_code == 0, whole.output
    assert list(json.loads(whole.stdout)["columns"]) == ["dose", "site", "smoker"]
    rows = pd.read_csv(data.parent / "model" / "rows.csv", index_col="row")
    assert len(rows) == 90
    assert not rows.loc[8, "left_out"]  # weight 0 is like no row: it was not fitted, so not left out either
    result = fit(data, *options, "--force", "--conformal", 0.5)
    assert result.exit_code == 0, result.output
    assert 40 <= json.loads(result.stdout)["conformal_rows"] <= 50
    assert "Intervals cover by construction" in said(invoke("summary", data.parent / "model"))


def test_counts(data):
    rng = np.random.default_rng(0)
    pd.DataFrame({"x": range(60), "y": rng.poisson(3, 60)}).to_csv(data, index=False)
    result = fit(data, "--family", "poisson", target="y")
    assert result.exit_code == 0, result.output
    assert "Outcomes are poisson" in said(result)
    predicted = invoke("predict", data.parent / "model", data, "--out", data.parent / "new.csv")
    assert predicted.exit_code == 0, predicted.output
    lower = pd.read_csv(data.parent / "new.csv")["lower"]
    assert (lower == lower.round()).all()


def test_the_help_names_all_families():
    assert all(family in commands._FAMILIES for family in FAMILIES)


def test_a_table_that_lacks_a_column_is_refused(data):
    assert fit(data).exit_code == 0
    pd.read_csv(data).drop(columns="site").to_csv(data, index=False)
    result = invoke("predict", data.parent / "model", data)
    assert result.exit_code == 1
    assert "lacks the columns site" in said(result)


def test_a_text_that_is_new_is_predicted(data):
    """What was never seen is like what was rare, or like no text at all."""
    assert fit(data).exit_code == 0
    pd.read_csv(data).assign(site="elsewhere").head(3).to_csv(data, index=False)
    result = invoke("predict", data.parent / "model", data)
    assert result.exit_code == 0, result.output
    assert len(result.stdout.splitlines()) == 4


def test_codes_beside_gaps_are_the_same_text(data):
    """A column of codes that was text in the fit is read as 1.0 beside a gap in a file of new rows."""
    rng = np.random.default_rng(0)
    code = rng.choice(["1", "2", "3a"], 90)
    pd.DataFrame({"code": code, "y": 5.0 * (code == "2") + 0.1 * rng.normal(size=90)}).to_csv(data, index=False)
    assert fit(data, target="y").exit_code == 0
    whole, gap = data.parent / "whole.csv", data.parent / "gap.csv"
    pd.DataFrame({"code": ["1", "2"], "y": 0}).to_csv(whole, index=False)
    pd.DataFrame({"code": ["1", "2", None], "y": 0}).to_csv(gap, index=False)
    plain, beside = (invoke("predict", data.parent / "model", path).stdout.splitlines() for path in (whole, gap))
    assert beside[:3] == plain


def test_a_column_of_names_is_told(data):
    pd.read_csv(data).assign(name=[f"person {row}" for row in range(90)]).to_csv(data, index=False)
    result = fit(data)
    assert result.exit_code == 0, result.output
    assert "column name is different in every row" in " ".join(result.stdout.split())


def test_a_model_is_not_overwritten_unasked(data):
    assert fit(data).exit_code == 0
    refused = fit(data)
    assert refused.exit_code == 1
    assert "--force" in refused.output
    assert fit(data, "--force").exit_code == 0


def test_a_fit_that_was_stopped_goes_on(data, monkeypatch):
    usual, steps = TrainingState.next_loss, []

    def next_loss(state):
        steps.append(state.step)
        if len(steps) == 40:  # in the middle of the second kind
            raise KeyboardInterrupt
        return usual(state)

    monkeypatch.setattr(TrainingState, "next_loss", next_loss)
    result = fit(data)
    assert result.exit_code == 130
    assert "same command again" in " ".join(result.stderr.split())
    assert not (data.parent / "model").exists()
    steps[:] = [0] * 40
    assert fit(data).exit_code == 0
    taken = len(steps)
    out = data.parent / "whole"
    assert invoke("fit", "regression", data, "--target", "response", "--steps", 30, "--out", out).exit_code == 0
    assert taken - 40 < len(steps) - taken  # the first kind was read, not trained again
    name = "model.safetensors"
    assert (out / name).read_bytes() == (data.parent / "model" / name).read_bytes()
