r"""The log score of a predictive: how likely an observation is under the mixture over draws."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.distributions import Categorical, Distribution, OneHotCategorical

from gpsuq.core.distances import Distance
from gpsuq.core.distributions import defines, is_discrete
from gpsuq.core.observations import Batch, Observations
from gpsuq.core.terms import BATCH_DIMS, DRAW_DIM, Terms, base_distribution
from gpsuq.errors import GPSError


def log_likelihood(predictive: Distribution, y: Tensor, mask: Tensor | None = None) -> Tensor:
    """Return log f(y_i | theta, x_i) of what was observed, (chain, observation, draw).

    >>> import torch
    >>> from torch.distributions import Independent, Normal
    >>> two = Independent(Normal(torch.zeros(1, 1, 3, 2), 1.0), 1)  # two measures of one observation, three draws
    >>> log_likelihood(two, torch.zeros(1, 1, 1, 2), torch.tensor([True, False]).reshape(1, 1, 1, 2))
    tensor([[[-0.9189, -0.9189, -0.9189]]])
    """
    base = base_distribution(predictive)
    try:
        logs = base.log_prob(y)
    except NotImplementedError as error:
        name = type(base).__name__
        raise GPSError(f"observations are explained by their density, and {name} has no log_prob") from error
    if mask is not None:
        together = len(base.event_shape)
        seen = mask.flatten(-together).all(-1) if together else mask
        if together and not torch.equal(seen, mask.flatten(-together).any(-1)):
            raise GPSError(f"{type(base).__name__} describes coordinates of which only some were observed")
        logs = torch.where(seen, logs, 0.0)
    return logs.flatten(BATCH_DIMS).sum(-1) if logs.dim() > BATCH_DIMS else logs


_PLAIN = 0.05


@dataclass(frozen=True)
class LogScore(Distance):
    r"""Log score of each observation under the mixture over draws: the law of theta of greatest likelihood.

    .. math:: -\frac{1}{n} \sum_i \bigl( 0.95 \log ((1 - \epsilon) f_i + \epsilon u_i) + 0.05 \log f_i \bigr),
              \quad f_i = E f(y_i \mid \theta, x_i), \quad \epsilon = \frac{1}{n + 1}

    with u even over the range of y: what the model cannot explain, an outlier, is left to u and weighs a twentieth,
    which is enough to pull draws to groups that they have not found yet. It needs a density, sees more of the law of
    theta than a kernel does, but is less robust, and takes no pairs of draws, so that these are spread evenly.

    >>> from gpsuq import GPS
    >>> from gpsuq.core.models import normal_location
    >>> GPS(normal_location(), distance=LogScore()).distance
    LogScore()
    """

    _width: Tensor | None = None
    _share: float = 0.0

    def __repr__(self) -> str:
        return "LogScore()"

    @property
    def pairs_draws(self) -> bool:
        return False

    def resolve(self, data: Observations) -> LogScore:
        """Fix the range of y, of each coordinate, and the share of what is even over it."""
        if bool((data.y == data.y[:1]).all()):
            raise GPSError(
                f"LogScore: the observations hardly differ: y is constant, {len(data)} times {data.y[0].tolist()}. "
                "Check that y is the right column"
            )
        seen = data.y if data.mask is None else torch.where(data.mask, data.y, data.y[data.mask].mean())
        return replace(self, _width=seen.amax(0) - seen.amin(0), _share=1.0 / (len(data) + 1))

    def terms(self, predictive: Distribution, batch: Batch, n_outcomes: int | None = None) -> Terms:
        """Return the log score as the first term; the second is zero."""
        logs = log_likelihood(predictive, batch.y, batch.mask)
        mixed = logs.logsumexp(DRAW_DIM) - math.log(logs.shape[DRAW_DIM])
        if self._share > 0.0:
            even = math.log(self._share) - self._extent(predictive, batch)
            bounded = torch.logaddexp(mixed + math.log1p(-self._share), even)
            mixed = (1.0 - _PLAIN) * bounded + _PLAIN * mixed
        return Terms(-mixed, torch.zeros_like(mixed))

    def _extent(self, predictive: Distribution, batch: Batch) -> Tensor:
        """Return the log of how much room the outcomes of an observation have, (1 or chain, observation)."""
        base = base_distribution(predictive)
        if isinstance(base, Categorical | OneHotCategorical):
            extent = torch.full(batch.y.shape, math.log(base.param_shape[-1]), device=batch.y.device)
            extent = extent / (base.event_shape[-1] if base.event_shape else 1)
        else:
            assert self._width is not None
            width = self._width + 1.0 if is_discrete(base) else self._width
            tiny = torch.finfo(width.dtype).tiny
            extent = width.to(batch.y).clamp_min(tiny).log().expand(batch.y.shape)
        if batch.mask is not None:
            extent = torch.where(batch.mask, extent, 0.0)
        return extent.reshape(len(extent), len(batch), -1).sum(-1)


def has_density(predictive: Distribution, batch: Batch, parameters: Iterable[Tensor] = ()) -> bool:
    """Say whether observations have a density under a predictive, and its parameters a gradient.

    >>> import torch
    >>> from torch.distributions import Normal
    >>> from gpsuq.core.observations import observations
    >>> has_density(Normal(torch.zeros(1, 1, 2), 1.0), observations(None, [0.5]).rows())
    True
    """
    if not defines(base_distribution(predictive), "log_prob"):
        return False
    try:
        logs = log_likelihood(predictive, batch.y, batch.mask)
        if followed := [values for values in parameters if values.requires_grad]:
            torch.autograd.grad(logs.sum(), followed, allow_unused=True)
    except (NotImplementedError, RuntimeError, GPSError):
        return False
    return bool(torch.isfinite(logs).any())
