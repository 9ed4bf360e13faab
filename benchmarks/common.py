"""What the benchmarks share: interleaved timing, memory held for the backward pass, a table on disk."""

from __future__ import annotations

import argparse
import json
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).parents[1]))  # paper/ is not installed

from gpsuq.errors import GPSError
from paper.record import environment


class Hang(BaseException):
    """A call took longer than it may."""


def outcome_of(call: Callable[[], object], seconds: float) -> str:
    """Return what became of a call: "done", "refused" (an error of gpsuq's own), or what else it ended in and where."""

    def stop(*_: Any) -> None:
        raise Hang("it took too long")

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        call()
        return "done"
    except GPSError:
        return "refused"
    except BaseException as error:
        frames = [frame for frame in traceback.extract_tb(error.__traceback__) if "/gpsuq/" in frame.filename]
        place = f" at {Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else ""
        return f"{type(error).__name__}{place}: {str(error)[:80]}"
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)


def interleaved(
    functions: dict[str, Callable[[], None]],
    *,
    repeats: int = 41,
    seconds: float = 3.0,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, float]:
    """Return median milliseconds of each function, called in turn so that a slow moment of the machine hits all alike.

    On a machine that others use, ``time.process_time`` is the ``clock`` of functions that have one thread.

    Each timed call follows an untimed one: otherwise the first function would pay for what the last one left in the
    caches and the allocator.
    """
    for function in functions.values():
        function()
    times: dict[str, list[float]] = {name: [] for name in functions}
    started = time.perf_counter()
    for repeat in range(repeats):
        for name, function in functions.items():
            function()
            begin = clock()
            function()
            times[name].append(clock() - begin)
        if repeat >= 4 and time.perf_counter() - started > seconds:
            break
    return {name: round(1e3 * float(np.median(values)), 3) for name, values in times.items()}


def saved_megabytes(loss: Callable[[], torch.Tensor]) -> float:
    """Return the megabytes that autograd keeps for the backward pass, each storage counted once."""
    storages: dict[int, int] = {}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        storages[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        value = loss()
    del value
    return round(sum(storages.values()) / 1e6, 3)


def in_own_process(script: str, *arguments: int) -> Any:
    """Call ``script --one ARGUMENTS`` in a process of its own and return the JSON of its last line."""
    call = [sys.executable, script, "--one", *map(str, arguments)]
    return json.loads(subprocess.run(call, check=True, capture_output=True, text=True).stdout.splitlines()[-1])


def fits_by_size(
    script: str,
    one: Callable[[int, int], dict[str, float]],
    sizes: Sequence[int],
    *,
    replicates: int,
    summarise: Callable[[list[dict[str, float]]], dict[str, Any]],
) -> None:
    """Run the command of a benchmark that fits data of several sizes, each fit in a process of its own.

    ``one(n, seed)`` measures a fit. The sizes come in turn, so that a slow moment of the machine hits all alike, and
    what ``summarise`` makes of the rows is written whenever all sizes are done.
    """
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"))
    parser.add_argument("--replicates", type=int, default=replicates)
    parser.add_argument("--one", type=int, nargs=2)
    arguments = parser.parse_args()
    if arguments.one:
        print(json.dumps(one(*arguments.one)))
        return
    name = Path(script).stem
    rows: list[dict[str, float]] = []
    for seed in range(arguments.replicates):
        for n in sizes:
            rows.append(in_own_process(script, n, seed))
            print(rows[-1], flush=True)
        command = f"python benchmarks/{name}.py --replicates {arguments.replicates}"
        write(arguments.out, name, command, {"rows": rows} | summarise(rows))


def time_ratio(rows: list[dict[str, float]], sizes: Sequence[int]) -> float:
    """Return the median seconds of the largest size over those of the smallest."""
    small, large = (np.median([row["seconds"] for row in rows if row["n"] == n]) for n in (sizes[0], sizes[-1]))
    return float(large / small)


def kept(out: Path, name: str) -> list[Any]:
    """Return the rows that the results file has already, so that a benchmark that was stopped goes on."""
    path = out / f"{name}.json"
    return list(json.loads(path.read_text())["rows"]) if path.exists() else []


def write(out: Path, name: str, command: str, rows: Any) -> Path:
    out.mkdir(parents=True, exist_ok=True)
    path = out / f"{name}.json"
    path.write_text(json.dumps({"command": command, "environment": environment(), "rows": rows}, indent=1) + "\n")
    return path
