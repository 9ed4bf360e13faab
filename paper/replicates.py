"""Replicates of an experiment side by side, each in one thread; what is done is kept, so a stopped run goes on."""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable, Iterable
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from joblib import Parallel, cpu_count, delayed

from gpsuq.engine.progress import counting_bar
from gpsuq.files import write_atomically

_FILE = "replicates.jsonl"


def run_replicates(
    function: Callable[..., dict[str, Any]],
    tasks: Iterable[tuple[Hashable, ...]],
    out: Path,
    *,
    force: bool,
    progress: bool = False,
) -> pd.DataFrame:
    """Call ``function(*task, progress=...)`` for every task; return one row per result, in the order of the tasks.

    Results are appended to a file as they come. Tasks that are in it already are not run again unless ``force``. The
    bar counts tasks; one that is alone shows its own.
    """
    path = out / _FILE
    if force:
        path.unlink(missing_ok=True)
    tasks = list(tasks)
    done = {}
    if path.exists():
        lines = path.read_text().splitlines(keepends=True)
        records = [json.loads(line) for line in lines if line.endswith("\n")]  # a last line may have been cut short
        write_atomically(path, "".join(json.dumps(record) + "\n" for record in records).encode())
        done = {tuple(record["task"]): record["result"] for record in records}
    waiting = [task for task in tasks if task not in done]
    alone = len(waiting) == 1
    results = Parallel(n_jobs=min(cpu_count(), len(waiting)) or 1, return_as="generator_unordered")(
        delayed(_one)(function, task, progress and alone) for task in waiting
    )
    with counting_bar(progress and len(waiting) > 1, "replicates", len(waiting)) as advance:
        for number, (task, result) in enumerate(results, start=1):
            done[task] = result
            with path.open("a") as file:
                file.write(json.dumps({"task": task, "result": result}) + "\n")
            advance(number)
    return pd.DataFrame([done[task] for task in tasks])


def _one(
    function: Callable[..., dict[str, Any]], task: tuple[Hashable, ...], progress: bool
) -> tuple[tuple[Hashable, ...], dict[str, Any]]:
    torch.set_num_threads(1)  # processes share the cores better than threads do
    return task, function(*task, progress=progress)
