"""Independent fits by two workers against one, in one thread each; and by Dask workers of which one is killed.

``python benchmarks/workers.py --repeats 5`` trains eight networks in this process and by two processes, in turn. It
also takes the time of a fit by one thread and by two, which is why a task has one. ``--kills 5`` fits eight folds on a
local Dask cluster five times, and kills a worker at a random moment of each.
"""

from __future__ import annotations

import argparse
import logging
import os
import random
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dask
import joblib
import numpy as np
import torch
from common import write
from distributed import Client, LocalCluster
from sklearn.datasets import load_digits
from sklearn.model_selection import StratifiedKFold

from gpsuq import GPSClassifier, Recipe
from gpsuq.classify.baselines import PlainClassifier
from gpsuq.engine.parallel import independent
from paper.networks import paper_cnn

_FITS = 8
_LOAD = "load average of the last minute (others share the machine)"


def digits() -> tuple[Any, Any]:
    X, y = load_digits(return_X_y=True)
    return (X / 16.0).astype(np.float32), y


def seconds(function: Callable[[], Any]) -> float:
    started = time.perf_counter()
    function()
    return round(time.perf_counter() - started, 2)


def member(seed: int, epochs: int) -> tuple[float, Any]:
    """Train one network; return the processor's seconds, and class probabilities."""
    X, y = digits()
    started = time.process_time()
    model = PlainClassifier(recipe=Recipe(epochs=epochs), random_state=seed).fit(X, y)
    return time.process_time() - started, model.predict_proba(X)


def two_workers(repeats: int, epochs: int) -> dict[str, Any]:
    """Train eight networks by one worker and by two in turn; the workers have been started before."""
    found: dict[int, list[Any]] = {}
    processor: dict[int, list[float]] = {1: [], 2: []}

    def fit(n_jobs: int, epochs: int = epochs) -> None:
        with joblib.parallel_config("loky", n_jobs=n_jobs):
            results = independent(member, [(seed, epochs) for seed in range(_FITS)])
        processor[n_jobs].append(float(np.mean([taken for taken, _ in results])))
        found[n_jobs] = [probabilities for _, probabilities in results]

    starting = seconds(lambda: fit(2, epochs=1))
    processor[2].clear()
    load = os.getloadavg()[0]
    times = [(seconds(lambda: fit(1)), seconds(lambda: fit(2))) for _ in range(repeats)]
    return {
        "fits": _FITS,
        "threads of a fit": 1,
        _LOAD: [round(load, 2), round(os.getloadavg()[0], 2)],
        "seconds by one worker and by two": times,
        "median ratio": round(float(np.median([one / two for one, two in times])), 2),
        "wanted": 1.8,
        "processor seconds of a fit by one worker and by two": [
            round(float(np.median(processor[n_jobs])), 3) for n_jobs in (1, 2)
        ],
        "equal bit for bit": all(np.array_equal(a, b) for a, b in zip(found[1], found[2], strict=True)),
        "seconds of first fits of one epoch, which start the workers": starting,
    }


def two_threads(repeats: int) -> dict[str, Any]:
    """Take the time of a fit by one thread and by two in turn, for a small network and one of images."""
    X, y = digits()
    images = np.random.default_rng(0).normal(size=(1000, 1, 28, 28)).astype(np.float32)
    fits = {
        "digits, perceptron": lambda: PlainClassifier(recipe=Recipe(epochs=20)).fit(X, y),
        "28 x 28 images, the paper's network": lambda: PlainClassifier(
            lambda: paper_cnn(10), recipe=Recipe(epochs=1)
        ).fit(images, np.arange(1000) % 10),
    }
    result: dict[str, Any] = {_LOAD: round(os.getloadavg()[0], 2)}
    for name, fit in fits.items():
        fit()
        times: dict[int, list[float]] = {1: [], 2: []}
        for _ in range(repeats):
            for threads, taken in times.items():
                torch.set_num_threads(threads)
                taken.append(seconds(fit))
        result[name] = {f"seconds by {threads}": taken for threads, taken in times.items()}
    torch.set_num_threads(1)
    return result


def fold(number: int, epochs: int) -> Any:
    """Fit without a fold, and return the class probabilities there."""
    X, y = digits()
    rest, aside = list(StratifiedKFold(_FITS).split(X, y))[number]
    return (
        GPSClassifier(recipe=Recipe(epochs=epochs), random_state=number).fit(X[rest], y[rest]).predict_proba(X[aside])
    )


def workers(client: Client) -> list[int]:
    """Return the processes of both workers, once they are there."""
    while True:
        try:
            found = list(client.run(os.getpid).values())
            if len(found) == 2:
                return found
        except OSError:  # one that was killed is listed for a moment
            pass
        time.sleep(0.5)


def killed_workers(kills: int, epochs: int) -> list[dict[str, Any]]:
    """Kill a worker of a Dask cluster at a random moment of eight folds; compare with no worker at all."""
    tasks = [(number, epochs) for number in range(_FITS)]
    wanted = independent(fold, tasks)
    moments, rows = random.Random(0), []
    logging.getLogger("distributed").setLevel(logging.ERROR)

    def one(victim: int, moment: float) -> dict[str, Any]:
        done: list[int] = []
        before: list[int] = []  # folds that were done when the worker was killed
        timer = threading.Timer(moment, lambda: (os.kill(victim, signal.SIGKILL), before.append(len(done))))
        timer.start()
        started = time.perf_counter()
        found = independent(fold, tasks, on_done=lambda number, _: done.append(number))
        taken = time.perf_counter() - started
        timer.join()
        return {
            "second of the kill": round(moment, 1),
            "folds done by then": before[0],
            "seconds": round(taken, 1),
            "equal bit for bit": all(np.array_equal(a, b) for a, b in zip(found, wanted, strict=True)),
        }

    options = {"threads_per_worker": 1, "dashboard_address": None}
    with (
        # On a busy machine a worker takes longer than the usual 15 s to come back, and would be given up.
        dask.config.set({"distributed.deploy.lost-worker-timeout": "5 minutes"}),
        LocalCluster(n_workers=2, processes=True, **options) as cluster,
        Client(cluster) as client,
        joblib.parallel_config("dask"),
    ):
        undisturbed = [seconds(lambda: independent(fold, tasks)) for _ in range(2)][1]  # the first loads torch
        for _ in range(kills):
            victim = moments.choice(workers(client))
            rows.append(one(victim, moments.uniform(0.1, 0.8) * undisturbed))
            rows[-1]["seconds undisturbed"] = undisturbed
            print(rows[-1], flush=True)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"))
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--kills", type=int, help="kill so many Dask workers, and take no times")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    if arguments.kills:
        rows = killed_workers(arguments.kills, epochs=60)
        write(arguments.out, "worker_killed", f"python benchmarks/workers.py --kills {arguments.kills}", rows)
        return
    times = {"two workers": two_workers(arguments.repeats, epochs=200), "two threads": two_threads(arguments.repeats)}
    print(times)
    write(arguments.out, "workers", f"python benchmarks/workers.py --repeats {arguments.repeats}", times)


if __name__ == "__main__":
    main()
