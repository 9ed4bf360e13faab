"""How much heterogeneity the data ask for: the weight of the spread penalty, chosen by held-out kernel scores."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

Array = NDArray[np.floating]

PATH: tuple[float, ...] = (0.0, 0.03, 0.3, 3.0)
"""Weights of the spread penalty that are tried, in units of the squared robust scale of the pilot's residuals."""

N_FOLDS = 4
_EVIDENCE = 2.0  # standard errors by which equal coefficients must lose before they are given up
_AS_GOOD = 1.0  # standard errors


@dataclass(frozen=True)
class SpreadChoice:
    """The chosen weight, and the table of the path: held-out score, excess over the best and its standard error."""

    weight: float
    table: pd.DataFrame


def choose_spread(
    weights: Sequence[float], scores: Array, *, frequency: Array | None = None, presume_equal: bool = True
) -> SpreadChoice:
    """Choose from held-out scores (weight, observation), lower is better, all under one kernel.

    ``frequency`` says how often each observation counts. If the strongest penalty is within two standard errors of the
    best and ``presume_equal``, it is taken: there is no evidence for heterogeneity. Otherwise the weakest within one
    standard error of the best is: a penalty that was only needed to find the spread would shrink it.
    """
    counts = np.ones(scores.shape[1]) if frequency is None else frequency
    total = counts.sum()
    means = scores @ counts / total
    lost = scores - scores[means.argmin()]
    excess = lost @ counts / total
    error = np.sqrt(np.square(lost - excess[:, None]) @ counts / max(total - 1.0, 1.0) / total)
    equal = presume_equal and excess[-1] <= _EVIDENCE * error[-1]
    chosen = len(weights) - 1 if equal else int((excess <= _AS_GOOD * error).argmax())
    table = pd.DataFrame(
        {"score": means, "excess": excess, "standard_error": error},
        index=pd.Index(list(weights), name="spread_weight"),
    )
    return SpreadChoice(float(weights[chosen]), table)
