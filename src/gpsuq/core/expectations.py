r"""The two terms of the kernel score, exact where a closed form exists and by Monte Carlo otherwise.

For an observation y and draws :math:`\theta_1, \dots, \theta_M` the kernel score is estimated by

.. math:: -\frac{2}{M} \sum_m E\,k(y, Y_m) + \frac{1}{|P|} \sum_{(m, m') \in P} E\,k(Y_m, Y_{m'}),
          \qquad Y_m \sim f(\cdot \mid \theta_m),

where P holds pairs of *different* draws only. Pairing two outcomes of one draw would estimate the score of each
:math:`f(\cdot \mid \theta)` by itself, whose minimiser is a point mass.

Shapes: a distribution has batch shape ``(chain, observation, draw)``, the middle one being 1 where all observations
share it, and event shape ``event``; observations (and masks) have shape ``(1, observation, 1, *event)``.

Closed forms are registered per kernel and distribution, for one coordinate::

    @register_kernel_mean(Gaussian, Normal)
    def _(kernel, y, p): ...          # E k(y, Y), Y ~ p

    @register_kernel_pair(Gaussian, Normal)
    def _(kernel, p, q): ...          # E k(Y, Y'), Y ~ p, Y' ~ q

``p`` and ``q`` map the distribution's argument names to tensors. A subclass uses the closed form of its nearest
registered base unless it redefines the kernel (``__call__``) or the law (``sample``, ``rsample``, ``log_prob``).
Kernels that factorise extend a closed form to independent coordinates by themselves. Distributions on a finite or
truncatable support need no registration.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple, TypeVar, cast

import torch
from torch import Tensor
from torch.distributions import Binomial, Categorical, Distribution, Independent, Normal, OneHotCategorical, constraints

from gpsuq.core.fused import Shifts, gaussian_normal_score
from gpsuq.core.kernels import Energy, Gaussian, Kernel, Mixture
from gpsuq.errors import GPSError

Parameters = Mapping[str, Tensor]
KernelMean = Callable[[Any, Tensor, Parameters], Tensor]
KernelPair = Callable[[Any, Parameters, Parameters], Tensor]

BATCH_DIMS = 3  # chain, observation, draw
DRAW_DIM = 2

DEFAULT_OUTCOMES = 5
"""J, the outcomes sampled per draw where nothing better is known (the paper's choice)."""

TAIL_MASS = 1e-5
"""Largest probability that truncating an infinite support may leave out."""

MAX_SUPPORT = 1024
"""Largest support that is enumerated; beyond it outcomes are sampled."""

MAX_TABLE = 2**23
"""Most probabilities in one table (32 MB in float32); beyond it outcomes are sampled."""

_TINY = 1e-37

Key = tuple[type[Kernel], type[Distribution]]
_Form = TypeVar("_Form", KernelMean, KernelPair)

_MEANS: dict[Key, KernelMean] = {}
_PAIRS: dict[Key, KernelPair] = {}


class Terms(NamedTuple):
    """Both terms of the loss of each observation, (chain, observation); their sum is what training makes small.

    Attributes
    ----------
    fit
        -2 E k(y, Y), how close outcomes are to the observation; the only one that sees y.
    pair
        E k(Y, Y') of two different draws, how close outcomes are to each other.

    Examples
    --------
    >>> import torch
    >>> Terms(fit=torch.tensor([[-1.5, -0.5]]), pair=torch.tensor([[0.75, 0.75]])).score  # one chain, two observations
    tensor([[-0.7500,  0.2500]])
    """

    fit: Tensor
    pair: Tensor

    @property
    def score(self) -> Tensor:
        """The kernel score, fit + pair."""
        return self.fit + self.pair


def register_kernel_mean(kernel: type[Kernel], distribution: type[Distribution]) -> Callable[[KernelMean], KernelMean]:
    r"""Register E k(y, Y) for a kernel and a distribution of one coordinate.

    It is used once :func:`register_kernel_pair` has been called for the same two types.

    A cosine has a closed form with a Normal variable, :math:`E \cos(y - Y) = \cos(y - \mu) e^{-\sigma^2 / 2}`:

    >>> import torch
    >>> from torch.distributions import Normal
    >>> from gpsuq.core.kernels import Kernel
    >>> class Cosine(Kernel):
    ...     def __call__(self, a, b, event_dims=0, mask=None):
    ...         return torch.cos(a - b)
    >>> @register_kernel_mean(Cosine, Normal)
    ... def cosine_mean(kernel, y, p):  # p has the arguments of the distribution by name
    ...     return torch.cos(y - p["loc"]) * torch.exp(-0.5 * p["scale"].square())
    """
    return _registration(_MEANS, kernel, distribution)


def register_kernel_pair(kernel: type[Kernel], distribution: type[Distribution]) -> Callable[[KernelPair], KernelPair]:
    """Register E k(Y, Y') for a kernel and two distributions of one type and one coordinate.

    With both expectations the score is exact, and nothing is sampled:

    >>> import torch
    >>> from torch.distributions import Normal
    >>> from gpsuq.core.kernels import Kernel
    >>> Cosine = type("Cosine", (Kernel,), {"__call__": lambda self, a, b, event_dims=0, mask=None: torch.cos(a - b)})
    >>> @register_kernel_mean(Cosine, Normal)
    ... def cosine_mean(kernel, y, p):
    ...     return torch.cos(y - p["loc"]) * torch.exp(-0.5 * p["scale"].square())
    >>> @register_kernel_pair(Cosine, Normal)
    ... def cosine_pair(kernel, p, q):
    ...     return torch.cos(p["loc"] - q["loc"]) * torch.exp(-0.5 * (p["scale"].square() + q["scale"].square()))
    >>> predictive = Normal(torch.zeros(1, 1, 2), 1.0)  # one chain, two draws for all observations
    >>> terms = kernel_score(Cosine(), predictive, torch.zeros(1, 1, 1))
    >>> terms.fit, terms.pair  # -2 exp(-1/2) and exp(-1)
    (tensor([[-1.2131]]), tensor([[0.3679]]))
    """
    return _registration(_PAIRS, kernel, distribution)


def _registration(
    registry: dict[Key, _Form], kernel: type[Kernel], distribution: type[Distribution]
) -> Callable[[_Form], _Form]:
    def decorator(function: _Form) -> _Form:
        registry[kernel, distribution] = function
        return function

    return decorator


def _registered(kernel: Kernel, distribution: Distribution) -> tuple[Any, KernelMean, KernelPair] | None:
    """Find the closed forms of the most specific types, the kernel's first, and the distribution that they are of."""
    for kind in _alike(type(kernel), "__call__"):
        for law in _alike(type(distribution), "sample", "rsample", "log_prob"):
            if (kind, law) in _MEANS and (kind, law) in _PAIRS:
                return law, _MEANS[kind, law], _PAIRS[kind, law]
    return None


def _alike(kind: type, *methods: str) -> Iterator[Any]:
    """Yield a class and those of its bases that have the same methods, the most specific first."""
    return (base for base in kind.__mro__ if all(getattr(base, m, 0) is getattr(kind, m) for m in methods))


def _gaussian_normal(bandwidth: float, difference: Tensor, variance: Tensor) -> Tensor:
    r"""E exp(-(d + e)^2 / b) for e ~ N(0, v): :math:`\sqrt{b/(b+2v)} \exp(-d^2/(b+2v))`.

    ``variance`` is in units of the bandwidth, v / b: squares of inverse variances would overflow where y is tiny.
    """
    shrink = (variance + 0.5).rsqrt() * math.sqrt(0.5)
    return torch.exp((difference * (shrink * bandwidth**-0.5)).square().neg()) * shrink


@register_kernel_mean(Gaussian, Normal)
def _gaussian_normal_mean(kernel: Gaussian, y: Tensor, p: Parameters) -> Tensor:
    return _gaussian_normal(kernel.value, y - p["loc"], (p["scale"] * kernel.value**-0.5).square())


@register_kernel_pair(Gaussian, Normal)
def _gaussian_normal_pair(kernel: Gaussian, p: Parameters, q: Parameters) -> Tensor:
    first, second = ((r["scale"] * kernel.value**-0.5).square() for r in (p, q))
    return _gaussian_normal(kernel.value, p["loc"] - q["loc"], first + second)


def _energy_normal(difference: Tensor, scale: Tensor) -> Tensor:
    r"""-E|d + e| for e ~ N(0, s^2): :math:`-s\,(2\varphi(a) + a(2\Phi(a) - 1))` with a = d / s."""
    a = difference / scale
    density = torch.exp(-0.5 * a.square()) * math.sqrt(2.0 / math.pi)
    return -scale * (density + a * torch.erf(a * math.sqrt(0.5)))


@register_kernel_mean(Energy, Normal)
def _energy_normal_mean(kernel: Energy, y: Tensor, p: Parameters) -> Tensor:
    return _energy_normal(y - p["loc"], p["scale"]) * kernel.rate


@register_kernel_pair(Energy, Normal)
def _energy_normal_pair(kernel: Energy, p: Parameters, q: Parameters) -> Tensor:
    return _energy_normal(p["loc"] - q["loc"], (p["scale"].square() + q["scale"].square()).sqrt()) * kernel.rate


def kernel_score(
    kernel: Kernel,
    distribution: Distribution,
    y: Tensor,
    *,
    mask: Tensor | None = None,
    n_outcomes: int | None = None,
    n_pairs: int | None = None,
) -> Terms:
    """Estimate both terms of the kernel score of each observation.

    Parameters
    ----------
    n_outcomes
        J, the outcomes sampled for each draw. None takes the exact expectation where there is one and
        ``DEFAULT_OUTCOMES`` samples where there is none.
    n_pairs
        How many other draws each draw is paired with; None pairs all.
    """
    if n_outcomes is None:
        exact = exact_score(kernel, distribution, y, mask=mask, n_pairs=n_pairs)
        if exact is not None:
            return exact
    shifts = draw_shifts(distribution.batch_shape[DRAW_DIM], n_pairs)
    return _sampled(kernel, distribution, y, mask, DEFAULT_OUTCOMES if n_outcomes is None else n_outcomes, shifts)


def exact_score(
    kernel: Kernel, distribution: Distribution, y: Tensor, *, mask: Tensor | None = None, n_pairs: int | None = None
) -> Terms | None:
    """Return both terms of the kernel score with outcomes integrated out, or None where that cannot be done."""
    shifts = draw_shifts(distribution.batch_shape[DRAW_DIM], n_pairs)
    for method in (_fused, _summed, _closed):
        terms = method(kernel, distribution, y, mask, shifts)
        if terms is None and isinstance(kernel, Mixture):
            parts = [method(part, distribution, y, mask, shifts) for part in kernel.kernels]
            if None not in parts:
                terms = Terms(
                    *(_weighted_sum(zip(kernel.weights, term, strict=True)) for term in zip(*parts, strict=True))
                )
        if terms is not None:
            return terms
    return None


def draw_shifts(n_draws: int, n_pairs: int | None) -> Shifts:
    """Return cyclic shifts that pair each draw with others, with weights that sum to 1.

    Shifts 1 to M // 2 reach every unordered pair of M draws; for even M the last one reaches its pairs twice.
    """
    if n_draws < 2:
        raise GPSError(f"n_draws must be at least 2, got {n_draws}: the score compares different draws")
    if n_pairs is not None and n_pairs < 1:
        raise GPSError(f"n_pairs must be at least 1, got {n_pairs}")
    half = n_draws // 2
    weights = [1.0] * min(half, n_pairs or half)
    if len(weights) == half and n_draws % 2 == 0:
        weights[-1] = 0.5
    total = sum(weights)
    return [(shift, weight / total) for shift, weight in enumerate(weights, start=1)]


def base_distribution(distribution: Distribution) -> Distribution:
    """Return the distribution of a single coordinate: ``Independent`` is stripped."""
    while isinstance(distribution, Independent):
        distribution = distribution.base_dist
    return distribution


def _compact(tensor: Tensor) -> Tensor:
    """Undo broadcasting: a dimension that only repeats one value (stride 0) becomes 1 wide again.

    ``torch.distributions`` expands all parameters to one shape; the scale of a linear model then looks as large as
    its mean, and every operation on it would cost as much.
    """
    for dim, (size, stride) in enumerate(zip(tensor.shape, tensor.stride(), strict=True)):
        if size > 1 and stride == 0:
            tensor = tensor.narrow(dim, 0, 1)
    return tensor


def _roll(tensor: Tensor, shift: int) -> Tensor:
    """Pair draw m with draw m + shift; a parameter that is the same for all draws stays as it is."""
    return tensor if tensor.shape[DRAW_DIM] == 1 else tensor.roll(-shift, DRAW_DIM)


def _product(values: Tensor, events: int, mask: Tensor | None) -> Tensor:
    """Multiply over event dimensions; a coordinate that was not observed is a factor of 1."""
    if events == 0:
        return values
    logs = values.clamp_min(_TINY).log()
    if mask is not None:
        logs = torch.where(mask, logs, torch.zeros_like(logs))
    return logs.flatten(-events).sum(-1).exp()


def _weighted_sum(parts: Iterable[tuple[float, Tensor]]) -> Tensor:
    """Sum tensors with weights; a weight of 1 costs nothing."""
    return functools.reduce(torch.add, (part if weight == 1.0 else weight * part for weight, part in parts))


def _fused(kernel: Kernel, distribution: Distribution, y: Tensor, mask: Tensor | None, shifts: Shifts) -> Terms | None:
    """Take the hand-written path where y is one Normal number and all kernels are Gaussian."""
    parts, weights = (kernel.kernels, kernel.weights) if isinstance(kernel, Mixture) else ((kernel,), (1.0,))
    forms = [_registered(part, distribution) for part in parts]
    if mask is not None or any(form is None or form[1] is not _gaussian_normal_mean for form in forms):
        return None
    bandwidths = [(cast(Gaussian, part).value, weight) for part, weight in zip(parts, weights, strict=True)]
    loc, scale = (_compact(getattr(distribution, name)) for name in ("loc", "scale"))
    return Terms(*torch.broadcast_tensors(*gaussian_normal_score(loc, scale, y, bandwidths, shifts)))


def _closed(kernel: Kernel, distribution: Distribution, y: Tensor, mask: Tensor | None, shifts: Shifts) -> Terms | None:
    """Use the registered closed forms."""
    base, events = base_distribution(distribution), len(distribution.event_shape)
    found = _registered(kernel, base)
    if found is None or (events > 0 and not kernel.factorises) or isinstance(base, Categorical) or base.event_shape:
        return None
    kind, mean, pair = found
    p = {name: _compact(getattr(base, name)) for name in kind.arg_constraints if name in base.__dict__}

    def paired(shift: int) -> Tensor:
        return pair(kernel, p, {name: _roll(value, shift) for name, value in p.items()})

    return _multiplied(mean(kernel, y, p), paired, events, mask, shifts)


def _summed(kernel: Kernel, distribution: Distribution, y: Tensor, mask: Tensor | None, shifts: Shifts) -> Terms | None:
    """Sum over a finite support: probabilities against the Gram matrix, linear in the number of draws."""
    base = base_distribution(distribution)
    # Coordinates that are independent, each with the whole support; a one-hot vector is one of them.
    coordinates = len(distribution.event_shape) - len(base.event_shape)
    if coordinates > 0 and not kernel.factorises:
        return None
    table = _support(base)
    if table is None:
        return None
    points, probabilities = table
    atom_dims = points.dim() - 1
    gram = kernel(points[:, None], points[None, :], atom_dims)
    to_points = kernel(encode(base, y).unsqueeze(-1 - atom_dims), points, atom_dims)  # (1, n, 1, *coordinates, K)
    if coordinates == 0:
        total = probabilities.sum(DRAW_DIM)  # (chain, obs, K)
        n_draws = distribution.batch_shape[DRAW_DIM]
        fit = -2.0 / n_draws * (total * to_points.squeeze(DRAW_DIM)).sum(-1)
        own = (probabilities * (probabilities @ gram)).sum((DRAW_DIM, -1))
        pair = ((total * (total @ gram)).sum(-1) - own) / (n_draws * (n_draws - 1))
        return Terms(*torch.broadcast_tensors(fit, pair))
    to_y, smoothed = (probabilities * to_points).sum(-1), probabilities @ gram

    def paired(shift: int) -> Tensor:
        return (smoothed * _roll(probabilities, shift)).sum(-1)

    return _multiplied(to_y, paired, coordinates, mask, shifts)


def _multiplied(
    to_y: Tensor, paired: Callable[[int], Tensor], events: int, mask: Tensor | None, shifts: Shifts
) -> Terms:
    """Multiply E k(y, Y) and, for every shift, E k(Y, Y') over coordinates, and average over draws."""

    def average(values: Tensor) -> Tensor:
        values = _product(values, events, mask)
        return values.squeeze(DRAW_DIM) if values.shape[DRAW_DIM] == 1 else values.mean(DRAW_DIM)

    fit, pair = -2.0 * average(to_y), _weighted_sum((weight, average(paired(shift))) for shift, weight in shifts)
    return Terms(*torch.broadcast_tensors(fit, pair))


def encode(distribution: Distribution, y: Tensor) -> Tensor:
    """Return observations in the form that kernels see: a category becomes a one-hot vector of floats."""
    base = base_distribution(distribution)
    if not isinstance(base, Categorical):
        return y
    return torch.nn.functional.one_hot(y.long(), base.param_shape[-1]).to(base.probs.dtype)


def predictive_mean(distribution: Distribution) -> Tensor:
    """Return E[Y given theta, x] of every draw; class probabilities where Y is a category."""
    base = base_distribution(distribution)
    return base.probs if isinstance(base, Categorical) else distribution.mean


def _support(base: Distribution) -> tuple[Tensor, Tensor] | None:
    """Return the support's points ``(K, *atom)`` and their probabilities ``(chain, obs, draw, *event, K)``, or None."""
    if isinstance(base, Categorical | OneHotCategorical):
        return torch.eye(base.param_shape[-1], dtype=base.probs.dtype, device=base.probs.device), base.probs
    if base.event_shape or not getattr(base.support, "is_discrete", False):
        return None
    if isinstance(base, Binomial):
        return _enumerate(base, int(base.total_count.max()) + 1, base.total_count)
    if base.has_enumerate_support:
        values = base.enumerate_support(expand=False).flatten()
        return values, _pmf(base, values)
    return _truncated(base) if base.support is constraints.nonnegative_integer else None


def _pmf(base: Distribution, values: Tensor, largest: Tensor | None = None) -> Tensor:
    """Return the probabilities of values (K,), (*batch, K); they are 0 above ``largest``."""
    shaped = values.reshape(-1, *(1,) * len(base.batch_shape))
    if largest is None:
        return base.log_prob(shaped).exp().movedim(0, -1)
    return (base.log_prob(torch.minimum(shaped, largest)).exp() * (shaped <= largest)).movedim(0, -1)


def _enumerate(base: Distribution, size: int, largest: Tensor | None = None) -> tuple[Tensor, Tensor] | None:
    """Enumerate 0..size-1, with probability 0 above ``largest``; None where that would take too much memory."""
    if size > MAX_SUPPORT or size * base.batch_shape.numel() > MAX_TABLE:
        return None
    values = torch.arange(size, dtype=base.mean.dtype, device=base.mean.device)
    return values, _pmf(base, values, largest)


def _truncated(base: Distribution) -> tuple[Tensor, Tensor] | None:
    """Enumerate 0..K-1 with K doubled until at most ``TAIL_MASS`` is left out; None where that takes too many."""
    with torch.no_grad():
        tops = base.mean + 6.0 * base.stddev
        tops = tops[torch.isfinite(tops)]  # a chain that diverged must not stop the others
    size = int(tops.max()) + 12 if tops.numel() else MAX_SUPPORT + 1
    while (table := _enumerate(base, size)) is not None:
        if not bool((1.0 - table[1].detach().sum(-1) > TAIL_MASS).any()):
            return table
        size *= 2
    return None


def _sampled(
    kernel: Kernel, distribution: Distribution, y: Tensor, mask: Tensor | None, n_outcomes: int, shifts: Shifts
) -> Terms:
    """Estimate both terms from outcomes of each draw; the j-th outcomes of different draws are paired."""
    if n_outcomes < 1:
        raise GPSError(f"n_outcomes must be at least 1, got {n_outcomes}")
    events = len(distribution.event_shape) + isinstance(base_distribution(distribution), Categorical)  # one-hot
    reparameterised, size = distribution.has_rsample, torch.Size([n_outcomes])
    outcomes = distribution.rsample(size) if reparameterised else _sample_without_gradient(distribution, size)
    atoms, y = encode(distribution, outcomes), encode(distribution, y)
    if mask is not None and mask.dim() < y.dim():
        mask = mask.unsqueeze(-1)  # an unobserved category is an unobserved one-hot vector
    to_y = kernel(atoms, y, events, mask)  # (outcome, chain, obs, draw)
    fit = -2.0 * to_y.mean((0, 1 + DRAW_DIM))
    paired = [(weight, kernel(atoms, atoms.roll(-shift, 1 + DRAW_DIM), events, mask)) for shift, weight in shifts]
    pair = _weighted_sum((weight, values.mean((0, 1 + DRAW_DIM))) for weight, values in paired)
    if not reparameterised:
        # An outcome meets the draw ahead of it and the draw behind it, at every shift.
        both = ((w, v + v.roll(shift, 1 + DRAW_DIM)) for (shift, _), (w, v) in zip(shifts, paired, strict=True))
        rewards = -2.0 * to_y + _weighted_sum(both)
        surrogate = _score_function(distribution, outcomes, rewards)
        fit = fit + (surrogate - surrogate.detach())
    return Terms(*torch.broadcast_tensors(fit, pair))


def _sample_without_gradient(distribution: Distribution, size: torch.Size) -> Tensor:
    name = type(base_distribution(distribution)).__name__
    if size[0] < 2:
        raise GPSError(
            f"{name} has no reparameterised sampler, so its gradient is estimated with a leave-one-out baseline, which "
            "needs n_outcomes >= 2"
        )
    try:
        with torch.no_grad():
            return distribution.sample(size)
    except NotImplementedError as error:
        raise GPSError(
            f"no expectation for {name}: it has no registered closed form, no finite support and no sampler; "
            "register one with gpsuq.core.expectations.register_kernel_mean and register_kernel_pair"
        ) from error
    except (RuntimeError, ValueError) as error:
        raise GPSError(
            f"sampling {name} failed ({error}): its parameters have diverged; lower the learning rate"
        ) from error


def _score_function(distribution: Distribution, outcomes: Tensor, rewards: Tensor) -> Tensor:
    """Return a surrogate whose gradient is E[(reward - baseline) grad log f].

    The baseline is the mean reward of the draw's other outcomes, which are independent of this one given the draw, so
    that it adds no bias.
    """
    rewards = rewards.detach()
    baseline = (rewards.sum(0, keepdim=True) - rewards) / (len(rewards) - 1)
    return (distribution.log_prob(outcomes) * (rewards - baseline)).mean((0, 1 + DRAW_DIM))
