"""Columns as a network takes them: numbers, gaps, text, bounds of pieces, bad input."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpsuq import GPSError
from gpsuq.regress.columns import MOST_LEVELS, OTHER, Columns, as_frame, check_names


def test_numbers_are_standardised_whatever_their_unit():
    x = np.random.default_rng(0).normal(size=500)
    for unit in (1e-12, 1.0, 1e12):
        table = pd.DataFrame({"x": 5.0 * unit + unit * x})
        encoded = Columns.of(table).encoded(table)
        np.testing.assert_allclose(encoded[:, 0], (x - x.mean()) / x.std(), atol=2e-4)


def test_constant_columns_become_zero():
    table = pd.DataFrame({"x": [3.0, 3.0, 3.0]})
    assert (Columns.of(table).encoded(table) == 0).all()


def test_text_never_seen_is_like_what_was_rare():
    many = pd.DataFrame({"id": [f"a{i}" for i in range(3 * MOST_LEVELS)] + ["b"] * 20})
    columns = Columns.of(many)
    assert columns.columns[0].levels[-1] == OTHER
    assert columns.width == MOST_LEVELS
    new = columns.encoded(pd.DataFrame({"id": ["never", "b"]}))
    assert new[0, -1] == 1.0
    assert new.sum(1).tolist() == [1.0, 1.0]
    few = Columns.of(pd.DataFrame({"id": ["a", "b"]}))
    assert few.encoded(pd.DataFrame({"id": ["never"]})).sum() == 0.0


def test_hundred_thousand_categories_take_little():
    table = pd.DataFrame({"id": np.arange(100_000).astype(str)})
    assert Columns.of(table).width == MOST_LEVELS


def test_bounds_of_pieces_increase_and_text_is_not_cut():
    table = pd.DataFrame({"x": [0.0] * 60 + list(range(40)), "t": ["a", "b"] * 50})
    columns = Columns.of(table)
    edges = columns.edges(columns.encoded(table), 8)
    assert len(edges) == columns.width
    assert all((np.diff(bounds) > 0).all() for bounds in edges)
    assert edges[1] == edges[2] == ()
    assert len(edges[0]) > 2


@given(st.lists(st.one_of(st.none(), st.floats(-1e9, 1e9)), min_size=2, max_size=30))
def test_encoding_is_finite_and_a_row_does_not_depend_on_others(cells):
    table = pd.DataFrame({"x": pd.Series(cells, dtype=float)})
    if table["x"].isna().all():
        return
    columns = Columns.of(table)
    whole = columns.encoded(table)
    assert np.isfinite(whole).all()
    assert (columns.encoded(table.iloc[1:]) == whole[1:]).all()


def test_bad_columns_are_named():
    with pytest.raises(GPSError, match=r"infinity: column 'x', row 1"):
        Columns.of(pd.DataFrame({"x": [0.0, np.inf]}))
    with pytest.raises(GPSError, match="nothing but missing"):
        Columns.of(pd.DataFrame({"x": [np.nan, np.nan]}))
    with pytest.raises(GPSError, match="more than a number can hold"):
        Columns.of(pd.DataFrame({"x": [-1e308, 1e308]}))
    columns = Columns.of(pd.DataFrame({"x": [0.0, 1.0]}))
    with pytest.raises(GPSError, match="holds text"):
        columns.encoded(pd.DataFrame({"x": ["a"]}))
    with pytest.raises(GPSError, match="lacks x and has z"):
        check_names(columns, pd.DataFrame({"z": [1.0]}))
    with pytest.raises(GPSError, match="2D"):
        as_frame([1.0, 2.0])
