r"""The kernel score of counts: exact for Poisson counts, on the scale where their noise is the same for all means.

The kernel is Gaussian on stabilised counts, :math:`k(y, y') = \exp(-(t(y) - t(y'))^2 / b)` with Anscombe's
:math:`t(y) = 2\sqrt{y + 3/8}`, whose variance is about 1 whatever the mean: one bandwidth serves single cells and large
blocks. Small counts are summed, probabilities against the Gram matrix of the kernel: once, on a fine grid of means,
from which cubics lead to every mean. Above ``MOST_EXACT`` the stabilised count is taken as
:math:`N(2\sqrt{\mu + 1/8}, 1)`.

Counts are censored where the largest observed one leaves a tail below ``TAIL``: whatever lies beyond is one last atom.
The score of the censored count is exact, and no observation is censored, so nothing that the data could tell is lost.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from scipy.interpolate import CubicHermiteSpline
from scipy.special import gammainccinv
from scipy.stats import poisson
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.distributions import Distribution, Poisson

from gpsuq.core.distances import Distance
from gpsuq.core.expectations import Terms, base_distribution, draw_shifts
from gpsuq.core.observations import Batch
from gpsuq.errors import GPSError

MOST_EXACT = 50
"""Largest count that is summed exactly."""

TAIL = 1e-2
"""Largest probability of the last atom under a mean equal to the largest observed count."""

_LOWEST_RATE = 1e-8
_REACH = 4.0  # squared distance, in bandwidths, at which a kernel still has a slope
_RUNG = 16.0
_NEGLIGIBLE = 1e-7  # eigenvalue of the kernel, relative to the largest
_STEP = 1.0 / 64.0  # of the stabilised means that expectations are tabulated at
_SHIFT = 0.375  # Anscombe's


def stabilised(counts: Tensor) -> Tensor:
    """Return 2 sqrt(y + 3/8)."""
    return 2.0 * torch.sqrt(counts + _SHIFT)


def bandwidth_ladder(counts: Tensor, narrowest: float) -> tuple[float, ...]:
    """Return bandwidths from ``narrowest`` up to what lets a constant see the farthest of the counts.

    A kernel as wide as the noise has no slope where a block is many standard deviations off: with many points, blocks
    are, until the surface is found.
    """
    t = stabilised(counts.double())
    farthest = float((t - stabilised(counts.double().mean())).abs().max()) ** 2 / _REACH
    bandwidths = [narrowest]
    while bandwidths[-1] < farthest:
        bandwidths.append(_RUNG * bandwidths[-1])
    return tuple(bandwidths)


def count_score(rate: Tensor, y: Tensor, bandwidths: tuple[float, ...], largest: int = 1) -> Terms:
    """Return both terms of the kernel score of counts y (...) under Poisson draws of mean ``rate`` (..., draw).

    All pairs of draws are compared. The kernel is the mean of Gaussian ones. ``largest`` is what other counts may come
    to whose scores are to be compared with these.
    """
    if rate.shape[-1] < 2:
        raise GPSError("the score compares different draws: at least 2 are needed")
    y = y.expand(rate.shape[:-1])
    rate = rate.clamp_min(_LOWEST_RATE)
    large = y > MOST_EXACT
    if not bool(large.any()):
        return _exact(rate, y, bandwidths, largest)
    if bool(large.all()):
        return _normal(rate, y, bandwidths)
    fit, pair = (torch.empty(y.shape, dtype=rate.dtype, device=rate.device) for _ in range(2))
    for part, score in ((large, _normal), (~large, functools.partial(_exact, largest=largest))):
        some = score(rate[part], y[part], bandwidths)
        fit, pair = (whole.masked_scatter(part, values) for whole, values in zip((fit, pair), some, strict=True))
    return Terms(fit, pair)


def _normal(rate: Tensor, y: Tensor, bandwidths: tuple[float, ...]) -> Terms:
    """Score stabilised counts as Normal variables of variance 1."""
    location = 2.0 * torch.sqrt(rate + 0.125)
    to_y = (stabilised(y)[..., None] - location).square()
    fit = -2.0 * _kernel_means(to_y, bandwidths, 2.0)
    pair = torch.zeros_like(fit)
    for shift, weight in draw_shifts(rate.shape[-1], None):
        pair = pair + weight * _kernel_means((location.roll(shift, -1) - location).square(), bandwidths, 4.0)
    return Terms(fit, pair)


def _kernel_means(squared: Tensor, bandwidths: tuple[float, ...], variance: float) -> Tensor:
    """Mean over draws and bandwidths of the kernel between Normals at a distance; ``variance`` is twice their sum."""
    total = torch.zeros(squared.shape[:-1], dtype=squared.dtype, device=squared.device)
    for bandwidth in bandwidths:
        shrink = math.sqrt(bandwidth / (bandwidth + variance))
        total = total + shrink * torch.exp(squared * (-1.0 / (bandwidth + variance))).mean(-1)
    return total / len(bandwidths)


def _exact(rate: Tensor, y: Tensor, bandwidths: tuple[float, ...], largest: int = 1) -> Terms:
    features, cubics = _features(max(int(y.max()), min(largest, MOST_EXACT)), bandwidths)
    by_draw = rate.movedim(-1, 0).flatten(1)  # units last: sums over few draws or features are slow where they are
    tables = features.to(rate), cubics.to(rate)
    fit, pair = _PoissonScore.apply(by_draw, y.flatten().long(), *tables)  # type: ignore[no-untyped-call]
    return Terms(fit.reshape(y.shape), pair.reshape(y.shape))


@functools.cache
def _features(largest: int, bandwidths: tuple[float, ...]) -> tuple[Tensor, Tensor]:
    """Return vectors (feature, count) whose scalar products are the kernel's values, for counts up to the last atom.

    A smooth kernel has few that matter: sums over all counts become sums over some eight features. Beside them are
    cubics (power, feature, piece) of the stabilised mean: their expectations, to nine digits.
    """
    last = int(poisson.isf(TAIL, largest))
    atoms = torch.arange(last + 1, dtype=torch.float64)
    points = stabilised(atoms)
    squared = (points[:, None] - points).square()
    gram = torch.stack([torch.exp(squared * (-1.0 / bandwidth)) for bandwidth in bandwidths]).mean(0)
    size, direction = torch.linalg.eigh(gram)
    kept = size > _NEGLIGIBLE * size[-1]
    features = (direction[:, kept] * size[kept].sqrt()).T.contiguous()
    # From where on only one count in a billion is below the last atom, nothing changes any more.
    end = 2.0 * math.sqrt(float(gammainccinv(last, 1e-9)) + _SHIFT)
    place = np.arange(2.0 * math.sqrt(_SHIFT), end + _STEP, _STEP)
    mean = np.maximum(place**2 / 4.0 - _SHIFT, 0.0)
    below = torch.from_numpy(poisson.pmf(atoms[:-1].numpy(), mean[:, None]))
    # Probabilities sum to one, so that the last count needs none of its own.
    value = below @ (features[:, :-1] - features[:, -1:]).T + features[:, -1]
    slope = (below @ features.diff(dim=1).T).numpy() * (place / 2.0)[:, None]
    return features, torch.from_numpy(np.moveaxis(CubicHermiteSpline(place, value.numpy(), slope).c, 2, 1).copy())


class _PoissonScore(torch.autograd.Function):
    r"""Both terms and their slopes in one sweep.

    Slopes are those of the cubics, which have :math:`d E_\mu h(Y) / d\mu = E_\mu[h(Y + 1) - h(Y)]` where pieces meet.
    """

    @staticmethod
    def forward(ctx: Any, rate: Tensor, y: Tensor, features: Tensor, cubics: Tensor) -> tuple[Tensor, Tensor]:
        n_draws = len(rate)
        root = torch.sqrt(rate + _SHIFT)
        place = (2.0 * root - 2.0 * math.sqrt(_SHIFT)).clamp_(0.0, _STEP * cubics.shape[2])
        piece = (place / _STEP).long().clamp_(0, cubics.shape[2] - 1)
        into = place - _STEP * piece
        cubic = cubics.flatten(0, 1).index_select(1, piece.flatten()).reshape(*cubics.shape[:2], *rate.shape)
        mean = cubic[0] * into
        for lower in cubic[1:-1]:
            mean = mean.add_(lower).mul_(into)
        mean = mean.add_(cubic[-1])  # (feature, draw, unit)
        total = mean.sum(1)
        to_y = features[:, y]
        scale = 1.0 / (n_draws * (n_draws - 1))
        if ctx.needs_input_grad[0]:
            slope = cubic[0].mul_(1.5 * into).add_(cubic[1]).mul_(2.0 * into).add_(cubic[2]).div_(root)
            by_fit = torch.stack([(slope[:, draw] * to_y).sum(0) for draw in range(n_draws)]).mul_(-2.0 / n_draws)
            others = total[:, None] - mean
            ctx.save_for_backward(by_fit, others.mul_(slope).sum(0).mul_(2.0 * scale))
        return (total * to_y).sum(0) * (-2.0 / n_draws), (total.square() - mean.square().sum(1)).sum(0) * scale

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, fit: Tensor, pair: Tensor) -> tuple[Tensor, None, None, None]:
        by_fit, by_pair = ctx.saved_tensors
        return fit * by_fit + pair * by_pair, None, None, None


@dataclass(frozen=True)
class BlockScore(Distance):
    """Kernel score of a tile's counts, summed over its cells and over square blocks of cells at several scales.

    Each draw is one Z for the whole tile: cells alone would identify only the law of the intensity at a point, and
    leave the spread of regional counts arbitrary.

    Parameters
    ----------
    side
        Cells along the side of a tile; an observation is one tile, row by row.
    scales
        Sides of the blocks, divisors of ``side``.
    bandwidths
        For each scale, those of the kernels on stabilised counts (whose noise has variance 1) that are averaged; see
        :func:`bandwidth_ladder`.
    ensemble
        How many chains in turn will be averaged. Where states are compared, chains are judged by the mixture of them
        all: its first term is the mean of theirs, each on counts that the chain has not seen, and its second needs no
        counts. Chains that follow their own points too closely one by one may still be right together.
    largest
        For each scale, the largest count of all tiles, so that no score depends on what others are in a batch.
    """

    side: int
    scales: tuple[int, ...]
    bandwidths: tuple[tuple[float, ...], ...]
    ensemble: int = 1
    largest: tuple[int, ...] | None = None
    mixed: bool = False

    def __post_init__(self) -> None:
        if any(self.side % scale for scale in self.scales):
            raise GPSError(f"scales must divide the side of a tile, {self.side}, got {self.scales}")

    def precise(self) -> BlockScore:
        """Judge every chain as part of its ensemble."""
        return replace(self, mixed=self.ensemble > 1)

    def terms(self, predictive: Distribution, batch: Batch, n_outcomes: int | None = None) -> Terms:
        """Return both terms for every tile."""
        base = base_distribution(predictive)
        if not isinstance(base, Poisson):
            raise GPSError(f"BlockScore is for Poisson counts, got {type(base).__name__}")
        rate, y = base.rate, batch.y.squeeze(2)  # (chain, tile, draw, cell) and (chain, tile, cell)
        fits, pairs = [], []
        for number, scale in enumerate(self.scales):
            blocks = pooled(rate, self.side, scale).swapaxes(2, 3)
            counts = pooled(y, self.side, scale)
            terms = self._score(blocks, counts, number)
            if self.mixed:
                terms = self._of_mixture(terms, blocks, counts, number)
            fits.append(terms.fit.sum(-1))
            pairs.append(terms.pair.sum(-1))
        return Terms(torch.stack(fits).sum(0), torch.stack(pairs).sum(0))

    def _score(self, rate: Tensor, y: Tensor, scale: int) -> Terms:
        return count_score(rate, y, self.bandwidths[scale], 1 if self.largest is None else self.largest[scale])

    def _of_mixture(self, own: Terms, rate: Tensor, y: Tensor, scale: int) -> Terms:
        """Return both terms of the mixture of each chain's ensemble: (chain, tile, block)."""
        together = rate.unflatten(0, (-1, self.ensemble)).movedim(1, -2).flatten(-2)
        first = y.expand(rate.shape[:-1]).unflatten(0, (-1, self.ensemble))[:, 0]
        members, draws = self.ensemble, rate.shape[-1]
        fit, inside = (term.unflatten(0, (-1, members)).mean(1) for term in own)
        # Pairs of the pooled draws are those inside chains and those across; a mixture has one in K inside.
        pooled = self._score(together, first, scale).pair
        n_inside, n_all = members * draws * (draws - 1), members * draws * (members * draws - 1)
        across = (pooled * n_all - inside * n_inside) / (n_all - n_inside)
        pair = inside / members + across * (1.0 - 1.0 / members)
        return Terms(*(term.repeat_interleave(members, 0) for term in (fit, pair)))


def pooled(values: Tensor, side: int, scale: int) -> Tensor:
    """Sum cells (..., side * side) over blocks of ``scale`` x ``scale``: (..., blocks)."""
    if scale == 1:
        return values
    blocks = side // scale
    grid = values.reshape(*values.shape[:-1], blocks, scale, blocks, scale)
    return grid.sum((-3, -1)).flatten(-2)
