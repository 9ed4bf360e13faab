"""Shared fixtures: small data sets and a short training, so that the whole suite runs in minutes on two cores."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from functools import partial
from pathlib import Path

import matplotlib
import numpy as np
import pytest
import torch

from gpsuq import GPS, Algorithm, GPSClassifier, Recipe

matplotlib.use("Agg")
# One thread in this process and in its children: the workers of `make test` do not get in each other's way, and
# sums are taken in the same order on every machine.
torch.set_num_threads(1)
os.environ["OMP_NUM_THREADS"] = "1"


@pytest.fixture(autouse=True)
def no_open_figures() -> Iterator[None]:
    """Close what a test plotted and did not write."""
    yield
    if "matplotlib.pyplot" in sys.modules:
        sys.modules["matplotlib.pyplot"].close("all")


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)


@pytest.fixture
def threads() -> Iterator[Executor]:
    """Eight threads that give way to each other all the time."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    with ThreadPoolExecutor(8) as pool:
        yield pool
    sys.setswitchinterval(interval)


@pytest.fixture
def short() -> Algorithm:
    """Training just long enough to exercise everything."""
    return Algorithm(n_steps=40, batch_size=50, n_draws=10, evaluate_every=10)


@pytest.fixture
def small_demo(monkeypatch: pytest.MonkeyPatch, short: Algorithm) -> Algorithm:
    """Let the demo train for a moment; gives the algorithm of scissors and irises."""
    monkeypatch.setattr("gpsuq.cli.demonstration.GPS", partial(GPS, algorithm=short))
    quick = partial(GPSClassifier, recipe=Recipe(epochs=1))
    monkeypatch.setattr("gpsuq.cli.demonstration.GPSClassifier", quick)
    return short


@pytest.fixture
def data_directory() -> Path:
    """The directory of real data; the test is skipped where there is none."""
    path = Path(os.environ.get("GPSUQ_DATA", ""))
    if not os.environ.get("GPSUQ_DATA") or not path.is_dir():
        pytest.skip("GPSUQ_DATA names no directory")
    return path
