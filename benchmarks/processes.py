"""Samples per second of one network trained by two processes, beside one process with one thread.

Batches have 400 images in both. All processes keep the memory that they free (``MALLOC_...``), as the guide to scaling
out advises: pages that go back to the system and come again cost both cores their common memory bandwidth.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch
from common import write
from torch import nn

from gpsuq import GPSClassifier, Recipe
from gpsuq.engine.ranks import rank

EPOCHS, ROWS, BATCH = 8, 3200, 400
KEEP_MEMORY = {"MALLOC_MMAP_THRESHOLD_": str(2**30), "MALLOC_TRIM_THRESHOLD_": str(2**31)}


def network() -> nn.Module:
    """Return a small convolutional network for images of 28 x 28."""
    return nn.Sequential(
        *(nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(1568, 128), nn.ReLU(), nn.Linear(128, 10)),
    )


def train(out: Path) -> None:
    """Train on made-up images of the size of MNIST's, and write the samples per second of the first process."""
    torch.set_num_threads(1)
    rng = np.random.default_rng(0)
    X, y = rng.random((ROWS, 1, 28, 28), dtype=np.float32), rng.integers(10, size=ROWS)
    recipe = Recipe(epochs=EPOCHS, batch_size=BATCH, n_draws=10)
    begun = time.perf_counter()
    model = GPSClassifier(network, "7", recipe=recipe).fit(X, y)
    seconds = time.perf_counter() - begun
    if rank() == 0:
        found = {"samples_per_second": ROWS * EPOCHS / model.seconds_, "with_setup": ROWS * EPOCHS / seconds}
        out.write_text(json.dumps(found | {"loss": model.losses_[-1]}))


def main() -> None:
    """Take turns between one process and two, and write the ratio of their medians."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--one", type=Path)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"))
    options = parser.parse_args()
    if options.one is not None:
        train(options.one)
        return
    environment = os.environ | KEEP_MEMORY | {"OMP_NUM_THREADS": "1"}
    found: dict[str, list[dict[str, float]]] = {"one": [], "two": []}
    with TemporaryDirectory() as folder:
        path = Path(folder) / "found.json"
        for _ in range(options.repeats):
            for name, start in (
                ("one", ()),
                ("two", ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2")),
            ):
                subprocess.run([sys.executable, *start, __file__, "--one", str(path)], env=environment, check=True)
                found[name].append(json.loads(path.read_text()))
                print(name, found[name][-1], flush=True)
    medians = {name: float(np.median([row["samples_per_second"] for row in rows])) for name, rows in found.items()}
    ratio = medians["two"] / medians["one"]
    print("two processes against one:", round(ratio, 3))
    command = f"python benchmarks/processes.py --repeats {options.repeats}"
    write(options.out, "processes", command, {"runs": found, "ratio": ratio})


if __name__ == "__main__":
    main()
