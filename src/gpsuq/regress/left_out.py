"""Rows that were fitted, judged by generators that had not seen them: a forest knows its own rows by heart."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from dataclasses import dataclass, replace
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from gpsuq.errors import GPSError
from gpsuq.regress.members import RegressionFit

Array = NDArray[np.floating]


class Fitted(Protocol):
    """An estimator that was fitted."""

    fit_: RegressionFit


Model = TypeVar("Model", bound=Fitted)


@dataclass(frozen=True)
class Judge(Generic[Model]):
    """An estimator, and the places of the rows that it is asked about."""

    model: Model
    places: NDArray[np.int64]


def judges(estimator: Model, n: int, *, fitted: bool) -> list[Judge[Model]]:
    """Return who judges n rows: of those that were fitted, the chains that had left them out.

    It is the estimator itself where rows are new, and where too few were left out.
    """
    fit = estimator.fit_
    if not fitted or not len(fit.rows):
        return [Judge(estimator, np.arange(n))]
    if fit.rows.max() >= n:
        raise GPSError(f"these are not the rows that were fitted: there are {n}, and row {fit.rows.max()} was fitted")
    pairs, of_row = np.unique(fit.judges, axis=0, return_inverse=True)
    return [Judge(_of_chains(estimator, pair), fit.rows[of_row.ravel() == n]) for n, pair in enumerate(pairs.tolist())]


def _of_chains(estimator: Model, chains: list[int]) -> Model:
    """Return the estimator with some of its chains only."""
    members = [replace(member, drawn=member.drawn.select(chains)) for member in estimator.fit_.members]
    model = copy(estimator)
    model.fit_ = replace(estimator.fit_, members=members)
    return model


def thinned(judging: list[Judge[Model]], most: int) -> list[Judge[Model]]:
    """Return the judges with at most so many rows in all."""
    each = max(1, most // len(judging))
    chosen = np.random.default_rng(0)
    return [replace(judge, places=np.sort(chosen.permutation(judge.places)[:each])) for judge in judging]


def gathered(judging: list[Judge[Model]], ask: Callable[[Model, NDArray[np.int64]], Any]) -> Array:
    """Return what all judges say of their rows, one after the other."""
    return np.concatenate([np.asarray(ask(judge.model, judge.places)) for judge in judging])
