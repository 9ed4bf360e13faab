"""Parquet files and folders as one table; CSV and results written as Parquet."""

import numpy as np
import pandas as pd
import pytest

from gpsuq import GPSError
from gpsuq.tables import parquet
from gpsuq.tables.parquet import ParquetTable, convert_csv, is_streamed, write_frames
from gpsuq.tables.reading import read_table


def test_folders_are_one_table_and_their_names_a_column(tmp_path):
    for year, ages in (("2023", [1, 2]), ("2024", [3.5])):
        (tmp_path / f"year={year}").mkdir()
        pd.DataFrame({"age": ages}).to_parquet(tmp_path / f"year={year}" / "data.parquet")
    (tmp_path / "_temporary.parquet").write_bytes(b"")
    (tmp_path / "README.txt").write_text("no data")
    whole = pd.concat(ParquetTable(tmp_path).frames())
    assert whole["age"].tolist() == [1.0, 2.0, 3.5]  # whole numbers in one file, others in the next
    assert whole["year"].astype(str).tolist() == ["2023", "2023", "2024"]
    assert whole.index.tolist() == [0, 1, 2]


def test_several_paths_come_one_after_the_other(tmp_path):
    for name in ("b", "a"):
        pd.DataFrame({"name": [name]}).to_parquet(tmp_path / f"{name}.parquet")
    table = ParquetTable([tmp_path / "b.parquet", tmp_path / "a.parquet"])
    assert [frame["name"].iloc[0] for frame in table.frames()] == ["b", "a"]


def test_what_is_no_table_is_told(tmp_path):
    with pytest.raises(GPSError, match="no file or folder"):
        ParquetTable(tmp_path / "missing")
    with pytest.raises(GPSError, match="gpsuq data convert"):
        ParquetTable(tmp_path)
    path = tmp_path / "bad.parquet"
    path.write_bytes(b"PAR1 nonsense PAR1")
    with pytest.raises(GPSError, match=r"bad.parquet cannot be read as Parquet"):
        ParquetTable(path)
    pd.DataFrame({"a": []}).to_parquet(path)
    with pytest.raises(GPSError, match="has no rows"):
        ParquetTable(path)
    pd.DataFrame({"a": ["x"]}).to_parquet(path)
    pd.DataFrame({"a": [1]}).to_parquet(tmp_path / "good.parquet")
    with pytest.raises(GPSError, match="cannot be read as Parquet"):
        ParquetTable(tmp_path)


def test_damage_in_the_middle_of_a_file_is_told(tmp_path, rng):
    path = tmp_path / "data.parquet"
    pd.DataFrame({"a": rng.normal(size=2000)}).to_parquet(path)
    content = bytearray(path.read_bytes())
    content[4:40] = bytes(36)  # the header of the first page
    path.write_bytes(content)
    with pytest.raises(GPSError, match=r"data.parquet cannot be read as Parquet"):
        list(ParquetTable(path).frames())


def test_a_file_is_streamed_where_it_is_large(tmp_path, monkeypatch):
    pd.DataFrame({"a": np.zeros(100)}).to_parquet(tmp_path / "data.parquet")
    pd.DataFrame({"a": np.zeros(100)}).to_csv(tmp_path / "data.csv")
    assert not is_streamed(tmp_path / "data.parquet")
    assert not is_streamed(tmp_path / "missing.parquet")
    assert is_streamed(tmp_path)
    monkeypatch.setattr(parquet, "_IN_MEMORY", 799)
    assert is_streamed(tmp_path / "data.parquet")
    assert not is_streamed(tmp_path / "data.csv")


def test_csv_is_converted_in_parts_as_if_it_were_read_whole(tmp_path, monkeypatch, rng):
    """The last rows decide: whole numbers, a number and a text appear in the last of many parts only."""
    n = 50
    table = pd.DataFrame(
        {
            "int": rng.integers(0, 9, n),
            "float": [*range(n - 1), 0.5],
            "text": [*map(str, range(n - 1)), "x"],
            "gap": [*range(n - 1), None],
            "late": [None] * (n - 1) + ["only"],
            "flag": rng.random(n) < 0.5,
            "spelled": ["?", *range(1, n - 1), "n/a"],
            "code": [f"{number:03}x" for number in range(n)],
            "on": [f"{1 + number % 28}.{1 + number % 12}.2024" for number in range(n)],
            "comma": [f"{number}.000,5" for number in range(n)],
        }
    )
    table.to_csv(tmp_path / "data.csv", sep=";", index=False)
    monkeypatch.setattr(parquet, "BLOCK", 7)
    for decimal in (None, ","):
        assert convert_csv(tmp_path / "data.csv", tmp_path / "data.parquet", decimal) == n
        found, expected = read_table(tmp_path / "data.parquet"), read_table(tmp_path / "data.csv", decimal)
        pd.testing.assert_frame_equal(found, expected, check_dtype=False)
        assert [kind.kind for kind in found.dtypes] == [kind.kind for kind in expected.dtypes]
    assert found["comma"].tolist() == [1000.0 * number + 0.5 for number in range(n)]
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


@pytest.mark.parametrize(
    ("content", "said"), [(b"", "empty"), (b"a,b\n", "no rows"), (b"a,b\n1,2\n1,2,3\n", "CSV"), (b"a\n\xff\n", "UTF-8")]
)
def test_bad_csv_leaves_no_file(tmp_path, content, said):
    (tmp_path / "data.csv").write_bytes(content)
    with pytest.raises(GPSError, match=said):
        convert_csv(tmp_path / "data.csv", tmp_path / "data.parquet")
    assert [path.name for path in tmp_path.iterdir()] == ["data.csv"]


def test_a_file_is_whole_or_what_it_was(tmp_path):
    path = tmp_path / "out.parquet"
    write_frames([pd.DataFrame({"a": [1]})], path)

    def broken():
        yield pd.DataFrame({"a": [2]})
        raise OSError("no space left")

    with pytest.raises(OSError, match="no space"):
        write_frames(broken(), path)
    assert pd.read_parquet(path)["a"].tolist() == [1]
    assert [each.name for each in tmp_path.iterdir()] == ["out.parquet"]
