"""Fits that are killed at random moments and started again: whether they end in the weights of the uninterrupted run.

Regression, Poisson process and digits, by the command line and from Python with ``checkpoint=``; and one of two
processes under ``torchrun --max-restarts``, which starts both again by itself.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pandas as pd
from common import write
from sklearn.datasets import load_digits

from gpsuq.datasets import scissors

FITS = {
    "linear": "GPSLinearRegression(n_steps=1500).fit(table[['x']], table.y, checkpoint=kept)",
    "poisson": "GPSPoissonProcess(n_steps=150).fit(table[['x', 'y']].to_numpy(), (0, 1, 0, 1), checkpoint=kept)",
    "classifier": "GPSClassifier(recipe=Recipe(epochs=30)).fit(table.drop(columns='y'), table.y, checkpoint=kept)",
}
COMMANDS = {
    "linear": ("--target", "y", "--steps", "1500"),
    "poisson": ("--window", "window.json", "--steps", "150"),
    "classifier": ("--target", "y", "--epochs", "30"),
}
PYTHON = """
import sys, warnings
import pandas as pd
from gpsuq import GPSClassifier, GPSLinearRegression, GPSPoissonProcess, Recipe
warnings.simplefilter("ignore")
kind, out, kept = sys.argv[1:]
table = pd.read_csv(f"{kind}.csv")
{"linear": lambda: LINEAR, "poisson": lambda: POISSON, "classifier": lambda: CLASSIFIER}[kind]().save(out, force=True)
"""
TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "--max-restarts=3")


def prepare(folder: Path) -> None:
    """Write a table, a pattern and the digits."""
    data, rng = scissors(400, seed=1), np.random.default_rng(0)
    pd.DataFrame({"x": data.X[:, 0], "y": data.y}).to_csv(folder / "linear.csv", index=False)
    pd.DataFrame(rng.random((300, 2)), columns=["x", "y"]).to_csv(folder / "poisson.csv", index=False)
    digits = load_digits()
    pd.DataFrame(digits.data).add_prefix("p").assign(y=digits.target).to_csv(folder / "classifier.csv", index=False)
    (folder / "window.json").write_text(json.dumps({"type": "rectangle", "xrange": [0, 1], "yrange": [0, 1]}))
    script = PYTHON
    for kind, fit in FITS.items():
        script = script.replace(kind.upper(), fit)
    (folder / "fit.py").write_text(script)


def command(kind: str, how: str, out: str) -> list[str]:
    """Return the command that fits a kind of model into a directory."""
    python = [sys.executable, *(TORCHRUN if how == "two processes" else ())]
    if how == "python":
        return [*python, "fit.py", kind, out, f"{out}.kept"]
    return [*python, "-m", "gpsuq", "fit", kind, f"{kind}.csv", *COMMANDS[kind], "--out", out, "--force"]


def start(folder: Path, arguments: list[str]) -> subprocess.Popen[bytes]:
    """Start a command with one thread to a process, silent, in a group of its own."""
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    quiet = subprocess.DEVNULL
    return subprocess.Popen(arguments, cwd=folder, env=environment, stdout=quiet, stderr=quiet, start_new_session=True)


def ranks(agent: int) -> list[int]:
    """Return the processes that torchrun started."""
    found = subprocess.run(["pgrep", "-P", str(agent)], capture_output=True, text=True, check=False)
    return [int(line) for line in found.stdout.split()]


def kill_once(folder: Path, arguments: list[str], seconds: float, rng: np.random.Generator, how: str) -> bool:
    """Start a command, kill it (or one of its processes) after so long, and let it end; return whether it was alive."""
    process = start(folder, arguments)
    time.sleep(seconds)
    victims = ranks(process.pid) if how == "two processes" else [process.pid]
    if process.poll() is not None or not victims:
        process.wait()
        return False
    os.kill(int(rng.choice(victims)), signal.SIGKILL)
    if how != "two processes":
        process.wait()
        process = start(folder, arguments)
    process.wait()
    return True


def model(folder: Path, out: str) -> bytes:
    """Return the numbers of a saved model."""
    return (folder / out / "model.safetensors").read_bytes() if (folder / out).exists() else b""


def tensors(content: bytes) -> dict[str, np.ndarray]:
    """Return the numbers by name."""
    from safetensors.numpy import load

    return load(content)


def run(kind: str, how: str, n: int, rng: np.random.Generator) -> dict[str, object]:
    """Kill a fit n times at random moments; count how often the restarted one ends in the same weights."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        prepare(folder)
        begun = time.perf_counter()
        start(folder, command(kind, how, "whole")).wait()
        seconds = time.perf_counter() - begun
        whole, equal, alive, largest = tensors(model(folder, "whole")), 0, 0, 0.0
        for number in range(n):
            out = f"out{number}"
            alive += kill_once(folder, command(kind, how, out), rng.uniform(0.0, seconds), rng, how)
            found = model(folder, out)
            if found:
                again = tensors(found)
                apart = [np.abs(again[name].astype(float) - value).max() for name, value in whole.items() if value.size]
                largest = max(largest, float(np.nanmax(apart)))
                equal += all(np.array_equal(again[name], value, equal_nan=True) for name, value in whole.items())
            shutil.rmtree(folder / out, ignore_errors=True)
        litter = [path.name for path in folder.iterdir() if path.name.startswith(".") or "unfinished" in path.name]
    return {"killed": alive, "of": n, "equal": equal, "largest_difference": largest, "litter": litter}


def main() -> None:
    """Run all kinds, or one, and write the counts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--restarts", type=int, default=5)
    parser.add_argument("--only", default="")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"))
    options = parser.parse_args()
    rng, found = np.random.default_rng(0), {}
    for how, n in (("command line", options.kills), ("python", options.kills), ("two processes", options.restarts)):
        for kind in FITS if how != "two processes" else ("linear", "classifier"):
            if options.only in f"{kind} {how}":
                found[f"{kind}, {how}"] = run(kind, how, n, rng)
                print(kind, how, found[f"{kind}, {how}"], flush=True)
                call = f"python benchmarks/kills.py --kills {options.kills} --restarts {options.restarts}"
                call += f" --only '{options.only}'" if options.only else ""
                write(options.out, f"kills {options.only}".strip().replace(" ", "_"), call, found)


if __name__ == "__main__":
    main()
