"""Kernel scores estimated from outcomes: placed evenly where a law has quantiles, sampled otherwise."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.distributions import Categorical, Distribution, MixtureSameFamily

from gpsuq.core.bounded import has_quantiles
from gpsuq.core.distributions import defines, example_of, is_discrete
from gpsuq.core.fused import Shifts
from gpsuq.core.kernels import Kernel
from gpsuq.core.terms import (
    DRAW_DIM,
    Terms,
    added,
    base_distribution,
    coordinates_of,
    encode,
    multiplied,
    one_by_one,
    roll,
    weighed,
    weighted_sum,
)
from gpsuq.core.zero_inflated import ZeroInflated
from gpsuq.errors import GPSError

DEFAULT_OUTCOMES = 5
"""J, the outcomes sampled per draw where nothing better is known (the paper's choice)."""

PLACED_OUTCOMES, _STRIDE = 8, 3
"""Outcomes placed per draw where there are quantiles, and the step of the lattice on which those of two draws meet."""


def placed(kernel: Kernel, distribution: Distribution, y: Tensor, mask: Tensor | None, shifts: Shifts) -> Terms | None:
    """Estimate both terms from outcomes that are spread evenly over each law; None where that cannot be done.

    Outcomes of two draws meet on a lattice: each pair is a point of the unit square, and they fill it evenly.
    """
    base, coordinates = base_distribution(distribution), coordinates_of(distribution)
    if base.event_shape or not is_placed(base) or not one_by_one(kernel, distribution):
        return None
    outcomes, masses = _cloud(base)
    meets = torch.arange(PLACED_OUTCOMES, device=outcomes.device) * _STRIDE % PLACED_OUTCOMES
    partners, point = outcomes[meets], y.unsqueeze(-1)

    def terms(part: Kernel) -> Terms:
        def paired(shift: int) -> Tensor:
            others = partners.roll(-shift, 1 + DRAW_DIM)
            if masses is None:
                return part(outcomes, others).mean(0).squeeze(-1)
            both = masses.unsqueeze(-1) * roll(masses, shift).unsqueeze(-2)
            return (both * part(outcomes.unsqueeze(-1), others.unsqueeze(-2)).mean(0)).sum((-1, -2))

        to_y = part(outcomes, point).mean(0)
        to_y = to_y.squeeze(-1) if masses is None else (masses * to_y).sum(-1)
        return multiplied(to_y, paired, coordinates, mask, shifts)

    parts = weighed(kernel) if coordinates else [(1.0, kernel)]
    return added([(weight, terms(part)) for weight, part in parts])


def is_placed(base: Distribution) -> bool:
    """Say whether outcomes of a continuous number are spread evenly by its quantiles, or by those of its components.

    >>> from torch.distributions import Gamma, Weibull
    >>> is_placed(ZeroInflated(Weibull(1.0, 1.5), 0.2)), is_placed(Gamma(1.0, 1.5))
    (True, False)
    """
    if isinstance(base, ZeroInflated):
        return is_placed(base.base_dist)
    if isinstance(base, MixtureSameFamily):
        return is_placed(base.component_distribution)
    return has_quantiles(base) and not is_discrete(base)


def _cloud(base: Distribution) -> tuple[Tensor, Tensor | None]:
    """Return outcomes (outcome, *batch, component) and the components' weights (*batch, component), with gradients.

    Which component an outcome comes from is not sampled: its weight says how often. None where there is but one.
    """
    if isinstance(base, ZeroInflated):
        outcomes, masses = _cloud(base.base_dist)
        share, rest = base.share.unsqueeze(-1), (1.0 - base.share).unsqueeze(-1)
        outcomes = torch.cat([outcomes, torch.zeros_like(outcomes[..., :1])], -1)
        return outcomes, torch.cat([rest if masses is None else rest * masses, share], -1)
    if isinstance(base, MixtureSameFamily):
        outcomes, masses = _cloud(base.component_distribution)
        weights = base.mixture_distribution.probs.unsqueeze(-1)
        return outcomes.flatten(-2), (weights if masses is None else weights * masses).flatten(-2)
    example = example_of(base)
    start = torch.rand(base.batch_shape, dtype=example.dtype, device=example.device)
    steps = torch.arange(PLACED_OUTCOMES, dtype=example.dtype, device=example.device) / PLACED_OUTCOMES
    turned = steps.reshape(-1, *(1,) * start.dim()) + start  # up to 2: the lattice begins anew at 1
    # Levels go up and down again, twice, so that there is no jump where the lattice begins anew.
    edge = torch.finfo(example.dtype).eps
    levels = (1.0 - ((2.0 * turned - 2.0).abs() - 1.0).abs()).clamp(edge, 1.0 - edge)
    return base.icdf(levels).unsqueeze(-1), None


def sampled(
    kernel: Kernel, distribution: Distribution, y: Tensor, mask: Tensor | None, n_outcomes: int, shifts: Shifts
) -> Terms:
    """Estimate both terms from outcomes of each draw; the j-th outcomes of different draws are paired."""
    if n_outcomes < 1:
        raise GPSError(f"n_outcomes must be at least 1, got {n_outcomes}")
    events = len(distribution.event_shape) + isinstance(base_distribution(distribution), Categorical)  # one-hot
    outcomes, differentiable = _outcomes(distribution, torch.Size([n_outcomes]))
    atoms, y = encode(distribution, outcomes), encode(distribution, y)
    if mask is not None and mask.dim() < y.dim():
        mask = mask.unsqueeze(-1)  # an unobserved category is an unobserved one-hot vector
    to_y = kernel(atoms, y, events, mask)  # (outcome, chain, obs, draw)
    fit = -2.0 * to_y.mean((0, 1 + DRAW_DIM))
    paired = [(weight, kernel(atoms, atoms.roll(-shift, 1 + DRAW_DIM), events, mask)) for shift, weight in shifts]
    pair = weighted_sum((weight, values.mean((0, 1 + DRAW_DIM))) for weight, values in paired)
    if not differentiable:
        # An outcome meets the draw ahead of it and the draw behind it, at every shift.
        both = ((w, v + v.roll(shift, 1 + DRAW_DIM)) for (shift, _), (w, v) in zip(shifts, paired, strict=True))
        rewards = -2.0 * to_y + weighted_sum(both)
        surrogate = _score_function(distribution, outcomes, rewards)
        fit = fit + (surrogate - surrogate.detach())
    return Terms(*torch.broadcast_tensors(fit, pair))


def _outcomes(distribution: Distribution, size: torch.Size) -> tuple[Tensor, bool]:
    """Sample outcomes by whatever the distribution has, and say whether gradients pass through them."""
    base = base_distribution(distribution)
    name, by_density = type(base).__name__, defines(base, "log_prob")
    if not (defines(base, "sample") or defines(base, "rsample")):
        has = "log_prob, but not for single numbers of a continuous support" if by_density else "neither"
        raise GPSError(
            f"no expectation for {name}: it needs rsample(sample_shape), or sample(sample_shape) and log_prob(value), "
            f"or, for numbers, log_prob alone, and it has {has}; or register closed forms with "
            "gpsuq.core.forms.register_kernel_mean and register_kernel_pair"
        )
    try:
        if distribution.has_rsample or not defines(base, "sample"):
            return distribution.rsample(size), True
        if not by_density:
            return _differentiable_sample(distribution, size), True
        if size[0] < 2:
            raise GPSError(
                f"{name} has no reparameterised sampler, so its gradient is estimated with a leave-one-out baseline, "
                "which needs n_outcomes >= 2"
            )
        with torch.no_grad():
            return distribution.sample(size), False
    except GPSError:
        raise
    except (RuntimeError, ValueError) as error:
        raise GPSError(
            f"sampling {name} failed ({error}): its parameters have diverged; lower the learning rate"
        ) from error


def _differentiable_sample(distribution: Distribution, size: torch.Size) -> Tensor:
    """Sample from a distribution without log_prob; an error where gradients do not pass through what it samples."""
    base, outcomes = base_distribution(distribution), distribution.sample(size)
    moves = any(isinstance(value, Tensor) and value.requires_grad for value in vars(base).values())
    if torch.is_grad_enabled() and moves and not outcomes.requires_grad:
        raise GPSError(
            f"{type(base).__name__} cannot be trained: its sample() is not a differentiable function of its "
            "parameters, and it has no log_prob; write sample() with torch operations on the parameters (as rsample "
            "would be), or add log_prob(value)"
        )
    return outcomes


def _score_function(distribution: Distribution, outcomes: Tensor, rewards: Tensor) -> Tensor:
    """Return a surrogate whose gradient is E[(reward - baseline) grad log f].

    The baseline is the mean reward of the draw's other outcomes, which are independent of this one given the draw, so
    that it adds no bias.
    """
    rewards = rewards.detach()
    baseline = (rewards.sum(0, keepdim=True) - rewards) / (len(rewards) - 1)
    return (distribution.log_prob(outcomes) * (rewards - baseline)).mean((0, 1 + DRAW_DIM))
