"""Tables of parameters: mean, heterogeneity, estimation uncertainty, intervals for both; the pieces of their laws."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from gpsuq.core.intervals import between_chains, check_coverage, equal_tailed, highest_density, mean_interval

_ROUNDING = 1e-12  # of the largest value: less is no spread
_SUMMARY = ["mean", "heterogeneity_sd", "estimation_sd", "median"]
_SUMMARY += [f"{of}_{side}" for of in ("population", "mean") for side in ("lower", "upper")]
_PIECE = ["parameter", "piece", "lower", "median", "upper", "share"]


def summary_table(
    draws: Mapping[str, NDArray[np.floating]],
    coverage: float,
    *,
    reweighted: bool,
    positive: Collection[str] = (),
    centers: Mapping[str, NDArray[np.floating]] | None = None,
) -> pd.DataFrame:
    """Summarise draws (chain, draw) of every named number.

    ``heterogeneity_sd`` is the standard deviation within chains, ``estimation_sd`` that between chains, which is a
    standard error only where they were ``reweighted``. ``population_*`` bounds theta_i of an observation, ``mean_*``
    the mean of theta; that of ``positive`` parameters is found for their logarithm, so that it stays positive.
    ``centers`` (chain,) are the means of chains where they are known better than from some hundred draws.
    """
    check_coverage(coverage)
    rows = {}
    centers = {} if centers is None else centers
    for name, values in draws.items():
        means, known = centers.get(name, values.mean(1)), len(values) > 1 and reweighted
        spread = np.sqrt(values.var(1, ddof=1).mean())
        interval = np.array([np.nan, np.nan])
        if known and name in positive and (means > 0).all():
            interval = np.exp(mean_interval(np.log(means), coverage))
        elif known:
            interval = mean_interval(means, coverage)
        rows[name] = [
            means.mean(),
            0.0 if spread <= _ROUNDING * np.abs(values).max() else spread,
            between_chains(means) if known else np.nan,
            np.median(values),
            *equal_tailed(values.ravel(), coverage),
            *interval,
        ]
    return pd.DataFrame.from_dict(rows, orient="index", columns=_SUMMARY).rename_axis("parameter")


def largest(values: NDArray[np.floating], most: int) -> NDArray[np.intp]:
    """Return the places of at most so many of the numbers, those of the largest size, in their own order.

    >>> import numpy as np
    >>> largest(np.array([1.0, -3.0, 0.5, 2.0]), 2)
    array([1, 3])
    """
    return np.sort(np.argsort(-np.abs(values), kind="stable")[:most])


def density_pieces(draws: pd.DataFrame, coverage: float) -> pd.DataFrame:
    """Return the separate pieces of each column's highest-density region: where subgroups lie, and how large they are.

    >>> import numpy as np
    >>> import pandas as pd
    >>> from scipy.stats import norm
    >>> group = norm.ppf(np.linspace(0.001, 0.999, 1000))
    >>> draws = pd.DataFrame({"slope": np.concatenate([group - 10.0, group + 10.0])})
    >>> density_pieces(draws, 0.9)[["piece", "median", "share"]].round(2).to_numpy()
    array([[  1.  , -10.  ,   0.45],
           [  2.  ,  10.  ,   0.45]])
    """
    rows: list[tuple[str, int, float, float, float, float]] = []
    for name, column in draws.items():
        values = column.to_numpy(dtype=np.float64)
        for number, (lower, upper) in enumerate(highest_density(values, coverage), 1):
            inside = values[(values >= lower) & (values <= upper)]
            rows.append((str(name), number, lower, float(np.median(inside)), upper, len(inside) / len(values)))
    return pd.DataFrame(rows, columns=_PIECE).set_index("parameter")
