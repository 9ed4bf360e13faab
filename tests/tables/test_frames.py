"""Frames of pandas, polars and pyarrow: the same columns in, the caller's kind out; dates, columns that are names."""

import datetime
from decimal import Decimal

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from gpsuq import GPSError, GPSLinearRegression, GPSRegressor, load
from gpsuq.tables.frames import as_pandas, days, identifiers, like, numbers_of

CELLS = {
    "on": [datetime.date(2024, 1, 31), None],
    "at": [datetime.datetime(2024, 1, 31, 6), None],
    "price": [Decimal("1.5"), None],
    "count": [3, None],
    "took": [datetime.timedelta(hours=12), None],
    "site": ["north", None],
}
BERLIN = pl.col("at").dt.replace_time_zone("Europe/Berlin")
FRAMES = {
    "objects": pd.DataFrame(CELLS),
    "nullable": pd.DataFrame(CELLS).convert_dtypes(),
    "pyarrow-backed": pd.DataFrame(CELLS).convert_dtypes(dtype_backend="pyarrow"),
    "polars": pl.DataFrame(CELLS),
    "categories and zones": pl.DataFrame(CELLS).with_columns(BERLIN, pl.col("site").cast(pl.Categorical)),
    "pyarrow": pa.table(CELLS),
}


@pytest.mark.parametrize("frame", FRAMES.values(), ids=FRAMES)
def test_all_libraries_give_the_same_columns(frame):
    table = as_pandas(frame)
    assert [kind.kind for kind in table.dtypes[:5]] == ["M", "M", "f", "f", "f"]
    assert table.loc[0, ["price", "count", "took", "site"]].tolist() == [1.5, 3.0, 0.5, "north"]
    assert days(table["at"]).iloc[0] == 19753.25
    assert table.iloc[1].isna().all()


def test_what_is_no_frame_is_left_alone():
    assert as_pandas(np.zeros((2, 2))) is None
    plain = pd.DataFrame({"x": [1.0]}, index=["a"])
    assert as_pandas(plain) is plain
    assert numbers_of([[1.0]], "it") == [[1.0]]


def test_results_are_of_the_kind_of_the_rows():
    result = pd.DataFrame({(0, 0.5): [1.0], (0, 0.9): [2.0]}, index=pd.Index(["a"], name="group"))
    assert like(result, pl.DataFrame({"x": [1]})).columns == ["group", "0: 0.5", "0: 0.9"]
    assert like(result, pd.DataFrame({"x": [1]})) is result
    assert isinstance(like(result, pa.table({"x": [1]})), pa.Table)


@pytest.fixture(scope="module")
def rows():
    rng, n = np.random.default_rng(0), 130
    when = pd.Timestamp("2022-01-01") + pd.to_timedelta(np.arange(n) * 6, unit="D")
    table = pd.DataFrame({"when": when, "x": rng.normal(size=n)})
    return table, np.sin(2.0 * np.pi * np.arange(n) * 6 / 365.2425) + 0.1 * rng.normal(size=n)


@pytest.mark.filterwarnings("ignore::gpsuq.GPSWarning")
def test_a_regressor_sees_the_season_and_answers_in_polars(rows, tmp_path):
    table, y = rows
    given = pl.DataFrame({name: column.to_numpy() for name, column in table.items()})
    model = GPSRegressor(n_chains=2, n_steps=80).fit(given, y)
    assert model.columns_.columns[0].cycles == (365.2425,)  # every sixth day says nothing about weekdays
    assert model.crps(given, y).mean() < 0.15  # without the cycle 0.4
    new = given[:3]
    asked = [model.predict_interval(new), model.predict_quantiles(new), model.uncertainty(new)]
    for answer in [*asked, model.explain_rows(new, y[:3])]:
        assert isinstance(answer, pl.DataFrame)
    again = load(model.save(tmp_path / "model"))
    assert again.predict_interval(new).equals(asked[0])
    assert np.array_equal(again.predict(new.with_columns(pl.col("when").cast(pl.String))), model.predict(new))
    assert (
        GPSRegressor(n_chains=2, n_steps=1).fit(table.astype({"when": str}), y).columns_.columns
        == model.columns_.columns
    )
    with pytest.raises(GPSError, match=r"'when' held dates .*'soon' as 2024-01-31"):
        again.predict(new.with_columns(when=pl.lit("soon")))


def test_a_line_takes_dates_as_days_and_names_text(rows):
    table, y = rows
    model = GPSLinearRegression(n_chains=2, spread_weight=3.0).fit(table, np.arange(len(y)) * 0.1 + 0.01 * y)
    assert model.coef_[0] == pytest.approx(0.1 / 6, rel=0.01)
    assert np.allclose(model.predict(table.astype({"when": str})), model.predict(table))
    assert model.findings_ == []  # dates are no row numbers
    new = pl.DataFrame({"when": table["when"].to_numpy(), "x": table["x"].to_numpy()})[:2]
    for answer in (model.predict_interval(new), model.predict_quantiles(new), model.explain_rows(new, y[:2])):
        assert isinstance(answer, pl.DataFrame)
    assert model.explain_groups(new, y[:2], ["a", "b"])["group"].to_list() == ["a", "b"]
    with pytest.raises(GPSError, match=r"columns site hold text.*get_dummies"):
        model.fit(table.assign(site="north"), y)


def test_columns_that_are_names_are_noticed():
    numbers = np.arange(40)
    table = pd.DataFrame(
        {
            "counts": numbers,
            "name": [f"person {number}" for number in numbers],
            "site": ["north", "south"] * 20,
            "grams": numbers[::-1] * 7,
            "customer_id": numbers[::-1] * 7,
            "on": pd.Timestamp("2024-01-01") + pd.to_timedelta(numbers, unit="D"),
        }
    )
    found = [finding.message.split(" is")[0] for finding in identifiers(table)]
    assert found == ["column counts", "column name", "column customer_id"]
    assert identifiers(table.head(10)) == []
    many = identifiers(pd.DataFrame(np.arange(30)[:, None] + np.zeros(100)).add_prefix("gene"))
    assert len(many) == 6
    assert "gene24 and 75 more" in many[-1].message
