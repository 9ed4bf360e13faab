r"""Do coefficients differ between rows? A test with a stated level, and what it would have found.

Where coefficients differ, the spread of y around one line changes with x. So do residuals of a curved relation, and so
does noise whose size changes; skewed or heavy-tailed noise does not. The test therefore

1. leaves out rows far from a robust fit where they are too few to be a subgroup (fewer than five for each coefficient),
   or where their x lies far outside that of the others, up to a quarter of all rows: they are outliers;
2. takes residuals of a robust fit that also has the squares and, where rows suffice, the products of the columns, each
   in units of its standard error: what is curved is gone;
3. asks whether the size of these residuals goes with the columns: once by ranks, which heavy tails do not disturb, with
   the columns and their squares, and once as it is, where a rare subgroup shows in proportion to their distance from
   the centre, with the columns and their absolute values. Three statistics of each are looked at (all columns
   together, the strongest of them, the distance from the centre); residuals are shuffled 999 times, and the p-value is
   that of the best of the six, so that choosing it is accounted for.

Shuffling makes the level right whatever the law of the noise.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri
from scipy.stats import chi2, rankdata

from gpsuq.core.seeds import derive_seed
from gpsuq.linear.equal import EqualFit
from gpsuq.linear.sample import Rows

Array = NDArray[np.floating]

LEVEL = 0.02
_SHUFFLES = 999
_FAR = 3.0  # bulk scales from the robust fit
_ROWS_FOR_EACH = 5  # that a subgroup needs for each coefficient
_MOST_FAR = 0.25
_LEVERAGE = 5.0  # robust scales of a column
_LARGEST_SCORE = 9.0
_FARTHEST_SIZE = 30.0  # medians
_MOST_ROWS = 4096
_ROWS_FOR_PRODUCT = 20
_MOST_CURVED = 1 / 3  # of the rows, as columns of the curved fit
_HUBER = 1.345
_SWEEPS = 20
_SPREADS = (0.25, 0.35, 0.5, 0.7, 1.0, 1.4, 2.0)
_TRIALS, _POWER = 30, 0.8
_CURVED_LEVEL = 1e-3


@dataclass(frozen=True)
class Evidence:
    """What the data say about equal coefficients and a straight line.

    ``p_value`` is of the hypothesis that coefficients do not differ. ``detectable`` is the standard deviation of one
    coefficient, times that of its column, in units of the noise, that the test would have found with a probability of
    80%; None where it was not asked, infinite where none of those tried would have been. ``curved`` says whether
    squares and products of the columns improve the fit (at a level of 0.1%), ``curvature`` by what share of the
    residual variance.
    """

    p_value: float
    detectable: float | None
    curved: bool
    curvature: float

    @property
    def differ(self) -> bool:
        """Whether a difference between rows was detected at the level of the test."""
        return self.p_value <= LEVEL


def gather_evidence(rows: Rows, fit: EqualFit, *, seed: int) -> Evidence:
    """Test the rows that ``fit`` was fitted to."""
    rng = np.random.default_rng(derive_seed(seed, "evidence"))
    rows = rows.part(_sampled(rows.weight, rng))
    q = rows.design.shape[1]
    out = _outlying(rows.columns, np.abs(rows.residuals(fit.coefficients)) > _FAR * fit.bulk, q)
    kept = rows.part(~out)
    straight, whole = _bases(kept)
    curved, curvature = _curvature(straight, whole, kept.y)
    if curved:  # far from a line is not far from the curve
        _, bent = _bases(rows)
        away = np.abs(rows.y - bent @ _huber(bent, rows.y))
        kept = rows.part(~_outlying(rows.columns, away > _FAR * 1.4826 * np.median(away), q))
        _, whole = _bases(kept)
    standard, squares = _standardised(kept.columns)
    residuals = _standardised_residuals(whole, kept.y)
    statistics = _statistics(standard, squares, np.linalg.norm(kept.design, axis=1))
    scores = _scores(residuals)
    shuffled = np.stack([statistics(scores[:, rng.permutation(len(residuals))]) for _ in range(_SHUFFLES)])
    p_value = _p_value(statistics(scores), shuffled)
    detectable = _detectable(residuals, standard, statistics, shuffled, rng) if p_value > LEVEL else None
    return Evidence(p_value, detectable, curved, curvature)


def _sampled(weight: Array, rng: np.random.Generator) -> NDArray[np.intp]:
    """Return the rows to test: all, or as many as are enough; where frequencies differ, rows are drawn by them."""
    n = len(weight)
    if np.ptp(weight) > 0:
        count = int(min(max(weight.sum(), 2.0), _MOST_ROWS))
        return np.sort(rng.choice(n, count, p=weight / weight.sum()))
    return np.linspace(0, n - 1, min(n, _MOST_ROWS)).astype(np.intp)


def _outlying(columns: Array, far: NDArray[np.bool_], q: int) -> NDArray[np.bool_]:
    """Return which of the rows that are far from a robust fit of q coefficients are outliers and no subgroup."""
    if not 0 < far.mean() <= _MOST_FAR or len(far) - far.sum() <= 2 * q:
        return np.zeros(len(far), dtype=bool)
    if far.sum() < _ROWS_FOR_EACH * q:
        return far
    return far & far_out(columns, ~far)


def far_out(columns: Array, among: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return which rows of columns (n, p) lie far outside of the rows ``among`` which they are judged, (n,)."""
    away = np.abs(columns - np.median(columns[among], axis=0))
    usual = 1.4826 * np.median(away[among], axis=0)
    return np.asarray(((away > _LEVERAGE * usual) & (usual > 0)).any(1))


def _standardised(columns: Array) -> tuple[Array, Array]:
    """Return the columns that vary, with mean 0 and standard deviation 1, and their squares."""
    # Powers of two round nothing, and squares of very large and small numbers stay finite.
    columns = np.ldexp(columns, -np.frexp(np.abs(columns).max(0, initial=0.0))[1])
    varies = columns.std(0) > 0
    columns = columns[:, varies]
    spread = columns.std(0)  # of a column that rounding alone moves it may be 0 in this order of the numbers
    standard = (columns - columns.mean(0)) / np.where(spread > 0, spread, 1.0)
    return standard, np.square(standard) - 1.0


def _bases(rows: Rows) -> tuple[Array, Array]:
    """Return orthonormal bases of the design, and of it with squares and products, where rows suffice for them."""
    standard, squares = _standardised(rows.columns)
    n, p = standard.shape
    first, second = np.triu_indices(p if p * (p - 1) / 2 <= n / _ROWS_FOR_PRODUCT else 0, 1)
    products = standard[:, first] * standard[:, second]
    straight, whole = _basis(rows.design), _basis(np.column_stack([rows.design, squares, products]))
    return straight, straight if whole.shape[1] > _MOST_CURVED * n else whole


def _basis(columns: Array) -> Array:
    """Return an orthonormal basis of what the columns span."""
    if columns.shape[1] == 0:
        return columns
    left, values, _ = np.linalg.svd(columns, full_matrices=False)
    return left[:, values > 1e-8 * max(values[0], np.finfo(float).tiny)]


def _curvature(straight: Array, whole: Array, y: Array) -> tuple[bool, float]:
    """Return whether bounded residuals of the straight fit go with curved columns, and the share that these explain.

    The score test allows for noise whose size changes with x.
    """
    extra = whole.shape[1] - straight.shape[1]
    if extra < 1:
        return False, 0.0
    residuals = y - straight @ _huber(straight, y)
    bounded = np.clip(residuals, *(_FAR * 1.4826 * np.median(np.abs(residuals)) * np.array([-1.0, 1.0])))
    bounded -= straight @ (straight.T @ bounded)
    directions = _basis(whole - straight @ (straight.T @ whole))[:, :extra]
    pull = directions.T @ bounded
    spread = (directions.T * np.square(bounded)) @ directions
    total = float(bounded @ bounded)
    if total <= 0:
        return False, 0.0
    statistic = float(pull @ np.linalg.lstsq(spread, pull, rcond=1e-10)[0])
    n, k = whole.shape
    share = max(0.0, 1.0 - (1.0 - float(pull @ pull) / total) * (n - straight.shape[1]) / max(n - k, 1))
    return bool(chi2.sf(statistic * (n - k) / n, extra) < _CURVED_LEVEL), share


def _huber(basis: Array, y: Array) -> Array:
    coefficients = basis.T @ y
    for _ in range(_SWEEPS):
        residuals = np.abs(y - basis @ coefficients)
        cutoff = _HUBER * 1.4826 * np.median(residuals) + np.finfo(float).tiny
        weight = np.minimum(1.0, cutoff / np.maximum(residuals, np.finfo(float).tiny))
        gram = (basis.T * weight) @ basis + 1e-10 * np.eye(basis.shape[1])
        coefficients = np.linalg.solve(gram, basis.T @ (weight * y))
    return coefficients


def _standardised_residuals(basis: Array, y: Array) -> Array:
    """Return residuals in units of their standard errors: rows of high leverage have smaller ones."""
    leverage = np.square(basis).sum(1)
    residuals = (y - basis @ _huber(basis, y)) / np.sqrt(1.0 - np.minimum(leverage, 0.95))
    return np.asarray(residuals - np.median(residuals))


def _scores(residuals: Array) -> Array:
    """Return two scores of the residuals' sizes, each with mean 0 and standard deviation 1, (2, n).

    The first is the squared Normal score of their ranks, bounded; the second the size itself, bounded far out: a rare
    subgroup shows there.
    """
    size = np.abs(residuals)
    by_rank = np.square(ndtri(0.5 + 0.5 * rankdata(size) / (len(size) + 1.0)))
    by_size = size / max(np.median(size), np.finfo(float).tiny)
    scores = np.stack([np.minimum(by_rank, _LARGEST_SCORE), np.minimum(by_size, _FARTHEST_SIZE)])
    return np.asarray((scores - scores.mean(1, keepdims=True)) / np.maximum(scores.std(1, keepdims=True), 1e-12))


class _Statistics:
    """Three ways to see whether a score goes with features (n, f): together, the strongest, the distance (n,)."""

    def __init__(self, features: Array, distance: Array) -> None:
        centred = features - features.mean(0)
        self._together = _basis(centred)
        length = np.linalg.norm(centred, axis=0)
        self._each = centred[:, length > 1e-8] / length[length > 1e-8]
        away = distance - distance.mean()
        self._distance = away / max(np.linalg.norm(away), np.finfo(float).tiny)

    def __call__(self, score: Array) -> Array:
        """Return the statistics of a score (n,), (3,)."""
        strongest = np.abs(score @ self._each).max() if self._each.shape[1] else 0.0
        return np.array([np.square(score @ self._together).sum(), strongest, score @ self._distance])


def _statistics(standard: Array, squares: Array, distance: Array) -> Callable[[Array], Array]:
    """Return what makes statistics of both scores (2, n), (6,): features grow as the scores do where slopes differ."""
    by_rank = _Statistics(np.column_stack([standard, squares]), np.square(distance))
    by_size = _Statistics(np.column_stack([standard, np.abs(standard)]), distance)
    return lambda scores: np.concatenate([by_rank(scores[0]), by_size(scores[1])])


def _p_value(observed: Array, shuffled: Array) -> float:
    """Return the p-value of the smallest of all, by where the smallest of all lies among shuffled data."""
    smallest = rankdata(-np.vstack([observed, shuffled]), method="max", axis=0).min(1)
    return float((smallest <= smallest[0]).mean())


def _detectable(
    residuals: Array, standard: Array, statistics: Callable[[Array], Array], shuffled: Array, rng: np.random.Generator
) -> float:
    """Find the smallest spread of one coefficient that 80% of trials find: residuals shuffled, spread added."""
    if standard.shape[1] == 0:
        return np.inf
    scale = 1.4826 * float(np.median(np.abs(residuals)))
    for spread in _SPREADS:
        found = 0
        for _ in range(_TRIALS):
            column = standard[:, rng.integers(standard.shape[1])]
            made = rng.permutation(residuals) + spread * scale * column * rng.standard_normal(len(column))
            found += _p_value(statistics(_scores(made - np.median(made))), shuffled) <= LEVEL
        if found >= _POWER * _TRIALS:
            return spread
    return np.inf
