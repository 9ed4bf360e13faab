"""What is asked of an experiment, and what every experiment leaves behind.

That is metrics.json, with the command, seeds, settings, environment and numbers.
"""

from __future__ import annotations

import json
import math
import platform
import shutil
import time
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, fields, is_dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pandas as pd
import torch

from gpsuq._version import __version__
from gpsuq.engine.checkpoints import UNFINISHED, was_resumed
from gpsuq.engine.ranks import join, rank, wait_for_all
from gpsuq.engine.settings import Algorithm
from gpsuq.errors import GPSError, stopped
from gpsuq.files import locked, write_atomically
from paper.page import METRICS_FILE
from paper.replicates import run_replicates


@contextmanager
def going_on(out: Path, *, force: bool) -> Iterator[None]:
    """Let Ctrl-C or SIGTERM in an experiment tell where its rows, replicates and checkpoints are, and how to go on.

    A command with ``--force`` would delete them when it is given again.
    """
    try:
        yield
    except (KeyboardInterrupt, SystemExit) as stop:
        if not out.is_dir() or not any(out.iterdir()):
            raise
        again = "again without --force" if force else "again"
        message = f"interrupted; what was done is in {out}: give the same command {again} to go on from there"
        raise stopped(stop, message) from None


@dataclass(frozen=True)
class Asked:
    """What a user asked of the experiment ``name``; its methods do what all experiments do alike.

    ``options`` are those of the command that repeats the experiment, in order, without ``--out``; what is None was left
    at its default. ``started`` is ``time.perf_counter()`` at the start.
    """

    name: str
    out: Path
    seeds: Sequence[int]
    options: Mapping[str, int | str | None]
    n_steps: int | None = None
    force: bool = False
    progress: bool = False
    started: float = field(default_factory=time.perf_counter)

    @property
    def seed(self) -> int:
        """The first seed."""
        return self.seeds[0]

    @property
    def ends(self) -> list[int]:
        """The first and the last seed."""
        return [self.seeds[0], self.seeds[-1]]

    @property
    def algorithm(self) -> Algorithm:
        """The default algorithm, with another number of steps where one is asked for."""
        return Algorithm() if self.n_steps is None else Algorithm(n_steps=self.n_steps)

    @property
    def command(self) -> str:
        """The command that repeats the experiment."""
        given = [f"--{name} {value}" for name, value in self.options.items() if value is not None]
        return " ".join(["python -m paper", self.name, *given, f"--out {self.out}"])

    @contextmanager
    def alone(self) -> Iterator[Asked]:
        """Keep other runs out of the output directory, and yield what this process is to do.

        Of processes that train together the first writes there. Each of the others has a copy of what is done, to write
        into until the run ends.
        """
        join()
        self.out.parent.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory() as folder, locked(self.out.absolute()) if rank() == 0 else nullcontext():
            own = Path(folder) / "out"
            if rank() > 0 and self.out.is_dir():
                shutil.copytree(self.out, own)
            wait_for_all()  # nobody reads what another has begun to write
            yield self if rank() == 0 else replace(self, out=own)
            wait_for_all()

    def prepare(self) -> None:
        """Make the output directory; one that holds results is refused unless ``force``, which deletes them."""
        metrics, interrupted = self.out / METRICS_FILE, (self.out / UNFINISHED).exists()
        if self.force:
            metrics.unlink(missing_ok=True)  # so that this run, when it is stopped, can go on without force
        if metrics.exists() and not interrupted:
            raise GPSError(f"{self.out} holds results already; choose another directory or pass --force")
        self.out.mkdir(parents=True, exist_ok=True)

    def replicate(self, function: Callable[..., dict[str, Any]], tasks: Iterable[tuple[Hashable, ...]]) -> pd.DataFrame:
        """Call a function for every task, side by side (:func:`~paper.replicates.run_replicates`)."""
        return run_replicates(function, tasks, self.out, force=self.force, progress=self.progress)

    def write(self, settings: Mapping[str, Any], results: Mapping[str, Any]) -> Path:
        """Write metrics.json."""
        record = {
            "command": self.command,
            "settings": settings,
            "environment": environment(),
            "seconds": round(time.perf_counter() - self.started, 1),
            **({"resumed": "after an interruption: seconds are those since then"} if was_resumed() else {}),
            "results": results,
        }
        path = self.out / METRICS_FILE
        text = json.dumps(_without_nan(json.loads(json.dumps(record, default=_plain))), indent=2) + "\n"
        return write_atomically(path, text.encode())

    def write_table(self, markdown: str) -> Path:
        """Write table.md."""
        return write_atomically(self.out / "table.md", (markdown + "\n").encode())


def environment() -> dict[str, Any]:
    """Describe the software and machine that produced a result."""
    return {
        "gpsuq": __version__,
        "torch": torch.__version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
        "machine": platform.machine(),
        "threads": torch.get_num_threads(),
    }


def _without_nan(value: Any) -> Any:
    """Replace numbers that are not finite by None: JSON has neither NaN nor infinity."""
    if isinstance(value, dict):
        return {key: _without_nan(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_without_nan(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _plain(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        return {"type": type(value).__name__, **{part.name: getattr(value, part.name) for part in fields(value)}}
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray):
        return value.tolist()
    return repr(value)


def mean_and_sd(values: list[float]) -> dict[str, float]:
    """Summarise one number over seeds."""
    array = np.asarray(values, dtype=float)
    return {
        "mean": float(array.mean()),
        "sd": float(array.std(ddof=1)) if len(array) > 1 else float("nan"),
        "min": float(array.min()),
        "max": float(array.max()),
    }
