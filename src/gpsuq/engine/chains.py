"""What sets chains apart: their seeds, observation weights, held-out observations and spread weights."""

from __future__ import annotations

import math
import numbers
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, cast

import torch
from scipy.special import gammaincinv
from torch import Tensor

from gpsuq.core.seeds import random_block, uniform_by_row
from gpsuq.errors import GPSError, warn

Reweight = Literal["bootstrap"] | None

_POOL_ROWS = 4096  # held-out observations come from this many rows, so that scoring does not grow with n
_MEAN_ROWS = 1 << 16
_MOST_STORED = 1 << 22
_FEWEST_HELD_OUT = 10


@dataclass(frozen=True)
class ChainPlan:
    """How many chains there are and how they differ.

    Parameters
    ----------
    n_chains
        Independently initialised generators, trained side by side.
    reweight
        ``"bootstrap"`` gives each chain its own Bayesian-bootstrap weights, Gamma(w_i, 1) for an observation of
        weight w_i, balanced so that each observation's weights average w_i over the chains: the spread between chains
        is estimation uncertainty, and their mean is hardly noisier than one fit to all data. None weights all alike.
    holdout
        Share of the observations that each chain leaves out to decide when to stop; every chain leaves out others.
    folds
        Fold that each chain leaves out, for cross-validation; chains with equal numbers leave out the same
        observations. It takes the place of ``holdout``.
    deals
        How many times the observations are dealt into folds, each time anew; the folds of a deal are numbered after
        those of the one before.
    spread_weight
        Weight of the spread of the predictive mean over draws, one number or one for each chain; positive
        penalises spread, negative rewards it.
    """

    n_chains: int = 4
    reweight: Reweight = "bootstrap"
    holdout: float = 0.1
    spread_weight: float | Sequence[float] = 0.0
    folds: Sequence[int] | None = None
    deals: int = 1

    def __post_init__(self) -> None:
        if self.n_chains < 1:
            raise GPSError(f"n_chains must be at least 1, got {self.n_chains}")
        if self.reweight not in ("bootstrap", None):
            raise GPSError(f"reweight must be 'bootstrap' or None, got {self.reweight!r}")
        if not 0.0 <= self.holdout < 1.0:
            raise GPSError(f"holdout must be at least 0 and below 1, got {self.holdout}")
        if self.folds is not None and (len(self.folds) != self.n_chains or min(self.folds) < 0 or max(self.folds) < 1):
            raise GPSError(f"folds must name a fold (0, 1, ...) of at least two for each of the {self.n_chains} chains")
        weights = self.spread_weights()
        if not all(math.isfinite(weight) for weight in weights):
            raise GPSError(f"spread_weight must be finite, got {self.spread_weight}")
        if len(weights) != self.n_chains:
            raise GPSError(f"spread_weight must be one number or {self.n_chains} (one per chain), got {len(weights)}")

    def spread_weights(self) -> tuple[float, ...]:
        """Return the spread weight of each chain."""
        if isinstance(self.spread_weight, numbers.Real):
            return (float(self.spread_weight),) * self.n_chains
        return tuple(float(weight) for weight in cast(Sequence[float], self.spread_weight))


def warn_of_small_weights(weight: Tensor) -> None:
    """Warn where weights were scaled to sum to little: as frequencies they say that there are few observations."""
    count = int((weight > 0).sum())
    if float(weight.sum()) < 0.5 * count:
        warn(
            f"weights sum to {float(weight.sum()):.3g} for {count} observations: they are taken as frequencies, so the "
            "fit counts as one on so few; rescale them to a mean of 1 if that is not meant"
        )


class ChainWeights:
    """Training weights of any rows for every chain, (chain, row), computed when asked for where they are many.

    A chain's held-out rows weigh nothing in its training. ``weight`` is that of all n rows; of a stream it is that of
    the rows with the numbers ``known``, which stand for all, and others bring their own. With ``groups`` (n,), numbers
    from 0, a chain that holds out a row of a group trains on no row of it.
    """

    def __init__(
        self,
        plan: ChainPlan,
        n: int,
        weight: Tensor | None,
        seed: int,
        known: Tensor | None = None,
        groups: Tensor | None = None,
    ) -> None:
        self.plan, self.n, self.weight, self.seed, self.groups = plan, n, weight, seed, groups
        self._known = torch.arange(n) if known is None else known
        if weight is not None and plan.reweight == "bootstrap":
            warn_of_small_weights(weight)
        self.held_out = self._choose_held_out()
        if self.held_out is not None:
            held_out = self.held_out if groups is None else groups[self.held_out]
            self._pool = held_out.unique()  # rows or groups that some chain leaves out
            self._left_out = torch.zeros(plan.n_chains, len(self._pool), dtype=torch.bool)
            self._left_out.scatter_(1, torch.searchsorted(self._pool, held_out), True)
        self.mean = self._mean()
        few = n * plan.n_chains <= _MOST_STORED and not self.uniform and known is None
        self._table = self._scaled(self._known, self.weight) if few else None
        del self._known  # as many numbers as rows

    def _choose_held_out(self) -> Tensor | None:
        """Choose each chain's own rows, (chain, number held out); None where there are too few to learn from."""
        pool = self._known
        if self.weight is not None:
            pool = pool[self.weight > 0]
        if len(pool) > _POOL_ROWS:
            order = torch.randperm(len(pool), generator=random_block(self.seed, "pool"))
            pool = pool[order[:_POOL_ROWS]].sort().values
        if self.plan.folds is not None:
            return self._folds(pool, self.plan.folds)
        count = round(self.plan.holdout * len(pool))
        if count < _FEWEST_HELD_OUT:
            return None
        order = uniform_by_row(self.seed, "holdout", self.plan.n_chains, pool).topk(count, dim=1).indices
        return pool[order.sort(dim=1).values]

    def _folds(self, pool: Tensor, folds: Sequence[int]) -> Tensor:
        """Deal the rows into folds of equal size and give each chain the rows of its own, (chain, rows of a fold)."""
        n_folds = (max(folds) + 1) // self.plan.deals
        size = len(pool) // n_folds
        if size == 0:
            raise GPSError(f"{len(pool)} observations cannot be split into {n_folds} folds")
        dealt = []
        for deal in range(self.plan.deals):
            dealt_by = pool if self.groups is None else self.groups[pool]
            order = uniform_by_row(self.seed, "fold" + "/again" * deal, 1, dealt_by)[0].argsort(stable=True)
            pool = pool[order[: size * n_folds]]  # the next deal is of the same rows
            dealt.append(pool.reshape(n_folds, size).sort(dim=1).values)
        return torch.cat(dealt)[torch.tensor(list(folds))]

    def _mean(self) -> Tensor:
        """Mean training weight of each chain, so that its loss is a weighted mean; rows evenly spaced tell it."""
        places = torch.arange(len(self._known)) if self.weight is None else self.weight.nonzero().flatten()
        some = places[:: -(-len(places) // _MEAN_ROWS)]
        mean = self._raw(self._known[some], None if self.weight is None else self.weight[some]).mean(1)
        if not bool((mean > 0).all()):
            raise GPSError("weights are so small that nothing is left of them: rescale them to a mean of 1")
        return mean * (len(places) / len(self._known))

    def _raw(self, rows: Tensor, weight: Tensor | None) -> Tensor:
        base = torch.ones(len(rows), dtype=torch.float64) if weight is None else weight.double()
        if self.plan.reweight is None:
            weights = base.expand(self.plan.n_chains, -1)
        else:
            uniform = uniform_by_row(self.seed, "bootstrap", self.plan.n_chains, rows)
            if weight is None:
                weights = -uniform.log()
            else:
                weights = torch.from_numpy(gammaincinv(base.numpy(), uniform.numpy())).nan_to_num()
            average = weights.mean(0)
            weights = weights * torch.where(average > 0, base / average, 0.0)
        return weights if self.held_out is None else weights * ~self.left_out(rows)

    def left_out(self, rows: Tensor) -> Tensor:
        """Return which of the rows each chain does not train on, (chain, row); only where rows are held out."""
        units = rows if self.groups is None else self.groups[rows]
        place = torch.searchsorted(self._pool, units).clamp_max(len(self._pool) - 1)
        found: Tensor = self._left_out[:, place] & (self._pool[place] == units)
        return found

    def __call__(self, rows: Tensor, weight: Tensor | None = None) -> Tensor:
        """Return the weights of ``rows``, scaled to a mean of 1 over all rows of each chain.

        Rows of a stream bring their ``weight``.
        """
        if self._table is not None:
            return self._table[:, rows]
        return self._scaled(rows, self.weight[rows] if weight is None and self.weight is not None else weight)

    def _scaled(self, rows: Tensor, weight: Tensor | None) -> Tensor:
        return self._raw(rows, weight) / self.mean[:, None]

    @property
    def uniform(self) -> bool:
        """Whether every observation weighs the same in every chain."""
        return self.weight is None and self.plan.reweight is None and self.held_out is None
