"""Replicates of an experiment, independent tasks each of them; what is done is kept, so a stopped run goes on."""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd

from gpsuq.engine.parallel import independent
from gpsuq.engine.progress import counting_bar
from gpsuq.engine.ranks import rank
from gpsuq.errors import GPSError
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
        try:
            lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
            records = [json.loads(line) for line in lines if line.endswith("\n")]  # a last line may have been cut short
            done = {tuple(record["task"]): record["result"] for record in records}
        except (ValueError, LookupError, TypeError) as error:
            raise GPSError(f"{path} is damaged ({error}); mend it, or pass --force to start anew") from error
        write_atomically(path, "".join(json.dumps(record) + "\n" for record in records).encode())
    waiting = [task for task in tasks if task not in done]
    several, before = len(waiting) > 1, len(done)
    with counting_bar(progress and several, "replicates", len(waiting)) as advance:

        def keep(number: int, result: dict[str, Any]) -> None:
            done[waiting[number]] = result
            if rank() == 0:
                with path.open("a", encoding="utf-8") as file:
                    file.write(json.dumps({"task": waiting[number], "result": result}) + "\n")
            advance(len(done) - before)

        independent(partial(function, progress=progress and not several), waiting, on_done=keep)
    return pd.DataFrame([done[task] for task in tasks])
