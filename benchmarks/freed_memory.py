"""A training step of the CIFAR-10 networks with and without memory that is kept, each in a process of its own."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from statistics import median

from common import write

NETWORKS = ("paper", "modern")


def measured(kept: bool, steps: int) -> dict[str, float]:
    """Give milliseconds of a step, the median, by network."""
    import torch
    from network_step import BATCH, training_step

    from paper.cifar10 import NETWORKS as MAKERS
    from paper.memory import keep_freed_memory

    if kept:
        keep_freed_memory()
    torch.manual_seed(0)
    images = torch.rand(BATCH, 3, 32, 32).to(memory_format=torch.channels_last)
    labels = torch.randint(0, 10, (BATCH,))
    found = {}
    for name in NETWORKS:
        step = training_step(MAKERS[name](10, images=images), images, labels)
        step()
        times = []
        for _ in range(steps):
            started = time.perf_counter()
            step()
            times.append(1e3 * (time.perf_counter() - started))
        found[name] = median(times)
    return found


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=15)
    parser.add_argument("--child", choices=["kept", "given back"])
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"))
    options = parser.parse_args()
    if options.child:
        print(json.dumps(measured(options.child == "kept", options.steps)))
        return
    times: dict[str, dict[str, list[float]]] = {name: {"kept": [], "given back": []} for name in NETWORKS}
    for _ in range(options.rounds):
        for child in ("kept", "given back"):
            command = [sys.executable, __file__, "--child", child, "--steps", str(options.steps)]
            said = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
            for name, value in said.items():
                times[name][child].append(round(value, 1))
    result = {
        name: {"milliseconds": each, "given back, to kept": round(median(each["given back"]) / median(each["kept"]), 2)}
        for name, each in times.items()
    }
    print(result)
    command_line = f"python benchmarks/freed_memory.py --rounds {options.rounds} --steps {options.steps}"
    write(options.out, "freed_memory", command_line, result)


if __name__ == "__main__":
    main()
