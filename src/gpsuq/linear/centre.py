r"""The mean coefficients, and how well they are known: weighted least squares for every chain's bootstrap weights.

Each chain has Bayesian-bootstrap weights of its own. Where all rows share their coefficients, a row counts what their
fit says (:mod:`gpsuq.linear.equal`). Where coefficients differ, the mean of y is still a line, and rows count one over
the variance that the law gives them. Rows far outside what is expected lose their weight, so that the influence of one
row is bounded.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gpsuq.core import mixtures
from gpsuq.linear.equal import FARTHEST, EqualFit, at_the_mean, bounded, solve_ridged, weighted_least_squares
from gpsuq.linear.laws import Law, inverses, marginals
from gpsuq.linear.passes import BLOCK, AllRows
from gpsuq.linear.sample import Sample
from gpsuq.linear.units import LinearUnits

Array = NDArray[np.floating]

_SWEEPS = 4
_FARTHEST_SCORE = 3.0


def equal_centres(sample: Sample, weights: Array, fit: EqualFit) -> Array:
    """Return the coefficients of every chain, weights (chain, n), from where the fit of all rows stands: (chain, q)."""
    rows = sample.flat()
    sizes = fit.sizes(rows.columns)
    result = []
    for weight in weights:
        rows = rows._replace(weight=sample.of_measures(weight))
        coefficients = fit.coefficients
        for _ in range(_SWEEPS):
            counts = rows.weight * fit.counts(rows.residuals(coefficients), sizes)
            coefficients = weighted_least_squares(rows.design, rows.y, counts)
        result.append(at_the_mean(coefficients, rows, fit.bulk) if fit.usual is None else coefficients)
    return np.stack(result)


def law_centres(sample: Sample, weights: Array, law: Law, *, weighted: bool) -> Array:
    r"""Return the mean coefficients of every chain: generalised least squares with the law's variances, (chain, q).

    .. math:: m = \Bigl(\sum_i w_i A_i' V_i^{-1} A_i\Bigr)^{-1} \sum_i w_i A_i' V_i^{-1} y_i, \qquad
              V_i = A_i \operatorname{Cov}(\theta) A_i' + \sigma^2 I ,

    and the weights of far observations reduced. Without ``weighted`` :math:`V_i` only says which these are: where the
    relation is curved, weights would move the line.
    """
    design, q = sample.design, sample.design.shape[2]
    covariance, variance = law.moments()
    inverse = inverses(marginals(design, design @ covariance, variance))
    precise = inverse @ design if weighted else design
    outer = np.einsum("ntq,ntp->nqp", design, precise).reshape(len(sample), -1)
    pull = np.einsum("ntq,nt->nq", precise, sample.y)
    limit = FARTHEST**2 + sample.mask.sum(1) - 1.0
    result = []
    for weight in weights:
        center = law.center
        for _ in range(_SWEEPS):
            residual = (sample.y - design @ center) * sample.mask
            counts = weight * bounded(np.einsum("nt,nts,ns->n", residual, inverse, residual), limit)
            center = solve_ridged((counts @ outer).reshape(q, q), counts @ pull)
        result.append(center)
    return np.stack(result)


def equal_share(sample: Sample, fit: EqualFit) -> float:
    """Return :func:`effective_share` of what rows count in the fit of equal coefficients."""
    rows = sample.flat()
    return effective_share(fit.counts(rows.residuals(fit.coefficients), fit.sizes(rows.columns)), rows.weight)


def law_share(sample: Sample, law: Law, *, weighted: bool) -> float:
    """Return :func:`effective_share` of what observations count in :func:`law_centres`: one over their variance."""
    if not weighted:
        return 1.0
    covariance, variance = law.moments()
    spread = np.einsum("ntq,qp,ntp->n", sample.design, covariance, sample.design) / sample.mask.sum(1)
    return effective_share(1.0 / (spread + variance), sample.weight)


def effective_share(counts: Array, weight: Array) -> float:
    r"""Return :math:`(\sum_i w_i c_i)^2 / (\sum_i w_i \cdot \sum_i w_i c_i^2)`: as how many of the rows they are worth.

    It is 1 where all count the same, and near 0 where a few of them decide.
    """
    return float((weight @ counts) ** 2 / max(weight.sum() * (weight @ np.square(counts)), np.finfo(float).tiny))


def sigma_factors(sample: Sample, weights: Array, law: Law) -> Array:
    """Return the factor by which the noise differs in every chain, (chain,), by how much each residual counts there."""
    design, y, weight, _ = sample.flat()
    loc, scale = law.components(design)
    size = np.minimum(np.square(mixtures.normal_scores(y, loc, scale, law.share)), _FARTHEST_SCORE**2)
    by_row = np.stack([sample.of_measures(each) for each in weights])
    over_rows = weight @ size / weight.sum()
    if over_rows == 0.0:  # an exact fit has no sigma to differ in
        return np.ones(len(by_row))
    return np.asarray(np.sqrt((by_row @ size / by_row.sum(1)) / over_rows))


def normal_theory(center: Array, k: int, n: float, scale: float, n_chains: int, rng: np.random.Generator) -> Array:
    """Draw centres (chain, q) from a multivariate t: what stands in for bootstrap weights where rows are too few.

    Only the first k coefficients are free: without an intercept the level is not.
    """
    df = max(n - k, 1.0)
    draws = rng.standard_normal((n_chains, len(center))) / np.sqrt(rng.chisquare(df, (n_chains, 1)) / df)
    draws[:, k:] = 0.0
    return np.asarray(center + (draws - draws.mean(0)) * (scale / np.sqrt(n)))


def step_over_all_rows(
    everything: AllRows, units: LinearUnits, center: Array, law: Law, equal: EqualFit | None
) -> Array:
    """Take one Newton step of the mean coefficients over all rows, from what some of them said: the step, (q,).

    Rows count what the fit of ``equal`` coefficients says; without one they count the same but for those far outside.
    """
    robust = equal if equal is not None and equal.usual is None else None
    q = len(center)
    sums = np.zeros(q * q + 2 * q + 3)
    gram, pull, plain, level, slopes = _parts(sums, q)
    covariance, variance = law.moments()
    for X, y, weights, row in everything.blocks():
        design = units.design(X)
        residuals = units.residuals(X, y) - design @ center
        if equal is not None:
            counts = equal.counts(residuals, equal.sizes(X))
        else:
            usual = np.einsum("nq,qp,np->n", design, covariance, design) + variance
            counts = bounded(np.square(residuals) / usual)
        counts = weights * counts
        gram += (design.T * counts) @ design
        pull += design.T @ (counts * residuals)
        if robust is not None:
            near = weights * bounded(np.square(residuals / robust.bulk))
            plain += design.T @ near
            level += float(near @ residuals)
            if row[0] < BLOCK:  # a mean that some rows tell, the same ones whoever reads them
                slopes += np.array([counts.sum(), (weights * robust.noise.curvature(residuals)).sum()])
    gram, pull, plain, level, slopes = _parts(everything.summed(sums), q)
    # Weighted least squares goes a part of the way that the mean curvature of the loss tells.
    part = float(np.clip(slopes[1] / slopes[0], 0.2, 1.0)) if slopes[0] > 0 else 1.0
    result = solve_ridged(gram, pull) / part
    if robust is not None and plain[-1] > 0:  # these weights would move the level to the mode of skewed noise
        result[-1] = (float(level[0]) - plain[:-1] @ result[:-1]) / plain[-1]
    return result


def _parts(sums: Array, q: int) -> tuple[Array, Array, Array, Array, Array]:
    """Return the sums of a step, which processes add up as one array, as the matrix and the vectors that they are."""
    gram, pull, plain, level, slopes = np.split(sums, np.cumsum([q * q, q, q, 1]))
    return gram.reshape(q, q), pull, plain, level, slopes
