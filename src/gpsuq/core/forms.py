"""Closed forms of E k(y, Y) and E k(Y, Y'): their register, and laws composed of atoms and components that have them.

They are registered per kernel and distribution, for one coordinate::

    @register_kernel_mean(Gaussian, Normal)
    def _(kernel, y, p): ...          # E k(y, Y), Y ~ p

    @register_kernel_pair(Gaussian, Normal)
    def _(kernel, p, q): ...          # E k(Y, Y'), Y ~ p, Y' ~ q

``p`` and ``q`` map the distribution's argument names to tensors. A subclass uses the closed form of its nearest
registered base unless it redefines the kernel (``__call__``) or the law (``sample``, ``rsample``, ``log_prob``).
Kernels that factorise extend a closed form to independent coordinates by themselves.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple, TypeVar, cast

import torch
from torch import Tensor
from torch.distributions import Distribution, MixtureSameFamily, Normal

from gpsuq.core import normals
from gpsuq.core.censored import Censored
from gpsuq.core.distributions import example_of
from gpsuq.core.fused import Shifts, gaussian_normal_score
from gpsuq.core.kernels import Energy, Gaussian, Kernel, Mixture
from gpsuq.core.supports import compact
from gpsuq.core.terms import DRAW_DIM, Terms, base_distribution, multiplied, roll
from gpsuq.core.truncated import Truncated
from gpsuq.core.zero_inflated import ZeroInflated

Parameters = Mapping[str, Tensor]
KernelMean = Callable[[Any, Tensor, Parameters], Tensor]
KernelPair = Callable[[Any, Parameters, Parameters], Tensor]

Key = tuple[type[Kernel], type[Distribution]]
_Form = TypeVar("_Form", KernelMean, KernelPair)

_MEANS: dict[Key, KernelMean] = {}
_PAIRS: dict[Key, KernelPair] = {}


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
    >>> from gpsuq.core.expectations import kernel_score
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
    for law in _alike(type(distribution), "sample", "rsample", "log_prob"):
        if (forms := _forms(kernel, law)) is not None:
            return law, *forms
    return None


def _forms(kernel: Kernel, law: type[Distribution]) -> tuple[KernelMean, KernelPair] | None:
    """Find the closed forms of a distribution for the most specific type of the kernel."""
    keys = ((kind, law) for kind in _alike(type(kernel), "__call__"))
    return next(((_MEANS[key], _PAIRS[key]) for key in keys if key in _MEANS and key in _PAIRS), None)


def _alike(kind: type, *methods: str) -> Iterator[Any]:
    """Yield a class and those of its bases that have the same methods, the most specific first."""
    return (base for base in kind.__mro__ if all(getattr(base, m, 0) is getattr(kind, m) for m in methods))


@register_kernel_mean(Gaussian, Normal)
def _gaussian_normal_mean(kernel: Gaussian, y: Tensor, p: Parameters) -> Tensor:
    return normals.gaussian(kernel.value, y - p["loc"], (p["scale"] * kernel.value**-0.5).square())


@register_kernel_pair(Gaussian, Normal)
def _gaussian_normal_pair(kernel: Gaussian, p: Parameters, q: Parameters) -> Tensor:
    first, second = ((r["scale"] * kernel.value**-0.5).square() for r in (p, q))
    return normals.gaussian(kernel.value, p["loc"] - q["loc"], first + second)


@register_kernel_mean(Energy, Normal)
def _energy_normal_mean(kernel: Energy, y: Tensor, p: Parameters) -> Tensor:
    return normals.energy(y - p["loc"], p["scale"]) * kernel.rate


@register_kernel_pair(Energy, Normal)
def _energy_normal_pair(kernel: Energy, p: Parameters, q: Parameters) -> Tensor:
    return normals.energy(p["loc"] - q["loc"], (p["scale"].square() + q["scale"].square()).sqrt()) * kernel.rate


@register_kernel_mean(Gaussian, Truncated)
def _gaussian_truncated_mean(kernel: Gaussian, y: Tensor, p: Parameters) -> Tensor:
    return normals.bounded_gaussian(kernel.value, y, normals.Bounded(**p))


@register_kernel_pair(Gaussian, Truncated)
def _gaussian_truncated_pair(kernel: Gaussian, p: Parameters, q: Parameters) -> Tensor:
    mean = functools.partial(normals.bounded_gaussian, kernel.value)
    return normals.bounded_pair(mean, normals.Bounded(**p), normals.Bounded(**q))


@register_kernel_mean(Energy, Truncated)
def _energy_truncated_mean(kernel: Energy, y: Tensor, p: Parameters) -> Tensor:
    return normals.bounded_energy(y, normals.Bounded(**p)) * kernel.rate


@register_kernel_pair(Energy, Truncated)
def _energy_truncated_pair(kernel: Energy, p: Parameters, q: Parameters) -> Tensor:
    return normals.bounded_pair(normals.bounded_energy, normals.Bounded(**p), normals.Bounded(**q)) * kernel.rate


def fused(kernel: Kernel, distribution: Distribution, y: Tensor, mask: Tensor | None, shifts: Shifts) -> Terms | None:
    """Take the hand-written path where y is one Normal number and all kernels are Gaussian."""
    parts, weights = (kernel.kernels, kernel.weights) if isinstance(kernel, Mixture) else ((kernel,), (1.0,))
    forms = [_registered(part, distribution) for part in parts]
    if mask is not None or any(form is None or form[1] is not _gaussian_normal_mean for form in forms):
        return None
    bandwidths = [(cast(Gaussian, part).value, weight) for part, weight in zip(parts, weights, strict=True)]
    loc, scale = (compact(getattr(distribution, name)) for name in ("loc", "scale"))
    return Terms(*torch.broadcast_tensors(*gaussian_normal_score(loc, scale, y, bandwidths, shifts)))


def closed(kernel: Kernel, distribution: Distribution, y: Tensor, mask: Tensor | None, shifts: Shifts) -> Terms | None:
    """Use the registered closed forms, also for what is composed of atoms and components that have them."""
    base, coordinates = base_distribution(distribution), len(distribution.event_shape)
    if base.event_shape:
        return None
    if isinstance(base, Censored | Truncated | ZeroInflated | MixtureSameFamily):
        law = _composition(kernel, base)
        if law is None:
            return None
        return multiplied(_composed_mean(kernel, law, y), _composed_pair(kernel, law), coordinates, mask, shifts)
    found = _registered(kernel, base)
    if found is None:
        return None
    kind, mean, pair = found
    p = _arguments(kind, base)

    def paired(shift: int) -> Tensor:
        return pair(kernel, p, {name: roll(value, shift) for name, value in p.items()})

    return multiplied(mean(kernel, y, p), paired, coordinates, mask, shifts)


def takes_nodes(base: Distribution) -> bool:
    """Say whether two outcomes are integrated over nodes: exact, but ten times as long as placing outcomes evenly.

    Where some pairs of draws stand for all, that would be more exact than what it is added to.
    """
    if isinstance(base, MixtureSameFamily):
        return takes_nodes(base.component_distribution)
    return isinstance(base, Censored | Truncated) or (isinstance(base, ZeroInflated) and takes_nodes(base.base_dist))


def _arguments(kind: Any, base: Distribution) -> dict[str, Tensor]:
    """Return a distribution's arguments by name, none larger than it has to be."""
    return {name: compact(getattr(base, name)) for name in kind.arg_constraints if name in base.__dict__}


class _Law(NamedTuple):
    """The law of one coordinate, composed of atoms and of components with closed forms.

    Atoms with their probabilities, and components with their weights and arguments, lie along a last dimension.
    """

    atoms: Tensor
    masses: Tensor
    weights: Tensor
    arguments: dict[str, Tensor]
    mean: KernelMean
    pair: KernelPair


def _composition(kernel: Kernel, base: Distribution) -> _Law | None:
    """Take a distribution apart into atoms and components; None where these have no closed form, or atoms move."""
    if isinstance(base, ZeroInflated):
        law = _composition(kernel, base.base_dist)
        return None if law is None else _with_zeros(law, compact(base.share).unsqueeze(-1))
    if isinstance(base, MixtureSameFamily):
        law = _composition(kernel, base.component_distribution)
        return None if law is None else _mixed(law, base.mixture_distribution.probs.unsqueeze(-1))
    if isinstance(base, Censored | Truncated):
        return _bounded(kernel, base)
    found = _registered(kernel, base)
    if found is None:
        return None
    kind, mean, pair = found
    p = {name: value.unsqueeze(-1) for name, value in _arguments(kind, base).items()}
    one = _one(base)
    return _Law(one[..., :0], one[..., :0], one, p, mean, pair)


def _one(base: Distribution) -> Tensor:
    """Return the weight of a single component, with as many dimensions as its arguments have."""
    return example_of(base).new_ones((1,) * (len(base.batch_shape) + 1))


def _with_zeros(law: _Law, share: Tensor) -> _Law:
    """Add an atom at 0."""
    atoms = torch.cat(_alongside(law.atoms, share.new_zeros(1)), -1)
    masses = torch.cat(_alongside((1.0 - share) * law.masses, share), -1)
    return law._replace(atoms=atoms, masses=masses, weights=(1.0 - share) * law.weights)


def _alongside(*tensors: Tensor) -> list[Tensor]:
    """Expand all dimensions but the last to a common shape."""
    shape = torch.broadcast_shapes(*(tensor.shape[:-1] for tensor in tensors))
    return [tensor.expand(*shape, tensor.shape[-1]) for tensor in tensors]


def _mixed(law: _Law, probabilities: Tensor) -> _Law:
    """Mix laws that lie along the last dimension of a batch, with probabilities (*batch, mixed, 1)."""

    def flat(value: Tensor) -> Tensor:
        width = value.shape[-1]
        return value.expand(*value.shape[:-2], probabilities.shape[-2], width).flatten(-2)

    weights, masses = probabilities * law.weights, probabilities * law.masses
    arguments = {name: flat(value) for name, value in law.arguments.items()}
    return law._replace(atoms=flat(law.atoms), masses=flat(masses), weights=flat(weights), arguments=arguments)


def _bounded(kernel: Kernel, base: Censored | Truncated) -> _Law | None:
    """Take a Normal between bounds as what it is inside, and what is piled up at them where it is censored."""
    inner, forms = _registered(kernel, base.base_dist), _forms(kernel, Truncated)
    if inner is None or inner[0] is not Normal or forms is None:
        return None
    names = {"loc": base.base_dist, "scale": base.base_dist, "lower": base, "upper": base}
    p = {name: compact(getattr(owner, name)).unsqueeze(-1) for name, owner in names.items()}
    if isinstance(base, Truncated):
        one = _one(base)
        return _Law(one[..., :0], one[..., :0], one, p, *forms)
    law = normals.Bounded(**p)
    below, above = law.beyond()
    ends = [(end, mass) for end, mass in ((law.lower, below), (law.upper, above)) if bool(end.isfinite().any())]
    atoms = torch.cat(_alongside(*(torch.where(end.isfinite(), end, 0.0) for end, _ in ends)), -1)
    if atoms.shape[DRAW_DIM] > 1:
        return None
    return _Law(atoms, torch.cat(_alongside(*(mass for _, mass in ends)), -1), law.mass(), p, *forms)


def _composed_mean(kernel: Kernel, law: _Law, y: Tensor) -> Tensor:
    """E k(y, Y): every atom and every component has its share."""
    point = y.unsqueeze(-1)
    total = _last_sum(law.weights * law.mean(kernel, point, law.arguments))
    return total + (law.masses * kernel(point, law.atoms)).sum(-1) if law.atoms.shape[-1] else total


def _composed_pair(kernel: Kernel, law: _Law) -> Callable[[int], Tensor]:
    """E k(Y, Y') of draws a shift apart: atoms with atoms, atoms with components, components with components."""
    first = {name: value.unsqueeze(-1) for name, value in law.arguments.items()}
    second = {name: value.unsqueeze(-2) for name, value in law.arguments.items()}
    if law.atoms.shape[-1]:
        gram = kernel(law.atoms.unsqueeze(-1), law.atoms.unsqueeze(-2))
        among = (gram * law.masses.unsqueeze(-2)).sum(-1)
        inside = _last_sum(law.weights.unsqueeze(-2) * law.mean(kernel, law.atoms.unsqueeze(-1), second))

    def paired(shift: int) -> Tensor:
        other = {name: roll(value, shift) for name, value in second.items()}
        both = law.weights.unsqueeze(-1) * roll(law.weights, shift).unsqueeze(-2)
        total = _last_sum(_last_sum(both * law.pair(kernel, first, other)))
        if law.atoms.shape[-1]:
            ours, theirs = law.masses, roll(law.masses, shift)
            total = total + (ours * roll(among + inside, shift) + theirs * inside).sum(-1)
        return total

    return paired


def _last_sum(values: Tensor) -> Tensor:
    """Sum over the last dimension, at no cost where it has one entry."""
    return values.squeeze(-1) if values.shape[-1] == 1 else values.sum(-1)
