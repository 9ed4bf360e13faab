"""Rows that were fitted, judged by generators that had not seen them: a forest knows its own rows by heart."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import ndtri

from gpsuq.errors import GPSError
from gpsuq.regress.estimator import OUTLIER, GPSRegressor
from gpsuq.regress.fit import PER_FOLD

Array = NDArray[np.floating]


@dataclass(frozen=True)
class Judge:
    """An estimator, and the places of the rows that it is asked about."""

    model: GPSRegressor
    places: NDArray[np.int64]


def judges(estimator: GPSRegressor, n: int, *, fitted: bool) -> list[Judge]:
    """Return who judges n rows: of those that were fitted, the chains that had left out each part of them.

    It is the estimator itself where rows are new, and where too few were left out.
    """
    fit = estimator.fit_
    if not fitted or not len(fit.rows):
        return [Judge(estimator, np.arange(n))]
    if fit.rows.max() >= n:
        raise GPSError(f"these are not the rows that were fitted: there are {n}, and row {fit.rows.max()} was fitted")
    n_folds = fit.members[0].drawn.n_chains // PER_FOLD
    parts = fit.rows.reshape(n_folds, -1)
    return [Judge(_of_fold(estimator, fold, n_folds), places) for fold, places in enumerate(parts)]


def _of_fold(estimator: GPSRegressor, fold: int, n_folds: int) -> GPSRegressor:
    """Return the estimator with those chains only that left out one fold."""
    members = [
        replace(member, drawn=member.drawn.select(range(fold, member.drawn.n_chains, n_folds)))
        for member in estimator.fit_.members
    ]
    model = copy(estimator)
    model.fit_ = replace(estimator.fit_, members=members)
    return model


def thinned(judging: list[Judge], most: int) -> list[Judge]:
    """Return the judges with at most so many rows in all."""
    each = max(1, most // len(judging))
    chosen = np.random.default_rng(0)
    return [replace(judge, places=np.sort(chosen.permutation(judge.places)[:each])) for judge in judging]


def gathered(judging: list[Judge], ask: Callable[[GPSRegressor, NDArray[np.int64]], Any]) -> Array:
    """Return what all judges say of their rows, one after the other."""
    return np.concatenate([np.asarray(ask(judge.model, judge.places)) for judge in judging])


def explained_rows(estimator: GPSRegressor, X: pd.DataFrame, y: Any) -> pd.DataFrame:
    """Explain rows that were fitted, as ``explain_rows`` does, but by chains that had left them out where there are.

    The column ``left_out`` says of which rows that is true; the others were seen, and are hardly ever surprising.
    """
    whole, outcome = X.reset_index(drop=True), np.asarray(y, dtype=np.float64)
    rows = estimator.explain_rows(whole, outcome).assign(left_out=False)
    judging = judges(estimator, len(X), fitted=True)
    if judging[0].model is not estimator:
        parts = [judge.model.explain_rows(whole.iloc[judge.places], outcome[judge.places]) for judge in judging]
        rank = estimator.fit_.ranks[:, 0]
        score = 0.5 * np.square(ndtri(np.clip(rank, 1e-15, 1.0 - 1e-15)))
        judged = pd.concat(parts).assign(rank=rank, outlier_score=score, outlier=score > OUTLIER, left_out=True)
        rows = pd.concat([rows.drop(judged.index), judged]).sort_index()
    return rows.set_axis(X.index)
