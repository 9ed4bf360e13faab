"""Fuzzed files for every reader: what comes of them must be data or an error of gpsuq's own, soon and in little memory.

``python benchmarks/fuzz.py --inputs 100000`` shares the inputs among the readers. Each input is a valid file that was
damaged at random, or random bytes; (seed, reader, number) decides it, and ``--show READER NUMBER`` tries it alone. A
run that was stopped goes on where it was.
"""

from __future__ import annotations

import argparse
import collections
import datetime
import decimal
import gzip
import io
import json
import math
import resource
import shutil
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow
from common import outcome_of, write
from pyarrow import parquet

SECONDS, MEMORY = 60.0, 2 << 30  # that one input may take, the latter beyond what was in use before
PART = 2500  # inputs in a process of their own
FIT_EVERY = 20  # of the tables that can be read, one in so many is fitted
ROOT = Path(__file__).parents[1]
SAVED = ROOT / "tests/data/format1"  # written before there were digests, so that damage reaches the readers
RECTANGLE = {"type": "rectangle", "xrange": [0, 2], "yrange": [0, 1], "units": ["km", "kms"]}
SQUARE = [[[0, 0], [2, 0], [2, 2], [0, 2], [0, 0]], [[0.5, 0.5], [1, 0.5], [1, 1], [0.5, 0.5]]]
GEOJSON: list[Any] = [
    {"type": "Polygon", "coordinates": SQUARE},
    {"type": "MultiPolygon", "coordinates": [SQUARE, [[[3, 3], [4, 3], [4, 4], [3, 3]]]], "units": "m"},
    {"type": "Feature", "properties": {"name": "a"}, "geometry": {"type": "Polygon", "coordinates": SQUARE}},
]
GEOJSON.append({"type": "FeatureCollection", "features": [GEOJSON[2]]})
GEOJSON.append({"type": "GeometryCollection", "geometries": GEOJSON[:2]})
ODD_VALUES: list[Any] = [
    *(None, True, False, 0, -1, 1.5, 1e308, -1e308, 1e-320, 10**30, 10**400, 2**31, 2**63, float("nan"), float("inf")),
    *("", "NaN", "\0", "\ud800", "\u202e\u0301", "=1+1", "x" * 5000, [], {}, [[]], {"": {}}, [1, "a"], [None] * 5),
]
ODD_TOKENS = [
    *(
        b"\0",
        b"\xff\xfe",
        b"\xef\xbb\xbf",
        b"\xed\xa0\x80",
        b'"',
        b'""',
        b"'",
        b",",
        b";",
        b"\t",
        b"\n",
        b"\r",
        b"\r\n",
    ),
    *(b"NaN", b"inf", b"-Infinity", b"1e999", b"9" * 400, b"9" * 5000, b"1_0", b"0x1", b"2020-01-01", b"1,5", b"=A1"),
    *(b"[" * 3000, b'{"a":' * 3000, b"null", b"true", b"-", b"\x1a", b"\x7f" * 100, b"," * 300),
]


@dataclass(frozen=True)
class Reader:
    """Valid files, the name of a damaged one in its folder, what reads that folder, and what else is in it."""

    seeds: list[bytes]
    name: str
    read: Callable[[Path, int], object]
    folder: Path | None = None
    beside: dict[str, bytes] = field(default_factory=dict)
    share: float = 1.0  # of the inputs, beside the others'; a page takes seconds to draw


def readers() -> dict[str, Reader]:
    from gpsuq.datasets import images
    from gpsuq.spatial import read_window

    images._CIFAR_IMAGES = 4  # the official 10,000 would make every input 30 MB
    rng = np.random.default_rng(0)
    tables = [_table(rng, n) for n in (6, 20, 40)]
    names = ("linear", "poisson", "default")
    idx = bytes([0, 0, 8, 3, 0, 0, 0, 5, 0, 0, 0, 4, 0, 0, 0, 4]) + rng.bytes(80)
    labels = bytes([0, 0, 8, 1, 0, 0, 0, 5, 1, 2, 3, 4, 5])
    cifar = b"".join(bytes([label]) + rng.bytes(3072) for label in (0, 3, 9, 1))
    axes, heights = json.dumps({"xcol": [0, 1, 2], "yrow": [0, 1]}).encode(), b"0,10,20\n30,40,50\n"
    columns = json.dumps({"site": ["north", "south", "west"], "on": ["False", "True"]}, indent=2).encode()
    found = {
        "csv": Reader([_as_csv(table, sep) for table in tables for sep in ",;\t"], "table.csv", _read_table),
        "parquet": Reader([_as_parquet(table) for table in tables], "table.parquet", _read_table),
        "points": Reader([_as_csv(_points(rng), ",")], "points.csv", _read_points),
        "window": Reader(_documents([RECTANGLE]), "window.json", lambda f, _: read_window(f / "window.json").to_json()),
        "geojson": Reader(_documents(GEOJSON), "window.json", lambda f, _: read_window(f / "window.json").to_json()),
        "covariate": Reader([heights], "a.grid.csv", _read_grid, beside={"a.grid.json": axes}),
        "axes": Reader([axes], "a.grid.json", _read_grid, beside={"a.grid.csv": heights}),
        "idx": Reader([idx], "images", lambda f, _: images.read_idx(f / "images", 3)),
        "idx, compressed": Reader([gzip.compress(labels)], "a.gz", lambda f, _: images.read_idx(f / "a.gz", 1)),
        "cifar": Reader([cifar], "a.bin", lambda f, _: images._read_cifar(f / "a.bin")),
        "columns": Reader([columns], "columns.json", _read_columns),
    }
    for name in names:
        saved = SAVED / name
        found[f"config, {name}"] = Reader([(saved / "config.json").read_bytes()], "config.json", _load, saved)
        found[f"tensors, {name}"] = Reader(
            [(saved / "model.safetensors").read_bytes()], "model.safetensors", _load, saved
        )
    for name, folder in _with_checks(tables[2]).items():
        found[f"checks, {name}"] = Reader(
            [(folder / "checks.json").read_bytes()], "checks.json", _page, folder, share=0.03
        )
    return found


def _table(rng: np.random.Generator, n: int) -> pd.DataFrame:
    numbers = {name: rng.normal(size=n).round(3) for name in ("x1", "x2")}
    site, when = rng.choice(["north", "süd", "a b"], n), [f"2020-01-{1 + row % 28:02}" for row in range(n)]
    return pd.DataFrame({**numbers, "site": site, "when": when, "w": rng.integers(1, 5, n), "y": rng.normal(size=n)})


def _points(rng: np.random.Generator) -> pd.DataFrame:
    return pd.DataFrame({"x": rng.random(20), "y": rng.random(20), "day": rng.integers(1, 4, 20)})


def _as_csv(table: pd.DataFrame, separator: str) -> bytes:
    return table.to_csv(index=False, sep=separator).encode()


def _as_parquet(table: pd.DataFrame) -> bytes:
    content = io.BytesIO()
    table.to_parquet(content, index=False)
    return content.getvalue()


def _documents(values: list[Any]) -> list[bytes]:
    return [json.dumps(value).encode() for value in values]


def _with_checks(table: pd.DataFrame) -> dict[str, Path]:
    """Fit a regression and a classifier as a user of the command line does, once; return their folders."""
    from typer.testing import CliRunner

    from gpsuq.cli import app

    place = Path(tempfile.gettempdir()) / "gpsuq_fuzz_models"
    folders = {kind: place / kind for kind in ("linear", "classifier")}
    if not all((folder / "checks.json").is_file() for folder in folders.values()):
        place.mkdir(exist_ok=True)
        table = pd.concat([table] * 5).drop(columns="when").assign(label=["a", "b"] * 100)
        table.to_csv(place / "table.csv", index=False)
        for kind, words in (("linear", ["--target", "y", "--steps", "5"]), ("classifier", ["--target", "label"])):
            given = ["fit", kind, str(place / "table.csv"), "--out", str(folders[kind]), "--force", *words]
            done = CliRunner().invoke(app, given)
            if done.exit_code:
                raise RuntimeError(done.output) from done.exception
            config = json.loads((folders[kind] / "config.json").read_text())
            del config["digests"]  # so that damage reaches what is behind them
            (folders[kind] / "config.json").write_text(json.dumps(config))
    return folders


def _read_table(folder: Path, number: int) -> None:
    from gpsuq import GPSClassifier, GPSLinearRegression, Recipe
    from gpsuq.tables.reading import read_table, split_table

    path = next(folder.glob("table.*"))
    options: dict[str, Any] = {"drop_missing": number % 2 == 0, "weights": "w" if number % 3 == 0 else None}
    target = ("y", "site")[number % 5 == 0]
    split = split_table(read_table(path), target, drop=["when"] if number % 7 else [], **options)
    if number % FIT_EVERY == 1:  # target is y
        model = GPSLinearRegression(n_steps=3, n_chains=2, n_draws=4).fit(split.X, split.y, split.weights)
        _check_finite(model.predict(split.X))
    elif number % FIT_EVERY == 0:
        _check_finite(GPSClassifier(recipe=Recipe(epochs=1)).fit(split.X, split.y).predict_proba(split.X))


def _check_finite(values: Any) -> None:
    if not np.isfinite(values).all():
        raise FloatingPointError("predictions are not finite")


def _read_points(folder: Path, number: int) -> None:
    from gpsuq.spatial import Window, point_pattern
    from gpsuq.spatial.reading import read_points

    window = Window.rectangle(0.0, 1.0, 0.0, 1.0) if number % 2 else None
    for points in read_points(folder / "points.csv", "x", "y", "day" if number % 3 else None, window=window)[0]:
        point_pattern(points, (0, 1, 0, 1), outside="drop")


def _read_grid(folder: Path, _: int) -> None:
    from gpsuq.spatial import read_covariate

    read_covariate(folder / "a.grid.csv")


def _read_columns(folder: Path, _: int) -> None:
    from gpsuq.tables.encoding import Encoding

    Encoding.read(folder).encoded(pd.DataFrame({"site": ["north", "west"], "on": [True, False], "z": [1, 2]}))


def _load(folder: Path, _: int) -> None:
    """Load a model and draw from it: what loads must give finite numbers."""
    import gpsuq

    model = gpsuq.load(folder)
    rows = np.random.default_rng(1).random((3, 2)).astype(np.float32)
    if isinstance(model, gpsuq.GPSPoissonProcess):
        _check_finite(model.sample_intensity(model.points_[0][:3], 2))
    elif isinstance(model, gpsuq.GPSLinearRegression):
        _check_finite(model.sample_parameters(3).to_numpy())
    else:
        _check_finite(model.sample_proba(rows, 2))


def _page(folder: Path, _: int) -> None:
    from gpsuq.reports.page import write_page
    from gpsuq.reports.saved import saved_page

    write_page(saved_page(folder), folder / "again.html")


# --- damage -----------------------------------------------------------------------------------------------------------


def damaged(reader: Reader, rng: np.random.Generator) -> bytes:
    """Return a valid file of a reader with wrong values, or with wrong bytes, or, rarely, random bytes."""
    content = reader.seeds[rng.integers(len(reader.seeds))]
    if rng.random() < 0.03:
        return rng.bytes(int(rng.integers(0, 400)))
    of_bytes: list[Callable[[bytes, np.random.Generator], bytes]] = [_flipped, _cut, _doubled, _swapped, _with_token]
    of_values = {".json": _with_value, ".csv": _with_cell, ".parquet": _with_column}.get(Path(reader.name).suffix)
    kinds = [of_values] if of_values is not None and rng.random() < 0.7 else of_bytes
    for _ in range(int(rng.geometric(0.5))):
        content = kinds[rng.integers(len(kinds))](content, rng)
    return content


def _span(content: bytes, rng: np.random.Generator) -> tuple[int, int]:
    first = int(rng.integers(0, len(content) + 1))
    return first, min(len(content), first + int(rng.geometric(0.02)))


def _flipped(content: bytes, rng: np.random.Generator) -> bytes:
    changed = bytearray(content)
    for place in rng.integers(0, len(content), min(len(content), int(rng.integers(1, 9)))) if content else ():
        changed[place] ^= 1 << rng.integers(8)
    return bytes(changed)


def _cut(content: bytes, rng: np.random.Generator) -> bytes:
    first, last = _span(content, rng)
    return content[:first] if rng.random() < 0.3 else content[:first] + content[last:]


def _doubled(content: bytes, rng: np.random.Generator) -> bytes:
    first, last = _span(content, rng)
    return content[:last] + content[first:last] * int(rng.integers(1, 20)) + content[last:]


def _swapped(content: bytes, rng: np.random.Generator) -> bytes:
    a, b, c, d = sorted((*_span(content, rng), *_span(content, rng)))
    return content[:a] + content[c:d] + content[b:c] + content[a:b] + content[d:]


def _with_token(content: bytes, rng: np.random.Generator) -> bytes:
    first, last = _span(content, rng)
    return (
        content[:first] + ODD_TOKENS[rng.integers(len(ODD_TOKENS))] + content[last if rng.random() < 0.5 else first :]
    )


def _with_value(content: bytes, rng: np.random.Generator) -> bytes:
    """Replace a value anywhere in a JSON document, drop it, or put it a thousand lists deep."""
    try:
        document = json.loads(content)
    except (ValueError, RecursionError):
        return content
    places = list(_places(document))
    if not places:
        return content
    holder, key = places[rng.integers(len(places))]
    if rng.random() < 0.15 and isinstance(holder, dict):
        del holder[key]
    elif rng.random() < 0.05:
        for _ in range(1000):
            holder[key] = [holder[key]]
    else:
        holder[key] = ODD_VALUES[rng.integers(len(ODD_VALUES))]
    try:
        return json.dumps(document).encode()
    except (ValueError, RecursionError):
        return content


def _places(value: Any) -> Any:
    for key in value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
        yield value, key
        yield from _places(value[key])


def _with_cell(content: bytes, rng: np.random.Generator) -> bytes:
    """Replace a cell of a table, or a name in its header, in every row or in one."""
    lines = content.split(b"\n")
    separator = max((b",", b";", b"\t"), key=lines[0].count)
    rows = [line.split(separator) for line in lines]
    row, column = int(rng.integers(len(rows))), int(rng.integers(len(rows[0])))
    value = ODD_VALUES[rng.integers(len(ODD_VALUES))]
    token = (
        str(value).encode(errors="surrogatepass") if rng.random() < 0.5 else ODD_TOKENS[rng.integers(len(ODD_TOKENS))]
    )
    for cells in rows[1:] if rng.random() < 0.2 else [rows[row]]:
        if column < len(cells):
            cells[column] = token
    return b"\n".join(separator.join(cells) for cells in rows)


def _with_column(content: bytes, rng: np.random.Generator) -> bytes:
    """Replace a column of a Parquet table by one of another type, or give it another name, or take it away."""
    table = parquet.ParquetFile(io.BytesIO(content)).read()
    place, n = int(rng.integers(table.num_columns or 1)), table.num_rows
    if table.num_columns < 2:
        return content
    kind = rng.integers(12)
    names = table.column_names
    if kind == 0:
        table = table.remove_column(place)
    elif kind == 1:
        names[place] = ["", "\0", "x1", "y", "x" * 5000, "a\nb", "Unnamed: 0"][rng.integers(7)]
        table = table.rename_columns(names)
    elif kind == 2:
        table = table.slice(0, int(rng.integers(0, 4)))
    else:
        values = [value for value in ODD_VALUES if value is None or not isinstance(value, int) or abs(value) < 2**63]
        odd = [
            [values[rng.integers(len(values))]] * n,
            [[1, 2], None] * n,
            [{"a": 1}, {"a": 2}] * n,
            [b"\xff\0"] * n,
            [datetime.date(1, 1, 1), datetime.date(9999, 12, 31)] * n,
            [decimal.Decimal("1e30"), decimal.Decimal("0.1")] * n,
            [float("nan"), float("inf"), -1e308, 1e308, 5e-324] * n,
            [2**62, None, -1] * n,
            [True, None] * n,
        ][kind - 3]
        try:
            table = table.set_column(place, names[place], pyarrow.array(odd[:n]))
        except (pyarrow.ArrowException, UnicodeError):
            return content
    result = io.BytesIO()
    try:
        parquet.write_table(table, result)
    except pyarrow.ArrowException:
        return content
    return result.getvalue()


# --- trying -----------------------------------------------------------------------------------------------------------


def folder_for(reader: Reader, place: str) -> Path:
    """Fill a folder with what stands beside the file that is damaged."""
    folder = Path(place)
    if reader.folder is not None:
        shutil.copytree(reader.folder, folder, dirs_exist_ok=True)
    for name, content in reader.beside.items():
        (folder / name).write_bytes(content)
    return folder


def content_of(name: str, reader: Reader, number: int) -> bytes:
    return damaged(reader, np.random.default_rng([0, *name.encode(), number]))


def part_of_inputs(name: str, first: int, last: int) -> dict[str, Any]:
    """Try some inputs of a reader in this process, and count what became of them."""
    import torch

    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    reader = readers()[name]

    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, used + MEMORY))
    found: collections.Counter[str] = collections.Counter()
    examples: dict[str, int] = {}
    slowest = 0.0
    with tempfile.TemporaryDirectory() as place:
        folder = folder_for(reader, place)
        for content in reader.seeds:
            (folder / reader.name).write_bytes(content)
            reader.read(folder, 1)  # what is whole is read
        for number in range(first, last):
            started = time.perf_counter()
            (folder / reader.name).write_bytes(content_of(name, reader, number))
            outcome = outcome_of(partial(reader.read, folder, number), SECONDS)
            slowest = max(slowest, time.perf_counter() - started)
            found[outcome] += 1
            examples.setdefault(outcome, number)
    megabytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"found": found, "examples": examples, "slowest": slowest, "megabytes": megabytes}


def show(name: str, number: int) -> None:
    """Print an input and the traceback that it ends in."""
    reader = readers()[name]
    content = content_of(name, reader, number)
    print(content[:3000])
    with tempfile.TemporaryDirectory() as place:
        folder = folder_for(reader, place)
        (folder / reader.name).write_bytes(content)
        reader.read(folder, number)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--inputs", type=int, default=100_000)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"))
    parser.add_argument("--only", nargs="*")
    parser.add_argument("--show", nargs=2)
    parser.add_argument("--part", nargs=3)
    options = parser.parse_args()
    if options.show:
        return show(options.show[0], int(options.show[1]))
    if options.part:
        name, first, last = options.part
        return print(json.dumps(part_of_inputs(name, int(first), int(last))))
    known = readers()
    shares = {name: known[name].share for name in options.only or known}
    path = options.out / "fuzz.json"
    rows: dict[str, Any] = json.loads(path.read_text())["rows"]["readers"] if path.exists() else {}
    for name, share in shares.items():
        wanted = math.ceil(options.inputs * share / sum(shares.values()))
        row = rows.setdefault(name, {"inputs": 0, "done": 0, "refused": 0, "other": {}, "slowest": 0.0, "megabytes": 0})
        while row["inputs"] < wanted:
            first, last = row["inputs"], min(wanted, row["inputs"] + PART)
            add(row, first, last, in_a_process(name, first, last))
            totals = {key: sum(row[key] for row in rows.values()) for key in ("inputs", "done", "refused")}
            totals["other"] = totals["inputs"] - totals["done"] - totals["refused"]
            write(
                options.out, "fuzz", f"python benchmarks/fuzz.py --inputs {options.inputs}", totals | {"readers": rows}
            )
        print(name, row, flush=True)
    return None


def in_a_process(name: str, first: int, last: int) -> dict[str, Any]:
    """Return what became of some inputs; a process that died is one outcome more."""
    call = [sys.executable, __file__, "--part", name, str(first), str(last)]
    done = subprocess.run(call, capture_output=True, text=True, check=False)
    if done.returncode == 0:
        result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return result
    print(done.stderr[-2000:], file=sys.stderr)
    return {"found": {f"the process died ({done.returncode})": 1}, "examples": {}, "slowest": 0.0, "megabytes": 0.0}


def add(row: dict[str, Any], first: int, last: int, part: dict[str, Any]) -> None:
    """Add what became of a part of the inputs to the row of its reader."""
    row["inputs"] += last - first
    for outcome, count in part["found"].items():
        if outcome in ("done", "refused"):
            row[outcome] += count
        else:
            seen = row["other"].setdefault(outcome, {"count": 0, "example": part["examples"].get(outcome, first)})
            seen["count"] += count
    row["slowest"] = round(max(row["slowest"], part["slowest"]), 2)
    row["megabytes"] = round(max(row["megabytes"], part["megabytes"]))


if __name__ == "__main__":
    main()
