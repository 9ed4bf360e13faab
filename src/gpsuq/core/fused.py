"""The hot path of training: the exact kernel score of Normal outcomes, with its gradient written by hand.

Autograd would record some twenty operations for each bandwidth and each shift and keep their results. Here both terms
and their derivatives are computed in one sweep, so that four tensors of the size of the predictive are kept, however
many bandwidths and shifts there are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

Bandwidths = Sequence[tuple[float, float]]
Shifts = Sequence[tuple[int, float]]
Levels = Sequence[tuple[float, float, float]]
"""Pairs (bandwidth, weight) and (shift, weight); triples (value if outcomes differ, gain if they agree, weight)."""

_DRAW = 2
_GROUPS, _CACHED = 16, 2**20  # of draws, and numbers at once: what stays in the processor's cache
_LOWEST_RATE = 1e-20  # of counts that never happen: a quotient by it is finite
LOWEST_EXPONENT = -80.0  # below, numbers of single precision are denormal and slow


class _GaussianNormalScore(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, loc: Tensor, variance: Tensor, y: Tensor, bandwidths: Bandwidths, shifts: Shifts
    ) -> tuple[Tensor, Tensor]:
        wants_gradient = ctx.needs_input_grad[0] or ctx.needs_input_grad[1]
        fit, fit_loc, fit_variance = _mean_and_slopes(y - loc, variance, bandwidths, wants_gradient)
        fit = fit.mul_(-2.0)
        pair, pair_loc, pair_variance = None, None, None
        for shift, weight in shifts:
            partner = loc.roll(-shift, _DRAW)
            both = variance + variance.roll(-shift, _DRAW)
            value, by_loc, by_variance = _mean_and_slopes(partner - loc, both, bandwidths, wants_gradient)
            pair = value.mul_(weight) if pair is None else pair.add_(value, alpha=weight)
            if wants_gradient:
                # What pulls draw m to its partner pulls the partner to draw m; their variances share one slope.
                by_loc = by_loc - by_loc.roll(shift, _DRAW)
                by_variance = by_variance + by_variance.roll(shift, _DRAW)
                pair_loc = by_loc.mul_(weight) if pair_loc is None else pair_loc.add_(by_loc, alpha=weight)
                pair_variance = (
                    by_variance.mul_(weight) if pair_variance is None else pair_variance.add_(by_variance, alpha=weight)
                )
        assert pair is not None
        if wants_gradient:
            ctx.save_for_backward(fit_loc, fit_variance, pair_loc, pair_variance)
            ctx.shapes, ctx.n_draws = (loc.shape, variance.shape), loc.shape[_DRAW]
        return fit, pair

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, by_fit: Tensor, by_pair: Tensor) -> tuple[Tensor, Tensor, None, None, None]:
        fit_loc, fit_variance, pair_loc, pair_variance = ctx.saved_tensors
        by_fit, by_pair = by_fit * (-2.0 / ctx.n_draws), by_pair / ctx.n_draws
        gradients = [
            _pull_back(by_fit, fit_slope, shape) + _pull_back(by_pair, pair_slope, shape)
            for fit_slope, pair_slope, shape in zip(
                (fit_loc, fit_variance), (pair_loc, pair_variance), ctx.shapes, strict=True
            )
        ]
        return gradients[0], gradients[1], None, None, None


def _mean_and_slopes(
    difference: Tensor, variance: Tensor, bandwidths: Bandwidths, wants_gradient: bool
) -> tuple[Tensor, Any, Any]:
    r"""Return the mean over draws of :math:`\sum_b w_b \sqrt{b/(b+2v)} \exp(-d^2/(b+2v))`, and its slopes in -d and v.

    The variance mostly has one row for all observations, so factors are gathered there before they meet the difference.
    """
    squared = difference.square()
    mean, pull, bend = None, None, None
    for bandwidth, weight in bandwidths:
        inverse = torch.reciprocal((variance * (2.0 / bandwidth)).add_(1.0))
        amplitude = inverse.sqrt().mul_(weight)
        inverse.mul_(1.0 / bandwidth)
        exponent = squared * -inverse
        value = torch.exp(exponent)
        average = _mean_over_draws(value, amplitude)
        mean = average if mean is None else mean.add_(average)
        if wants_gradient:
            value.mul_(inverse.mul_(amplitude).mul_(2.0))
            curvature = exponent.mul_(value)
            pull = value if pull is None else pull.add_(value)
            bend = curvature if bend is None else bend.add_(curvature)
    assert mean is not None
    if pull is None or bend is None:
        return mean, None, None
    return mean, pull * difference, bend.add_(pull, alpha=0.5).neg_()


def _mean_over_draws(values: Tensor, weight: Tensor) -> Tensor:
    """Return the mean over draws of ``values`` times ``weight``, (chain, observation)."""
    n_draws = values.shape[_DRAW]
    if weight.shape[1] == 1:
        columns = (weight / n_draws).transpose(1, _DRAW).expand(len(values), -1, -1)
        return torch.bmm(values, columns).squeeze(_DRAW)
    return (values * weight).mean(_DRAW)


def _pull_back(upstream: Tensor, slopes: Tensor, shape: torch.Size) -> Tensor:
    """Weight slopes (chain, obs, draw) by the gradient of each observation's term, summed where they are shared."""
    upstream = upstream.expand(slopes.shape[:_DRAW]) if upstream.shape[1] == slopes.shape[1] else upstream.sum(1, True)
    if slopes.shape[1] > 1 and shape[1] == 1:
        return torch.bmm(upstream.unsqueeze(1), slopes)
    return upstream.unsqueeze(_DRAW) * slopes


class _Product(torch.autograd.Function):
    """The product over the last dimension; its slopes are the product over the factors."""

    @staticmethod
    def forward(ctx: Any, values: Tensor) -> Tensor:
        values = values.clamp_min(torch.finfo(values.dtype).tiny)
        result = values.prod(-1)
        ctx.save_for_backward(values, result)
        return result

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> Tensor:
        values, result = ctx.saved_tensors
        return cast(Tensor, (upstream * result).unsqueeze(-1) / values)


def product(values: Tensor) -> Tensor:
    """Return the product of positive numbers over the last dimension; a factor of 0 counts as the smallest number.

    >>> product(torch.tensor([[2.0, 3.0], [4.0, 0.5]]))
    tensor([6., 2.])
    """
    result: Tensor = _Product.apply(values)  # type: ignore[no-untyped-call]
    return result


class _SumOfProducts(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, chance: Tensor, mask: Tensor | None, levels: Levels) -> Tensor:
        total, slopes = None, None
        for other, gain, weight in levels:
            values = (chance * gain).add_(other)
            if mask is not None:
                values = torch.where(mask, values, 1.0)
            result = values.prod(-1).mul_(weight)
            if ctx.needs_input_grad[0]:
                slope = torch.div((result * gain).unsqueeze(-1), values, out=values)
                slopes = slope if slopes is None else slopes.add_(slope)
            total = result if total is None else total.add_(result)
        if slopes is not None and mask is not None:
            slopes = slopes.mul_(mask)
        ctx.save_for_backward(slopes)
        return cast(Tensor, total)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor, None, None]:
        (slopes,) = ctx.saved_tensors
        return upstream.unsqueeze(-1) * slopes, None, None


def sum_of_products(chance: Tensor, levels: Levels, mask: Tensor | None = None) -> Tensor:
    r"""Return :math:`\sum_l w_l \prod_t (o_l + g_l c_t)` over the last dimension of c, for levels (o, g, w).

    This is what kernels make of coordinates that agree with probability c; where the mask is false they are 1.

    >>> sum_of_products(torch.tensor([0.5, 1.0]), [(0.0, 1.0, 0.5), (1.0, 1.0, 0.5)])  # half of 0.5 and of 1.5 x 2
    tensor(1.7500)
    """
    result: Tensor = _SumOfProducts.apply(chance, mask, tuple(levels))  # type: ignore[no-untyped-call]
    return result


class _PoissonHalfSums(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rate: Tensor, weight: Tensor, counts: Tensor, widths: Tensor) -> Tensor:
        half, sums = rate.shape[_DRAW] // 2, rate.new_zeros(*rate.shape[:_DRAW], 2, len(counts))
        # Of sorted rates, a few at a time, most need few counts. A logarithm must be finite.
        positive = rate.clamp_min(_LOWEST_RATE)
        ordered = [part.sort(_DRAW) for part in (positive[:, :, :half], positive[:, :, half:])]
        order = torch.cat([ordered[0].indices, ordered[1].indices + half], _DRAW)
        rate, weight = torch.cat([part.values for part in ordered], _DRAW), weight.gather(_DRAW, order)
        ctx.groups = _groups(rate, half, counts)
        for draws, width in ctx.groups:
            table = _poisson_table(rate[:, :, draws], counts[:width], widths[:width])
            sums[:, :, int(draws.start >= half), :width] += (weight[:, :, draws].unsqueeze(-2) @ table).squeeze(-2)
        ctx.save_for_backward(rate, weight, order, counts, widths)
        return sums

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor, Tensor, None, None]:
        rate, weight, order, counts, widths = ctx.saved_tensors
        both = torch.stack([upstream * counts, upstream], -1)  # (chain, obs, half, K, 2)
        by_rate, by_weight = torch.empty_like(rate), torch.empty_like(rate)
        for draws, width in ctx.groups:
            half = int(draws.start >= rate.shape[_DRAW] // 2)
            slopes = _poisson_table(rate[:, :, draws], counts[:width], widths[:width]) @ both[:, :, half, :width]
            # The slope of p_k is p_k (k / rate - 1).
            by_rate[:, :, draws] = slopes[..., 0] / rate[:, :, draws] - slopes[..., 1]
            by_weight[:, :, draws] = slopes[..., 1]
        back = [torch.empty_like(rate).scatter_(_DRAW, order, part) for part in (weight * by_rate, by_weight)]
        return back[0], back[1], None, None


def _groups(rate: Tensor, half: int, counts: Tensor) -> list[tuple[slice, int]]:
    """Return neighbouring draws of sorted halves, as many as fit in a cache, and how many counts they need."""
    n_draws, size = rate.shape[_DRAW], len(counts)
    most = max(1, min(-(-n_draws // _GROUPS), _CACHED // max(1, rate[:, :, 0].numel() * size)))
    found = []
    for first, end in ((0, half), (half, n_draws)):
        for start in range(first, end, most):
            draws = slice(start, min(start + most, end))
            top = float(rate[:, :, draws.stop - 1].nan_to_num(0.0).max())  # a chain that diverged must not stop others
            # What is left out is less than 1e-6 of every law.
            needed = int((counts < top + 5.0 * top**0.5 + 5.0).sum())
            found.append((draws, needed))
    return found


def _poisson_table(rate: Tensor, counts: Tensor, widths: Tensor) -> Tensor:
    """Return exp(k log(rate) - rate - log k!) times the width for each of the counts k, in a last dimension."""
    terms = torch.stack([rate.log(), rate, torch.ones_like(rate)], -1)
    # One product, since every further pass over the table would take as long.
    exponent = terms @ torch.stack([counts, -torch.ones_like(counts), widths.log() - (counts + 1.0).lgamma()])
    return exponent.clamp_min_(LOWEST_EXPONENT).exp_()


def poisson_half_sums(rate: Tensor, weight: Tensor, counts: Tensor, widths: Tensor) -> Tensor:
    """Return the probabilities of counts, weighted and summed over each half of the draws: (chain, obs, 2, K).

    Counts (K,) are the middles of blocks that are so wide. A draw takes as many counts as draws with similar rates
    need, and no table of all of them is ever kept.

    >>> rate = torch.tensor([[[2.0, 1.0]]])  # one chain, one observation, two draws
    >>> poisson_half_sums(rate, torch.ones_like(rate), torch.arange(3.0), torch.ones(3))
    tensor([[[[0.1353, 0.2707, 0.2707],
              [0.3679, 0.3679, 0.1839]]]])
    """
    result: Tensor = _PoissonHalfSums.apply(rate, weight, counts, widths)  # type: ignore[no-untyped-call]
    return result


class _SumOfGaussians(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, squared: Tensor, bandwidths: Bandwidths) -> Tensor:
        total, slope = None, None
        for bandwidth, weight in bandwidths:
            value = torch.exp(squared * (-1.0 / bandwidth)).mul_(weight)
            if ctx.needs_input_grad[0]:
                slope = value * (-1.0 / bandwidth) if slope is None else slope.add_(value, alpha=-1.0 / bandwidth)
            total = value if total is None else total.add_(value)
        ctx.save_for_backward(slope)
        return cast(Tensor, total)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor, None]:
        (slope,) = ctx.saved_tensors
        return upstream * slope, None


def sum_of_gaussians(squared: Tensor, bandwidths: Bandwidths) -> Tensor:
    r"""Return :math:`\sum_b w_b \exp(-d^2 / b)` of squared distances; one tensor is kept for its gradient.

    >>> sum_of_gaussians(torch.tensor([0.0, 1.0]), [(1.0, 0.5), (2.0, 0.5)])
    tensor([1.0000, 0.4872])
    """
    result: Tensor = _SumOfGaussians.apply(squared, tuple(bandwidths))  # type: ignore[no-untyped-call]
    return result


def gaussian_normal_score(
    loc: Tensor, scale: Tensor, y: Tensor, bandwidths: Bandwidths, shifts: Shifts
) -> tuple[Tensor, Tensor]:
    """Return both terms of the kernel score of y under draws N(loc, scale^2), for a mixture of Gaussian kernels.

    ``loc`` and ``scale`` are (chain, 1 or observation, draw), ``y`` is (1 or chain, observation, 1). The terms,
    -2 E k(y, Y) and E k(Y, Y'), are (chain, 1 or observation).
    """
    n_draws = max(loc.shape[_DRAW], scale.shape[_DRAW])
    variance = scale.square()
    wide = [t.expand(*t.shape[:_DRAW], n_draws) for t in (loc, variance)]
    if wide[1].shape[1] > 1 and wide[0].shape[1] == 1:  # the scale differs between observations, the mean does not
        wide[0] = wide[0].expand(-1, wide[1].shape[1], -1)
    fit, pair = _GaussianNormalScore.apply(*wide, y, tuple(bandwidths), tuple(shifts))  # type: ignore[no-untyped-call]
    return fit, pair
