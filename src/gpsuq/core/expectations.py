r"""The two terms of the kernel score, exact where a closed form exists and by Monte Carlo otherwise.

For an observation y and draws :math:`\theta_1, \dots, \theta_M` the kernel score is estimated by

.. math:: -\frac{2}{M} \sum_m E\,k(y, Y_m) + \frac{1}{|P|} \sum_{(m, m') \in P} E\,k(Y_m, Y_{m'}),
          \qquad Y_m \sim f(\cdot \mid \theta_m),

where P holds pairs of *different* draws only. Pairing two outcomes of one draw would estimate the score of each
:math:`f(\cdot \mid \theta)` by itself, whose minimiser is a point mass.

Shapes: a distribution has batch shape ``(chain, observation, draw)``, the middle one being 1 where all observations
share it, and event shape ``event``; observations (and masks) have shape ``(1, observation, 1, *event)``.

Closed forms are registered per kernel and distribution (``core/forms.py``). Distributions on a finite or
truncatable support need no registration, nor do mixtures, censored and zero-inflated distributions of what has closed
forms. What has none is sampled: evenly where it has quantiles, by ``rsample``, or by ``sample`` and ``log_prob``; a
density alone is summed over a grid.
"""

from __future__ import annotations

from torch import Tensor
from torch.distributions import Distribution

from gpsuq.core.enumeration import enumerated, matched, of_halves, summed
from gpsuq.core.forms import closed, fused, register_kernel_mean, register_kernel_pair, takes_nodes
from gpsuq.core.kernels import Kernel
from gpsuq.core.outcomes import DEFAULT_OUTCOMES, is_placed, placed, sampled
from gpsuq.core.supports import grid_table, has_density_alone, poisson_sums, support_table
from gpsuq.core.terms import (
    BATCH_DIMS,
    DRAW_DIM,
    Terms,
    added,
    base_distribution,
    coordinates_of,
    draw_shifts,
    encode,
    one_by_one,
    predictive_mean,
    weighed,
)

__all__ = [
    "BATCH_DIMS",
    "DEFAULT_OUTCOMES",
    "DRAW_DIM",
    "Terms",
    "base_distribution",
    "draw_shifts",
    "encode",
    "exact_score",
    "is_placed",
    "kernel_score",
    "predictive_mean",
    "register_kernel_mean",
    "register_kernel_pair",
]


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
    if has_density_alone(base_distribution(distribution)) and one_by_one(kernel, distribution):
        base = base_distribution(distribution)
        table = grid_table(base, y)
        if coordinates_of(distribution) == 0:
            return enumerated(kernel, base, table, y, all_pairs=n_pairs is None)
        return summed(kernel, distribution, table, y, mask, shifts)
    if n_outcomes is None:
        terms = placed(kernel, distribution, y, mask, shifts)
        if terms is not None:
            return terms
    return sampled(kernel, distribution, y, mask, DEFAULT_OUTCOMES if n_outcomes is None else n_outcomes, shifts)


def exact_score(
    kernel: Kernel, distribution: Distribution, y: Tensor, *, mask: Tensor | None = None, n_pairs: int | None = None
) -> Terms | None:
    """Return both terms of the kernel score with outcomes integrated out, or None where that cannot be done."""
    shifts = draw_shifts(distribution.batch_shape[DRAW_DIM], n_pairs)
    if (terms := fused(kernel, distribution, y, mask, shifts)) is not None:
        return terms
    if not one_by_one(kernel, distribution):
        return None
    if (terms := matched(kernel, distribution, y, mask, shifts)) is not None:
        return terms
    base = base_distribution(distribution)
    if n_pairs is not None and coordinates_of(distribution) == 0 and (sums := poisson_sums(base, y)) is not None:
        return of_halves(kernel, base, *sums, y, distribution.batch_shape[DRAW_DIM])
    table = support_table(base, y)
    if table is not None and coordinates_of(distribution) == 0:
        return enumerated(kernel, base, table, y, all_pairs=n_pairs is None)
    if table is not None:
        return summed(kernel, distribution, table, y, mask, shifts)
    if n_pairs is not None and takes_nodes(base):
        return None
    parts = []
    for weight, part in weighed(kernel):
        if (terms := closed(part, distribution, y, mask, shifts)) is None:
            return None
        parts.append((weight, terms))
    return added(parts)
