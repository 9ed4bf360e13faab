"""The paper's synthetic designs, each a function of a seed."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


class Regression(NamedTuple):
    """A regression data set with the coefficients that each observation was made with.

    Attributes
    ----------
    X
        Covariates, (n, p).
    y
        Responses, (n,).
    theta
        Coefficients of every observation, (n, p).
    sigma
        Scale of the errors: the standard deviation where they are Normal.

    Examples
    --------
    >>> from gpsuq.datasets import scissors
    >>> scissors(5).theta.shape
    (5, 1)
    """

    X: Array
    y: Array
    theta: Array
    sigma: float


def scissors(n: int = 2000, *, sigma: float = 0.2, seed: int = 0) -> Regression:
    """Section 3.1: y_i = theta_i x_i + e_i with theta_i = 1 or -1, half each, x_i ~ N(0, 1), e_i ~ N(0, 0.2^2).

    >>> import numpy as np
    >>> from gpsuq.datasets import scissors
    >>> data = scissors(2000, seed=1)
    >>> bool(abs(np.polyfit(data.X[:, 0], data.y, 1)[0]) < 0.1)  # two lines that cross: least squares sees neither
    True
    """
    rng = np.random.default_rng(seed)
    x = rng.standard_normal(n)
    theta = np.where(rng.random(n) < 0.5, 1.0, -1.0)
    return Regression(x[:, None], theta * x + sigma * rng.standard_normal(n), theta[:, None], sigma)


def correlated(
    n: int = 200,
    p: int = 20,
    *,
    contamination: float = 0.0,
    tails: float | None = None,
    theta: Array | None = None,
    seed: int = 0,
) -> Regression:
    """Section 3.1: x_i ~ N(0, Sigma) with Sigma_jk = 0.5 for j != k and 1 on the diagonal, e_i ~ N(0, 1).

    Parameters
    ----------
    contamination
        Share of the responses, chosen at random, to which a Cauchy variable of scale 3 is added: 0.05 is the paper's
        outlier example, 0 its classical one.
    tails
        Degrees of freedom of Student t errors in place of Normal ones.
    theta
        Coefficients; the paper does not give them, so they are N(0, 1) by default.

    Examples
    --------
    >>> from gpsuq.datasets import correlated
    >>> int((correlated(200, 3).y != correlated(200, 3, contamination=0.05).y).sum())  # the same but for the outliers
    10
    """
    rng = np.random.default_rng(seed)
    root = np.linalg.cholesky(np.where(np.eye(p) == 1, 1.0, 0.5))
    X = rng.standard_normal((n, p)) @ root.T
    coefficients = rng.standard_normal(p) if theta is None else np.asarray(theta, dtype=np.float64)
    errors = rng.standard_normal(n) if tails is None else rng.standard_t(tails, n)
    outliers = rng.choice(n, round(contamination * n), replace=False)
    errors[outliers] += 3.0 * rng.standard_cauchy(len(outliers))
    return Regression(X, X @ coefficients + errors, np.broadcast_to(coefficients, X.shape), 1.0)
