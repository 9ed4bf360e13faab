"""Parquet files, and folders of them, as one table that need not fit into memory; results and CSV written as such.

Rows are numbered through from 0, file after file in the order of their names.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from gpsuq.errors import GPSError, needs
from gpsuq.files import beside, locked
from gpsuq.tables.cells import Decimal, as_dates, as_numbers
from gpsuq.tables.frames import holds_text, plain
from gpsuq.tables.reading import NO_NAME, PARQUET, csv_damage_told, csv_options, without_row_names

BLOCK = 1 << 15
"""Rows that are held at once."""

_DATES = "datetime64[us]"
_IN_MEMORY = 1 << 29  # bytes of a table of float64: a larger one is streamed


class RowGroup(NamedTuple):
    """Rows that a file holds together: which file, the number in it, the file's and the group's first row, how many."""

    file: int
    number: int
    file_start: int
    start: int
    n_rows: int


class ParquetTable:
    """A Parquet file, a folder of them, or several of either; names of folders such as ``year=2024`` are a column.

    Attributes
    ----------
    names
        Of all columns.
    groups
        The row groups of all files, in their order.
    n_rows
        Number of rows.
    """

    def __init__(self, paths: str | Path | Sequence[str | Path]) -> None:
        given = [paths] if isinstance(paths, str | Path) else paths
        with needs("parquet", f"the Parquet data {', '.join(map(str, given))}"):
            import pyarrow as arrow
            from pyarrow import dataset
        self._parts: list[Any] = []
        schemas, groups, start = [], [], 0
        for path in map(Path, given):
            files = parquet_files(path)
            options = {"partitioning": "hive", "partition_base_dir": str(path)} if path.is_dir() else {}
            with _damage_told(path):
                found = dataset.dataset([str(file) for file in files], format="parquet", **options)
                schemas.append(found.schema)
            for part in found.get_fragments():
                with _damage_told(part.path):
                    schemas.append(part.physical_schema)
                    file_start = start
                    for group in part.row_groups:
                        groups.append(RowGroup(len(self._parts), group.id, file_start, start, group.num_rows))
                        start += group.num_rows
                self._parts.append(part)
        with _damage_told(" and ".join(map(str, given))):
            self._schema = arrow.unify_schemas(schemas, promote_options="permissive").remove_metadata()
        self.names: list[str] = list(self._schema.names)
        self.groups, self.n_rows = groups, start
        self._reading = {
            "schema": self._schema,
            "use_threads": False,  # several batches ahead would be held
            "batch_readahead": 1,
            "fragment_scan_options": dataset.ParquetFragmentScanOptions(pre_buffer=False, use_buffered_stream=True),
        }
        if start == 0:
            raise GPSError(f"{', '.join(map(str, given))} has no rows")

    def type_of(self, column: str) -> Any:
        """Return the Arrow type of a column."""
        return self._schema.field(column).type

    def batches(self, group: RowGroup, columns: Sequence[str]) -> Iterator[tuple[int, Any]]:
        """Yield some columns of a row group: the number of the first row, and an Arrow record batch."""
        part, start = self._parts[group.file], group.start
        with _damage_told(part.path):
            reader = part.subset(row_group_ids=[group.number])
            for batch in reader.to_batches(columns=list(columns), batch_size=BLOCK, **self._reading):
                yield start, batch
                start += batch.num_rows

    def frames(self) -> Iterator[pd.DataFrame]:
        """Yield all rows, some at a time; the index holds their numbers."""
        for group in self.groups:
            for start, batch in self.batches(group, self.names):
                yield plain(batch.to_pandas()).set_axis(pd.RangeIndex(start, start + batch.num_rows))

    def place(self, group: RowGroup) -> Path:
        """Return the file that a row group is in."""
        return Path(self._parts[group.file].path)


def parquet_files(path: Path) -> list[Path]:
    """Return a Parquet file, or all in a folder and the folders in it, by their names; hidden ones do not count."""
    if path.is_file():
        return [path]
    if not path.is_dir():
        raise GPSError(f"there is no file or folder {path}")
    names = (file.relative_to(path) for file in path.rglob("*") if file.suffix in PARQUET)
    files = sorted(path / name for name in names if not any(part.startswith((".", "_")) for part in name.parts))
    if not files:
        raise GPSError(
            f"{path} holds no Parquet files; gpsuq data convert FILE.csv --out FILE.parquet makes one of a CSV file"
        )
    return files


def is_streamed(path: Path) -> bool:
    """Whether a table is read in parts: a folder, or a Parquet file whose numbers would fill half a gigabyte."""
    if not path.is_dir() and (path.suffix not in PARQUET or not path.is_file()):
        return False
    table = ParquetTable(path)
    return path.is_dir() or table.n_rows * len(table.names) * 8 > _IN_MEMORY


def convert_csv(source: Path, path: Path, decimal: Decimal | None = None) -> int:
    """Write a CSV file, however long, as Parquet, and return how many rows it has.

    It is read twice: a column is a number where all its cells are, which only its last cell can tell.
    """
    kinds: dict[str, set[str]] = {}
    for chunk in _chunks(source, decimal):
        for name, column in chunk.items():
            whole = as_dates(as_numbers(column, decimal)) if holds_text(column) else column
            kinds.setdefault(str(name), set()).add("missing" if column.isna().all() else whole.dtype.kind)
    types = {
        name: _type(found) for name, found in kinds.items() if found != {"missing"} or not name.startswith(NO_NAME)
    }
    read = {name: "str" if kind in ("float64", _DATES) else kind for name, kind in types.items()}
    parts = _chunks(source, decimal, dtype=read)
    return write_frames((_typed(chunk, types, decimal) for chunk in parts), path)


def _type(kinds: set[str]) -> str:
    """Return the type of a column whose parts are of these kinds, as if it had been read whole."""
    if kinds <= {"i"}:
        return "int64"
    if kinds <= {"i", "u", "f", "missing"}:
        return "float64"
    if kinds <= {"M", "missing"}:
        return _DATES
    return "bool" if kinds == {"b"} else "str"


def _typed(chunk: pd.DataFrame, types: dict[str, str], decimal: Decimal | None) -> pd.DataFrame:
    """Return the columns that have a type; what is no number in a column of numbers is another word for missing."""
    return pd.DataFrame({name: _cells(chunk[name], kind, decimal) for name, kind in types.items()})


def _cells(column: pd.Series, kind: str, decimal: Decimal | None) -> pd.Series:
    if kind == _DATES:
        return pd.Series(as_dates(column).to_numpy(_DATES), column.index)
    if kind == "float64":
        return pd.to_numeric(as_numbers(column, decimal), errors="coerce").astype("float64")
    return column


def _chunks(source: Path, decimal: Decimal | None, **options: Any) -> Iterator[pd.DataFrame]:
    """Yield the rows of a CSV file, some at a time, by the rules of :func:`gpsuq.tables.reading.read_table`."""
    if not source.is_file():
        raise GPSError(f"there is no file {source}")
    rows = 0
    with (
        csv_damage_told(source),
        pd.read_csv(source, chunksize=BLOCK, **csv_options(source, decimal), **options) as chunks,
    ):
        for chunk in chunks:
            rows += len(chunk)
            yield without_row_names(chunk)
    if rows == 0:
        raise GPSError(f"{source} has a header but no rows")


def write_frames(frames: Iterable[pd.DataFrame], path: Path) -> int:
    """Write parts of a table to one Parquet file, whole or absent, and return how many rows it has.

    All parts have the columns and types of the first.
    """
    with needs("parquet", f"the Parquet file {path}"):
        import pyarrow as arrow
        from pyarrow.parquet import ParquetWriter
    path.parent.mkdir(parents=True, exist_ok=True)
    parts = iter(frames)
    first = next(parts)
    schema = arrow.Schema.from_pandas(first, preserve_index=False)
    temporary, n_rows = beside(path, "new"), 0
    with locked(path):
        try:
            with ParquetWriter(temporary, schema) as writer:
                for frame in chain([first], parts):
                    writer.write_table(arrow.Table.from_pandas(frame, schema, preserve_index=False))
                    n_rows += len(frame)
            os.replace(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)
    return n_rows


@contextmanager
def _damage_told(path: Any) -> Iterator[None]:
    """Turn whatever keeps Arrow from reading a file inside into an error that names it."""
    try:
        yield
    except GPSError:
        raise
    except (OSError, ValueError, TypeError, NotImplementedError, MemoryError) as error:
        raise GPSError(f"{path} cannot be read as Parquet: {error}") from error
