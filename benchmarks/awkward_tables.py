"""What `gpsuq fit` takes for tables that are small and awkward: very many columns, very many classes, a giant cell.

Each command runs in a process of its own with one thread. CPU seconds say what it cost where others use the machine,
too; memory is the largest that was resident.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pandas as pd
from common import write


def columns(rng: np.random.Generator) -> pd.DataFrame:
    X = rng.normal(size=(50, 10_000))
    table = pd.DataFrame(X).rename(columns=lambda number: f"c{number}")
    return table.assign(y=X[:, 0] + rng.normal(size=50))


def classes(rng: np.random.Generator) -> pd.DataFrame:
    labels = [f"k{number % 2000}" for number in range(10_000)]
    return pd.DataFrame(rng.normal(size=(10_000, 4)), columns=list("abcd")).assign(y=labels)


def giant_cell(rng: np.random.Generator) -> pd.DataFrame:
    table = pd.DataFrame(rng.normal(size=(40, 2)), columns=["a", "y"]).assign(text=["u", "v"] * 20)
    table.loc[3, "text"] = "x" * 5_000_000
    return table


CASES: dict[str, tuple[str, Callable[[np.random.Generator], pd.DataFrame]]] = {
    "10,000 columns, 50 rows": ("linear", columns),
    "2,000 classes, 10,000 rows": ("classifier", classes),
    "a cell of 5 MB": ("linear", giant_cell),
}


def fitted(kind: str, folder: str) -> dict[str, Any]:
    """Run one fit, and return its exit code, times, memory, and how it ended."""
    command = [sys.executable, "-c", "from gpsuq.cli import main; main()", "fit", kind]
    command += [f"{folder}/data.csv", "--target", "y", "--out", f"{folder}/model"]
    started = time.perf_counter()
    one_thread = os.environ | {"OMP_NUM_THREADS": "1"}
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=one_thread)
    assert child.stderr is not None
    said = child.stderr.read().decode()
    _, status, used = os.wait4(child.pid, 0)  # which has the memory of this child alone
    child.returncode = os.waitstatus_to_exitcode(status)
    page = Path(folder, "model", "report.html")
    return {
        "exit_code": child.returncode,
        "seconds": round(time.perf_counter() - started, 1),
        "cpu_seconds": round(used.ru_utime + used.ru_stime, 1),
        "resident_mb": round(used.ru_maxrss / 1024),
        "report_kb": round(page.stat().st_size / 1000) if page.is_file() else None,
        "said": said.strip()[:200],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"))
    arguments = parser.parse_args()
    rows = []
    for name, (kind, made) in CASES.items():
        with TemporaryDirectory() as folder:
            made(np.random.default_rng(0)).to_csv(f"{folder}/data.csv", index=False)
            load = os.getloadavg()[0]
            rows.append({"table": name, "command": f"gpsuq fit {kind}", "load": load, **fitted(kind, folder)})
        print(rows[-1])
    write(arguments.out, "awkward_tables", "python benchmarks/awkward_tables.py", rows)


if __name__ == "__main__":
    main()
