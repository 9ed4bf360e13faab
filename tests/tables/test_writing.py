"""CSV that a spreadsheet can open without harm."""

import io

import numpy as np
import pandas as pd
import pytest

from gpsuq.tables.reading import read_table, write_table
from gpsuq.tables.writing import csv_text

EVIL = ['=cmd|"/C calc"!A0', "+1+cmd", "-2+3", "@SUM(A1)", "\tx", "\rx"]


@pytest.mark.parametrize("dtype", [object, "string", "category"])
def test_texts_are_no_formulas(dtype):
    column = pd.Series([*EVIL, "plain", "a\r=b"], index=[*EVIL, "x", "y"], dtype=dtype)
    table = column.to_frame("=name")
    again = pd.read_csv(io.StringIO(csv_text(table), newline=""), index_col=0)
    expected = [f"'{text}" for text in EVIL]
    assert list(again.columns) == ["'=name"]
    assert list(again.iloc[:, 0]) == [*expected, "plain", "a\r=b"]
    assert list(again.index) == [*expected, "x", "y"]


def test_numbers_are_as_they_were():
    table = pd.DataFrame(
        {
            "a": [-1.5, np.nan, np.inf],
            "b": [-1, 2, 3],
            "c": ["-1", "+2.5", "-1e-3"],
            "d": [-1, "text", None],
            "e": pd.to_datetime(["2020-01-01"] * 3),
            "f": [True, False, True],
        }
    )
    assert csv_text(table, index=False) == table.to_csv(index=False)
    assert csv_text(table.set_index(["a", "b"])) == table.set_index(["a", "b"]).to_csv()
    assert list(table["c"]) == ["-1", "+2.5", "-1e-3"]


def test_ordinary_tables_are_read_back_unchanged(tmp_path):
    table = pd.DataFrame({"Länge": [1.5, -2.5], "Ort": ["Köln", 'a "b", c']})
    pd.testing.assert_frame_equal(read_table(write_table(table, tmp_path / "a.csv", index=False)), table)
