r"""Laws of coefficients that can be written down: a mixture of Normals, fitted by the EM algorithm.

.. math:: \theta_i \sim \sum_c \pi_c N(m_c, L_c L_c'), \qquad y_i \mid \theta_i \sim N(A_i \theta_i, \sigma_c^2 I)

with the rows :math:`A_i` of an observation: one row, or all rows of a group. One component with a covariance is the
Normal law of a random-coefficient model; several without are lines, subgroups with coefficients of their own. They
are where training starts (:mod:`gpsuq.linear.refine`), and remain where training finds nothing better.

Far observations are bounded: in the Normal law one whose squared distance exceeds what 5 standard deviations are
counts as if it were there, among lines a wide component takes it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp, ndtri

from gpsuq.linear.equal import EqualFit, solve_ridged, weighted_least_squares
from gpsuq.linear.sample import Rows, Sample

Array = NDArray[np.floating]

_NORMAL_SWEEPS, _LINES_SWEEPS = 50, 60
_LEAST_LEFT = 0.2  # of what a jump may leave
_RIDGE = 1e-10  # share of noise that keeps a covariance regular
_LONGEST = 16.0  # of a step that goes on, relative to a sweep's own
_WARM = 3  # a fit that starts from another takes a third of the sweeps
_FIRST_SWEEPS = 12
_STARTS = 8
_START_ROWS = 2000
_MOST_LINES = 4
_OBSERVATIONS_FOR_EACH = 5
_FARTHEST = 25.0  # squared distance
_WIDE_SHARE = 0.01
_SHRINKAGE = 0.5  # observations for each coefficient that say "no spread"
_SIGMA_RATIO = 0.5  # of the smallest line's sigma to all lines': one that passes through a few rows exactly is no line
_LOG_ROOT_TWO_PI = 0.5 * np.log(2.0 * np.pi)


@dataclass(frozen=True)
class Law:
    """A mixture of Normals over coefficients: component c has share, mean (q,), loadings (q, d) and sigma."""

    share: Array  # (k,)
    mean: Array  # (k, q), the level last
    loadings: Array  # (k, q, d)
    sigma: Array  # (k,)

    @property
    def noise_dim(self) -> int:
        """Numbers of noise that a draw takes: one chooses the component, the others move within it."""
        return 1 + int(self.loadings.shape[2])

    @property
    def center(self) -> Array:
        """Mean of the coefficients, (q,)."""
        return self.share @ self.mean

    @property
    def ordinary_sigma(self) -> float:
        """Median of sigma over draws."""
        order = np.argsort(self.sigma)
        return float(self.sigma[order][np.searchsorted(np.cumsum(self.share[order]), 0.5)])

    @property
    def cuts(self) -> Array:
        """Where the first number of the noise passes from one component to the next, (k - 1,)."""
        return np.asarray(ndtri(np.clip(np.cumsum(self.share)[:-1], 1e-12, 1.0 - 1e-12)))

    def around(self, center: Array) -> Law:
        """Move the law so that its mean is ``center`` (q,)."""
        return replace(self, mean=self.mean + (center - self.center))

    def with_noise(self, factor: float) -> Law:
        """Multiply the noise's standard deviations."""
        return replace(self, sigma=self.sigma * factor)

    def draws(self, noise: Array) -> tuple[Array, Array]:
        """Return coefficients (m, q) and sigmas (m,) of noise (m, noise_dim)."""
        component = np.searchsorted(self.cuts, noise[:, 0])
        moved = np.einsum("mqd,md->mq", self.loadings[component], noise[:, 1 : self.noise_dim])
        return self.mean[component] + moved, self.sigma[component]

    def moments(self) -> tuple[Array, float]:
        """Return the covariance of the coefficients over all components, (q, q), and the mean variance of the noise."""
        away = self.mean - self.center
        within = np.einsum("k,kqd,kpd->qp", self.share, self.loadings, self.loadings)
        return within + (away.T * self.share) @ away, float(self.share @ np.square(self.sigma))

    def components(self, design: Array) -> tuple[Array, Array]:
        """Return mean and standard deviation of y at rows of a design (n, q) in every component: (n, k) each."""
        loc = design @ self.mean.T
        if self.loadings.shape[2] == 0:
            return loc, np.broadcast_to(self.sigma, loc.shape)
        spread = np.stack([np.square(design @ loadings).sum(1) for loadings in self.loadings], 1)
        return loc, np.sqrt(spread + np.square(self.sigma))

    def log_density(self, sample: Sample) -> Array:
        """Return the log density of every observation as a whole, (n,)."""
        each, measures = [], sample.mask.sum(1)
        for share, mean, loadings, sigma in zip(self.share, self.mean, self.loadings, self.sigma, strict=True):
            residual = (sample.y - sample.design @ mean) * sample.mask
            if loadings.any():
                covariance = marginals(sample.design, sample.design @ (loadings @ loadings.T), sigma**2)
                distance = np.einsum("nt,nts,ns->n", residual, inverses(covariance), residual)
                half_log = 0.5 * np.linalg.slogdet(covariance)[1] - (~sample.mask).sum(1) * np.log(sigma)
            else:
                distance, half_log = np.square(residual / sigma).sum(1), measures * np.log(sigma)
            each.append(np.log(share) - 0.5 * distance - half_log - measures * _LOG_ROOT_TWO_PI)
        return np.asarray(logsumexp(each, axis=0))


def equal_law(fit: EqualFit) -> Law:
    """Return the law of one coefficient vector and a mixture of sigmas."""
    seen = fit.noise.weight > 1e-4
    share, q = fit.noise.weight[seen], len(fit.coefficients)
    mean = np.broadcast_to(fit.coefficients, (len(share), q))
    return Law(share / share.sum(), mean, np.zeros((len(share), q, 0)), fit.noise.sigma[seen])


def marginals(design: Array, spread: Array, variance: float) -> Array:
    """Return the covariance of the measures of every observation, (n, T, T); padded ones keep the noise's variance.

    ``spread`` is the design (n, T, q) times the covariance of the coefficients.
    """
    return spread @ design.swapaxes(1, 2) + variance * np.eye(design.shape[1])


def inverses(matrices: Array) -> Array:
    """Return the inverse of every covariance (n, T, T); where noise is lost beside spread, a trace of it is added."""
    if matrices.shape[-1] == 1:
        return 1.0 / matrices
    try:
        return np.linalg.inv(matrices)
    except np.linalg.LinAlgError:
        size = np.trace(matrices, axis1=1, axis2=2)[:, None, None]
        return np.linalg.inv(matrices + _RIDGE * size * np.eye(matrices.shape[-1]))


def normal_law(sample: Sample, *, random_level: bool, start: Law | None = None) -> Law:
    """Fit one Normal law of all coefficients by maximum likelihood, with a little shrinkage towards no spread.

    The level is the last coefficient. Where it must not be random beyond what slopes do to it, all lines cross in one
    point: the law of the level given the slopes is then a fixed number, and what else it varied by belongs to sigma.
    """
    q = sample.design.shape[2]
    repeated = bool((sample.mask.sum(1) > 1).any())
    if start is None:
        rows = sample.flat()
        center = weighted_least_squares(rows.design, rows.y, rows.weight)
        variance = 0.5 * float(np.average(np.square(rows.residuals(center)), weights=rows.weight))
        covariance = np.eye(q) * variance / q
    else:
        center, variance = start.mean[0], float(start.sigma[0] ** 2)
        covariance = start.loadings[0] @ start.loadings[0].T + 1e-6 * variance * np.eye(q)
    if repeated and not random_level:
        covariance[-1], covariance[:, -1] = 0.0, 0.0
    state = _NormalState(center, covariance, variance)
    for _ in range(_NORMAL_SWEEPS if start is None else _NORMAL_SWEEPS // _WARM):
        state = _accelerated_sweep(sample, state)
    center, covariance, variance = state
    if not repeated and not random_level:
        slopes, both = covariance[:-1, :-1], covariance[:-1, -1]
        needed = float(both @ np.linalg.pinv(slopes, rcond=1e-6, hermitian=True) @ both)
        variance += max(covariance[-1, -1] - needed, 0.0)
        covariance = covariance.copy()
        covariance[-1, -1] = needed
    values, vectors = np.linalg.eigh(0.5 * (covariance + covariance.T))
    loadings = vectors * np.sqrt(np.maximum(values, 0.0))
    return Law(np.ones(1), center[None], loadings[None, :, ::-1].copy(), np.array([np.sqrt(variance)]))


class _NormalState(NamedTuple):
    """State of the EM algorithm of a Normal law: mean and covariance of coefficients, variance of the noise."""

    center: Array
    covariance: Array
    variance: float


def _accelerated_sweep(sample: Sample, state: _NormalState) -> _NormalState:
    """Take two EM sweeps, and extrapolate them (SQUAREM) where that is likelier.

    EM alone needs hundreds of sweeps to tell a small sigma from spread.
    """
    first, _ = _normal_sweep(sample, state)
    second, likelihood = _normal_sweep(sample, first)
    steps = [first.covariance - state.covariance, second.covariance - first.covariance]
    noise = [first.variance - state.variance, second.variance - first.variance]
    bend = float(np.sqrt(np.square(steps[1] - steps[0]).sum() + (noise[1] - noise[0]) ** 2))
    length = float(np.sqrt(np.square(steps[0]).sum() + noise[0] ** 2))
    far = min(length, _LONGEST * bend) / bend if bend > 0 else 1.0
    if far <= 1.0:
        return second
    covariance = state.covariance + 2.0 * far * steps[0] + far**2 * (steps[1] - steps[0])
    variance = state.variance + 2.0 * far * noise[0] + far**2 * (noise[1] - noise[0])
    # No spread at all is where EM stays for ever, so a jump must not come near it.
    left = np.linalg.eigvalsh(covariance - _LEAST_LEFT * second.covariance)
    if left.min() < -1e-9 * max(left.max(), 0.0) or variance < _LEAST_LEFT * second.variance:
        return second
    jumped, likelier = _normal_sweep(sample, _NormalState(second.center, covariance, variance))
    return jumped if likelier >= likelihood else second


def _normal_sweep(sample: Sample, state: _NormalState) -> tuple[_NormalState, float]:
    """Take one EM sweep: moments of all theta given y, then the law that they ask for; and the likelihood before it."""
    design, y, mask, weight = sample.design, sample.y, sample.mask, sample.weight
    center, covariance, variance = state
    q, total, measures = design.shape[2], weight.sum(), mask.sum(1)
    spread = design @ covariance
    marginal = marginals(design, spread, variance)
    inverse = inverses(marginal)
    residual = (y - design @ center) * mask
    pulled = (inverse @ residual[..., None])[..., 0]
    distance = (residual * pulled).sum(1)
    limit = _FARTHEST + measures - 1.0
    counts = np.minimum(1.0, limit / np.maximum(distance, 1e-300))
    log_det = np.log(marginal[:, 0, 0]) if design.shape[1] == 1 else np.linalg.slogdet(marginal)[1]
    log_det = log_det - (design.shape[1] - measures) * np.log(variance)
    likelihood = -0.5 * float(weight @ (log_det + np.minimum(distance, limit)))
    moved = (spread * pulled[..., None]).sum(1) * np.sqrt(counts)[:, None]
    flat = (-1, q)
    known = (spread * weight[:, None, None]).reshape(flat).T @ (inverse @ spread).reshape(flat) / total
    new = ((moved.T * weight) @ moved / total + covariance - known) * (total / (total + _SHRINKAGE * q))
    noise = np.square(variance * pulled) * counts[:, None] + variance
    noise -= variance**2 * np.diagonal(inverse, axis1=1, axis2=2)
    precise = ((inverse @ design) * (weight * counts)[:, None, None]).reshape(flat)
    center = solve_ridged(design.reshape(flat).T @ precise, precise.T @ y.ravel())
    left = float((weight @ (noise * mask)).sum() / (weight @ mask).sum())
    # Exactly symmetric: a jump would make more of any rounding that is not.
    return _NormalState(center, 0.5 * (new + new.T), max(left, np.finfo(float).tiny)), likelihood


def lines_law(sample: Sample, rng: np.random.Generator, *, same_slopes: bool = False) -> Law | None:
    """Fit 2 to 4 lines by maximum likelihood; the Bayesian information criterion says how many.

    A line needs five observations for each of its coefficients: fewer are outliers. None where there are no lines.
    """
    few = sample
    if len(sample) > _START_ROWS:
        few = sample.rows(np.sort(rng.permutation(len(sample))[:_START_ROWS]))
    q = sample.design.shape[2]
    best: tuple[float, Law] | None = None
    for count in range(2, _MOST_LINES + 1):
        starts = [_run_lines(few, _random_lines(few, count, rng), _FIRST_SWEEPS, same_slopes) for _ in range(_STARTS)]
        law = max(starts, key=lambda found: found[0])[1]
        likelihood, law = _run_lines(sample, law, _LINES_SWEEPS, same_slopes)
        if law.share.min() * sample.n_observations < _OBSERVATIONS_FOR_EACH * q:
            continue
        free = (q - 1 + 3 * count - 1) if same_slopes else count * (q + 2) - 1
        criterion = -2.0 * likelihood + np.log(max(sample.weight.sum(), 2.0)) * free
        if best is None or criterion < best[0]:
            best = criterion, law
    return None if best is None else best[1]


def refit_lines(sample: Sample, start: Law, *, same_slopes: bool = False) -> Law:
    """Fit other observations from lines that are known."""
    return _run_lines(sample, start, _LINES_SWEEPS // _WARM, same_slopes)[1]


def _random_lines(sample: Sample, count: int, rng: np.random.Generator) -> Law:
    """Return lines through a few random observations each."""
    q = sample.design.shape[2]
    each = min(len(sample), max(2, -(-3 * q // sample.y.shape[1])))
    some = [sample.rows(rng.choice(len(sample), each, replace=False)).flat() for _ in range(count)]
    lines = [weighted_least_squares(rows.design, rows.y, rows.weight) for rows in some]
    sigma = np.full(count, float(np.sqrt(np.average(np.square(sample.y), weights=sample.mask))))
    return Law(np.full(count, 1.0 / count), np.stack(lines), np.zeros((count, q, q)), sigma)


def _run_lines(sample: Sample, law: Law, sweeps: int, same_slopes: bool) -> tuple[float, Law]:
    """Take EM sweeps from a law, beside one wide component for what belongs to no line; return the likelihood, too."""
    weight, measures, rows = sample.weight, sample.mask.sum(1), sample.flat()
    share, mean, sigma = law.share, law.mean, law.sigma
    wide = np.log(_WIDE_SHARE) - measures * np.log(2.0 * np.abs(rows.y).max())
    likelihood = -np.inf
    for _ in range(sweeps):
        residual = (sample.y[None] - np.einsum("ntq,kq->knt", sample.design, mean)) * sample.mask
        distance = np.square(residual).sum(2)
        log = np.log((1.0 - _WIDE_SHARE) * share)[:, None] - measures * (np.log(sigma) + _LOG_ROOT_TWO_PI)[:, None]
        log = log - 0.5 * distance / np.square(sigma)[:, None]
        each = np.logaddexp(logsumexp(log, axis=0), wide)
        likelihood = float(weight @ each)
        belongs = np.exp(log - each) * weight
        share = (belongs.sum(1) + 1.0) / (belongs.sum() + len(share))
        by_row = [sample.of_measures(part) for part in belongs]
        if same_slopes:
            mean = _lines_of_same_slopes(rows, by_row, sigma)
        else:
            mean = np.stack([weighted_least_squares(rows.design, rows.y, part + 1e-300) for part in by_row])
        counts = np.stack([part.sum() for part in by_row])
        squares = np.stack([part @ np.square(rows.residuals(line)) for part, line in zip(by_row, mean, strict=True)])
        pooled = squares.sum() / max(counts.sum(), 1e-300)
        sigma = np.sqrt(np.maximum((squares + pooled) / (counts + 1.0), _SIGMA_RATIO**2 * pooled + 1e-12))
    order = np.argsort(mean[:, 0], kind="stable")
    return likelihood, Law(share[order], mean[order], np.zeros((len(share), *law.loadings.shape[1:])), sigma[order])


def _lines_of_same_slopes(rows: Rows, belongs: list[Array], sigma: Array) -> Array:
    """Solve least squares for lines that differ in their level only, (k, q)."""
    k, slopes, target = len(belongs), rows.design[:, :-1], rows.y
    weights = [part / s**2 for part, s in zip(belongs, sigma, strict=True)]
    total = np.sum(weights, axis=0)
    gram = np.zeros((slopes.shape[1] + k,) * 2)
    gram[:-k, :-k] = (slopes.T * total) @ slopes
    pull = np.concatenate([slopes.T @ (total * target), [part @ target for part in weights]])
    for number, part in enumerate(weights):
        at = slopes.shape[1] + number
        gram[at, at] = part.sum()
        gram[at, :-k] = gram[:-k, at] = part @ slopes
    gram += np.diag(1e-10 * np.diag(gram) + np.finfo(float).tiny)
    solved = np.linalg.solve(gram, pull)
    return np.column_stack([np.broadcast_to(solved[:-k], (k, slopes.shape[1])), solved[-k:]])
