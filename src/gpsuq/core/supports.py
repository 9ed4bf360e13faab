"""Outcomes as a table: the points of a finite or truncatable support, and the probability of each."""

from __future__ import annotations

import math
from typing import cast

import torch
from torch import Tensor
from torch.distributions import (
    Binomial,
    Categorical,
    Distribution,
    MixtureSameFamily,
    NegativeBinomial,
    OneHotCategorical,
    Poisson,
    constraints,
)
from torch.nn.functional import logsigmoid

from gpsuq.core.censored import Censored
from gpsuq.core.distributions import defines, example_of, is_discrete
from gpsuq.core.fused import LOWEST_EXPONENT, poisson_half_sums
from gpsuq.core.ordinal import Ordinal
from gpsuq.core.truncated import Truncated
from gpsuq.core.zero_inflated import ZeroInflated

TAIL_MASS = 1e-5
"""Largest probability that truncating an infinite support may leave out."""

MAX_SUPPORT = 1024
"""Largest support that is enumerated; beyond it outcomes are sampled."""

MAX_TABLE = 2**23
"""Most probabilities in one table (32 MB in float32); beyond it outcomes are sampled."""

GRID_POINTS = 96
"""Points that stand for the outcomes of a distribution that has a density alone."""

_LEAST_POINTS = 16
_FAR = 3  # times the largest count that was observed

Table = tuple[Tensor, Tensor]


def support_table(base: Distribution, y: Tensor) -> Table | None:
    """Return points ``(K, *atom)`` and probabilities ``(chain, obs, draw, *event, K)``; None if there are too many.

    ``y`` says where counts begin to be enumerated whose distribution has no mean.

    >>> support_table(Ordinal(torch.zeros(1), torch.tensor([0.0])), torch.zeros(1))  # two levels, as likely
    (tensor([0., 1.]), tensor([[0.5000, 0.5000]]))
    """
    if isinstance(base, Categorical | OneHotCategorical):
        probabilities = class_probabilities(base)
        return torch.eye(base.param_shape[-1], dtype=probabilities.dtype, device=probabilities.device), probabilities
    if isinstance(base, Ordinal):
        return base.enumerate_support(expand=False).flatten(), base.probs
    if base.event_shape or not is_discrete(base):
        return None
    if base.has_enumerate_support and not isinstance(base, Binomial):
        values = base.enumerate_support(expand=False).flatten()
        return values, _pmf(base, values)
    return _counted(base, y) if _counts(base) else None


def class_probabilities(base: Distribution) -> Tensor:
    """Return the probabilities of classes; torch has logits that add up already, and would normalise them again."""
    logits = base.__dict__.get("logits", getattr(base, "_categorical", base).__dict__.get("logits"))
    return cast(Categorical, base).probs if logits is None else logits.exp()


def compact(tensor: Tensor) -> Tensor:
    """Undo broadcasting: a dimension that only repeats one value (stride 0) becomes 1 wide again.

    ``torch.distributions`` expands all parameters to one shape; the scale of a linear model then looks as large as
    its mean, and every operation on it would cost as much.
    """
    for dim, (size, stride) in enumerate(zip(tensor.shape, tensor.stride(), strict=True)):
        if size > 1 and stride == 0:
            tensor = tensor.narrow(dim, 0, 1)
    return tensor


def _counts(base: Distribution) -> bool:
    """Say whether outcomes are 0, 1, 2, ..."""
    if isinstance(base, Censored | Truncated | ZeroInflated):
        return _counts(base.base_dist)
    if isinstance(base, MixtureSameFamily):
        return _counts(base.component_distribution)
    return isinstance(base, Binomial) or base.support is constraints.nonnegative_integer


def _counted(base: Distribution, y: Tensor) -> Table | None:
    """Enumerate 0..K-1 with K doubled until at most ``TAIL_MASS`` is left out; None where that takes too many.

    Counts far beyond all that were observed are one point, and large ones come in blocks where the distribution is wide
    enough for them: single draws with large rates must not make the table long.
    """
    most, example = _beyond(y), example_of(base)
    size = min(_first_guess(base, y), most)
    width = base.component_distribution.batch_shape if isinstance(base, MixtureSameFamily) else base.batch_shape
    while True:
        values, widths = _blocks(size, example, single=not _wide(base))
        if len(values) > MAX_SUPPORT or len(values) * width.numel() > MAX_TABLE:
            return None
        probabilities = _pmf(base, values) * widths
        left = 1.0 - probabilities.sum(-1, keepdim=True)
        if size == most:
            return values, torch.cat([probabilities[..., :-1], probabilities[..., -1:] + left.clamp_min(0.0)], -1)
        if not bool((left > TAIL_MASS).any()):
            return values, probabilities
        size = min(2 * size, most)


def _wide(base: Distribution) -> bool:
    """Say whether counts around k have a standard deviation of at least sqrt(k), as those of Poisson laws have."""
    if isinstance(base, ZeroInflated):
        return _wide(base.base_dist)
    if isinstance(base, MixtureSameFamily):
        return _wide(base.component_distribution)
    return type(base) in (Poisson, NegativeBinomial)


def _blocks(size: int, like: Tensor, *, single: bool) -> Table:
    """Return the middles of blocks of counts below ``size``, and how many counts a block has.

    A block is a third as wide as a Poisson law there: the density in its middle, times its width, tells its mass.

    >>> _blocks(42, torch.zeros(0), single=False)[0][-4:]
    tensor([35.0000, 36.5000, 38.5000, 40.5000])
    """
    ends = [0]
    while ends[-1] < size:
        ends.append(min(size, ends[-1] + (1 if single else max(1, math.isqrt(ends[-1]) // 3))))
    edges = torch.tensor(ends, dtype=like.dtype, device=like.device)
    widths = edges.diff()
    return edges[:-1] + 0.5 * (widths - 1.0), widths


def _beyond(y: Tensor) -> int:
    """Return how many counts are told apart, where the largest y is known; it is the same for all outcomes above."""
    return _FAR * int(y.max()) + 2 * _LEAST_POINTS


def halves(n_draws: int, like: Tensor) -> Tensor:
    """Return which draws belong to the first half and which to the second, as a matrix (2, draw) of ones and zeros."""
    result = like.new_zeros(2, n_draws)
    result[0, : n_draws // 2], result[1, n_draws // 2 :] = 1.0, 1.0
    return result


def poisson_sums(base: Distribution, y: Tensor) -> Table | None:
    """Return counts (K,) and their probabilities summed over each half of the draws, (chain, obs, half, K).

    For Poisson laws and mixtures of them, also with more zeros; None for others, or where counts are too large. Large
    counts come in blocks, and those far beyond all of y are one.
    """
    parts = _poisson_parts(base)
    if parts is None:
        return None
    laws, zeros = parts
    size = min(max(_first_guess(base, y), int(y.max()) + 1), _beyond(y))
    counts, widths = _blocks(size, y, single=False)
    if len(counts) > MAX_SUPPORT:
        return None
    sums = sum(poisson_half_sums(rate, weight, counts, widths) for rate, weight in laws)
    if zeros is not None:
        at_zero = (halves(zeros.shape[2], zeros) @ zeros.unsqueeze(-1)).squeeze(-1)
        sums = sums + at_zero.unsqueeze(-1) * (counts == 0)
    sums = cast(Tensor, sums)
    n_draws = base.batch_shape[2]
    left = halves(n_draws, sums).sum(1) - sums.sum(-1)  # what is beyond is in the last point
    sums = torch.cat([sums[..., :-1], (sums[..., -1] + left).unsqueeze(-1)], -1)
    return counts, sums


def _poisson_parts(base: Distribution) -> tuple[list[tuple[Tensor, Tensor]], Tensor | None] | None:
    """Take Poisson laws apart into rates with their weights, and the share of further zeros."""
    if type(base) is Poisson:
        return [(base.rate, torch.ones_like(base.rate))], None
    if isinstance(base, ZeroInflated) and type(base.base_dist) is Poisson:
        return [(base.base_dist.rate, 1.0 - base.share)], base.share
    if isinstance(base, MixtureSameFamily) and type(base.component_distribution) is Poisson:
        rates, weights = base.component_distribution.rate, base.mixture_distribution.probs
        return list(zip(rates.unbind(-1), weights.expand_as(rates).unbind(-1), strict=True)), None
    return None


def _first_guess(base: Distribution, y: Tensor) -> int:
    """Return a number of counts beyond which hardly any outcome is expected; a guess, as tails are."""
    if isinstance(base, Binomial):
        return int(base.total_count.max()) + 1
    if isinstance(base, Censored | Truncated):
        top = float(base.upper.max())
        inner = _first_guess(base.base_dist, y)
        return inner if top >= inner else int(top) + 1
    if isinstance(base, ZeroInflated):
        return _first_guess(base.base_dist, y)
    if isinstance(base, MixtureSameFamily):
        return _first_guess(base.component_distribution, y)
    try:
        with torch.no_grad():
            tops = base.mean + 6.0 * base.stddev
    except NotImplementedError:
        tops = 2.0 * y.detach()
    tops = tops[torch.isfinite(tops)]  # a chain that diverged must not stop the others
    return int(tops.max()) + 12 if tops.numel() else MAX_SUPPORT + 1


def _pmf(base: Distribution, values: Tensor) -> Tensor:
    """Return the probabilities of values 0, ..., K - 1 or of an enumerated support (K,), (*batch, K)."""
    if isinstance(base, MixtureSameFamily):
        parts = _pmf(base.component_distribution, values)
        return (base.mixture_distribution.probs.unsqueeze(-2) @ parts).squeeze(-2)
    if isinstance(base, ZeroInflated):
        share = base.share.unsqueeze(-1)
        return (1.0 - share) * _pmf(base.base_dist, values) + share * (values == 0)
    if type(base) is Poisson:  # written out, as torch refuses the middles of blocks
        rate = base.rate.unsqueeze(-1)
        return (torch.xlogy(values, rate) - rate - (1.0 + values).lgamma()).clamp_min(LOWEST_EXPONENT).exp()
    if type(base) is NegativeBinomial:
        # Written out: what all draws share, such as the number of failures, has a dimension of size 1 for them.
        count, logit = compact(base.total_count).unsqueeze(-1), base.logits.unsqueeze(-1)
        ways = (count + values).lgamma() - count.lgamma() - (1.0 + values).lgamma()
        return (ways + (count * logsigmoid(-logit) + values * logsigmoid(logit))).clamp_min(LOWEST_EXPONENT).exp()
    shaped = values.reshape(-1, *(1,) * len(base.batch_shape))
    if isinstance(base, Binomial):
        possible = shaped <= base.total_count
        logs = base.log_prob(torch.minimum(shaped, base.total_count))
    elif isinstance(base, Censored | Truncated):
        possible = (shaped >= base.lower) & (shaped <= base.upper)
        logs = base.log_prob(shaped.clamp(base.lower, base.upper))
    else:
        logs, possible = base.log_prob(shaped), torch.ones_like(shaped, dtype=torch.bool)
    table: Tensor = (logs.clamp_min(LOWEST_EXPONENT).exp() * possible).movedim(0, -1)
    return table


def has_density_alone(base: Distribution) -> bool:
    """Say whether there is nothing but ``log_prob`` of a continuous number, so that outcomes come from a grid."""
    samples = defines(base, "sample") or defines(base, "rsample")
    return defines(base, "log_prob") and not (samples or base.event_shape or is_discrete(base))


def grid_table(base: Distribution, y: Tensor) -> Table:
    """Return evenly spaced points from half the range of y below to half above, with shares of the density there.

    For a distribution of numbers that has ``log_prob`` alone. Shares add up to one, so that outcomes beyond the grid do
    not count. The grid is shifted by a random part of its step, so that no peak is missed at every step.
    """
    lowest, highest = float(y.min()), float(y.max())
    margin = 0.5 * (highest - lowest) or 1.0
    lowest, highest = lowest - margin, highest + margin
    try:
        bounds = [getattr(base.support, name, None) for name in ("lower_bound", "upper_bound")]
    except NotImplementedError:
        bounds = [None, None]
    if bounds[0] is not None:
        lowest = max(lowest, float(torch.as_tensor(bounds[0]).min()))
    if bounds[1] is not None:
        highest = min(highest, float(torch.as_tensor(bounds[1]).max()))
    size = max(_LEAST_POINTS, min(GRID_POINTS, MAX_TABLE // max(1, base.batch_shape.numel())))
    inner = (torch.arange(size, dtype=y.dtype, device=y.device) + torch.rand((), dtype=y.dtype, device=y.device)) / size
    points = lowest + (highest - lowest) * inner
    logs = base.log_prob(points.reshape(-1, *(1,) * len(base.batch_shape)))
    return points, torch.softmax(logs.movedim(0, -1), -1)
