r"""Expectations of kernels under Normal numbers, whole or between two bounds, as functions of tensors that broadcast.

Two truncated Normals have no closed form; there the narrower one is summed over nodes of Gauss and Legendre, which is
exact to about five digits.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

_NODES = 16
_FAR = 12.0  # standard deviations that stand for an infinite bound
_SQUARED_REACH = 28.0  # outcomes whose log density is 14 below its largest do not count


def gaussian(bandwidth: float, difference: Tensor, variance: Tensor) -> Tensor:
    r"""E exp(-(d + e)^2 / b) for e ~ N(0, v): :math:`\sqrt{b/(b+2v)} \exp(-d^2/(b+2v))`.

    ``variance`` is in units of the bandwidth, v / b: squares of inverse variances would overflow where y is tiny.
    """
    shrink = (variance + 0.5).rsqrt() * math.sqrt(0.5)
    return torch.exp((difference * (shrink * bandwidth**-0.5)).square().neg()) * shrink


def energy(difference: Tensor, scale: Tensor) -> Tensor:
    r"""-E|d + e| for e ~ N(0, s^2): :math:`-s\,(2\varphi(a) + a(2\Phi(a) - 1))` with a = d / s."""
    a = difference / scale
    density = torch.exp(-0.5 * a.square()) * math.sqrt(2.0 / math.pi)
    return -scale * (density + a * torch.erf(a * math.sqrt(0.5)))


class Bounded(NamedTuple):
    """A Normal given that it lies between two bounds, which are finite or infinite."""

    loc: Tensor
    scale: Tensor
    lower: Tensor
    upper: Tensor

    def standardised(self) -> tuple[Tensor, Tensor]:
        """Return the bounds in standard deviations from the centre; infinite ones far away, where gradients are 0."""
        low, high = ((torch.where(b.isinf(), 0.0, b) - self.loc) / self.scale for b in (self.lower, self.upper))
        return torch.where(self.lower.isinf(), -_FAR, low), torch.where(self.upper.isinf(), _FAR, high)

    def mass(self) -> Tensor:
        """Return the probability of the Normal between the bounds."""
        return _mass(*self.standardised())

    def beyond(self) -> tuple[Tensor, Tensor]:
        """Return the probability of the Normal below the lower bound and above the upper one."""
        low, high = self.standardised()
        return 0.5 * torch.erfc(-low * math.sqrt(0.5)), 0.5 * torch.erfc(high * math.sqrt(0.5))

    def reach(self) -> tuple[Tensor, Tensor]:
        """Return what lies between the bounds and is not too unlikely, as two numbers."""
        low, high = self.standardised()
        end = torch.minimum(high, (low.clamp_min(0.0).square() + _SQUARED_REACH).sqrt())
        start = torch.maximum(low, -((-high).clamp_min(0.0).square() + _SQUARED_REACH).sqrt())
        return self.loc + self.scale * start, self.loc + self.scale * end

    def spread_out(self) -> Bounded:
        """Return the same with a further last dimension."""
        return Bounded(*(part.unsqueeze(-1) for part in self))


def _mass(low: Tensor, high: Tensor) -> Tensor:
    r""":math:`\Phi(high) - \Phi(low)`, from the tail that is smaller: differences of numbers near 1 have no digits."""
    flip = low > 0
    near, far = torch.where(flip, low, -high), torch.where(flip, high, -low)
    return 0.5 * (torch.erfc(near * math.sqrt(0.5)) - torch.erfc(far * math.sqrt(0.5)))


def _density(a: Tensor) -> Tensor:
    return torch.exp(-0.5 * a.square()) * (1.0 / math.sqrt(2.0 * math.pi))


def bounded_gaussian(bandwidth: float, y: Tensor, law: Bounded) -> Tensor:
    r"""E exp(-(y - Y)^2 / b): that of the whole Normal, times the mass of its posterior between the bounds.

    The posterior given y has mean :math:`(b \mu + 2 \sigma^2 y) / (b + 2 \sigma^2)` and variance
    :math:`\sigma^2 b / (b + 2 \sigma^2)`.
    """
    ratio = law.scale.square() * (2.0 / bandwidth)
    shrink = (1.0 + ratio).reciprocal()
    posterior = law._replace(loc=(law.loc + ratio * y) * shrink, scale=law.scale * shrink.sqrt())
    mass = law.mass().clamp_min(torch.finfo(shrink.dtype).tiny)
    return gaussian(bandwidth, y - law.loc, 0.5 * ratio) * (posterior.mass() / mass)


def bounded_energy(y: Tensor, law: Bounded) -> Tensor:
    r"""-E|y - Y|, with :math:`a = (y - \mu)/\sigma`, bounds l and u standardised like it, and c = a between them.

    .. math:: -\sigma\,\bigl(a (P(l, c) - P(c, u)) + 2\varphi(c) - \varphi(l) - \varphi(u)\bigr) / P(l, u)
    """
    low, high = law.standardised()
    a = (y - law.loc) / law.scale
    inside = torch.minimum(torch.maximum(a, low), high)
    below, above = _mass(low, inside), _mass(inside, high)
    bend = 2.0 * _density(inside) - _density(low) - _density(high)
    return -law.scale * (a * (below - above) + bend) / (below + above).clamp_min(torch.finfo(a.dtype).tiny)


def bounded_pair(mean: Callable[[Tensor, Bounded], Tensor], first: Bounded, second: Bounded) -> Tensor:
    """E k(Y, Y') from E k(y, Y): the narrower law is summed over nodes, the other is integrated."""
    ends = [law.reach() for law in (first, second)]
    swap = (ends[0][1] - ends[0][0]) < (ends[1][1] - ends[1][0])
    wide = Bounded(*(torch.where(swap, b, a) for a, b in zip(first, second, strict=True)))
    narrow = Bounded(*(torch.where(swap, a, b) for a, b in zip(first, second, strict=True)))
    start, end = (torch.where(swap, a, b).unsqueeze(-1) for a, b in zip(*ends, strict=True))
    nodes, weights = (torch.as_tensor(v, dtype=start.dtype, device=start.device) for v in _legendre())
    points = start + (end - start) * nodes
    flat = narrow.spread_out()
    # Shares of the density at the nodes: in the far tail the density itself would be 0.
    shares = torch.softmax(weights.log() - 0.5 * ((points - flat.loc) / flat.scale).square(), -1)
    return (shares * mean(points, wide.spread_out())).sum(-1)


@functools.cache
def _legendre() -> tuple[np.ndarray, np.ndarray]:
    """Return nodes and weights of the rule of Gauss and Legendre on the unit interval."""
    nodes, weights = np.polynomial.legendre.leggauss(_NODES)
    return 0.5 * (nodes + 1.0), 0.5 * weights
