"""What distinguishes subgroups of rows: the columns whose values differ between them."""

from __future__ import annotations

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.stats import f_oneway

from gpsuq.core.numbers import shown_number
from gpsuq.errors import listed

_SURE = 0.9  # probability of its subgroup from which on a row speaks for it
_FEWEST = 5  # such rows of a subgroup
_LEVEL = 0.01  # of all columns together
_MOST = 3  # columns that are named


def subgroup_profile(table: pd.DataFrame, subgroup: NDArray[np.int64], sure: NDArray[np.floating]) -> pd.DataFrame:
    """Return the mean of every column in every subgroup, how far apart they are, and whether chance explains it.

    ``table`` has numbers, ``subgroup`` and ``sure`` the number of each row's subgroup and its probability: only rows
    that are 90% sure of theirs count. ``apart`` is the range of the means in standard deviations of the column,
    ``p_value`` that of an F test, times the number of columns.

    >>> import numpy as np
    >>> import pandas as pd
    >>> from gpsuq.linear.profile import subgroup_profile
    >>> table = pd.DataFrame({"age": [30, 31, 32, 33, 34, 60, 61, 62, 63, 64.0], "dose": 5 * [1.0, 2.0]})
    >>> found = subgroup_profile(table, np.repeat([0, 1], 5), np.ones(10))
    >>> found[[0, 1]].loc["age"].tolist(), bool(found["p_value"]["dose"] > 0.1)
    ([32.0, 62.0], True)
    """
    seen = sure >= _SURE
    values, number = table.to_numpy(dtype=float)[seen], subgroup[seen]
    groups = [group for group in np.unique(number) if (number == group).sum() >= _FEWEST]
    if len(groups) < 2:
        return pd.DataFrame()
    parts = [values[number == group] for group in groups]
    means = np.stack([part.mean(0) for part in parts])
    spread = np.where(values.std(0) > 0.0, values.std(0), 1.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        p_value = np.nan_to_num(f_oneway(*parts, axis=0).pvalue, nan=1.0)
    found = pd.DataFrame(means.T, index=table.columns, columns=[int(group) for group in groups])
    found["apart"], found["p_value"] = np.ptp(means, 0) / spread, np.minimum(p_value * table.shape[1], 1.0)
    return found.sort_values("apart", ascending=False, kind="stable")


def profile_in_words(profile: pd.DataFrame) -> str:
    """Say which columns tell the subgroups apart.

    >>> import pandas as pd
    >>> from gpsuq.linear.profile import profile_in_words
    >>> columns = {"0": [32.0], "1": [62.0], "apart": [2.0], "p_value": [1e-6]}
    >>> profile_in_words(pd.DataFrame(columns, index=["age"]))
    'They differ in age (means 32, 62).'
    """
    if profile.empty:
        return "Too few rows are sure of their subgroup to say what distinguishes them."
    told = profile[profile["p_value"] < _LEVEL].head(_MOST)
    if told.empty:
        return "No column tells them apart: what makes them differ is not in the table."
    return f"They differ in {listed(_difference(told, name) for name in told.index)}."


def _difference(profile: pd.DataFrame, name: str) -> str:
    means = profile.drop(columns=["apart", "p_value"]).loc[name].to_numpy(dtype=float)
    return f"{name} (means {', '.join(map(shown_number, means))})"
