"""The spread weight that held-out observations choose: chains of every weight and fold, trained side by side."""

from __future__ import annotations

import math
from collections.abc import Callable

import pandas as pd

from gpsuq.engine.chains import ChainPlan
from gpsuq.engine.generative import TrainingState
from gpsuq.engine.scoring import evaluate
from gpsuq.errors import GPSError

SPREAD_WEIGHTS = (0.0, 0.01, 0.03, 0.1, 0.3, 1.0)
_FOLDS = 3


def spread_path(train: Callable[[ChainPlan], TrainingState]) -> pd.DataFrame:
    """Train chains of every weight, each without a fold, and return their held-out scores and which one is chosen.

    Chosen is the largest weight whose score is not clearly worse than the best, by one standard error of their
    difference: what spread the data do not ask for stands in for noise.
    """
    weights = [weight for weight in SPREAD_WEIGHTS for _ in range(_FOLDS)]
    folds = list(range(_FOLDS)) * len(SPREAD_WEIGHTS)
    state = train(ChainPlan(len(weights), None, 0.0, weights, folds))
    batch = state.problem.source.held_out()
    if batch is None:
        raise GPSError('spread_weight="auto" needs observations that can be left out: give it a number')
    scores = evaluate(state, batch).score.reshape(len(SPREAD_WEIGHTS), -1).double()
    means = scores.mean(1)
    worse = scores - scores[int(means.argmin())]
    error = worse.std(1) / math.sqrt(worse.shape[1])
    table = pd.DataFrame({"spread_weight": SPREAD_WEIGHTS, "score": means.numpy(), "standard_error": error.numpy()})
    near = (worse.mean(1) <= error).nonzero().flatten()
    return table.assign(chosen=[index == int(near.max()) for index in range(len(table))])
