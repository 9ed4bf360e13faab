"""The hot path of training: the exact kernel score of Normal outcomes, with its gradient written by hand.

Autograd would record some twenty operations for each bandwidth and each shift and keep their results. Here both terms
and their derivatives are computed in one sweep, so that four tensors of the size of the predictive are kept, however
many bandwidths and shifts there are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

Bandwidths = Sequence[tuple[float, float]]
Shifts = Sequence[tuple[int, float]]
"""Pairs (bandwidth, weight) and (shift, weight)."""

_DRAW = 2


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
