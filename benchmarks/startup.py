"""How long gpsuq takes to start, beside ``import torch``, and what its core install weighs.

Processes take turns; times are medians, and ratios are those of one run.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import re
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
from common import write
from packaging.requirements import Requirement

CALLS = {
    "import torch": "import torch",
    "import gpsuq": "import gpsuq",
    "gpsuq --help": "import sys; sys.argv = ['gpsuq', '--help']; from gpsuq.cli import main; main()",
    "python alone": "",
}
BEFORE = ("shapely", "pooch", "arviz-base")  # what every install had before extras, beside what it has now


def seconds(code: str) -> float:
    started = time.perf_counter()
    subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - started


def closure(roots: list[str]) -> set[str]:
    """Names of all distributions that these need, without extras."""
    found: set[str] = set()
    waiting = [name.lower() for name in roots]
    while waiting:
        name = re.sub(r"[-_.]+", "-", waiting.pop())
        if name in found:
            continue
        try:
            required = importlib.metadata.requires(name) or []
        except importlib.metadata.PackageNotFoundError:
            continue
        found.add(name)
        wanted = (Requirement(text) for text in required)
        waiting += [each.name.lower() for each in wanted if each.marker is None or each.marker.evaluate({"extra": ""})]
    return found


def megabytes(names: set[str]) -> float:
    files = (file for name in names for file in importlib.metadata.files(name) or [])
    return round(sum(file.size or 0 for file in files) / 1e6, 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"))
    parser.add_argument("--repeats", type=int, default=15)
    arguments = parser.parse_args()
    times: dict[str, list[float]] = {name: [] for name in CALLS}
    for _ in range(arguments.repeats):
        for name, code in CALLS.items():
            times[name].append(seconds(code))
    medians = {name: float(np.median(values)) for name, values in times.items()}
    now = closure(["gpsuq"])
    before = now | closure(list(BEFORE))
    rows = [
        {"call": name, "seconds": round(value, 3), "ratio to torch": round(value / medians["import torch"], 3)}
        for name, value in medians.items()
    ]
    rows += [
        {
            "install": name,
            "distributions": len(names),
            "megabytes": megabytes(names),
            "without torch": megabytes(names - {"torch"}),
        }
        for name, names in (("core, before extras", before), ("core", now))
    ]
    for row in rows:
        print(row)
    write(arguments.out, "startup", f"python benchmarks/startup.py --repeats {arguments.repeats}", rows)


if __name__ == "__main__":
    main()
