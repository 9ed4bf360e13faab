"""What every experiment leaves behind: metrics.json with command, seeds, settings, environment and numbers."""

from __future__ import annotations

import json
import math
import platform
import time
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from gpsuq._version import __version__
from gpsuq.engine.algorithms import Algorithm
from gpsuq.engine.checkpoints import UNFINISHED, was_resumed
from gpsuq.errors import GPSError
from paper.page import METRICS_FILE


def prepare(out: Path, *, force: bool) -> Path:
    """Make the output directory; one that holds results already is refused unless ``force``, which deletes them."""
    metrics, interrupted = out / METRICS_FILE, (out / UNFINISHED).exists()
    if force:
        metrics.unlink(missing_ok=True)  # so that this run, when it is stopped, can go on without force
    if metrics.exists() and not interrupted:
        raise GPSError(f"{out} holds results already; choose another directory or pass --force")
    out.mkdir(parents=True, exist_ok=True)
    return out


def algorithm_with(n_steps: int | None) -> Algorithm:
    """Give the default algorithm, with another number of steps where one is asked for."""
    return Algorithm() if n_steps is None else Algorithm(n_steps=n_steps)


def command_line(experiment: str, out: Path, **options: int | str | None) -> str:
    """Write down the command that repeats an experiment; options that are None were left at their default."""
    given = [f"--{name} {value}" for name, value in options.items() if value is not None]
    return " ".join(["python -m paper", experiment, *given, f"--out {out}"])


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


def write_metrics(
    out: Path, command: str, *, settings: Mapping[str, Any], results: Mapping[str, Any], started: float
) -> Path:
    """Write metrics.json; ``started`` is ``time.perf_counter()`` at the start."""
    record = {
        "command": command,
        "settings": settings,
        "environment": environment(),
        "seconds": round(time.perf_counter() - started, 1),
        **({"resumed": "after an interruption: seconds are those since then"} if was_resumed() else {}),
        "results": results,
    }
    path = out / METRICS_FILE
    path.write_text(json.dumps(_without_nan(json.loads(json.dumps(record, default=_plain))), indent=2) + "\n")
    return path


def _without_nan(value: Any) -> Any:
    """Write what is not a number as null: JSON has no NaN."""
    if isinstance(value, dict):
        return {key: _without_nan(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_without_nan(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _plain(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        return {"type": type(value).__name__, **{field.name: getattr(value, field.name) for field in fields(value)}}
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
