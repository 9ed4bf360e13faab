"""The shape of the law of theta that held-out observations choose: affine in the noise, or whatever they ask for."""

from __future__ import annotations

import math

import pandas as pd

from gpsuq.engine.generative import TrainingState
from gpsuq.engine.scoring import evaluate


def law_scores(free: TrainingState, affine: TrainingState) -> pd.DataFrame:
    """Return held-out scores of two trainings, lower is better, with their standard errors, and which is chosen.

    Both left out the same observations. The affine law, Normal but for the supports of parameters, is chosen unless the
    free one does better: a free one follows the chance of few observations, where a Normal one is as good.
    """
    batch = free.problem.source.held_out()
    assert batch is not None
    usable = ~(free.failed | affine.failed)
    scores = [evaluate(state, batch).score[usable].double().flatten() for state in (affine, free)]
    table = pd.DataFrame(
        {
            "score": [float(score.mean()) for score in scores],
            "standard_error": [float(score.std()) / math.sqrt(len(score)) for score in scores],
        },
        index=pd.Index(["affine", "free"], name="law"),
    )
    better = not table["score"]["affine"] <= table["score"]["free"]  # one that failed has none
    return table.assign(chosen=[not better, better])
