"""The paper's synthetic designs, each a function of a seed."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


class Regression(NamedTuple):
    """A regression data set with the coefficients that each observation was made with."""

    X: Array
    y: Array
    theta: Array
    sigma: float


def scissors(n: int = 2000, *, sigma: float = 0.2, seed: int = 0) -> Regression:
    """Section 3.1: y_i = theta_i x_i + e_i with theta_i = 1 or -1, half each, x_i ~ N(0, 1), e_i ~ N(0, 0.2^2)."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal(n)
    theta = np.where(rng.random(n) < 0.5, 1.0, -1.0)
    return Regression(x[:, None], theta * x + sigma * rng.standard_normal(n), theta[:, None], sigma)
