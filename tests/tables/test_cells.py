"""Numbers and dates as people write them, from a file to a prediction."""

import datetime

import numpy as np
import pandas as pd
import pytest
from invoking import invoke

from gpsuq import GPSError, GPSRegressor, GPSWarning
from gpsuq.tables.cells import as_dates, as_numbers
from gpsuq.tables.reading import split_table
from gpsuq.tables.streaming import ParquetRows


@pytest.mark.parametrize(
    ("cells", "decimal", "numbers"),
    [
        (["1.234", "12", "-1.234.567,8"], ",", [1234, 12, -1234567.8]),
        (["1,234", "12", "1,234,567.8"], ".", [1234, 12, 1234567.8]),
        (["1,5", ",5", "2e3"], ",", [1.5, 0.5, 2000]),
        (["1.5", "2"], ",", None),  # a point that separates no thousands
        (["12,34", "1"], ".", None),
        (["1,234"], None, None),
        (["1.5", "?"], None, [1.5, np.nan]),
        (["01.02.2024"], ",", None),
    ],
)
def test_signs_of_numbers(cells, decimal, numbers):
    found = as_numbers(pd.Series(cells), decimal)
    assert found.tolist() == cells if numbers is None else np.array_equal(found, numbers, equal_nan=True)


@pytest.mark.parametrize(
    ("cells", "dates"),
    [
        (["2024-03-04", None, "2024/3/5"], ["2024-03-04", None, "2024-03-05"]),
        (["2024-03-04 17:30", "2024-03-04T17:30:59.5"], ["2024-03-04 17:30", "2024-03-04 17:30:59.5"]),
        (["4.3.2024"], ["2024-03-04"]),
        (["31/3/2024", "4/3/2024"], ["2024-03-31", "2024-03-04"]),
        (["3/31/2024", "3/4/2024 5:00 PM"], ["2024-03-31", "2024-03-04 17:00"]),
        (["31/3/2024", "3/31/2024"], None),
        (["3/4/2024"], None),
        (["2024-13-01"], None),
        (["2024-03-04", "later"], None),
        ([None, None], None),
    ],
)
def test_dates(cells, dates):
    found = as_dates(pd.Series(cells, dtype=object))
    if dates is None:
        assert found.dtype == object
    else:
        assert found.tolist() == [pd.NaT if date is None else pd.Timestamp(date) for date in dates]


def test_days_and_months_that_cannot_be_told_apart_are_refused_unless_left_out():
    table = pd.DataFrame({"visited on": ["3/4/2024", "5/4/2024"], "x": [1.0, 2.0], "y": [1.0, 2.0]})
    with pytest.raises(GPSError, match=r"cannot be told apart, such as 3/4/2024: .* --drop 'visited on'"):
        split_table(table, "y")
    assert list(split_table(table, "y", drop=["visited on"]).X) == ["x"]


def test_dates_of_a_table_are_days():
    table = pd.DataFrame({"on": pd.to_datetime(["1970-01-02", "1970-01-04"]), "y": [1.0, 2.0]})
    with pytest.warns(GPSWarning, match="columns on are numbers of days since 1970"):
        assert split_table(table, "y").X["on"].tolist() == [1.0, 3.0]
    assert split_table(table, "y", encode=False).X["on"].tolist() == table["on"].tolist()


def test_streamed_dates_are_days_too(tmp_path):
    days = [datetime.date(1970, 1, 2 + number) for number in range(20)]
    pd.DataFrame({"on": days, "at": pd.to_datetime(days), "y": range(20)}).to_parquet(tmp_path / "part.parquet")
    X = ParquetRows(tmp_path, "y").sample.X
    assert X[:, 0].tolist() == X[:, 1].tolist() == list(range(1, 21))


@pytest.fixture
def european(tmp_path, rng):
    """A file of a spreadsheet, and its table."""
    n = 60
    table = pd.DataFrame({"dose": rng.normal(size=n), "site": rng.choice(["n", "s"], n)})
    table["on"] = [f"{1 + number % 28}.{1 + number // 28}.2023" for number in range(n)]
    table["y"] = table["dose"] + 0.1 * rng.normal(size=n)
    table.to_csv(tmp_path / "data.csv", sep=";", decimal=",", index=False)
    return tmp_path / "data.csv", table


def test_a_file_with_dates_and_decimal_commas_is_fitted_and_predicted(european, tmp_path):
    path, _ = european
    options = "--target", "y", "--out", tmp_path / "model", "--steps", 5
    assert "--decimal ," in " ".join(invoke("fit", "linear", path, *options).output.split())
    for command in (("fit", "linear", path, *options), ("predict", tmp_path / "model", path)):
        done = invoke(*command, "--decimal", ",")
        assert done.exit_code == 0, done.output


@pytest.mark.filterwarnings("ignore::gpsuq.GPSWarning")
def test_a_regression_predicts_the_dates_of_a_file(european, tmp_path):
    path, table = european
    table["on"] = as_dates(table["on"])
    GPSRegressor(n_chains=2, n_steps=2).fit(table.drop(columns="y"), table["y"]).save(tmp_path / "model")
    done = invoke("predict", tmp_path / "model", path, "--decimal", ",")
    assert done.exit_code == 0, done.output
    wrong = invoke("predict", tmp_path / "model", path)
    assert "'dose' holds text" in " ".join(wrong.output.split())
