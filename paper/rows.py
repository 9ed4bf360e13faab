"""Rows of an experiment that trains networks, on disk as soon as they exist: what is there is not trained again."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
from torch import Tensor

from gpsuq.errors import CheckpointError, GPSError
from gpsuq.files import read_state, write_atomically
from paper.image_tables import METHODS
from paper.page import METRICS_FILE, ROWS_FILE


def begin(out: Path, key: Callable[[str], str], *, force: bool) -> Rows:
    """Return the rows that are in a directory already; with ``force``, start anew."""
    out.mkdir(parents=True, exist_ok=True)
    if force:
        for name in (ROWS_FILE, METRICS_FILE):
            (out / name).unlink(missing_ok=True)
        for kept in ("models", "predictions"):
            shutil.rmtree(out / kept, ignore_errors=True)
    return Rows(out / ROWS_FILE, key)


class Rows:
    """Rows on disk, one line each; ``key`` describes what a row of a method depends on, and others are left alone.

    A file that holds nothing but others is refused.
    """

    def __init__(self, path: Path, key: Callable[[str], str]) -> None:
        self.path, self.key = path, key
        self.lines: list[dict[str, Any]] = []
        self.rows: list[dict[str, Any]] = []
        if path.exists():
            try:
                self.lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
                self.rows = [line["row"] for line in self.lines if line["key"] == key(line["row"]["method"])]
            except (ValueError, LookupError, TypeError) as error:
                raise GPSError(f"{path} is damaged ({error}); mend it, or pass --force to start anew") from error
            if self.lines and not self.rows:
                raise GPSError(f"{path} holds rows of other settings; choose another directory or pass --force")

    def has(self, method: str, seed: int) -> bool:
        return any(row["method"] == method and row["seed"] == seed for row in self.rows)

    def append(self, row: dict[str, Any]) -> None:
        self.rows.append(row)
        self.lines.append({"key": self.key(row["method"]), "row": row})
        write_atomically(self.path, "".join(json.dumps(line) + "\n" for line in self.lines).encode())

    @property
    def seconds(self) -> float:
        """How long the rows took, those of earlier runs included."""
        return float(sum(row.get("seconds", 0.0) for row in self.rows))

    def frame(self) -> pd.DataFrame:
        order = {method: number for number, method in enumerate(METHODS)}

        def place(row: dict[str, Any]) -> tuple[int, int]:
            return order.get(row["method"], len(order)), row["seed"]

        rows: list[dict[str, Any]] = sorted(self.rows, key=place)
        return pd.DataFrame(rows)


def read_state_of(path: Path, key: str) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
    """Read a state that was written with this ``key``; None where there is none, or another or damaged one."""
    try:
        tensors, meta = read_state(path)
    except CheckpointError:
        return None
    return (tensors, meta) if meta.get("key") == key else None
