r"""Intervals that cover by construction: the ranks of rows that were not fitted say which quantiles to take.

Distributional conformal prediction: with :math:`u_i = F(y_i \mid x_i)` of n rows like those to come, of which the
predictive has seen none, the score :math:`|u_i - \tfrac12|` of a new row is exchangeable with theirs. So the interval
between the quantiles :math:`\tfrac12 \mp q` of F covers a new y with probability of at least 1 - alpha, and at most
1 / (n + 1) more, where q is the k-th smallest score, :math:`k = \lceil (1 - \alpha)(n + 1) \rceil`, whatever F is.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from gpsuq.core.intervals import check_coverage
from gpsuq.errors import GPSError, listed

Array = NDArray[np.floating]


@dataclass(frozen=True)
class Conformal:
    r"""Scores :math:`|u - 1/2|` of rows that were not fitted, in order, for all rows or for each group (Mondrian).

    Of any model that has ``predict_cdf(X, y)`` and ``predict_quantiles(X, levels)``:

    >>> import numpy as np
    >>> from gpsuq import Conformal
    >>> ranks = np.random.default_rng(0).beta(0.5, 0.5, size=999)  # too often in the tails: intervals were too narrow
    >>> conformal = Conformal.of(ranks)
    >>> conformal.levels(0.9, 1).round(3).tolist()
    [[0.005, 0.995]]
    """

    scores: Mapping[Hashable, Array]

    @classmethod
    def of(cls, ranks: Any, groups: Any = None) -> Conformal:
        """Learn from ranks F(y given x) (n,) of rows that were not fitted, and labels (n,) of their groups if any."""
        values = np.asarray(ranks, dtype=np.float64)
        if values.ndim != 1 or not len(values) or not ((values >= 0.0) & (values <= 1.0)).all():
            raise GPSError("ranks must be probabilities, one for each of at least one row")
        scores = np.abs(values - 0.5)
        if groups is None:
            return cls({None: np.sort(scores)})
        labels = pd.Series(np.asarray(groups))
        if len(labels) != len(scores) or labels.isna().any():
            raise GPSError(f"groups must hold a label for each of the {len(scores)} rows")
        return cls({label: np.sort(scores[places]) for label, places in labels.groupby(labels).indices.items()})

    @property
    def n_rows(self) -> int:
        """How many rows it learned from."""
        return sum(map(len, self.scores.values()))

    @property
    def grouped(self) -> bool:
        """Whether every group has scores of its own."""
        return None not in self.scores

    def levels(self, coverage: float, n: int, groups: Any = None) -> Array:
        """Return the two levels (n, 2) whose quantiles cover; 0 and 1 where there are too few rows to tell."""
        coverage = check_coverage(coverage)
        if self.grouped != (groups is not None):
            raise GPSError(
                "calibrated by groups: say which group each row is of, groups=..."
                if self.grouped
                else "calibrated without groups: calibrate(X, y, groups=...) first"
            )
        half = {label: _half_width(scores, coverage) for label, scores in self.scores.items()}
        labels = [None] * n if groups is None else np.asarray(groups).tolist()
        if len(labels) != n:
            raise GPSError(f"groups must hold a label for each of the {n} rows, got {len(labels)}")
        unknown = {label for label in labels if label not in half}
        if unknown:
            raise GPSError(f"groups {listed(sorted(map(str, unknown)))} were not among those that it was calibrated by")
        widths = np.array([half[label] for label in labels])
        return np.column_stack([0.5 - widths, 0.5 + widths])


def _half_width(scores: Array, coverage: float) -> float:
    place = math.ceil(coverage * (len(scores) + 1) - 1e-9)
    return 0.5 if place > len(scores) else float(scores[place - 1])
