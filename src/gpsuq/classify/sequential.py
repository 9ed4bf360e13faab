r"""How many draws a verdict needs: a sequential test of :math:`P(C_h \le c)` against the level of the criterion.

"Certain" means that some class has probability c or less in less than 5% of all draws. After some draws, the number of
those is binomial; where it is too small (or too large) to come from a share of 5%, the verdict is settled. A wrong stop
can be on one side only, whatever the truth, so that each side has the whole error rate, split evenly over its looks:
a verdict that was settled early differs from that of infinitely many draws at most that often.

A combined verdict rests on a mean over draws. It is settled where that is farther from the threshold than its standard
error allows, by a Normal approximation.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binom, norm

from gpsuq.errors import GPSError

_MEAN_LOOKS = (16, 64, 256)
_FIRST_LOOK = 6  # of so many parts of the draws that can settle "certain"


@dataclass(frozen=True)
class SequentialTest:
    """When to look, and the counts at which to stop.

    ``looks`` are numbers of draws, the last one all of them, where everything stops; ``few`` and ``many`` are for the
    looks before it the counts up to which an observation is settled as certain, and from which as uncertain.
    """

    looks: tuple[int, ...]
    few: tuple[int, ...]
    many: tuple[int, ...]

    @classmethod
    def planned(cls, n_draws: int, level: float, error_rate: float) -> SequentialTest:
        """Plan looks up to ``n_draws`` for a share ``level`` and an error rate.

        There are three before the last: one early, for what is clearly uncertain; one where not a single draw below c
        settles "certain" for the first time; and one at twice as many.
        """
        _check_rate(error_rate)
        settling = math.ceil(math.log(error_rate / 2.0) / math.log1p(-level))
        early = tuple(n for n in (max(2, settling // _FIRST_LOOK), settling, 2 * settling) if n < n_draws)
        few = tuple(_largest_rare(error_rate / 2.0, n, level) if n >= settling else -1 for n in early)
        many = tuple(int(binom.isf(error_rate / 3.0, n, level)) + 1 for n in early)
        return cls((*early, n_draws), few, many)

    def settled(self, look: int, below: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Whether the verdict is settled, for counts of draws below c at a look."""
        if look == len(self.looks) - 1:
            return np.ones(len(below), dtype=bool)
        return np.asarray((below <= self.few[look]) | (below >= self.many[look]))


@dataclass(frozen=True)
class MeanTest:
    """When to look at a mean over draws, and by how many standard errors it must miss the threshold to stop."""

    looks: tuple[int, ...]
    bound: float

    @classmethod
    def planned(cls, n_draws: int, error_rate: float) -> MeanTest:
        """Plan looks up to ``n_draws``, each at four times as many as the one before, for an error rate."""
        _check_rate(error_rate)
        early = tuple(n for n in _MEAN_LOOKS if n < n_draws)
        return cls((*early, n_draws), float(norm.isf(error_rate / max(1, len(early)))))

    def settled(self, look: int, values: NDArray[np.floating], threshold: NDArray[np.floating]) -> NDArray[np.bool_]:
        """Whether the verdict is settled, for values (n, draw) and thresholds (n,) of their mean at a look."""
        if look == len(self.looks) - 1:
            return np.ones(len(values), dtype=bool)
        error = values.std(1, ddof=1) / math.sqrt(values.shape[1])
        return np.asarray(np.abs(values.mean(1) - threshold) > self.bound * error)


def _check_rate(error_rate: float) -> None:
    if not 0.0 < error_rate < 1.0:
        raise GPSError(f"error_rate must be between 0 and 1, got {error_rate}")


def _largest_rare(allowed: float, n: int, share: float) -> int:
    """Return the largest count that is reached from below with at most the allowed probability; -1 if none is."""
    count = int(binom.ppf(allowed, n, share))
    return count if binom.cdf(count, n, share) <= allowed else count - 1


def draws_in_looks(looks: Sequence[int]) -> list[slice]:
    """Return the draws that each look adds."""
    return [slice(start, stop) for start, stop in pairwise((0, *looks))]
