"""Intervals from draws: equal-tailed, highest-density (in several pieces if need be), and for a mean from chains."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from arviz_stats.base.array import array_stats
from numpy.typing import NDArray
from scipy.stats import t as student_t

from gpsuq.errors import GPSError

Array = NDArray[np.floating]

_SMALLEST_PIECE = 0.01


def check_coverage(coverage: float) -> float:
    """Return a coverage; raise unless it lies strictly between 0 and 1."""
    if not 0.0 < coverage < 1.0:
        raise GPSError(f"coverage must be between 0 and 1, got {coverage}")
    return coverage


def equal_tailed(draws: Array, coverage: float) -> Array:
    """Return the quantiles that leave the same probability on both sides; draws along the first axis, result (2, ...).

    >>> import numpy as np
    >>> equal_tailed(np.arange(101.0), 0.9)
    array([ 5., 95.])
    """
    tail = (1.0 - check_coverage(coverage)) / 2.0
    return np.quantile(draws, [tail, 1.0 - tail], axis=0)


def highest_density(draws: Array, coverage: float) -> Array:
    """Return the smallest region of the wanted probability, as rows (lower, upper): one for each separate piece.

    Pieces closer than a tenth of the draws' standard deviation are one, and pieces of less than a hundredth of the
    draws are none: both are accidents of the sample.

    >>> import numpy as np
    >>> from scipy.stats import norm
    >>> group = norm.ppf(np.linspace(0.001, 0.999, 1000))  # two groups far apart give two pieces
    >>> highest_density(np.concatenate([group - 10.0, group + 10.0]), 0.95).round()
    array([[-12.,  -8.],
           [  8.,  12.]])
    """
    check_coverage(coverage)
    draws = np.asarray(draws, dtype=np.float64)
    if draws.ndim != 1:
        raise GPSError(f"a highest-density region is of one number, got draws of shape {draws.shape}")
    low, high = draws.min(), draws.max()
    if high - low <= 1e-9 * max(abs(low), abs(high)):
        return np.array([[low, high]])
    # In units of the draws' own spread: the density estimate beneath compares against absolute tolerances.
    center, spread = np.median(draws), draws.std()
    region = array_stats.hdi(((draws - center) / spread)[None], coverage, method="multimodal", max_modes=len(draws))[0]
    region = region[~np.isnan(region).any(axis=1)]
    region = region[np.argsort(region[:, 0])]
    apart = region[1:, 0] - region[:-1, 1] >= 0.1
    result: Array = np.column_stack([region[np.r_[True, apart], 0], region[np.r_[apart, True], 1]]) * spread + center
    share = np.array([((draws >= lower) & (draws <= upper)).mean() for lower, upper in result])
    return result[share >= min(_SMALLEST_PIECE, float(share.max()))]


def mean_interval(chain_means: Array, coverage: float) -> Array:
    r"""Return an interval for E theta from one mean per chain: :math:`\bar m \pm t_{C-1} s`, s the sd between chains.

    Each chain saw its own Bayesian-bootstrap weights, so the standard deviation between chains is a standard error.

    >>> import numpy as np
    >>> mean_interval(np.array([1.9, 2.0, 2.1]), 0.95).round(1)
    array([1.5, 2.5])
    """
    chain_means = np.asarray(chain_means, dtype=np.float64)
    n_chains = len(chain_means)
    if n_chains < 2:
        raise GPSError("an interval for the mean needs at least 2 chains: GPS(..., n_chains=4) or more")
    center, spread = chain_means.mean(0), between_chains(chain_means)
    half = _t_quantile(0.5 + check_coverage(coverage) / 2.0, n_chains - 1) * spread
    return np.stack([center - half, center + half])


@lru_cache
def _t_quantile(level: float, df: int) -> float:
    """Return a quantile of Student's t, which thousands of coefficients share."""
    return float(student_t.ppf(level, df))


def between_chains(chain_means: Array) -> Array:
    r"""Return the standard deviation between chains, times :math:`\sqrt{(C+1)/C}`.

    Weights that average 1 over C chains have covariances that make the plain sd too small by that factor.

    >>> import numpy as np
    >>> chain_means = np.array([1.9, 2.0, 2.1])
    >>> round(float(chain_means.std(ddof=1)), 3), round(float(between_chains(chain_means)), 3)
    (0.1, 0.115)
    """
    n_chains = len(chain_means)
    result: Array = chain_means.std(0, ddof=1) * np.sqrt((n_chains + 1) / n_chains)
    return result
