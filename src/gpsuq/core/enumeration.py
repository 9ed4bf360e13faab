"""Kernel scores summed over finite supports: probabilities against the Gram matrix of what can happen."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.distributions import Bernoulli, Categorical, Distribution, OneHotCategorical

from gpsuq.core.fused import Shifts, sum_of_products
from gpsuq.core.kernels import Kernel
from gpsuq.core.supports import Table, class_probabilities, halves
from gpsuq.core.terms import (
    DRAW_DIM,
    Terms,
    added,
    base_distribution,
    coordinates_of,
    encode,
    multiplied,
    roll,
    weighed,
    weighted_sum,
)

MOST_COORDINATES = 64
"""Binary or categorical coordinates of one observation that are compared at a time."""


def enumerated(kernel: Kernel, base: Distribution, table: Table, y: Tensor, *, all_pairs: bool) -> Terms:
    """Sum over a finite support: probabilities (chain, obs, draw, K) against the Gram matrix, linear in the draws.

    All pairs of different draws are all pairs less each draw with itself. Where some pairs do, every draw of one half
    meets every draw of the other.
    """
    points, probabilities = table
    n_draws = probabilities.shape[DRAW_DIM]
    if not all_pairs:
        return of_halves(kernel, base, points, halves(n_draws, probabilities) @ probabilities, y, n_draws)
    gram, to_points = _kernel_of_points(kernel, base, points, y)
    total, own = probabilities.sum(DRAW_DIM), probabilities * (probabilities @ gram)
    pair = ((total * (total @ gram)).sum(-1) - own.sum((DRAW_DIM, -1))) / (n_draws * (n_draws - 1))
    return Terms(*torch.broadcast_tensors(-2.0 / n_draws * (total * to_points).sum(-1), pair))


def of_halves(kernel: Kernel, base: Distribution, points: Tensor, sums: Tensor, y: Tensor, n_draws: int) -> Terms:
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


def summed(
    kernel: Kernel, distribution: Distribution, table: Table, y: Tensor, mask: Tensor | None, shifts: Shifts
) -> Terms:
    """Sum over the finite support of every coordinate, and multiply over them."""
    (points, probabilities), base = table, base_distribution(distribution)
    atom_dims, coordinates = points.dim() - 1, coordinates_of(distribution)
    observed = encode(base, y).unsqueeze(-1 - atom_dims)
    terms = []
    for weight, part in weighed(kernel):
        to_y = (probabilities * part(observed, points, atom_dims)).sum(-1)
        paired = _smoothed(probabilities, part(points[:, None], points[None, :], atom_dims))
        terms.append((weight, multiplied(to_y, paired, coordinates, mask, shifts)))
    return added(terms)


def _smoothed(probabilities: Tensor, gram: Tensor) -> Callable[[int], Tensor]:
    smoothed = probabilities @ gram
    return lambda shift: (smoothed * roll(probabilities, shift)).sum(-1)


def matched(kernel: Kernel, distribution: Distribution, y: Tensor, mask: Tensor | None, shifts: Shifts) -> Terms | None:
    """Multiply over binary or categorical coordinates, of which a kernel sees only whether two of them are the same.

    All kernels of a mixture share P(Y = y) and P(Y = Y'), and no table of probabilities meets a Gram matrix. Of a long
    sequence, ``MOST_COORDINATES`` that are chosen anew at every call stand for all: the kernel is then the mean over
    choices of the product over the chosen ones, each factor raised to the power of how many it stands for.
    """
    base, coordinates = base_distribution(distribution), coordinates_of(distribution)
    if coordinates == 0 or not (type(base) is Bernoulli or isinstance(base, Categorical | OneHotCategorical)):
        return None
    binary = isinstance(base, Bernoulli)
    points = torch.arange(2.0) if binary else torch.eye(base.param_shape[-1])
    grams = [(weight, part(points[:, None], points[None, :], points.dim() - 1)) for weight, part in weighed(kernel)]
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

    fit, pair = average(with_y), weighted_sum((weight, average(together(shift))) for shift, weight in shifts)
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
        return 0.5 + lean * (2.0 * y - 1.0), lambda shift: 0.5 + 2.0 * (lean * roll(lean, shift))
    shape = torch.broadcast_shapes(y.shape, probabilities.shape[:-1])
    wide = probabilities.expand(*shape, probabilities.shape[-1])
    with_y = wide.gather(-1, y.long().expand(shape).unsqueeze(-1)).squeeze(-1)
    return with_y, lambda shift: (probabilities * roll(probabilities, shift)).sum(-1)
