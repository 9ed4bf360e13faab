"""What all ways to a kernel score share: the two terms, pairs of draws, and an observation's coordinates."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.distributions import Categorical, Distribution, Independent

from gpsuq.core.fused import Shifts, product
from gpsuq.core.kernels import Kernel, Mixture
from gpsuq.errors import GPSError

BATCH_DIMS = 3  # chain, observation, draw
DRAW_DIM = 2


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


def coordinates_of(distribution: Distribution) -> int:
    """Return how many dimensions hold independent coordinates; a one-hot vector is one coordinate."""
    return len(distribution.event_shape) - len(base_distribution(distribution).event_shape)


def weighed(kernel: Kernel, weight: float = 1.0) -> list[tuple[float, Kernel]]:
    """Return the kernels that a mixture consists of, with their weights; any other kernel by itself."""
    if not isinstance(kernel, Mixture):
        return [(weight, kernel)]
    parts = zip(kernel.weights, kernel.kernels, strict=True)
    return [inner for own, part in parts for inner in weighed(part, weight * own)]


def added(parts: Sequence[tuple[float, Terms]]) -> Terms:
    """Add up the terms of several kernels."""
    return Terms(*(weighted_sum((weight, terms[term]) for weight, terms in parts) for term in (0, 1)))


def one_by_one(kernel: Kernel, distribution: Distribution) -> bool:
    """Say whether the kernel is integrated one coordinate at a time: there is only one, or it is a product of them."""
    return coordinates_of(distribution) == 0 or all(part.factorises for _, part in weighed(kernel))


def roll(tensor: Tensor, shift: int) -> Tensor:
    """Pair draw m with draw m + shift; a parameter that is the same for all draws stays as it is."""
    return tensor if tensor.shape[DRAW_DIM] == 1 else tensor.roll(-shift, DRAW_DIM)


def multiply(values: Tensor, coordinates: int, mask: Tensor | None) -> Tensor:
    """Multiply over coordinates; one that was not observed is a factor of 1."""
    if coordinates == 0:
        return values
    if mask is not None:
        values = torch.where(mask, values, 1.0)
    return product(values.flatten(-coordinates))


def weighted_sum(parts: Iterable[tuple[float, Tensor]]) -> Tensor:
    """Sum tensors with weights; a weight of 1 costs nothing."""
    return functools.reduce(torch.add, (part if weight == 1.0 else weight * part for weight, part in parts))


def multiplied(
    to_y: Tensor, paired: Callable[[int], Tensor], coordinates: int, mask: Tensor | None, shifts: Shifts
) -> Terms:
    """Multiply E k(y, Y) and, for every shift, E k(Y, Y') over coordinates, and average over draws."""

    def average(values: Tensor) -> Tensor:
        values = multiply(values, coordinates, mask)
        return values.squeeze(DRAW_DIM) if values.shape[DRAW_DIM] == 1 else values.mean(DRAW_DIM)

    fit, pair = -2.0 * average(to_y), weighted_sum((weight, average(paired(shift))) for shift, weight in shifts)
    return Terms(*torch.broadcast_tensors(fit, pair))
