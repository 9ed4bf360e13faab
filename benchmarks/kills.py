"""Fits that are killed at random moments and started again: whether they end in the weights of the uninterrupted run.

Regression, Poisson process and digits, by the command line and from Python with ``checkpoint=``; and one of two
processes under ``torchrun --max-restarts``, which starts both again by itself. One that hangs counts as not finished.
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
from contextlib import suppress
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
LONGER, GRACE = 5.0, 60.0
"""A run that was killed hangs, and failed, when it needs this many times the undisturbed run and these seconds more.

torchrun gives processes 30 seconds to end before it starts them again."""


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


def to_be_killed(process: subprocess.Popen[bytes], how: str) -> list[int]:
    """Return which processes a kill may hit, once they are there; none where the command has ended."""
    while process.poll() is None:
        found = ranks(process.pid) if how == "two processes" else [process.pid]
        if found:
            return found
        time.sleep(0.01)
    return []


def ended(process: subprocess.Popen[bytes], limit: float) -> bool:
    """Wait for a command, so many seconds at most; return whether it ended well. One that hangs is killed."""
    try:
        return process.wait(limit) == 0
    except subprocess.TimeoutExpired:
        left = ranks(process.pid)
        process.kill()  # first, or it would start them again
        for each in left:
            with suppress(ProcessLookupError):  # it ended meanwhile
                os.kill(each, signal.SIGKILL)
        process.wait()
        return False


def kill_once(
    folder: Path, arguments: list[str], seconds: float, limit: float, rng: np.random.Generator, how: str
) -> tuple[bool, bool]:
    """Start a command, kill it (or one of its processes) after so long, and let it end.

    Return whether it was alive to be killed, and whether it ended well within the limit after that.
    """
    process = start(folder, arguments)
    to_be_killed(process, how)
    time.sleep(seconds)
    victims = to_be_killed(process, how)
    if victims:
        os.kill(int(rng.choice(victims)), signal.SIGKILL)
    if victims and how != "two processes":
        process.wait()
        process = start(folder, arguments)
    return bool(victims), ended(process, limit)


def model(folder: Path, out: str) -> bytes:
    """Return the numbers of a saved model."""
    return (folder / out / "model.safetensors").read_bytes() if (folder / out).exists() else b""


def tensors(content: bytes) -> dict[str, np.ndarray]:
    """Return the numbers by name."""
    from safetensors.numpy import load

    return load(content)


def run(kind: str, how: str, n: int, rng: np.random.Generator) -> dict[str, object]:
    """Kill a fit n times at random moments; count how often it ended after that, and how often in the same weights."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        prepare(folder)
        process = start(folder, command(kind, how, "whole"))
        to_be_killed(process, how)
        begun = time.perf_counter()
        process.wait()
        seconds = time.perf_counter() - begun
        limit = LONGER * seconds + GRACE
        whole, finished, equal, killed, tries, largest = tensors(model(folder, "whole")), 0, 0, 0, 0, 0.0
        while killed < n:  # some come too late
            out = f"out{tries}"
            alive, well = kill_once(folder, command(kind, how, out), rng.uniform(0.0, seconds), limit, rng, how)
            tries, killed, finished = tries + 1, killed + alive, finished + well
            if well:
                again = tensors(model(folder, out))
                apart = [np.abs(again[name].astype(float) - value).max() for name, value in whole.items() if value.size]
                largest = max(largest, float(np.nanmax(apart)))
                equal += all(np.array_equal(again[name], value, equal_nan=True) for name, value in whole.items())
            shutil.rmtree(folder / out, ignore_errors=True)
        litter = [path.name for path in folder.iterdir() if path.name.startswith(".") or "unfinished" in path.name]
    return {
        "killed": killed,
        "of": tries,
        "finished": finished,
        "equal": equal,
        "largest_difference": largest,
        "litter": litter,
        "limit_seconds": round(limit),
    }


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
