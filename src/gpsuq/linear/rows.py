"""Which parameters single rows, or all rows of a subject, speak for: means, subgroups and outliers.

Subgroups are the modes of the draws along the direction in which they differ most.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray
from scipy.signal import find_peaks
from scipy.special import ndtri
from scipy.stats import gaussian_kde

from gpsuq.core import mixtures
from gpsuq.linear.fit import LinearFit

Array = NDArray[np.floating]

NUMBERS = 1 << 22
"""Numbers held at once when rows are predicted or explained."""

_FEWEST, _FEWEST_OF_CHAIN = 1024, 64  # draws that rows are explained by
_SURPRISING = 5.0  # nats
_MADE = 32  # outcomes that say how surprising an ordinary one is
_GRID = 256
_VALLEY = 0.5  # of the lower of two peaks: a shallower dip is no gap between groups
_SMALLEST = 0.02  # share of the draws


def explain_rows(
    fit: LinearFit, draws: Mapping[str, Array], X: Array, y: Array, codes: NDArray[np.intp] | None, seed: int
) -> tuple[Array, dict[str, Array]]:
    r"""Weight draws by :math:`f(y_i \mid \theta_m, x_i)`, with ``codes`` by all rows of a subject together.

    Returns the means (n, p + 2) of coefficients, intercept and sigma under these weights, and the columns ``subgroup``,
    ``subgroup_probability``, ``outlier_score`` and ``outlier``.
    """
    n_chains, most = draws["sigma"].shape
    each = min(most, max(_FEWEST_OF_CHAIN, 2 ** int(np.ceil(np.log2(_FEWEST / n_chains)))))
    slopes = draws["slope"][:, :each].reshape(n_chains * each, -1)
    intercepts, sigmas = (draws[name][:, :each].ravel() for name in ("intercept", "sigma"))
    table = np.column_stack([slopes, intercepts, sigmas])
    mode = _subgroups(fit, slopes)
    member = np.eye(mode.max() + 1)[mode]
    found, surprise = [], []
    step = max(1, NUMBERS // len(sigmas))
    for start in range(0, len(X), step):
        rows = slice(start, start + step)
        log = mixtures.component_log_density(y[rows], X[rows] @ slopes.T + intercepts, sigmas)
        found.append(log if codes is not None else _means_under(log, table, member))
        surprise.append(_surprise(fit, X[rows], y[rows], seed))
    explained, score = np.concatenate(found), np.concatenate(surprise)
    if codes is not None:
        together = np.zeros((codes.max() + 1, len(sigmas)))
        np.add.at(together, codes, explained)
        explained = _means_under(together, table, member)[codes]
    means, shares = np.split(explained, [table.shape[1]], axis=1)
    return means, {
        "subgroup": shares.argmax(1),
        "subgroup_probability": shares.max(1),
        "outlier_score": score,
        "outlier": score > _SURPRISING,
    }


def _means_under(log: Array, table: Array, member: Array) -> Array:
    """Return means of a table of draws (m, w) and shares of groups (m, g) under weights exp(log) (n, m): (n, w + g)."""
    weight = np.exp(log - log.max(1, keepdims=True))
    weight /= weight.sum(1, keepdims=True)
    return np.hstack([weight @ table, weight @ member])


def _surprise(fit: LinearFit, X: Array, y: Array, seed: int) -> Array:
    """Return by how many nats y (n,) is more surprising than what the law would have made of its row, noise usual."""
    loc, scale, weight = fit.ordinary(X)
    levels = (np.arange(_MADE) + 0.5) / _MADE
    component = np.searchsorted(np.cumsum(weight)[:-1], levels)
    noise = ndtri(np.random.default_rng(seed).permutation(levels))
    made = loc[:, component] + scale[:, component] * noise
    usual = np.mean([mixtures.log_density(column, loc, scale, weight) for column in made.T], axis=0)
    return np.asarray(usual - mixtures.log_density(y, loc, scale, weight))


def _subgroups(fit: LinearFit, slopes: Array) -> NDArray[np.intp]:
    """Return the number of the mode that each draw belongs to; all are 0 where the law has one."""
    if fit.kind in ("equal", "normal"):
        return np.zeros(len(slopes), dtype=np.intp)
    scaled = slopes @ fit.units.inverse.T  # as whitened covariates see them
    along = scaled @ principal_direction(scaled)
    return np.searchsorted(split_points(along), along)


def split_points(values: Array) -> Array:
    """Return the valleys that separate the modes of a sample; none where it has one mode."""
    if not values.std() > 1e-12 * max(1.0, float(np.abs(values).max())):
        return np.empty(0)
    # Silverman's bandwidth smooths two modes into one: a third of it keeps them apart, the depth test discards ripples.
    density = gaussian_kde(values, bw_method=lambda kde: kde.silverman_factor() / 3.0)
    grid = np.linspace(values.min(), values.max(), _GRID)
    height = density(grid)
    peaks = find_peaks(np.concatenate([[0.0], height, [0.0]]))[0] - 1
    splits: list[float] = []
    last = peaks[0]
    for peak in peaks[1:]:
        valley = last + int(height[last : peak + 1].argmin())
        candidate, lower = float(grid[valley]), splits[-1] if splits else -np.inf
        deep = height[valley] <= _VALLEY * min(height[last], height[peak])
        shares = ((values > lower) & (values <= candidate)).mean(), (values > candidate).mean()
        if deep and min(shares) >= _SMALLEST:
            splits.append(candidate)
            last = peak
        elif height[peak] > height[last]:
            last = peak
    return np.asarray(splits)


def principal_direction(draws: Array) -> Array:
    """Return the unit vector along which draws (m, p) vary most, its largest entry positive."""
    direction: Array = np.linalg.svd(draws - draws.mean(0), full_matrices=False)[2][0]
    return -direction if direction[np.abs(direction).argmax()] < 0 else direction
