"""Robust regressions of other libraries behind one signature: (X, y) to the coefficients without the intercept."""

from __future__ import annotations

from collections.abc import Callable
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
        raise GPSError("this comparison needs statsmodels: pip install 'gpsuq[experiments]'") from error
    return statsmodels.api


def _with_constant(X: Array) -> Array:
    return np.column_stack([np.ones(len(X)), X])


def least_squares(X: Array, y: Array) -> Array:
    """Ordinary least squares, which is the mean of the flat-prior posterior.

    >>> import numpy as np
    >>> from paper.robust import least_squares
    >>> x = np.arange(20.0)
    >>> y = np.where(x == 19, 1000.0, 2.0 * x + np.sin(x))  # a slope of 2, and one wild value
    >>> least_squares(x[:, None], y).round()
    array([16.])
    """
    result: Array = LinearRegression().fit(X, y).coef_
    return result


def huber(X: Array, y: Array) -> Array:
    """Huber's M-estimator, statsmodels' RLM with its defaults.

    >>> import numpy as np
    >>> from paper.robust import huber
    >>> x = np.arange(20.0)
    >>> y = np.where(x == 19, 1000.0, 2.0 * x + np.sin(x))  # a slope of 2, and one wild value
    >>> huber(x[:, None], y).round()
    array([2.])
    """
    sm = _statsmodels()
    result: Array = sm.RLM(y, _with_constant(X), M=sm.robust.norms.HuberT()).fit().params[1:]
    return result


def tukey_biweight(X: Array, y: Array) -> Array:
    """Tukey's biweight, statsmodels' RLM with its defaults.

    >>> import numpy as np
    >>> from paper.robust import tukey_biweight
    >>> x = np.arange(20.0)
    >>> y = np.where(x == 19, 1000.0, 2.0 * x + np.sin(x))  # a slope of 2, and one wild value
    >>> tukey_biweight(x[:, None], y).round()
    array([2.])
    """
    sm = _statsmodels()
    result: Array = sm.RLM(y, _with_constant(X), M=sm.robust.norms.TukeyBiweight()).fit().params[1:]
    return result


def least_absolute_deviations(X: Array, y: Array) -> Array:
    """Median regression, statsmodels' QuantReg at 1/2.

    >>> import numpy as np
    >>> from paper.robust import least_absolute_deviations
    >>> x = np.arange(20.0)
    >>> y = np.where(x == 19, 1000.0, 2.0 * x + np.sin(x))  # a slope of 2, and one wild value
    >>> least_absolute_deviations(x[:, None], y).round()
    array([2.])
    """
    sm = _statsmodels()
    result: Array = sm.QuantReg(y, _with_constant(X)).fit(q=0.5, max_iter=5000).params[1:]
    return result


def ransac(X: Array, y: Array) -> Array:
    """scikit-learn's RANSAC with its defaults and a fixed seed.

    >>> import numpy as np
    >>> from paper.robust import ransac
    >>> x = np.arange(20.0)
    >>> y = np.where(x == 19, 1000.0, 2.0 * x + np.sin(x))  # a slope of 2, and one wild value
    >>> ransac(x[:, None], y).round()
    array([2.])
    """
    result: Array = RANSACRegressor(random_state=0, min_samples=X.shape[1] + 1).fit(X, y).estimator_.coef_
    return result


ROBUST: dict[str, Callable[[Array, Array], Array]] = {
    "Huber": huber,
    "Tukey": tukey_biweight,
    "LAD": least_absolute_deviations,
    "RANSAC": ransac,
}
