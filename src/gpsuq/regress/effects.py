"""What predictions depend on: how much each column matters, and how the predictive changes with one of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from gpsuq.errors import GPSError, listed
from gpsuq.regress.columns import as_frame
from gpsuq.regress.estimator import GPSRegressor
from gpsuq.tables.frames import is_dates

Array = NDArray[np.floating]

EFFECT_LEVELS = (0.05, 0.25, 0.5, 0.75, 0.95)
"""Levels of the quantiles that an effect shows."""

_SCORE_LEVELS = (np.arange(9) + 0.5) / 9  # enough of them to rank columns by
_MOST_SCORED = 20  # columns whose score is computed; of more, those that move the mean most
_SCREENING_ROWS = 50
_FEW_VALUES = 8  # so few are shown one by one


def named_table(estimator: GPSRegressor, X: Any) -> pd.DataFrame:
    """Return rows as a table whose columns have names: their own, those of the fit, or x0, x1 and so on."""
    table = as_frame(X)
    if all(isinstance(name, str) for name in table):
        return table
    named = getattr(estimator, "feature_names_in_", None)
    return table.set_axis([f"x{place}" for place in range(table.shape[1])] if named is None else named, axis=1)


def some_rows(n: int, most: int, seed: int = 0) -> NDArray[np.int64]:
    """Choose at most so many of n rows, in their order."""
    return np.sort(np.random.default_rng(seed).permutation(n)[:most])


def importance(
    estimator: GPSRegressor, X: Any, y: Any, *, n_rows: int = 300, n_repeats: int = 2, random_state: int = 0
) -> pd.Series:
    """Return by how much predictions get worse where a column is shuffled, the most important column first.

    It is the growth of the CRPS (of nine quantiles), as a share of what the CRPS is: 0.5 is a column without which
    predictions are half as bad again. Of more than 20 columns, those 20 that move the mean most are looked at.

    >>> import numpy as np
    >>> from gpsuq import GPSRegressor
    >>> from gpsuq.regress.effects import importance
    >>> X = np.random.default_rng(0).normal(size=(200, 2))
    >>> model = GPSRegressor(n_chains=4, n_steps=50).fit(X, np.sin(X[:, 1]))
    >>> importance(model, X, np.sin(X[:, 1])).index.tolist()
    ['x1', 'x0']
    """
    table, outcome = named_table(estimator, X), np.asarray(y, dtype=np.float64).ravel()
    some = some_rows(len(table), n_rows, random_state)
    table, outcome = table.iloc[some].reset_index(drop=True), outcome[some]
    rng = np.random.default_rng(random_state)
    usual = _score(estimator, table, outcome)
    worse = {
        name: np.mean([_score(estimator, _shuffled(table, name, rng), outcome) for _ in range(n_repeats)])
        for name in _that_move_the_mean(estimator, table, rng)
    }
    shares = pd.Series(worse, dtype=np.float64, name="importance") / max(usual, 1e-300) - 1.0
    return shares.sort_values(ascending=False, kind="stable")


def _that_move_the_mean(estimator: GPSRegressor, table: pd.DataFrame, rng: np.random.Generator) -> list[str]:
    """Return the columns worth a closer look, in their own order."""
    names = list(map(str, table))
    if len(names) <= _MOST_SCORED:
        return names
    few = table.head(_SCREENING_ROWS)
    usual = estimator.predict(few)
    moves = [float(np.abs(estimator.predict(_shuffled(few, name, rng)) - usual).mean()) for name in names]
    return [names[place] for place in np.sort(np.argsort(moves)[-_MOST_SCORED:])]


def _shuffled(table: pd.DataFrame, name: str, rng: np.random.Generator) -> pd.DataFrame:
    values = table[name].iloc[rng.permutation(len(table))]
    return table.assign(**{name: values.set_axis(table.index)})


def _score(estimator: GPSRegressor, table: pd.DataFrame, outcome: Array) -> float:
    """Return twice the mean quantile loss, which is close to the CRPS."""
    below = outcome[:, None] - estimator.predict_quantiles(table, list(_SCORE_LEVELS)).to_numpy()
    return float(2.0 * np.maximum(_SCORE_LEVELS * below, (_SCORE_LEVELS - 1.0) * below).mean())


def effect(
    estimator: GPSRegressor, X: Any, name: str, *, n_rows: int = 60, n_values: int = 25, random_state: int = 0
) -> pd.DataFrame:
    """Return how quantiles of the predictive change with one column, the others as they are in some rows.

    Each row of the result is a value of the column (of text, its most frequent ones), with the quantiles averaged over
    the rows of X. Values that do not go together with the other columns are asked for, too, as by any such average.

    >>> import numpy as np
    >>> from gpsuq import GPSRegressor
    >>> from gpsuq.regress.effects import effect
    >>> X = np.random.default_rng(0).normal(size=(200, 2))
    >>> model = GPSRegressor(n_chains=4, n_steps=50).fit(X, X[:, 1])
    >>> effect(model, X, "x1", n_values=3).columns.tolist()
    [0.05, 0.25, 0.5, 0.75, 0.95]
    """
    table = named_table(estimator, X)
    if name not in table:
        raise GPSError(f"there is no column {name!r}; there are {listed(map(str, table))}")
    values = _values(table[name], n_values)
    some = table.iloc[some_rows(len(table), n_rows, random_state)]
    asked = pd.concat([some.assign(**{name: _constant(table[name], value, len(some))}) for value in values])
    quantiles = estimator.predict_quantiles(asked.reset_index(drop=True), list(EFFECT_LEVELS)).to_numpy()
    means = quantiles.reshape(len(values), len(some), len(EFFECT_LEVELS)).mean(1)
    return pd.DataFrame(means, index=pd.Index(values, name=name), columns=list(EFFECT_LEVELS))


def _constant(column: pd.Series, value: Any, n: int) -> Any:
    """Return n cells with one value, of the type that the column has."""
    number = pd.api.types.is_numeric_dtype(column) and not pd.api.types.is_bool_dtype(column)
    return np.full(n, value, dtype=np.float64) if number else np.full(n, value, dtype=object)


def _values(column: pd.Series, most: int) -> list[Any]:
    """Return values to show: all of a few, quantiles of many numbers or dates, the most frequent of texts."""
    seen = column.dropna()
    number = pd.api.types.is_numeric_dtype(column) and not pd.api.types.is_bool_dtype(column)
    if is_dates(column):
        chosen = seen.sort_values().iloc[np.linspace(0, len(seen) - 1, _FEW_VALUES).round().astype(int)]
        return list(dict.fromkeys(str(date.date()) for date in chosen))
    if not number:
        return sorted(seen.value_counts().index[:_FEW_VALUES].tolist(), key=str)
    numbers = seen.to_numpy(dtype=np.float64)
    different = np.unique(numbers)
    if len(different) > min(_FEW_VALUES, most):
        different = np.unique(np.quantile(numbers, np.linspace(0.01, 0.99, most)))
    return list(different.tolist())
