"""Tables in and out: text as categories, missing values, Parquet."""

import json
import sys

import numpy as np
import pandas as pd
import pytest
from invoking import invoke

from gpsuq import GPSError, GPSWarning
from gpsuq.classify.inputs import parted
from gpsuq.tables.encoding import Encoding
from gpsuq.tables.reading import check_labels, check_numbers, numbered, read_table, split_table, write_table


@pytest.fixture
def table():
    rng = np.random.default_rng(0)
    sites, smokes = np.array(["north", "south", "west"])[rng.integers(0, 3, 90)], rng.random(90) < 0.4
    data = pd.DataFrame({"dose": rng.normal(size=90), "site": sites, "smokes": smokes})
    effect = data["site"].map({"north": 0.0, "south": 1.0, "west": -2.0})
    return data.assign(response=2.0 * data["dose"] + effect + 0.1 * rng.normal(size=90))


def parts(table, **options):
    return split_table(table, "response", groups=None, weights=None, drop=(), **options)


def test_text_becomes_columns_that_keep_their_names(table):
    split = parts(table)
    assert list(split.X) == ["dose", "site=south", "site=west", "smokes=True"]
    assert np.array_equal(split.X["site=west"], (table["site"] == "west").astype(float))
    assert split.X.dtypes.map(lambda kind: kind.kind).eq("f").all()
    assert split.encoding.levels == {"site": ("north", "south", "west"), "smokes": ("False", "True")}


def test_levels_are_kept_for_new_tables(table, tmp_path):
    encoding = Encoding.of(table[["site"]])
    encoding.write(tmp_path)
    again = Encoding.read(tmp_path)
    assert again == encoding
    new = pd.DataFrame({"site": ["west", "west"]})
    assert again.encoded(new)["site=west"].tolist() == [1.0, 1.0]
    assert again.encoded(pd.DataFrame({"site": [None, "west"]}))["site=west"].isna().tolist() == [True, False]
    with pytest.raises(GPSError, match="holds 'east' in row 2, which was not in the data"):
        again.encoded(pd.DataFrame({"site": ["west", "east"]}))
    assert Encoding.read(tmp_path / "nowhere").levels == {}
    (tmp_path / "columns.json").write_text("[1]")
    with pytest.raises(GPSError, match="damaged"):
        Encoding.read(tmp_path)


def test_names_and_constants_are_no_categories(table):
    with pytest.raises(GPSError, match="looks like a name"):
        parts(table.assign(patient=[f"p{number}" for number in range(90)]))
    with pytest.raises(GPSError, match="nothing but 'a'"):
        parts(table.assign(kind="a"))
    with pytest.raises(GPSError, match="nothing but 'missing values'"):
        parts(table.assign(kind=pd.Series([None] * 90, dtype=object)))


def test_missing_values_are_named_or_left_out(table):
    table.loc[3, "dose"] = np.nan
    table.loc[7, "site"] = None
    table.loc[9, "response"] = np.inf
    with pytest.raises(GPSError, match=r"rows 4, 8, 10 .*--drop-missing"):
        parts(table)
    split = parts(table, drop_missing=True)
    assert len(split.X) == 87
    assert numbered(split.X).index[[2, 3, 6]].tolist() == [3, 5, 9]
    with pytest.raises(GPSError, match="every row lacks"):
        parts(table.assign(empty=np.nan), drop_missing=True)


def test_missing_text_is_named_by_its_column(table):
    with pytest.raises(GPSError, match=r"in columns site, rows 1, 4 \(the first row"):
        parts(table.assign(site=table["site"].where(~table.index.isin([0, 3]))))


@pytest.mark.parametrize("separator", [",", ";", "\t"])
def test_the_header_shows_what_separates_columns(table, tmp_path, separator):
    table.to_csv(tmp_path / "data.csv", index=False, sep=separator)
    pd.testing.assert_frame_equal(read_table(tmp_path / "data.csv"), table)


def test_a_quoted_comma_separates_nothing(tmp_path):
    (tmp_path / "data.csv").write_text('"length, in cm";"width, in cm"\n1.5;2\n2.5;3\n')
    assert list(read_table(tmp_path / "data.csv")) == ["length, in cm", "width, in cm"]
    (tmp_path / "data.csv").write_text("only\n1\n")
    assert list(read_table(tmp_path / "data.csv")) == ["only"]


def test_row_numbers_are_left_out(table, tmp_path):
    table.to_csv(tmp_path / "data.csv")
    with pytest.warns(GPSWarning, match="no name and was left out"):
        pd.testing.assert_frame_equal(read_table(tmp_path / "data.csv"), table)


def test_decimal_commas_are_no_categories(tmp_path):
    (tmp_path / "data.csv").write_text("a;response\n2;2\n1,5;3\n-2,5e3;4\n")
    with pytest.raises(GPSError, match=r"'a' holds numbers with commas, such as 1,5: pass --decimal , if .*--drop a"):
        parts(read_table(tmp_path / "data.csv"))
    assert read_table(tmp_path / "data.csv", ",")["a"].tolist() == [2.0, 1.5, -2500.0]
    (tmp_path / "data.csv").write_text("a;response\nred, dark;2\nblue;3\nblue;4\n")
    assert list(parts(read_table(tmp_path / "data.csv")).X) == ["a=red, dark"]


def test_other_encodings_are_refused(tmp_path):
    (tmp_path / "data.csv").write_bytes("größe,y\n1,2\n".encode("latin-1"))
    with pytest.raises(GPSError, match=r"not UTF-8 text .* save it as UTF-8"):
        read_table(tmp_path / "data.csv")
    (tmp_path / "data.csv").write_bytes(("a,y\n" + "1,2\n" * 9).encode() + "é,2\n".encode("latin-1"))
    with pytest.raises(GPSError, match="not UTF-8 text"):
        read_table(tmp_path / "data.csv")
    (tmp_path / "data.csv").write_bytes("größe,y\n1,2\n".encode("utf-8-sig"))
    assert list(read_table(tmp_path / "data.csv")) == ["größe", "y"]


def test_text_in_place_of_numbers_is_quoted_without_options_that_are_not_there():
    with pytest.raises(GPSError, match="columns a hold text, such as 'x' in row 2, where numbers are needed") as raised:
        check_numbers(pd.DataFrame({"a": ["1", "x"]}))
    assert "--drop" not in str(raised.value)


def test_rows_keep_their_numbers_when_others_are_left_out(table):
    table.loc[0, "dose"] = np.nan
    text = table.assign(response=table["response"].astype(str).mask(table.index == 2, "abc"))
    with pytest.raises(GPSError, match="such as 'abc' in row 3"):
        parts(text, drop_missing=True)


@pytest.mark.parametrize(("role", "value", "message"), [("weights", -1.0, "is negative"), ("groups", None, "is empty")])
def test_bad_weights_and_groups_are_named_by_their_rows(table, role, value, message):
    column = pd.Series(np.arange(90.0) % 7)
    column[[1, 4]] = value
    roles = {"groups": None, "weights": None} | {role: "w"}
    with pytest.raises(GPSError, match=f"column 'w' {message} in rows 2, 5 .the first row below the header is 1"):
        split_table(table.assign(w=column), "response", drop=(), **roles)


def test_numbers_in_messages_are_plain(table):
    with pytest.raises(GPSError, match=r"not classes, such as 1\.5;"):
        parts(table.assign(response=np.arange(90) + 1.5), classes=True)
    with pytest.raises(GPSError, match="holds 5, none of 1, 2, in row 3"):
        check_labels(pd.Series([1, 2, 5], name="y"), np.array([1, 2]))
    with pytest.raises(GPSError, match="class 7 has 1 rows"):
        parted(pd.Series([1] * 50 + [7]), 0.2, 0)


def test_parquet_in_and_out(table, tmp_path):
    pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    path = write_table(table, tmp_path / "data.parquet", index=False)
    pd.testing.assert_frame_equal(read_table(path), table)
    (tmp_path / "bad.parquet").write_bytes(b"nothing")
    with pytest.raises(GPSError, match="cannot be read as Parquet"):
        read_table(tmp_path / "bad.parquet")


@pytest.mark.parametrize("name", ["data.csv", "data.parquet"])
def test_a_table_that_cannot_be_written_leaves_the_old_one(table, tmp_path, monkeypatch, name):
    if name.endswith("parquet"):
        pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    path = write_table(table, tmp_path / name, index=False)
    before = path.read_bytes()

    def full_disk(*_):
        raise OSError("disk full")

    monkeypatch.setattr("os.replace", full_disk)
    with pytest.raises(OSError, match="disk full"):
        write_table(table.head(3), path, index=False)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_parquet_without_pyarrow_says_what_to_do(table, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    (tmp_path / "data.parquet").write_bytes(b"")
    with pytest.raises(GPSError, match=r"data.parquet needs pyarrow: pip install 'gpsuq\[parquet\]'"):
        read_table(tmp_path / "data.parquet")
    with pytest.raises(GPSError, match=r"pip install 'gpsuq\[parquet\]'"):
        write_table(table, tmp_path / "out.parquet", index=False)


def written(tmp_path, cells, *, header="a,b,response"):
    """Write a table whose first column holds these cells, and read it again."""
    lines = [f"{cell},{number % 7},{number * 1.5}" for number, cell in enumerate(cells)]
    (tmp_path / "data.csv").write_text("\n".join([header, *lines]) + "\n", encoding="utf-8")
    return read_table(tmp_path / "data.csv")


NUMBERS = [f"{number * 0.37:.2f}" for number in range(40)]


def test_a_typo_among_numbers_is_named_and_makes_no_categories(tmp_path):
    cells = [*NUMBERS[:4], "1.2.3", *NUMBERS[5:]]
    with pytest.raises(GPSError, match=r"'a' holds numbers but for '1\.2\.3' in row 5 .*mend these cells"):
        parts(written(tmp_path, cells))
    cells[10:12] = "x", "x"
    with pytest.raises(GPSError, match=r"'1\.2\.3' in row 5, 'x' in row 11, 'x' in row 12"):
        parts(written(tmp_path, cells))
    scores = [*["1", "2", "3", "4"] * 10, "4x"]
    with pytest.raises(GPSError, match="'4x' in row 41"):
        parts(written(tmp_path, scores))


@pytest.mark.parametrize(
    "cells", [["1", "2", "3a"] * 5, [*["1", "2", "3"] * 10, "3a", "3a"], ["1", "2", "b7", "c"] * 4]
)
def test_codes_of_categories_may_be_numbers(tmp_path, cells):
    levels = tuple(sorted(set(cells)))
    assert parts(written(tmp_path, cells)).encoding.levels == {"a": levels}


@pytest.mark.parametrize("missing", ["?", "-", " ", ".", "missing", "n/a", "NA", ""])
def test_usual_spellings_of_missing_are_missing_among_numbers(tmp_path, missing):
    table = written(tmp_path, [missing, *NUMBERS])
    with pytest.raises(GPSError, match=r"missing or infinite values in columns a, row 1 .*--drop-missing"):
        parts(table)
    assert parts(table, drop_missing=True).X["a"].tolist() == [float(number) for number in NUMBERS]


def test_a_question_mark_among_words_is_a_category(tmp_path):
    assert parts(written(tmp_path, ["yes", "no", "?"] * 4)).encoding.levels == {"a": ("?", "no", "yes")}


@pytest.mark.parametrize(
    "cells", [[f"{n}%" for n in range(20)], [f"${n}.50" for n in range(20)], [f"-{n} €" for n in range(20)]]
)
def test_numbers_with_signs_are_no_categories(tmp_path, cells):
    with pytest.raises(GPSError, match=r"'a' holds numbers with signs, such as .*: write numbers only"):
        parts(written(tmp_path, cells))
    assert parts(written(tmp_path, cells[:2] * 8)).encoding.levels  # two doses


def test_numbers_beyond_floats_are_infinite_and_others_are_numbers(tmp_path):
    with pytest.raises(GPSError, match="missing or infinite values in columns a, row 2"):
        parts(written(tmp_path, ["1", str(10**400), *NUMBERS]))
    large = [str(2**70 + number * 2**60) for number in range(9)]
    assert parts(written(tmp_path, large)).X["a"].tolist() == [float(cell) for cell in large]
    with pytest.raises(GPSError, match="columns a hold text"):
        check_numbers(pd.DataFrame({"a": [1, "x", 10**400]}))


def test_long_identifiers_stay_apart(tmp_path):
    table = written(tmp_path, [str(10**30 + number) for number in range(9)])
    assert table["a"].nunique() == 9


def test_very_long_cells_and_names_are_refused_unless_left_out(tmp_path):
    cells = ["u", "v"] * 6 + ["x" * 5_000_000]
    with pytest.raises(GPSError, match=r"'a' holds 5,000,000 characters in row 13 .*--drop"):
        parts(written(tmp_path, cells))
    table = read_table(tmp_path / "data.csv")
    assert list(split_table(table, "response", drop=["a"]).X) == ["b"]
    with pytest.raises(GPSError, match="'a' holds 5,000,000 characters"):
        split_table(table, "a", classes=True)
    with pytest.raises(GPSError, match="a name of 2,000 characters"):
        parts(written(tmp_path, NUMBERS, header=f"{'a' * 2000},b,response"))


def test_roles_are_columns_of_their_own(table):
    for roles in ({"weights": "response"}, {"groups": "response"}, {"groups": "site", "weights": "site"}):
        with pytest.raises(GPSError, match="must name different columns"):
            split_table(table, "response", **roles)
    with pytest.raises(GPSError, match=r"columns site hold text, such as .* where numbers are needed"):
        split_table(table, "response", weights="site")


def test_categories_do_not_take_the_names_of_columns(table):
    with pytest.raises(GPSError, match=r"a column 'site=south' already, and a category of column 'site'"):
        parts(table.assign(**{"site=south": 1.0}))
    with pytest.raises(GPSError, match="'site=a=b' already"):
        parts(table.assign(site=["a=b", "a"] * 45, **{"site=a": ["b", "a"] * 45}))


def test_codes_beside_missing_cells_are_the_same_codes():
    encoding = Encoding({"a": ("1", "2", "3a")})
    encoded = encoding.encoded(pd.DataFrame({"a": [1.0, 2.0, np.nan]}))
    assert encoded["a=2"].tolist()[:2] == [0.0, 1.0]
    assert encoded.loc[2].isna().all()


def test_odd_headers_are_told(tmp_path):
    with pytest.warns(GPSWarning, match="columns named a more than once"):
        assert list(written(tmp_path, NUMBERS, header="a,a,response")) == ["a", "a.1", "response"]
    with pytest.raises(GPSError, match="no column 'y'; the table has a, 'b ', ' y'"):
        split_table(written(tmp_path, NUMBERS, header="a,b , y"), "y")
    with pytest.raises(GPSError, match="commas, semicolons or tabs must separate columns"):
        split_table(pd.DataFrame({"a|y": ["1|2", "3|4"]}), "y")


@pytest.mark.parametrize("ending", ["\n", "\r\n", "\r"])
def test_ordinary_files_from_elsewhere_are_read(tmp_path, ending):
    rows = ["\ufeffa,b,response,", *(f'{number},"u\nv{number % 2}",{number * 1.5},' for number in range(9))]
    (tmp_path / "data.csv").write_bytes(ending.join([*rows, ""]).encode())
    table = read_table(tmp_path / "data.csv")
    assert list(table) == ["a", "b", "response"]  # a separator at the end of lines makes no column
    assert parts(table).encoding.levels == {"b": ("u\nv0", "u\nv1")}


def test_bytes_that_are_no_text_are_refused(tmp_path):
    (tmp_path / "data.csv").write_bytes(b"a,y\n1\0,2\n3\0,4\n")
    with pytest.raises(GPSError, match="holds NUL bytes"):
        read_table(tmp_path / "data.csv")


@pytest.mark.parametrize("cell", [b"\xff", [1, 2], {"a": 1}])
def test_parquet_columns_that_are_no_table_are_refused(tmp_path, cell):
    pytest.importorskip("pyarrow")
    pd.DataFrame({"a": [cell, cell], "y": [1.0, 2.0]}).to_parquet(tmp_path / "data.parquet")
    with pytest.raises(GPSError, match=r"column 'a' of .* holds bytes, lists or records"):
        read_table(tmp_path / "data.parquet")


def test_infinite_classes_are_named():
    with pytest.raises(GPSError, match="column 'y' holds inf in row 2"):
        check_labels(pd.Series([1.0, np.inf, 2.0], name="y"))


@pytest.mark.filterwarnings("ignore::gpsuq.GPSWarning")
def test_categories_and_missing_values_from_the_command_line(table, tmp_path):
    table.loc[3, "dose"] = np.nan
    table.to_csv(tmp_path / "data.csv", index=False)
    options = ("--target", "response", "--steps", 8, "--out", tmp_path / "model")
    refused = invoke("fit", "linear", tmp_path / "data.csv", *options)
    assert refused.exit_code == 1
    assert "--drop-missing" in refused.output
    result = invoke("fit", "linear", tmp_path / "data.csv", *options, "--drop-missing")
    assert result.exit_code == 0, result.output
    assert "1 of 90 rows" in result.output
    assert 4 not in pd.read_csv(tmp_path / "model" / "rows.csv")["row"].tolist()
    table.drop(3).drop(columns="response").to_csv(tmp_path / "new.csv", index=False)
    predicted = invoke("predict", tmp_path / "model", tmp_path / "new.csv", "--out", tmp_path / "p.csv")
    assert predicted.exit_code == 0, predicted.output
    assert len(pd.read_csv(tmp_path / "p.csv")) == 89
    shown = json.loads(invoke("summary", tmp_path / "model", "--json").stdout)
    assert set(shown["parameters"]) == {"dose", "site=south", "site=west", "smokes=True", "intercept", "sigma"}
    records = json.loads(invoke("predict", tmp_path / "model", tmp_path / "new.csv", "--json").stdout)
    assert set(records[0]) == {"row", "mean", "lower", "upper"}
    again = invoke("fit", "linear", tmp_path / "data.csv", *options, "--drop-missing", "--json", "--force")
    assert json.loads(again.stdout)["rows"] == 89
    table.drop(columns=["site", "response"]).to_csv(tmp_path / "short.csv", index=False)
    lacking = invoke("predict", tmp_path / "model", tmp_path / "short.csv")
    assert "lacks the columns site that the model" in " ".join(lacking.output.split())
    table.drop(3).assign(site="east").to_csv(tmp_path / "new.csv", index=False)
    assert "'east' in row 1" in invoke("predict", tmp_path / "model", tmp_path / "new.csv").output


def test_a_table_may_stay_as_it_is():
    table = pd.DataFrame({"a": [1.0, None, 3.0], "site": ["n", None, "s"], "y": [1.0, 2.0, None]})
    with pytest.raises(GPSError, match="columns y, row 3 "):
        split_table(table, "y", encode=False)
    split = split_table(table, "y", drop_missing=True, encode=False)
    pd.testing.assert_frame_equal(split.X, table[["a", "site"]].head(2))
    assert not split.encoding.levels
    with pytest.raises(GPSError, match=r"infinite values in columns a, row 1 .*leave them empty"):
        split_table(table.assign(a=[np.inf, 1.0, 2.0], y=1.0), "y", encode=False)
    with pytest.raises(GPSError, match=r"'oops' in row 7 .*if they are missing; if"):
        split_table(pd.DataFrame({"a": [*"123456", "oops"], "y": range(7)}), "y", encode=False)
