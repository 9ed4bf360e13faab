"""`gpsuq doctor`: what is installed, what it runs on, and a small fit of every family that must come out right."""

from __future__ import annotations

import os
import platform
import tempfile
import time
import warnings
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from typing import Any

import numpy as np
import torch

from gpsuq._version import __version__
from gpsuq.classify.estimator import GPSClassifier
from gpsuq.datasets import scissors
from gpsuq.engine.settings import Recipe
from gpsuq.errors import GPSWarning
from gpsuq.linear.estimator import GPSLinearRegression
from gpsuq.poisson.estimator import GPSPoissonProcess
from gpsuq.regress.estimator import GPSRegressor
from gpsuq.storage import load, save

_NEEDED = ("torch", "lightning-fabric", "numpy", "scipy", "pandas", "scikit-learn", "narwhals", "matplotlib")
_OPTIONAL = ("shapely", "pyarrow", "polars", "arviz-base", "onnxruntime", "skpro", "mlflow-skinny", "huggingface_hub")


def facts() -> dict[str, str]:
    """Return versions, threads, devices and directories, by name."""
    data = os.environ.get("GPSUQ_DATA")
    devices = [torch.cuda.get_device_name(number) for number in range(torch.cuda.device_count())]
    where = "GPSUQ_DATA is not set" if not data else data if os.path.isdir(data) else f"{data}, which is no directory"
    return {
        "gpsuq": f"{__version__} in {os.path.dirname(os.path.dirname(__file__))}",
        "Python": f"{platform.python_version()} on {platform.platform()}",
        **{name: _version(name) for name in (*_NEEDED, *_OPTIONAL)},
        "threads": f"{torch.get_num_threads()} of {os.cpu_count()} cores",
        "devices": ", ".join(devices) or "CPU",
        "data directory": where,
    }


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"


def checks() -> dict[str, Callable[[], str | None]]:
    """Return the fits to try, by name; each returns what went wrong, or None."""
    points = {"Poisson process": _poisson} if find_spec("shapely") else {}
    return {"linear": _linear, "regression": _regression, "classifier": _classifier} | points


def tried(check: Callable[[], str | None]) -> dict[str, Any]:
    """Run one of the checks, and return its seconds and what went wrong, if anything."""
    start = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", GPSWarning)
        try:
            wrong = check()
        except Exception as error:  # whatever is broken here is what the user wants to know
            wrong = f"{type(error).__name__}: {error}"
    return {"seconds": round(time.perf_counter() - start, 1), "wrong": wrong}


def _linear() -> str | None:
    data = scissors(400, seed=1)
    model = GPSLinearRegression(n_chains=4, n_steps=100).fit(data.X, data.y)
    found = sorted(model.lines()["x0"].round().tolist())
    return None if found == [-1.0, 1.0] else f"lines of slope -1 and 1 were found as {found}"


def _regression() -> str | None:
    rng = np.random.default_rng(0)
    X = rng.uniform(-2.0, 2.0, (200, 1))
    y = np.sin(2.0 * X[:, 0]) + 0.1 * rng.normal(size=200)
    model = GPSRegressor(n_chains=2, n_steps=150).fit(X, y)
    off = float(np.abs(model.predict(X) - np.sin(2.0 * X[:, 0])).mean())
    with tempfile.TemporaryDirectory() as folder:
        if not np.array_equal(load(save(model, f"{folder}/model")).predict(X), model.predict(X)):
            return "a saved model predicts something else"
    return None if off < 0.2 else f"a sine is missed by {off:.2f}"


def _classifier() -> str | None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 2))
    y = X[:, 0] > 0.0
    error = float((GPSClassifier(recipe=Recipe(epochs=20)).fit(X, y).predict(X) != y).mean())
    return None if error < 0.1 else f"two half planes are told apart with an error of {error:.0%}"


def _poisson() -> str | None:
    points = np.random.default_rng(0).random((100, 2))
    total = GPSPoissonProcess(n_chains=2, n_steps=20).fit(points, window=(0, 1, 0, 1)).integral()
    return None if 70.0 < total < 130.0 else f"a pattern of 100 points has an intensity of {total:.0f}"
