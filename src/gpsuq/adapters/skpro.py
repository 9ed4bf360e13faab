"""Regressions as skpro's probabilistic regressors (extra ``skpro``)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from sklearn.base import clone

from gpsuq.errors import needs
from gpsuq.linear.estimator import GPSLinearRegression
from gpsuq.regress.estimator import GPSRegressor

with needs("skpro", "gpsuq.adapters.skpro"):
    from skpro.distributions import Empirical
    from skpro.regression.base import BaseProbaRegressor

_LEVELS = ((np.arange(100) + 0.5) / 100).tolist()


class SkproRegressor(BaseProbaRegressor):  # type: ignore[misc]
    """A regression with skpro's interface: for its pipelines, searches, metrics and benchmarks.

    Intervals and quantiles are those of the regression; ``predict_proba`` has a hundred quantiles of it, all of one
    weight.

    Parameters
    ----------
    regressor
        ``GPSRegressor(...)`` or ``GPSLinearRegression(...)``; None is ``GPSRegressor()``.

    Examples
    --------
    >>> import numpy as np, pandas as pd
    >>> from gpsuq import GPSLinearRegression
    >>> from gpsuq.adapters.skpro import SkproRegressor
    >>> X = pd.DataFrame({"x": np.linspace(0.0, 1.0, 50)})
    >>> y = pd.DataFrame({"y": X["x"] + 0.1 * np.random.default_rng(0).normal(size=50)})
    >>> model = SkproRegressor(GPSLinearRegression(n_chains=2, spread_weight=3.0)).fit(X, y)
    >>> model.predict_interval(X, coverage=0.9).columns.tolist()
    [('y', 0.9, 'lower'), ('y', 0.9, 'upper')]
    >>> model.predict_proba(X).cdf(y).shape
    (50, 1)
    """

    _tags = {"authors": ["gpsuq"], "capability:multioutput": False, "capability:missing": True}  # noqa: RUF012

    def __init__(self, regressor: GPSRegressor | GPSLinearRegression | None = None) -> None:
        self.regressor = regressor
        super().__init__()

    def _fit(self, X: pd.DataFrame, y: pd.DataFrame) -> SkproRegressor:
        self.regressor_ = GPSRegressor() if self.regressor is None else clone(self.regressor)
        self.regressor_.fit(X.rename(columns=str), y.iloc[:, 0])
        self._target = y.columns
        return self

    def _predict(self, X: pd.DataFrame) -> pd.DataFrame:
        return pd.DataFrame(self.regressor_.predict(X.rename(columns=str)), X.index, self._target)

    def _predict_quantiles(self, X: pd.DataFrame, alpha: list[float]) -> pd.DataFrame:
        found = self.regressor_.predict_quantiles(X.rename(columns=str), alpha)
        return found.set_axis(pd.MultiIndex.from_product([self._target, alpha]), axis=1)

    def _predict_proba(self, X: pd.DataFrame) -> Any:
        quantiles = self.regressor_.predict_quantiles(X.rename(columns=str), _LEVELS)
        draws = pd.concat({level: quantiles[[level]].set_axis(self._target, axis=1) for level in quantiles})
        return Empirical(draws, index=X.index, columns=self._target)

    @classmethod
    def get_test_params(cls, parameter_set: str = "default") -> list[dict[str, Any]]:
        """Return small regressions for skpro's own tests."""
        return [
            {"regressor": GPSLinearRegression(n_chains=2, spread_weight=3.0)},
            {"regressor": GPSRegressor(n_chains=2, n_steps=2)},
        ]
