"""What the fits of all estimators share: they end well, or leave the estimator as it was."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Concatenate, ParamSpec, TypeVar

E = TypeVar("E")
P = ParamSpec("P")
R = TypeVar("R")


def whole_or_not_at_all(fit: Callable[Concatenate[E, P], R]) -> Callable[Concatenate[E, P], R]:
    """Let a fit that fails or is interrupted leave the estimator exactly as it was before.

    Classes and columns are learned before training, what is trained is kept after it: half of both would be a model
    that never was.

    >>> from gpsuq.engine.fitting import whole_or_not_at_all
    >>> class Model:
    ...     @whole_or_not_at_all
    ...     def fit(self, y):
    ...         self.mean_ = sum(y)
    ...         self.mean_ /= len(y)
    >>> model = Model()
    >>> model.fit([])
    Traceback (most recent call last):
    ZeroDivisionError: division by zero
    >>> vars(model)
    {}
    """

    @wraps(fit)
    def fitted(estimator: E, /, *arguments: P.args, **options: P.kwargs) -> R:
        before = vars(estimator).copy()
        try:
            return fit(estimator, *arguments, **options)
        except BaseException:
            vars(estimator).clear()
            vars(estimator).update(before)
            raise

    return fitted
