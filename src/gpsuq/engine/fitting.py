"""What the fits of all estimators share: arguments checked as declared, and an end that is good or leaves no trace."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

from sklearn.utils._param_validation import InvalidParameterError, validate_parameter_constraints
from sklearn.utils.validation import validate_data

from gpsuq.errors import GPSError

E = TypeVar("E")
P = ParamSpec("P")
R = TypeVar("R")


def check_parameters(estimator: Any) -> None:
    """Raise where an argument of an estimator breaks what its class declares in ``_parameter_constraints``.

    These are data, as in scikit-learn: from the name of an argument to a list of types, ``Interval``, ``StrOptions``
    and the like, one of which it must fulfil.
    """
    constraints = getattr(estimator, "_parameter_constraints", {})
    try:
        validate_parameter_constraints(constraints, estimator.get_params(deep=False), type(estimator).__name__)
    except InvalidParameterError as error:
        raise GPSError(str(error)) from error


def validated(estimator: Any, *data: Any, **options: Any) -> Any:
    """Return a table, or a table and a target, as scikit-learn's ``validate_data`` does; its errors become ours."""
    try:
        return validate_data(estimator, *data, **options)
    except ValueError as error:
        raise GPSError(str(error)) from error


def whole_or_not_at_all(fit: Callable[Concatenate[E, P], R]) -> Callable[Concatenate[E, P], R]:
    """Check the arguments, and let a fit that fails or is interrupted leave the estimator exactly as it was before.

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
        if hasattr(estimator, "_parameter_constraints"):
            check_parameters(estimator)
        before = vars(estimator).copy()
        try:
            return fit(estimator, *arguments, **options)
        except BaseException:
            vars(estimator).clear()
            vars(estimator).update(before)
            raise

    return fitted
