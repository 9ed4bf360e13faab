"""Robust regressions of other libraries behind one signature: (X, y) to the coefficients without the intercept."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import LinearRegression, RANSACRegressor

from gpsuq.errors import GPSError

Array = NDArray[np.floating]


def _statsmodels() -> Any:
    try:
        import statsmodels.api
    except ImportError as error:
        raise GPSError("this comparison needs statsmodels: pip install 'gpsuq[paper]'") from error
    return statsmodels.api


def _with_constant(X: Array) -> Array:
    return np.column_stack([np.ones(len(X)), X])


def _m_estimate(norm: str, X: Array, y: Array) -> Any:
    """Fit statsmodels' RLM with its defaults and one of its norms."""
    sm = _statsmodels()
    return sm.RLM(y, _with_constant(X), M=getattr(sm.robust.norms, norm)()).fit()


def _line(X: Array, y: Array) -> Any:
    return LinearRegression().fit(X, y)


def _median(X: Array, y: Array) -> Any:
    return _statsmodels().QuantReg(y, _with_constant(X)).fit(q=0.5, max_iter=5000)


def _ransac(X: Array, y: Array) -> Any:
    return RANSACRegressor(random_state=0, min_samples=X.shape[1] + 1).fit(X, y).estimator_


_FITS: dict[str, Callable[[Array, Array], Any]] = {
    "least squares": _line,
    "Huber": partial(_m_estimate, "HuberT"),
    "Tukey": partial(_m_estimate, "TukeyBiweight"),
    "LAD": _median,
    "RANSAC": _ransac,
}


def coefficients(method: str, X: Array, y: Array) -> Array:
    """Return the coefficients that a method finds, without the intercept.

    Parameters
    ----------
    method
        ``"least squares"`` (the mean of the flat-prior posterior); ``"Huber"`` or ``"Tukey"``, M-estimators with
        Huber's norm or Tukey's biweight (statsmodels' RLM with its defaults); ``"LAD"``, median regression (its
        QuantReg at 1/2); ``"RANSAC"``, scikit-learn's with its defaults and a fixed seed.
    X, y
        Rows (n, p) and their responses (n,).

    Examples
    --------
    >>> import numpy as np
    >>> from paper.robust import coefficients
    >>> x = np.arange(20.0)
    >>> y = np.where(x == 19, 1000.0, 2.0 * x + np.sin(x))  # a slope of 2, and one wild value
    >>> methods = ("least squares", "Huber", "Tukey", "LAD", "RANSAC")
    >>> [round(coefficients(method, x[:, None], y)[0]) for method in methods]
    [16, 2, 2, 2, 2]
    """
    fit = _FITS[method](X, y)
    result: Array = fit.coef_ if hasattr(fit, "coef_") else fit.params[1:]
    return result


least_squares = partial(coefficients, "least squares")
ROBUST = {method: partial(coefficients, method) for method in ("Huber", "Tukey", "LAD", "RANSAC")}
