"""Saved models and checkpoints that are cut, changed, replaced while they are read, or whose writer is killed."""

from __future__ import annotations

import argparse
import itertools
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from common import write

from gpsuq import GPS, MLP, Algorithm, GPSError, load, save
from gpsuq.files import read_state
from gpsuq.storage import directories, write_model
from gpsuq.tables.encoding import Encoding

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

import small_models

KINDS = ("linear", "poisson", "default", "uq")
LEVELS = {"site": ("north", "south", "west")}


def outcomes(path: Path, read: Callable[[], Any], n: int, rng: np.random.Generator) -> dict[str, dict[str, int]]:
    """Count what becomes of a file that is cut or changed: refused, the same as before, wrong, or a foreign error."""
    content, expected = path.read_bytes(), read()
    cut = (content[:place] for place in rng.integers(len(content), size=n))
    changed = (_changed(content, int(place), int(rng.integers(1, 256))) for place in rng.integers(len(content), size=n))
    found = {}
    for name, damaged in (("truncated", cut), ("flipped", changed)):
        counts: Counter[str] = Counter()
        for each in damaged:
            path.write_bytes(each)
            try:
                counts["same" if _equal(read(), expected) else "wrong"] += 1
            except GPSError:
                counts["refused"] += 1
            except Exception as error:
                counts[type(error).__name__] += 1
        found[name] = dict(counts)
    path.write_bytes(content)
    return found


def _changed(content: bytes, place: int, change: int) -> bytes:
    return content[:place] + bytes([content[place] ^ change]) + content[place + 1 :]


def _equal(one: Any, other: Any) -> bool:
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(_equal(one[name], other[name]) for name in one)
    if isinstance(one, torch.Tensor):
        return one.dtype == other.dtype and torch.equal(one, other)
    return np.array_equal(one, other) if isinstance(one, np.ndarray) else bool(one == other)


def damaged_models(folder: Path, n: int, rng: np.random.Generator) -> dict[str, Any]:
    """Damage every file that decides what a saved model draws, and a checkpoint."""
    found: dict[str, Any] = {}
    models = small_models.fitted()
    for kind in KINDS:
        with directories.replaced(folder / kind, force=False) as directory:
            Encoding(LEVELS).write(directory)
            write_model(models[kind], directory)

        def read(kind: str = kind) -> Any:
            model = load(folder / kind, **small_models.CODE[kind])
            return {"draws": small_models.draws(model), "levels": dict(Encoding.read(folder / kind).levels)}

        for file in ("model.safetensors", "config.json", "columns.json"):
            found[f"{kind} {file}"] = outcomes(folder / kind / file, read, n, rng)
    gps = GPS(small_models.MODEL, MLP(hidden=(4,)), algorithm=Algorithm(n_steps=10), n_chains=2)
    gps.fit(rng.normal(size=60), checkpoint=folder / "kept")
    (checkpoint,) = (folder / "kept").rglob("training.safetensors")
    found["checkpoint"] = outcomes(checkpoint, lambda: dict(zip("ab", read_state(checkpoint), strict=True)), n, rng)
    return found


def writer(folder: Path, *, by_renames: bool) -> None:
    """Replace a model by two others in turn, for ever."""
    if by_renames:
        directories.exchange = lambda *_: False  # type: ignore[assignment]
    models = [load(folder / name) for name in ("a", "b")]
    for number in itertools.count():
        save(models[number % 2], folder / "model", force=True)
        if number == 0:
            print("ready", flush=True)


def started(folder: Path, *, by_renames: bool) -> subprocess.Popen[str]:
    call = [sys.executable, __file__, "--writer", str(folder), *(["--by-renames"] if by_renames else [])]
    process = subprocess.Popen(call, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    process.stdout.readline()
    return process


def which(folder: Path, drawn: dict[str, Any]) -> str:
    """Say which of the two models is there: a, b, a mixture, or an error."""
    try:
        found = small_models.draws(load(folder / "model"))
    except GPSError as error:
        return "missing" if "no saved model" in str(error) else "refused"
    return next((name for name, draws in drawn.items() if np.array_equal(found, draws)), "mixture")


def replaced_while_read(folder: Path, n: int, drawn: dict[str, Any], *, by_renames: bool) -> dict[str, int]:
    """Count what so many loads see while another process replaces the model all the time."""
    process = started(folder, by_renames=by_renames)
    try:
        return dict(Counter(which(folder, drawn) for _ in range(n)))
    finally:
        process.kill()
        process.wait()


def killed(
    folder: Path, n: int, drawn: dict[str, Any], rng: np.random.Generator, *, by_renames: bool
) -> dict[str, Any]:
    """Kill a process that replaces the model at random moments; count what is there then, and after the next save."""
    before, after, litter, left = Counter[str](), Counter[str](), 0, 0
    model = load(folder / "a")
    for _ in range(n):
        process = started(folder, by_renames=by_renames)
        time.sleep(float(rng.uniform(0.0, 0.2)))
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        before[which(folder, drawn)] += 1
        litter += any(name.startswith(".") for name in os.listdir(folder))
        save(model, folder / "model", force=True)
        after[which(folder, drawn)] += 1
        left += any(name.startswith(".") for name in os.listdir(folder))
    return {"found": dict(before), "left something": litter, "after the next save": dict(after), "still left": left}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--places", type=int, default=100)
    parser.add_argument("--loads", type=int, default=1000)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--writer", type=Path)
    parser.add_argument("--by-renames", action="store_true")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.writer:
        writer(options.writer, by_renames=options.by_renames)
        return
    rng = np.random.default_rng(options.seed)
    found: dict[str, Any] = {}
    with TemporaryDirectory() as name:
        folder = Path(name)
        found["damage"] = damaged_models(folder, options.places, rng)
        places, drawn = folder / "replaced", {}
        for place, seed in (("a", 0), ("b", 1)):
            X = np.random.default_rng(seed).normal(size=(60, 2))
            model = small_models.GPSLinearRegression(n_chains=2, n_steps=8).fit(X, X[:, 0] + seed * X[:, 1] ** 2)
            drawn[place] = small_models.draws(load(save(model, places / place)))
        for how, by_renames in (("exchange", False), ("two renames", True)):
            found[f"replaced by {how} while read"] = replaced_while_read(
                places, options.loads, drawn, by_renames=by_renames
            )
            found[f"killed, {how}"] = killed(places, options.kills, drawn, rng, by_renames=by_renames)
    for row, counts in found.items():
        print(row, counts)
    command = f"python benchmarks/damage.py --places {options.places} --loads {options.loads} --kills {options.kills}"
    write(options.out, "damage", f"{command} --seed {options.seed}", found)


if __name__ == "__main__":
    main()
