"""One table for every parameter: its mean, its heterogeneity, its estimation uncertainty, intervals for both."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from gpsuq.intervals import between_chains, check_coverage, equal_tailed, mean_interval


def summary_table(draws: Mapping[str, NDArray[np.floating]], coverage: float, *, reweighted: bool) -> pd.DataFrame:
    """Summarise draws (chain, draw) of every named number.

    ``heterogeneity_sd`` is the standard deviation within chains, ``estimation_sd`` that between chains, which is a
    standard error only where they were ``reweighted``. ``population_*`` bounds theta_i of an observation, ``mean_*``
    the mean of theta.
    """
    check_coverage(coverage)
    rows = {}
    for name, values in draws.items():
        lower, upper = equal_tailed(values.ravel(), coverage)
        known = len(values) > 1 and reweighted
        mean_lower, mean_upper = mean_interval(values.mean(1), coverage) if known else (np.nan, np.nan)
        rows[name] = {
            "mean": values.mean(),
            "heterogeneity_sd": np.sqrt(values.var(1, ddof=1).mean()),
            "estimation_sd": between_chains(values.mean(1)) if known else np.nan,
            "median": np.median(values),
            "population_lower": lower,
            "population_upper": upper,
            "mean_lower": mean_lower,
            "mean_upper": mean_upper,
        }
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("parameter")
