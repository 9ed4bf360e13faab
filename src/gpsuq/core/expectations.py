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
truncatable support need no registration, nor do mixtures, censored and zero-inflated distributions of what has closed
forms. What has none is sampled: evenly where it has quantiles, by ``rsample``, or by ``sample`` and ``log_prob``; a
density alone is summed over a grid.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar, cast

import torch
from torch import Tensor
from torch.distributions import (
    Bernoulli,
    Categorical,
    Distribution,
    Independent,
    MixtureSameFamily,
    Normal,
    OneHotCategorical,
)

from gpsuq.core import normals
from gpsuq.core.distributions import (
    Censored,
    Truncated,
    ZeroInflated,
    defines,
    example_of,
    has_quantiles,
    is_discrete,
)
from gpsuq.core.fused import Shifts, gaussian_normal_score, product, sum_of_products
from gpsuq.core.kernels import Energy, Gaussian, Kernel, Mixture
from gpsuq.core.supports import (
    Table,
    class_probabilities,
    compact,
    grid_table,
    halves,
    has_density_alone,
    poisson_sums,
    support_table,
)
from gpsuq.errors import GPSError

Parameters = Mapping[str, Tensor]
KernelMean = Callable[[Any, Tensor, Parameters], Tensor]
KernelPair = Callable[[Any, Parameters, Parameters], Tensor]

BATCH_DIMS = 3  # chain, observation, draw
DRAW_DIM = 2

DEFAULT_OUTCOMES = 5
"""J, the outcomes sampled per draw where nothing better is known (the paper's choice)."""

PLACED_OUTCOMES, _STRIDE = 8, 3
"""Outcomes placed per draw where there are quantiles, and the step of the lattice on which those of two draws meet."""

MOST_COORDINATES = 64
"""Binary or categorical coordinates of one observation that are compared at a time."""

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
    shifts = draw_shifts(distribution.batch_shape[DRAW_DIM], n_pairs)
    if n_outcomes is None:
        exact = exact_score(kernel, distribution, y, mask=mask, n_pairs=n_pairs)
        if exact is not None:
            return exact
    if has_density_alone(base_distribution(distribution)) and _one_by_one(kernel, distribution):
        base = base_distribution(distribution)
        table = grid_table(base, y)
        if _coordinates(distribution) == 0:
            return _enumerated(kernel, base, table, y, all_pairs=n_pairs is None)
        return _summed(kernel, distribution, table, y, mask, shifts)
    if n_outcomes is None:
        placed = _placed(kernel, distribution, y, mask, shifts)
        if placed is not None:
            return placed
    return _sampled(kernel, distribution, y, mask, DEFAULT_OUTCOMES if n_outcomes is None else n_outcomes, shifts)


def exact_score(
    kernel: Kernel, distribution: Distribution, y: Tensor, *, mask: Tensor | None = None, n_pairs: int | None = None
) -> Terms | None:
    """Return both terms of the kernel score with outcomes integrated out, or None where that cannot be done."""
    shifts = draw_shifts(distribution.batch_shape[DRAW_DIM], n_pairs)
    if (terms := _fused(kernel, distribution, y, mask, shifts)) is not None:
        return terms
    if not _one_by_one(kernel, distribution):
        return None
    if (terms := _matched(kernel, distribution, y, mask, shifts)) is not None:
        return terms
    base = base_distribution(distribution)
    if n_pairs is not None and _coordinates(distribution) == 0 and (summed := poisson_sums(base, y)) is not None:
        return _of_halves(kernel, base, *summed, y, distribution.batch_shape[DRAW_DIM])
    table = support_table(base, y)
    if table is not None and _coordinates(distribution) == 0:
        return _enumerated(kernel, base, table, y, all_pairs=n_pairs is None)
    if table is not None:
        return _summed(kernel, distribution, table, y, mask, shifts)
    if n_pairs is not None and _takes_nodes(base):
        return None
    parts = []
    for weight, part in _weighed(kernel):
        if (terms := _closed(part, distribution, y, mask, shifts)) is None:
            return None
        parts.append((weight, terms))
    return _added(parts)


def _takes_nodes(base: Distribution) -> bool:
    """Say whether two outcomes are integrated over nodes: exact, but ten times as long as placing outcomes evenly.

    Where some pairs of draws stand for all, that would be more exact than what it is added to.
    """
    if isinstance(base, MixtureSameFamily):
        return _takes_nodes(base.component_distribution)
    return isinstance(base, Censored | Truncated) or (isinstance(base, ZeroInflated) and _takes_nodes(base.base_dist))


def _weighed(kernel: Kernel, weight: float = 1.0) -> list[tuple[float, Kernel]]:
    """Return the kernels that a mixture consists of, with their weights; any other kernel by itself."""
    if not isinstance(kernel, Mixture):
        return [(weight, kernel)]
    parts = zip(kernel.weights, kernel.kernels, strict=True)
    return [inner for own, part in parts for inner in _weighed(part, weight * own)]


def _added(parts: Sequence[tuple[float, Terms]]) -> Terms:
    """Add up the terms of several kernels."""
    return Terms(*(_weighted_sum((weight, terms[term]) for weight, terms in parts) for term in (0, 1)))


def _coordinates(distribution: Distribution) -> int:
    """Return how many dimensions hold independent coordinates; a one-hot vector is one coordinate."""
    return len(distribution.event_shape) - len(base_distribution(distribution).event_shape)


def _one_by_one(kernel: Kernel, distribution: Distribution) -> bool:
    """Say whether the kernel is integrated one coordinate at a time: there is only one, or it is a product of them."""
    return _coordinates(distribution) == 0 or all(part.factorises for _, part in _weighed(kernel))


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


def _roll(tensor: Tensor, shift: int) -> Tensor:
    """Pair draw m with draw m + shift; a parameter that is the same for all draws stays as it is."""
    return tensor if tensor.shape[DRAW_DIM] == 1 else tensor.roll(-shift, DRAW_DIM)


def _multiply(values: Tensor, coordinates: int, mask: Tensor | None) -> Tensor:
    """Multiply over coordinates; one that was not observed is a factor of 1."""
    if coordinates == 0:
        return values
    if mask is not None:
        values = torch.where(mask, values, 1.0)
    return product(values.flatten(-coordinates))


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
    loc, scale = (compact(getattr(distribution, name)) for name in ("loc", "scale"))
    return Terms(*torch.broadcast_tensors(*gaussian_normal_score(loc, scale, y, bandwidths, shifts)))


def _closed(kernel: Kernel, distribution: Distribution, y: Tensor, mask: Tensor | None, shifts: Shifts) -> Terms | None:
    """Use the registered closed forms, also for what is composed of atoms and components that have them."""
    base, coordinates = base_distribution(distribution), len(distribution.event_shape)
    if base.event_shape:
        return None
    if isinstance(base, Censored | Truncated | ZeroInflated | MixtureSameFamily):
        law = _composition(kernel, base)
        if law is None:
            return None
        return _multiplied(_composed_mean(kernel, law, y), _composed_pair(kernel, law), coordinates, mask, shifts)
    found = _registered(kernel, base)
    if found is None:
        return None
    kind, mean, pair = found
    p = _arguments(kind, base)

    def paired(shift: int) -> Tensor:
        return pair(kernel, p, {name: _roll(value, shift) for name, value in p.items()})

    return _multiplied(mean(kernel, y, p), paired, coordinates, mask, shifts)


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
        other = {name: _roll(value, shift) for name, value in second.items()}
        both = law.weights.unsqueeze(-1) * _roll(law.weights, shift).unsqueeze(-2)
        total = _last_sum(_last_sum(both * law.pair(kernel, first, other)))
        if law.atoms.shape[-1]:
            ours, theirs = law.masses, _roll(law.masses, shift)
            total = total + (ours * _roll(among + inside, shift) + theirs * inside).sum(-1)
        return total

    return paired


def _last_sum(values: Tensor) -> Tensor:
    """Sum over the last dimension, at no cost where it has one entry."""
    return values.squeeze(-1) if values.shape[-1] == 1 else values.sum(-1)


def _enumerated(kernel: Kernel, base: Distribution, table: Table, y: Tensor, *, all_pairs: bool) -> Terms:
    """Sum over a finite support: probabilities (chain, obs, draw, K) against the Gram matrix, linear in the draws.

    All pairs of different draws are all pairs less each draw with itself. Where some pairs do, every draw of one half
    meets every draw of the other.
    """
    points, probabilities = table
    n_draws = probabilities.shape[DRAW_DIM]
    if not all_pairs:
        return _of_halves(kernel, base, points, halves(n_draws, probabilities) @ probabilities, y, n_draws)
    gram, to_points = _kernel_of_points(kernel, base, points, y)
    total, own = probabilities.sum(DRAW_DIM), probabilities * (probabilities @ gram)
    pair = ((total * (total @ gram)).sum(-1) - own.sum((DRAW_DIM, -1))) / (n_draws * (n_draws - 1))
    return Terms(*torch.broadcast_tensors(-2.0 / n_draws * (total * to_points).sum(-1), pair))


def _of_halves(kernel: Kernel, base: Distribution, points: Tensor, sums: Tensor, y: Tensor, n_draws: int) -> Terms:
    r"""Return the terms from probabilities that were summed over each half of the draws, (chain, obs, half, K).

    The second one is :math:`\bar p_1' K \bar p_2`: single draws need not meet the Gram matrix.
    """
    gram, to_points = _kernel_of_points(kernel, base, points, y)
    fit = -2.0 / n_draws * (sums.sum(DRAW_DIM) * to_points).sum(-1)
    pair = ((sums[:, :, 0] @ gram) * sums[:, :, 1]).sum(-1) / (n_draws // 2 * (n_draws - n_draws // 2))
    return Terms(*torch.broadcast_tensors(fit, pair))


def _kernel_of_points(kernel: Kernel, base: Distribution, points: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Return the kernel between the points of a support, (K, K), and from observations to them, (chain, obs, K)."""
    atom_dims = points.dim() - 1
    observed = encode(base, y).unsqueeze(-1 - atom_dims)
    to_points = kernel(observed, points, atom_dims).squeeze(DRAW_DIM)
    return kernel(points[:, None], points[None, :], atom_dims), to_points


def _summed(
    kernel: Kernel, distribution: Distribution, table: Table, y: Tensor, mask: Tensor | None, shifts: Shifts
) -> Terms:
    """Sum over the finite support of every coordinate, and multiply over them."""
    (points, probabilities), base = table, base_distribution(distribution)
    atom_dims, coordinates = points.dim() - 1, _coordinates(distribution)
    observed = encode(base, y).unsqueeze(-1 - atom_dims)
    terms = []
    for weight, part in _weighed(kernel):
        to_y = (probabilities * part(observed, points, atom_dims)).sum(-1)
        paired = _smoothed(probabilities, part(points[:, None], points[None, :], atom_dims))
        terms.append((weight, _multiplied(to_y, paired, coordinates, mask, shifts)))
    return _added(terms)


def _smoothed(probabilities: Tensor, gram: Tensor) -> Callable[[int], Tensor]:
    smoothed = probabilities @ gram
    return lambda shift: (smoothed * _roll(probabilities, shift)).sum(-1)


def _matched(
    kernel: Kernel, distribution: Distribution, y: Tensor, mask: Tensor | None, shifts: Shifts
) -> Terms | None:
    """Multiply over binary or categorical coordinates, of which a kernel sees only whether two of them are the same.

    All kernels of a mixture share P(Y = y) and P(Y = Y'), and no table of probabilities meets a Gram matrix. Of a long
    sequence, ``MOST_COORDINATES`` that are chosen anew at every call stand for all: the kernel is then the mean over
    choices of the product over the chosen ones, each factor raised to the power of how many it stands for.
    """
    base, coordinates = base_distribution(distribution), _coordinates(distribution)
    if coordinates == 0 or not (type(base) is Bernoulli or isinstance(base, Categorical | OneHotCategorical)):
        return None
    binary = isinstance(base, Bernoulli)
    points = torch.arange(2.0) if binary else torch.eye(base.param_shape[-1])
    grams = [(weight, part(points[:, None], points[None, :], points.dim() - 1)) for weight, part in _weighed(kernel)]
    if not all(_two_valued(gram) for _, gram in grams):
        return None
    probabilities = (
        base.probs.flatten(-coordinates) if binary else class_probabilities(base).flatten(-1 - coordinates, -2)
    )
    y, seen = _labels(base, y).flatten(-coordinates), None if mask is None else mask.flatten(-coordinates)
    length, power = y.shape[-1], 1.0
    if seen is None and length > MOST_COORDINATES:  # groups of different lengths may have seen none of those chosen
        chosen, power = torch.randperm(length, device=y.device)[:MOST_COORDINATES], length / MOST_COORDINATES
        y, probabilities = y[..., chosen], probabilities.index_select(-1 if binary else -2, chosen)
    ends = [(weight, float(gram[0, -1]) ** power, float(gram[0, 0]) ** power) for weight, gram in grams]
    levels = [(other, same - other, weight) for weight, other, same in ends]
    with_y, together = _agreement(probabilities, y, binary=binary)

    def average(agreement: Tensor) -> Tensor:
        return sum_of_products(agreement, levels, seen).mean(DRAW_DIM)

    fit, pair = average(with_y), _weighted_sum((weight, average(together(shift))) for shift, weight in shifts)
    return Terms(*torch.broadcast_tensors(-2.0 * fit, pair))


def _labels(base: Distribution, y: Tensor) -> Tensor:
    """Return classes as whole numbers, one for each coordinate."""
    return y.argmax(-1) if isinstance(base, OneHotCategorical) else y


def _two_valued(gram: Tensor) -> bool:
    """Say whether the kernel has one value for outcomes that are the same, and one for all that are not."""
    same = torch.eye(len(gram), dtype=torch.bool, device=gram.device)
    return bool((gram == torch.where(same, gram[0, 0], gram[0, -1])).all())


def _agreement(probabilities: Tensor, y: Tensor, *, binary: bool) -> tuple[Tensor, Callable[[int], Tensor]]:
    """Return P(Y = y) and, for a shift, P(Y = Y') of every coordinate, from P(Y = 1) or from those of all classes."""
    if binary:
        lean = probabilities - 0.5
        return 0.5 + lean * (2.0 * y - 1.0), lambda shift: 0.5 + 2.0 * (lean * _roll(lean, shift))
    shape = torch.broadcast_shapes(y.shape, probabilities.shape[:-1])
    wide = probabilities.expand(*shape, probabilities.shape[-1])
    with_y = wide.gather(-1, y.long().expand(shape).unsqueeze(-1)).squeeze(-1)
    return with_y, lambda shift: (probabilities * _roll(probabilities, shift)).sum(-1)


def _multiplied(
    to_y: Tensor, paired: Callable[[int], Tensor], coordinates: int, mask: Tensor | None, shifts: Shifts
) -> Terms:
    """Multiply E k(y, Y) and, for every shift, E k(Y, Y') over coordinates, and average over draws."""

    def average(values: Tensor) -> Tensor:
        values = _multiply(values, coordinates, mask)
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


def _placed(kernel: Kernel, distribution: Distribution, y: Tensor, mask: Tensor | None, shifts: Shifts) -> Terms | None:
    """Estimate both terms from outcomes that are spread evenly over each law; None where that cannot be done.

    Outcomes of two draws meet on a lattice: each pair is a point of the unit square, and they fill it evenly.
    """
    base, coordinates = base_distribution(distribution), _coordinates(distribution)
    if base.event_shape or not is_placed(base) or not _one_by_one(kernel, distribution):
        return None
    outcomes, masses = _cloud(base)
    meets = torch.arange(PLACED_OUTCOMES, device=outcomes.device) * _STRIDE % PLACED_OUTCOMES
    partners, point = outcomes[meets], y.unsqueeze(-1)

    def terms(part: Kernel) -> Terms:
        def paired(shift: int) -> Tensor:
            others = partners.roll(-shift, 1 + DRAW_DIM)
            if masses is None:
                return part(outcomes, others).mean(0).squeeze(-1)
            both = masses.unsqueeze(-1) * _roll(masses, shift).unsqueeze(-2)
            return (both * part(outcomes.unsqueeze(-1), others.unsqueeze(-2)).mean(0)).sum((-1, -2))

        to_y = part(outcomes, point).mean(0)
        to_y = to_y.squeeze(-1) if masses is None else (masses * to_y).sum(-1)
        return _multiplied(to_y, paired, coordinates, mask, shifts)

    parts = _weighed(kernel) if coordinates else [(1.0, kernel)]
    return _added([(weight, terms(part)) for weight, part in parts])


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


def _sampled(
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
    pair = _weighted_sum((weight, values.mean((0, 1 + DRAW_DIM))) for weight, values in paired)
    if not differentiable:
        # An outcome meets the draw ahead of it and the draw behind it, at every shift.
        both = ((w, v + v.roll(shift, 1 + DRAW_DIM)) for (shift, _), (w, v) in zip(shifts, paired, strict=True))
        rewards = -2.0 * to_y + _weighted_sum(both)
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
            "gpsuq.core.expectations.register_kernel_mean and register_kernel_pair"
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
