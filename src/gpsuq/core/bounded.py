"""What censored and truncated distributions share: bounds, moments, and whether they have quantiles."""

from __future__ import annotations

import math
from typing import Any, cast

import torch
from torch import Size, Tensor
from torch.distributions import Distribution, TransformedDistribution, constraints

from gpsuq.core.distributions import EMPTY, check_univariate, defines, example_of, is_discrete
from gpsuq.errors import GPSError

_FARTHEST, _NODES = 4.5, 96  # of the sums that stand for means: in units of a standard Normal, and how many terms
_DEVIATIONS, _LEAST = 12.0, 32  # how far counts are added up, beyond their mean


class _Within(constraints.Constraint):
    """What a distribution supports, between two bounds that belong to it."""

    def __init__(self, inner: Any, lower: Tensor, upper: Tensor) -> None:
        self.inner, self.lower_bound, self.upper_bound = inner, lower, upper
        super().__init__()

    @property
    def is_discrete(self) -> bool:  # type: ignore[override]
        return bool(self.inner.is_discrete)

    def check(self, value: Tensor) -> Tensor:
        return cast(Tensor, self.inner.check(value) & (value >= self.lower_bound) & (value <= self.upper_bound))


class Bounded(Distribution):
    """What Censored and Truncated share: a distribution of numbers or counts and two bounds, infinite if not given."""

    arg_constraints = {}  # noqa: RUF012 (torch's own way of saying that bounds are checked here)
    base_dist: Distribution

    def __init__(
        self,
        distribution: Distribution,
        lower: float | Tensor | None = None,
        upper: float | Tensor | None = None,
        validate_args: bool | None = None,
    ) -> None:
        name = type(self).__name__
        check_univariate(name, distribution)
        if lower is None and upper is None:
            raise GPSError(f"{name} needs a lower bound, an upper bound, or both")
        example = example_of(distribution)
        low, high = (
            torch.as_tensor(default if bound is None else bound, dtype=example.dtype, device=example.device)
            for bound, default in ((lower, -math.inf), (upper, math.inf))
        )
        shape = torch.broadcast_shapes(distribution.batch_shape, low.shape, high.shape)
        self.base_dist = distribution if distribution.batch_shape == shape else distribution.expand(shape)
        self.lower, self.upper = low.expand(shape), high.expand(shape)
        super().__init__(shape, validate_args=False)
        self._validate_args = Distribution._validate_args if validate_args is None else validate_args
        if self._validate_args and not bool((low < high).all()):
            raise GPSError(f"{name}: the lower bound must be below the upper one")

    @constraints.dependent_property(is_discrete=False, event_dim=0)
    def support(self) -> Any:
        return _Within(self.base_dist.support, self.lower, self.upper)

    @property
    def has_rsample(self) -> bool:  # type: ignore[override]
        return self.base_dist.has_rsample

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        shape = Size(batch_shape)
        new = type(self).__new__(type(self))
        new.base_dist = self.base_dist.expand(shape)
        new.lower, new.upper = self.lower.expand(shape), self.upper.expand(shape)
        Distribution.__init__(new, shape, validate_args=False)
        new._validate_args = self._validate_args
        return new

    def sample(self, sample_shape: Any = EMPTY) -> Tensor:
        with torch.no_grad():
            return self._outcomes(Size(sample_shape))

    def rsample(self, sample_shape: Any = EMPTY) -> Tensor:
        return self._outcomes(Size(sample_shape))

    def _outcomes(self, sample_shape: Size) -> Tensor:
        raise NotImplementedError

    @property
    def mean(self) -> Tensor:
        return self._moments()[0]

    @property
    def variance(self) -> Tensor:
        return self._moments()[1]

    def _moments(self) -> tuple[Tensor, Tensor]:
        """Return mean and variance: a sum over counts, or over quantiles at evenly spaced scores of a Normal."""
        batch = (1,) * len(self.batch_shape)
        if is_discrete(self.base_dist):
            values = _counts(self.base_dist).reshape(-1, *batch)
            inside = (values >= self.lower) & (values <= self.upper)
            weights = torch.where(inside, self.log_prob(values.clamp(self.lower, self.upper)).exp(), 0.0)
        else:
            scores = torch.linspace(-_FARTHEST, _FARTHEST, _NODES, dtype=self.lower.dtype, device=self.lower.device)
            values = self.icdf(torch.special.ndtr(scores).reshape(-1, *batch))
            weights = torch.softmax(-0.5 * scores.square(), 0).reshape(-1, *batch)
        mean = (weights * values).sum(0)
        return mean, (weights * (values - mean).square()).sum(0)


def _counts(distribution: Distribution) -> Tensor:
    """Return 0, 1, ... up to where hardly any outcome of counts is left."""
    with torch.no_grad():
        tops = distribution.mean + _DEVIATIONS * distribution.stddev
    tops = tops[torch.isfinite(tops)]
    size = _LEAST + (int(tops.max()) if tops.numel() else 0)
    return torch.arange(size, dtype=tops.dtype, device=tops.device)


def has_quantiles(distribution: Distribution) -> bool:
    """Say whether ``icdf`` works, so that outcomes can be placed evenly in place of being sampled.

    >>> from torch.distributions import Gamma, Weibull
    >>> has_quantiles(Weibull(1.0, 1.5)), has_quantiles(Gamma(1.0, 1.5))
    (True, False)
    """
    if isinstance(distribution, TransformedDistribution):
        return all(step.bijective for step in distribution.transforms) and has_quantiles(distribution.base_dist)
    if isinstance(distribution, Bounded):
        return has_quantiles(distribution.base_dist)
    return defines(distribution, "icdf")
