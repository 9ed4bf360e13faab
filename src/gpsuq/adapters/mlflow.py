"""Saved models as MLflow's python functions (extra ``mlflow``); nothing in them is pickled."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pandas as pd

from gpsuq._version import __version__
from gpsuq.errors import needs
from gpsuq.storage import load, part_of, save

with needs("mlflow", "gpsuq.adapters.mlflow"):
    from mlflow import pyfunc


class Predictor:
    """What MLflow calls: tables in, and out what ``gpsuq predict`` writes."""

    def __init__(self, model: Any, coverage: float) -> None:
        self.model, self.coverage = model, coverage

    def predict(self, model_input: pd.DataFrame, params: dict[str, Any] | None = None) -> pd.DataFrame:
        """Return mean, lower and upper of every row; of a classifier class, verdict and probabilities."""
        coverage = (params or {}).get("coverage", self.coverage)
        table: pd.DataFrame = part_of(type(self.model).__name__, "commands").predicted(
            self.model, model_input, coverage
        )
        return table


def save_model(model: Any, path: str | Path, *, coverage: float = 0.95, **options: Any) -> Path:
    """Write a fitted regression or classifier as a local MLflow model; ``options`` go to ``mlflow.pyfunc``.

    >>> import tempfile, numpy as np, pandas as pd
    >>> from mlflow import pyfunc
    >>> from gpsuq import GPSLinearRegression
    >>> from gpsuq.adapters.mlflow import save_model
    >>> X = pd.DataFrame({"x": np.linspace(0.0, 1.0, 50)})
    >>> y = X["x"] + 0.1 * np.random.default_rng(0).normal(size=50)
    >>> model = GPSLinearRegression(n_chains=2, spread_weight=3.0).fit(X, y)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     again = pyfunc.load_model(str(save_model(model, f"{folder}/model", coverage=0.9)))
    >>> again.predict(X).columns.tolist()
    ['mean', 'lower', 'upper']
    """
    with tempfile.TemporaryDirectory() as folder:
        pyfunc.save_model(
            str(path),
            loader_module=__name__,
            data_path=str(save(model, Path(folder) / "gpsuq")),
            model_config={"coverage": coverage},
            pip_requirements=[f"gpsuq=={__version__}"],
            **options,
        )
    return Path(path)


def _load_pyfunc(path: str, model_config: dict[str, Any] | None = None) -> Predictor:
    return Predictor(load(path), float((model_config or {}).get("coverage", 0.95)))
