"""Mixtures of Normals or Poisson counts, one for each row: densities and quantiles, in closed form or by steps.

A predictive is such a mixture over draws and chains. Rows do not see each other, and nothing is sampled, so the answer
for a row does not depend on which rows it is asked with.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import logsumexp, ndtri
from scipy.stats import poisson
from torch import Tensor

Array = NDArray[np.floating]

_SWEEPS = 60  # bisection alone would need about 50; Halley's steps mostly need 3
_FARTHEST = 1e150  # standard deviations: the square is still finite, so that densities can be compared
_FARTHEST_SCORE = 8.0  # where a tail of double precision ends
_ROUNDING = 1e-15  # of a mixture's size
_LEAST_WIDTH = 1e-15  # of a mixture's size: what is narrower is a point
_LEAST_TAIL = 1e-300
_ERF_REACHES = 1e-9  # a tail that 1 - erf still tells well
_SINGLE_REACHES = 3.0  # score that single precision still tells well
_ROUGH_STEPS = 3
_LOGISTIC = 1.5976, 0.07056  # Phi(z) is the logistic function of their odd cubic, up to 1.4e-4
_NEAR_SCORE, _NEAR_STEP = 1e-3, 0.05  # where one of Newton's steps ends it: in score, in standard deviations
_NARROWEST = 1e-6  # standard deviations, in single precision
_CELLS = 1 << 18  # row x level x component, at once
_ROOT_HALF = math.sqrt(0.5)
_BELL = 1.0 / math.sqrt(2.0 * math.pi)
_LOG_ROOT_TWO_PI = 0.5 * np.log(2.0 * np.pi)


def component_log_density(y: Array, loc: Array, scale: Array) -> Array:
    """Return the log density (n, m) of y (n,) under N(loc, scale^2), with loc (n, m) and scale (m,) or (n, m)."""
    with np.errstate(over="ignore"):
        standardised = np.clip((y[:, None] - loc) / scale, -_FARTHEST, _FARTHEST)
    return np.asarray(-0.5 * np.square(standardised) - np.log(scale) - _LOG_ROOT_TWO_PI)


def log_density(y: Array, loc: Array, scale: Array, weight: Array | None = None) -> Array:
    """Return the log density of y (n,) under each row's mixture, of equal weights unless ``weight`` (m,) is given."""
    return np.asarray(logsumexp(component_log_density(y, loc, scale), axis=1, b=_weights(weight, loc)))


def normal_scores(y: Array, loc: Array, scale: Array, weight: Array | None = None) -> Array:
    r"""Return :math:`\Phi^{-1}(F(y))` under each row's mixture, from the smaller tail, at most 8 in size: shaped as y.

    y is (n,), or (n, l) for several of each row.

    >>> import numpy as np
    >>> normal_scores(np.array([3.0, 9e9]), np.array([[1.0], [1.0]]), np.array([2.0]))
    array([1., 8.])
    """
    columns, scales = y.reshape(len(loc), -1), np.broadcast_to(scale, loc.shape)
    weights = torch.from_numpy(_weights(weight, loc))
    result = torch.empty(columns.shape, dtype=torch.float64)
    for at in _parts(len(loc), columns.shape[1] * loc.shape[1]):
        values, locs, widths = (torch.from_numpy(np.array(p[at], dtype=np.float64)) for p in (columns, loc, scales))
        result[at] = _scores_of(values, locs, widths, weights)
    return result.clamp_(-_FARTHEST_SCORE, _FARTHEST_SCORE).numpy().reshape(y.shape)


def _scores_of(y: Tensor, loc: Tensor, scale: Tensor, weights: Tensor) -> Tensor:
    """Return normal scores of y (row, level) under Normals (row, component)."""
    wide = scale / _ROOT_HALF
    erf = (y[:, :, None] - loc[:, None]).div_(wide[:, None]).erf_()
    return _scores(erf, weights, lambda row, level: (y[row, level, None] - loc[row]) / wide[row])


def _scores(erf: Tensor, weights: Tensor, argument: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
    """Return normal scores (row, level) of components' erf (row, level, component).

    Far in a tail 1 - erf says little: ``argument`` returns its arguments at rows and levels, again, for erfc.
    """
    side = erf @ weights  # F - (1 - F)
    sign, tail = side.sign(), 0.5 - 0.5 * side.abs()
    far = row, level = torch.nonzero(tail < _ERF_REACHES, as_tuple=True)
    tail[far] = 0.5 * torch.erfc(argument(row, level) * sign[far][:, None]) @ weights
    smaller: Tensor = torch.special.ndtri(tail.clamp(_LEAST_TAIL, 0.5))
    return -sign * smaller


def kernel_score(y: Array, loc: Array, scale: Array, weight: Array, bandwidth: float) -> Array:
    r"""Return E k(Y, Y') - 2 E k(y, Y) of y (n,) under each row's mixture, k being the Gaussian kernel: (n,).

    Two outcomes of one mixture are independent, so that a component also meets itself.
    """

    def mean(difference: Array, variance: Array) -> Array:
        width = bandwidth + 2.0 * variance
        return np.asarray(np.sqrt(bandwidth / width) * np.exp(-np.square(difference) / width))

    variance = np.square(np.broadcast_to(scale, loc.shape))
    fit = mean(y[:, None] - loc, variance) @ weight
    pair = np.zeros(len(y))
    for each, (center, own) in enumerate(zip(loc.T, variance.T, strict=True)):
        pair += weight[each] * (mean(loc - center[:, None], variance + own[:, None]) @ weight)
    return pair - 2.0 * fit


def quantiles(levels: Sequence[float], loc: Array, scale: Array, weight: Array | None = None) -> Array:
    """Return quantiles of each row's mixture: (n, levels)."""
    return at_normal_scores(np.broadcast_to(ndtri(np.asarray(levels)), (len(loc), len(levels))), loc, scale, weight)


def at_normal_scores(scores: Array, loc: Array, scale: Array, weight: Array | None = None) -> Array:
    r"""Solve :math:`F(y) = \Phi(\text{score})` for y under each row's mixture: scores (n, l), result (n, l).

    Each starts where a Normal of the mixture's moments has it and takes four of Newton's steps in single precision.
    Scores beyond 3, and the few whose last step started too far away, go on within brackets in double precision. No row
    depends on others. The error is mostly 1e-6 of the mixture's standard deviation, or of the score, and was below
    3e-5.
    """
    (n, width), size = scores.shape, loc.shape[1]
    scales = np.broadcast_to(scale, loc.shape)
    if size == 1:
        return np.asarray(loc + scores * scales, dtype=np.float64)
    if width > 1 and width * size > _CELLS:
        return np.concatenate([at_normal_scores(scores[:, at], loc, scale, weight) for at in _parts(width, size)], 1)
    weights = torch.from_numpy(_weights(weight, loc))
    wanted = torch.from_numpy(np.clip(np.asarray(scores, dtype=np.float64), -_FARTHEST_SCORE, _FARTHEST_SCORE))
    result, arrived = torch.empty_like(wanted), torch.empty(n, width, dtype=torch.bool)
    for at in _parts(n, width * size):
        result[at], arrived[at] = _approached(loc[at], scales[at], weights, wanted[at])
    rows, columns = torch.nonzero(~arrived, as_tuple=True)
    for at in _parts(len(rows), size):
        row, column = rows[at], columns[at]
        mixture = _Standardised.of(loc[row.numpy()], scales[row.numpy()], weights)
        score, start = wanted[row, column][:, None], mixture.to_units(result[row, column][:, None])
        result[row, column] = mixture.from_units(_bracketed(mixture, score, start))[:, 0]
    return result.numpy()


def _approached(loc: Array, scale: Array, weights: Tensor, score: Tensor) -> tuple[Tensor, Tensor]:
    """Return solutions (row, level) by steps in single precision, and whether they are near enough."""
    locs = torch.from_numpy(np.array(loc, dtype=np.float64))
    widths, shares = torch.from_numpy(np.array(scale, dtype=np.float32)), weights.float()
    center = (locs @ weights)[:, None]
    around = locs.sub_(center).float()
    variance = torch.addcmul(around.square(), widths, widths) @ shares
    spread = variance.clamp_(min=torch.finfo(torch.float32).tiny).sqrt_()[:, None]
    steepness = spread / torch.maximum(widths, _NARROWEST * spread)
    offset = (around / spread).mul_(steepness).neg_()[:, None]  # component m has its normal score at offset + steep t
    steep, wanted = steepness[:, None], score.float()
    t = wanted
    for _ in range(_ROUGH_STEPS):
        z = torch.addcmul(offset, t[:, :, None], steep)
        square = z * z
        cumulative = torch.sigmoid((square * _LOGISTIC[1]).add_(_LOGISTIC[0]).mul_(z))
        density = cumulative.addcmul(cumulative, cumulative, value=-1.0)
        slope = density.mul_(square.mul_(3.0 * _LOGISTIC[1]).add_(_LOGISTIC[0])).mul_(steep) @ shares
        t = t - _newton(cumulative @ shares, slope, wanted)[0]
    z = torch.addcmul(offset, t[:, :, None], steep)
    slope = _BELL * ((z * z).mul_(-0.5).exp_().mul_(steep) @ shares)
    step, excess = _newton(0.5 + 0.5 * (z.mul_(_ROOT_HALF).erf_() @ shares), slope, wanted)
    arrived = (excess.abs() <= _NEAR_SCORE) & (step.abs() <= _NEAR_STEP) & (wanted.abs() <= _SINGLE_REACHES)
    return center + (spread * (t - step)).double().nan_to_num_(), arrived


def _newton(cumulative: Tensor, slope: Tensor, score: Tensor) -> tuple[Tensor, Tensor]:
    r"""Return a step of :math:`\Phi^{-1}(F(t))` towards ``score``, and what is left of it before the step."""
    found = torch.special.ndtri(cumulative)
    excess = found - score
    return excess * (_BELL * torch.exp(-0.5 * found.square())) / slope, excess


@dataclass(frozen=True)
class _Standardised:
    """Mixtures of some rows in t, y = center + unit t: component m has its normal score at offset + steepness t."""

    offset: Tensor  # (row, component)
    steepness: Tensor  # (row, component)
    weights: Tensor  # (component,)
    center: Tensor  # (row, 1), as all that follow
    unit: Tensor
    spread: Tensor  # standard deviation of t
    ends: tuple[Tensor, Tensor]  # of the components' locations
    widths: tuple[Tensor, Tensor]  # smallest and largest scale

    @classmethod
    def of(cls, loc: Array, scale: Array, weights: Tensor) -> _Standardised:
        """Return the mixtures of locations and scales (row, component)."""
        locs, widths = (torch.from_numpy(np.array(part, dtype=np.float64)) for part in (loc, scale))
        center = (locs @ weights)[:, None]
        locs -= center
        (left, right), (narrow, wide) = ((p.amin(1, keepdim=True), p.amax(1, keepdim=True)) for p in (locs, widths))
        unit = torch.maximum(torch.maximum(-left, right), wide).clamp_(min=np.finfo(np.float64).tiny)
        locs /= unit
        widths = widths.div_(unit).clamp_(min=_LEAST_WIDTH)
        spread = (torch.addcmul(locs.square(), widths, widths) @ weights).sqrt()[:, None]
        steepness = widths.reciprocal_()
        offset = locs.mul_(steepness).neg_()
        ends, bounds = (left / unit, right / unit), ((narrow / unit).clamp_(min=_LEAST_WIDTH), wide / unit)
        return cls(offset, steepness, weights, center, unit, spread, ends, bounds)

    def to_units(self, y: Tensor) -> Tensor:
        """Return y (row, level) as t."""
        return (y - self.center) / self.unit

    def from_units(self, t: Tensor) -> Tensor:
        """Return t (row, level) as y."""
        return self.center + self.unit * t

    def bracket(self, score: Tensor) -> tuple[Tensor, Tensor]:
        """Return bounds of the solutions, which lie between the smallest and the largest of the components' own."""
        narrow, wide = (width * score for width in self.widths)
        return self.ends[0] + torch.minimum(narrow, wide), self.ends[1] + torch.maximum(narrow, wide)

    def select(self, rows: Tensor) -> _Standardised:
        """Return the components of some rows, and their spread."""
        return replace(self, offset=self.offset[rows], steepness=self.steepness[rows], spread=self.spread[rows])

    def step(self, t: Tensor, score: Tensor) -> tuple[Tensor, Tensor]:
        r"""Return Halley's step from t (row, level) to h(t) = score, and h(t) - score.

        It is taken of :math:`h(t) = \Phi^{-1}(F(t))`, a straight line were the mixture a Normal. Only F has the
        precision of the components: derivatives are good enough in single.
        """
        at = t[:, :, None]
        z = torch.addcmul(self.offset[:, None], at, self.steepness[:, None])
        rough, steepness, weights = z.float(), self.steepness.float()[:, None], self.weights.float()
        bell = (rough * rough).mul_(-0.5).exp_().mul_(steepness)
        slope = _BELL * (bell @ weights).double()
        bend = -_BELL * (bell.mul_(rough).mul_(steepness) @ weights).double()
        found = _scores(
            z.mul_(_ROOT_HALF).erf_(),
            self.weights,
            lambda row, level: torch.addcmul(self.offset[row], at[row, level], self.steepness[row]) * _ROOT_HALF,
        )
        density = _BELL * torch.exp(-0.5 * found.square())
        first = slope / density
        second = bend / density + found * first.square()
        newton = (found - score) / first
        return newton / (1.0 - (0.5 * newton * second / first).clamp(-0.5, 0.5)), found - score


def _bracketed(mixture: _Standardised, score: Tensor, t: Tensor) -> Tensor:
    """Return solutions (row, 1) by steps from t; those that leave the bracket are replaced by bisection."""
    low, high = mixture.bracket(score)
    t = torch.clamp(t, low, high)
    active = torch.arange(len(t))
    for _ in range(_SWEEPS):
        part = t[active]
        step, excess = mixture.step(part, score[active])
        low[active] = torch.where(excess <= 0, part, low[active])
        high[active] = torch.where(excess >= 0, part, high[active])
        new = part - step
        inside = (new > low[active]) & (new < high[active])
        new = torch.where(inside, new, 0.5 * (low[active] + high[active]))
        t[active] = new
        near = inside & (excess.abs() <= _NEAR_SCORE) & ((new - part).abs() <= _NEAR_STEP * mixture.spread)
        going = (~near & (high[active] - low[active] > _ROUNDING))[:, 0]
        if not going.any():
            break
        if not going.all():
            active, mixture = active[going], mixture.select(going)
    return t


def _parts(n: int, cells: int) -> Iterator[slice]:
    """Yield rows, of so many cells each, in parts that stay in the cache."""
    step = max(1, _CELLS // cells)
    return (slice(start, start + step) for start in range(0, n, step))


def _weights(weight: Array | None, loc: Array) -> Array:
    return np.full(loc.shape[1], 1.0 / loc.shape[1]) if weight is None else np.asarray(weight, dtype=np.float64)


def poisson_cumulative(counts: NDArray[np.int64], rates: Array) -> Array:
    """Return the probability of at most counts (n,) under each row's mixture, means ``rates`` (n, m), equal weights."""
    return np.asarray(poisson.cdf(counts[:, None], rates).mean(1))


def poisson_quantiles(levels: Sequence[float], rates: Array) -> NDArray[np.int64]:
    """Return quantiles of each row's mixture of Poisson counts, means ``rates`` (n, m), equal weights: (n, levels)."""
    result = np.empty((len(rates), len(levels)), dtype=np.int64)
    for column, level in enumerate(levels):
        each = poisson.ppf(level, rates)
        lower, upper = each.min(1).astype(np.int64), each.max(1).astype(np.int64)
        while (lower < upper).any():
            middle = (lower + upper) // 2
            enough = poisson_cumulative(middle, rates) >= level
            lower, upper = np.where(enough, lower, middle + 1), np.where(enough, middle, upper)
        result[:, column] = lower
    return result
