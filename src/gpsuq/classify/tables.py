"""Columns of classes checked and split, and verdicts as tables."""

from __future__ import annotations

import math

import pandas as pd

from gpsuq.classify.decisions import ClassUncertainty
from gpsuq.errors import GPSError
from gpsuq.tables.reading import quoted


def parted(y: pd.Series, share: float, seed: int) -> tuple[pd.Index, pd.Index]:
    """Split rows at random into those that are kept and a share that is set aside, alike in their classes."""
    from sklearn.model_selection import train_test_split

    counts = y.value_counts()
    fewest = math.ceil(max(1.0 / share, 1.0 / (1.0 - share)) - 1e-9)
    if counts.min() < fewest:
        raise GPSError(
            f"class {quoted(counts.idxmin())} has {counts.min()} rows, too few to set a share of {share:g} aside: at "
            f"least {fewest} are needed; leave those rows out, or join the class with another"
        )
    kept, aside = train_test_split(y.index, test_size=share, stratify=y, random_state=seed % 2**32)
    return pd.Index(kept).sort_values(), pd.Index(aside).sort_values()


def verdict_table(verdicts: ClassUncertainty, index: pd.Index) -> pd.DataFrame:
    """Give one row for each observation: prediction, verdict, scores, and the mean probability of every class."""
    probabilities = {f"probability of {name}": verdicts.mean[:, h] for h, name in enumerate(verdicts.classes)}
    return verdicts.to_frame().assign(**probabilities).set_axis(index)
