"""Outcomes that are zero too often."""

from __future__ import annotations

from typing import Any

import torch
from torch import Size, Tensor
from torch.distributions import Distribution, constraints

from gpsuq.core.distributions import EMPTY, check_univariate, cumulative, example_of, is_discrete


class ZeroInflated(Distribution):
    r"""Let some outcomes be zero whatever the distribution says: 0 with probability ``share``, X otherwise.

    For counts P(Y = 0) = share + (1 - share) P(X = 0). For positive numbers (rain, expenses) 0 is an atom: ``log_prob``
    is log(share) there, and log(1 - share) plus the log density elsewhere.

    Parameters
    ----------
    distribution
        Of X: counts or positive numbers.
    share
        Between 0 and 1.

    Examples
    --------
    Counts with random rates, and a share of persons who never do it at all:

    >>> import torch
    >>> from torch.distributions import Poisson, constraints
    >>> from gpsuq import ObservationModel, Parameter, Rate, ZeroInflated
    >>> share = Parameter(support=constraints.unit_interval, random=False)
    >>> model = ObservationModel(lambda rate, share: ZeroInflated(Poisson(rate), share), rate=Rate(), share=share)
    >>> ZeroInflated(Poisson(1.0), 0.5).log_prob(torch.tensor([0.0, 1.0])).exp()  # (1 + e^-1) / 2 and e^-1 / 2
    tensor([0.6839, 0.1839])
    """

    arg_constraints = {"share": constraints.unit_interval}  # noqa: RUF012

    def __init__(self, distribution: Distribution, share: float | Tensor, validate_args: bool | None = None) -> None:
        check_univariate("ZeroInflated", distribution)
        example = example_of(distribution)
        level = torch.as_tensor(share, dtype=example.dtype, device=example.device)
        shape = torch.broadcast_shapes(distribution.batch_shape, level.shape)
        self.base_dist = distribution if distribution.batch_shape == shape else distribution.expand(shape)
        self.share = level.expand(shape)
        super().__init__(shape, validate_args=validate_args)

    @constraints.dependent_property(is_discrete=False, event_dim=0)
    def support(self) -> Any:
        return constraints.nonnegative_integer if is_discrete(self.base_dist) else constraints.nonnegative

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        shape = Size(batch_shape)
        return ZeroInflated(self.base_dist.expand(shape), self.share.expand(shape), validate_args=False)

    def sample(self, sample_shape: Any = EMPTY) -> Tensor:
        with torch.no_grad():
            outcomes = self.base_dist.sample(sample_shape)
            return torch.where(torch.rand_like(outcomes) < self.share, 0.0, outcomes)

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        zero, tiny = value == 0, torch.finfo(self.share.dtype).tiny
        never, other = self.share.clamp_min(tiny).log(), (1.0 - self.share).clamp_min(tiny).log()
        if is_discrete(self.base_dist):
            inner = other + self.base_dist.log_prob(value)
            return torch.where(zero, torch.logaddexp(never.expand_as(inner), inner), inner)
        return torch.where(zero, never, other + self.base_dist.log_prob(torch.where(zero, 1.0, value)))

    def cdf(self, value: Tensor) -> Tensor:
        inner = cumulative(self.base_dist, value.clamp_min(0.0))
        return torch.where(value < 0, 0.0, self.share + (1.0 - self.share) * inner)

    @property
    def mean(self) -> Tensor:
        return (1.0 - self.share) * self.base_dist.mean

    @property
    def variance(self) -> Tensor:
        inner = self.base_dist.mean
        return (1.0 - self.share) * (self.base_dist.variance + self.share * inner.square())
