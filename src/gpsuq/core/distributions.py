"""What any torch distribution is asked: whether it is discrete, what it defines, and P(X <= value)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Size, Tensor
from torch.distributions import Distribution, Poisson

from gpsuq.errors import GPSError

EMPTY = Size()
"""The shape of a single sample: a default that distributions share with torch's own."""


def defines(distribution: Distribution, method: str) -> bool:
    """Say whether a distribution has a method of its own, other than torch's stub that raises.

    >>> from torch.distributions import Poisson
    >>> defines(Poisson(1.0), "log_prob"), defines(Poisson(1.0), "cdf")
    (True, False)
    """
    return getattr(type(distribution), method) is not getattr(Distribution, method)


def is_discrete(distribution: Distribution) -> bool:
    """Say whether outcomes are counts or levels; a distribution that names no support is taken as continuous."""
    try:
        return bool(getattr(distribution.support, "is_discrete", False))
    except NotImplementedError:
        return False


def check_univariate(name: str, distribution: Distribution) -> None:
    """Raise unless what is to be wrapped, by the class of that name, is a distribution of numbers."""
    if not isinstance(distribution, Distribution):
        raise GPSError(f"{name} needs a torch distribution, got {type(distribution).__name__}")
    if distribution.event_shape:
        raise GPSError(
            f"{name} is for numbers, not for vectors of shape {tuple(distribution.event_shape)}: wrap the "
            "distribution of one coordinate, and Independent around it"
        )


def example_of(distribution: Distribution) -> Tensor:
    """Return a tensor of the type and on the device of a distribution's outcomes: one of its parameters."""
    inner: Any = distribution
    while isinstance(inner, Distribution):
        for value in vars(inner).values():
            if isinstance(value, Tensor) and value.is_floating_point():
                return value
        inner = getattr(inner, "base_dist", getattr(inner, "_component_distribution", None))
    return torch.empty(0)


def cumulative(distribution: Distribution, value: Tensor) -> Tensor:
    """Return P(X <= value), also at infinite values; counts without a cdf, as torch's are, are added up."""
    finite = value.isfinite()
    everything = (value > 0).to(value.dtype)  # at infinity
    if not bool(finite.any()):
        return everything
    inside = torch.where(finite, value, value[finite].max())  # another bound is one that the support knows
    if isinstance(distribution, Poisson):
        at_most = torch.special.gammaincc(inside.clamp_min(0.0).floor() + 1.0, distribution.rate)
        below = torch.where(inside < 0, 0.0, at_most)
    elif is_discrete(distribution) and not defines(distribution, "cdf"):
        counts = torch.arange(max(int(inside.max()), 0) + 1, dtype=value.dtype, device=value.device)
        counts = counts.reshape(-1, *(1,) * value.dim())
        below = torch.where(counts <= inside, distribution.log_prob(counts).exp(), 0.0).sum(0)
    else:
        below = distribution.cdf(inside)
    return torch.where(finite, below, everything)
