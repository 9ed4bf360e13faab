"""Outcomes that are ordered levels."""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Size, Tensor
from torch.distributions import Distribution, constraints

from gpsuq.core.distributions import EMPTY
from gpsuq.errors import GPSError


class Ordinal(Distribution):
    r"""Cut a latent number into ordered levels 0, ..., K: :math:`P(Y \le k) = F(c_k - \text{location})`.

    Kernels see the level as a number, since levels are ordered: 1 is closer to 2 than to 4.

    Parameters
    ----------
    location
        Centre of the latent number; larger means higher levels.
    cuts
        K cut points in the last dimension. ``Cuts(K)`` declares numbers that increase; others are sorted.
    latent
        Law of the latent number around its centre: ``"logistic"`` (proportional odds) or ``"normal"`` (ordered probit).

    Examples
    --------
    Answers from 0 to 3, with slopes that differ between persons:

    >>> import torch
    >>> from gpsuq import Cuts, ObservationModel, Ordinal, Real
    >>> model = ObservationModel(
    ...     lambda x, slope, cuts: Ordinal((x * slope).sum(-1), cuts),
    ...     slope=Real("features"), cuts=Cuts(3),
    ... )
    >>> Ordinal(torch.tensor(0.0), torch.tensor([-1.0, 0.0, 1.0])).probs
    tensor([0.2689, 0.2311, 0.2311, 0.2689])
    """

    arg_constraints = {"location": constraints.real, "cuts": constraints.real_vector}  # noqa: RUF012
    has_enumerate_support = True

    def __init__(
        self,
        location: Tensor,
        cuts: Tensor,
        latent: Literal["logistic", "normal"] = "logistic",
        validate_args: bool | None = None,
    ) -> None:
        if latent not in ("logistic", "normal"):
            raise GPSError(f'latent must be "logistic" or "normal", got {latent!r}')
        if cuts.dim() == 0:
            raise GPSError("Ordinal needs its cut points in the last dimension of a tensor, got a single number")
        shape = torch.broadcast_shapes(location.shape, cuts.shape[:-1])
        self.location, self.latent = location.expand(shape), latent
        self.cuts = cuts.sort(-1).values.expand(*shape, cuts.shape[-1])
        super().__init__(shape, validate_args=validate_args)

    @constraints.dependent_property(is_discrete=True, event_dim=0)
    def support(self) -> Any:
        return constraints.integer_interval(0, self.cuts.shape[-1])

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        shape = Size(batch_shape)
        cuts = self.cuts.expand(*shape, self.cuts.shape[-1])
        return Ordinal(self.location.expand(shape), cuts, self.latent, validate_args=False)

    @property
    def probs(self) -> Tensor:
        """Probabilities of the levels, in a last dimension of size K + 1."""
        latent = torch.sigmoid if self.latent == "logistic" else torch.special.ndtr
        at_most = latent(self.cuts - self.location.unsqueeze(-1))
        ones = torch.ones_like(at_most[..., :1])
        return torch.cat([at_most, ones], -1) - torch.cat([torch.zeros_like(ones), at_most], -1)

    def enumerate_support(self, expand: bool = True) -> Tensor:
        levels = torch.arange(self.cuts.shape[-1] + 1, dtype=self.cuts.dtype, device=self.cuts.device)
        levels = levels.reshape(-1, *(1,) * len(self.batch_shape))
        return levels.expand(-1, *self.batch_shape) if expand else levels

    def sample(self, sample_shape: Any = EMPTY) -> Tensor:
        with torch.no_grad():
            shape = self._extended_shape(Size(sample_shape))
            chance = torch.rand(shape, dtype=self.cuts.dtype, device=self.cuts.device)
            return (chance.unsqueeze(-1) > self.probs.cumsum(-1)[..., :-1]).sum(-1).to(chance.dtype)

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        probs = self.probs
        level, probs = torch.broadcast_tensors(value.long().unsqueeze(-1), probs)
        chance: Tensor = probs.gather(-1, level[..., :1]).squeeze(-1)
        return chance.clamp_min(torch.finfo(chance.dtype).tiny).log()

    def cdf(self, value: Tensor) -> Tensor:
        levels = torch.arange(self.cuts.shape[-1] + 1, dtype=self.cuts.dtype, device=self.cuts.device)
        return torch.where(levels <= value.unsqueeze(-1), self.probs, 0.0).sum(-1)

    @property
    def mean(self) -> Tensor:
        return self.probs @ self._levels()

    @property
    def variance(self) -> Tensor:
        return self.probs @ self._levels().square() - self.mean.square()

    def _levels(self) -> Tensor:
        return self.enumerate_support(expand=False).flatten()
