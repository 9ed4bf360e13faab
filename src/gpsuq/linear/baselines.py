"""The flat-prior Bayesian posterior of a linear regression, in closed form."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import stats

from gpsuq.core.intervals import check_coverage
from gpsuq.errors import GPSError

Array = NDArray[np.floating]


class BayesianLinearPosterior:
    r"""Posterior of y = X theta + e, e ~ N(0, sigma^2), under the prior :math:`p(\theta, \sigma^2) \propto 1/\sigma^2`.

    .. math:: \theta \mid y \sim t_{n-p}\bigl(\hat\theta,\, s^2 (X'X)^{-1}\bigr), \qquad
              (n - p)\, s^2 / \sigma^2 \mid y \sim \chi^2_{n-p}

    with the least-squares estimate :math:`\hat\theta` and the residual variance :math:`s^2`.

    Parameters
    ----------
    fit_intercept
        Whether a constant column is added; its coefficient is called ``intercept``.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.arange(10.0).reshape(-1, 1)
    >>> posterior = BayesianLinearPosterior(fit_intercept=False).fit(X, 2 * X[:, 0] + np.tile([0.1, -0.1], 5))
    >>> float(round(posterior.mean[0], 1))
    2.0
    >>> lower, upper = posterior.interval(0.9)
    >>> bool(upper[0] - lower[0] > 2.0 * posterior.sd[0])
    True
    >>> posterior.summary().columns.tolist()
    ['mean', 'estimation_sd', 'mean_lower', 'mean_upper']
    >>> posterior.sample_parameters(500).columns.tolist()
    ['x0', 'sigma']
    >>> posterior.predict(X[:2]).shape, posterior.predict_interval(X[:2]).shape
    ((2,), (2, 2))
    >>> posterior.sample_predictive(X[:2], n_draws=500).shape  # (draw, row)
    (500, 2)
    """

    def __init__(self, *, fit_intercept: bool = True) -> None:
        self.fit_intercept = fit_intercept

    def fit(self, X: Any, y: Any) -> BayesianLinearPosterior:
        """Compute the posterior's centre, scale and degrees of freedom."""
        columns: Sequence[Any] | None = getattr(X, "columns", None)
        X, y = np.asarray(X, dtype=np.float64), np.asarray(y, dtype=np.float64)
        if X.ndim != 2 or y.shape != (len(X),):
            raise GPSError(f"X must be (n, p) and y (n,), got {X.shape} and {y.shape}")
        if not (np.isfinite(X).all() and np.isfinite(y).all()):
            raise GPSError("X or y has NaN or infinite values; drop or fill them")
        self.names = [f"x{i}" for i in range(X.shape[1])] if columns is None else [str(c) for c in columns]
        design = self._design(X)
        n, p = design.shape
        if n <= p:
            raise GPSError(f"the flat-prior posterior is improper for {n} observations of {p} coefficients")
        if self.fit_intercept:
            self.names.append("intercept")
        q, r = np.linalg.qr(design)
        if np.linalg.cond(r) > 1e12:
            raise GPSError("columns of X are linearly dependent: the flat-prior posterior does not exist")
        self.mean: Array = np.linalg.solve(r, q.T @ y)
        self.df = n - p
        self.residual_variance = float(np.square(y - design @ self.mean).sum() / self.df)
        self._root: Array = np.linalg.solve(r, np.eye(p))  # root @ root.T = (X'X)^-1
        return self

    def _design(self, X: Any) -> Array:
        X = np.asarray(X, dtype=np.float64)
        return np.column_stack([X, np.ones(len(X))]) if self.fit_intercept else X

    @property
    def sd(self) -> Array:
        """Scale of each coefficient's t distribution: its standard error."""
        return np.asarray(np.sqrt(self.residual_variance * np.square(self._root).sum(1)))

    def sample_parameters(self, n_draws: int = 1000, seed: int = 0) -> pd.DataFrame:
        """Draw coefficients and sigma: one column per coefficient, then ``sigma``."""
        rng = np.random.default_rng(seed)
        sigma = np.sqrt(self.residual_variance * self.df / rng.chisquare(self.df, n_draws))
        theta = self.mean + sigma[:, None] * (rng.standard_normal((n_draws, len(self.mean))) @ self._root.T)
        return pd.DataFrame(theta, columns=self.names).assign(sigma=sigma)

    def interval(self, coverage: float = 0.95) -> Array:
        """Return the equal-tailed interval of each coefficient, (2, p)."""
        return self._around(self.mean, self.sd, coverage)

    def _around(self, center: Array, scale: Array, coverage: float) -> Array:
        half = stats.t.ppf(0.5 + check_coverage(coverage) / 2.0, self.df) * scale
        return np.stack([center - half, center + half])

    def summary(self, coverage: float = 0.95) -> pd.DataFrame:
        """Return one row per coefficient: mean, standard error, interval."""
        lower, upper = self.interval(coverage)
        table = {"mean": self.mean, "estimation_sd": self.sd, "mean_lower": lower, "mean_upper": upper}
        return pd.DataFrame(table, index=pd.Index(self.names, name="parameter"))

    def predict(self, X: Any) -> Array:
        """Return the mean of the predictive at every row of X."""
        return self._design(X) @ self.mean

    def sample_predictive(self, X: Any, n_draws: int = 1000, seed: int = 0) -> Array:
        """Draw new observations, (draw, row)."""
        draws = self.sample_parameters(n_draws, seed)
        noise = np.random.default_rng([seed, 1]).standard_normal((n_draws, len(X)))
        mean = draws[self.names].to_numpy() @ self._design(X).T
        return mean + draws["sigma"].to_numpy()[:, None] * noise

    def predict_interval(self, X: Any, coverage: float = 0.95) -> Array:
        """Return the equal-tailed interval for new observations, (2, n)."""
        design = self._design(X)
        scale = np.sqrt(self.residual_variance * (1.0 + np.square(design @ self._root).sum(1)))
        return self._around(design @ self.mean, scale, coverage)
