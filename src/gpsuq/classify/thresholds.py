"""Thresholds of the verdict for a wanted coverage or error, by validation data: one for all classes, or one each."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import binom

from gpsuq.classify.decisions import Array, Flags, Threshold, risk_coverage
from gpsuq.errors import GPSError


def threshold_for_coverage(best: ArrayLike, coverage: float) -> float:
    """Return the threshold on max t_h that calls at least a share ``coverage`` of validation observations certain.

    ``best`` holds max t_h of each; equal ones are certain together.

    >>> import numpy as np
    >>> from gpsuq.classify.thresholds import threshold_for_coverage
    >>> best = np.array([0.9, 0.8, 0.6, 0.3])
    >>> best > threshold_for_coverage(best, 0.75)
    array([ True,  True,  True, False])
    """
    if not 0.0 < coverage < 1.0:
        raise GPSError(f"coverage must be between 0 and 1, got {coverage}")
    descending = np.sort(np.asarray(best, dtype=np.float64))[::-1]
    kept = max(1, math.ceil(coverage * len(descending) - 1e-9))  # 0.7 * 10 is a little more than 7
    return _just_below(descending[kept - 1])


def threshold_for_error(best: ArrayLike, errors: ArrayLike, error: float, *, confidence: float = 0.9) -> float:
    """Return the lowest threshold on max t_h for which certain observations are wrong at most that often.

    Observations are added from the most certain on, as long as the exact binomial upper bound of their error (Clopper
    and Pearson's, at the stated confidence) is below the target; the first that fails ends the sequence. The error of
    what is then called certain exceeds the target with probability 1 - ``confidence`` at most.

    >>> import numpy as np
    >>> from gpsuq.classify.thresholds import threshold_for_error
    >>> best = np.linspace(1.0, 0.0, 200)
    >>> errors = (np.arange(200) >= 100) & (np.arange(200) % 2 == 0)  # every second one of the less certain half
    >>> round(threshold_for_error(best, errors, 0.05), 2)
    0.49
    """
    fewest, scores = _fewest(error, confidence), np.asarray(best, dtype=np.float64)
    curve = risk_coverage(-scores, errors)
    kept = np.rint(curve.coverage * len(scores))
    lost = np.rint(curve.risk * kept)
    tested = kept >= fewest  # fewer cannot pass even without an error, so that the sequence starts with them
    fine = binom.cdf(lost[tested], kept[tested], error) <= 1.0 - confidence
    passed = int(fine.argmin()) if not fine.all() else len(fine)
    if passed == 0:
        raise GPSError(
            f"no threshold gives a certain error of {error:g} with {confidence:.0%} confidence on {len(scores)} "
            "validation observations; take more of them or a higher target"
        )
    most = int(kept[tested][passed - 1])
    return _just_below(np.sort(scores)[::-1][most - 1])


def thresholds_by_class(uqc: ArrayLike, threshold: Callable[[Flags], float], classes: ArrayLike | None = None) -> Array:
    """Return one threshold for each class, (H,), by the rows of t_h (n, H) whose best class it is.

    ``threshold`` returns that of the rows that flags choose; a class that is best nowhere gets that of all rows. Where
    one threshold serves all classes, a class that is easily recognised has hardly an Uncertain verdict, and what is
    mistaken for it passes. ``classes`` are names for messages.

    >>> import numpy as np
    >>> from gpsuq.classify.decisions import is_certain
    >>> from gpsuq.classify.thresholds import threshold_for_coverage, thresholds_by_class
    >>> uqc = np.array([[0.9, 0.0], [0.8, 0.0], [0.0, 0.4], [0.0, 0.3]])
    >>> half = thresholds_by_class(uqc, lambda rows: threshold_for_coverage(uqc[rows].max(1), 0.5))
    >>> is_certain(uqc, half), is_certain(uqc, threshold_for_coverage(uqc.max(1), 0.5))
    (array([ True, False,  True, False]), array([ True,  True, False, False]))
    """
    criteria = np.asarray(uqc, dtype=np.float64)
    best = criteria.argmax(1)
    names = np.arange(criteria.shape[1]) if classes is None else np.asarray(classes)
    found = []
    for number, name in enumerate(names.tolist()):
        rows = best == number
        try:
            found.append(threshold(rows if rows.any() else np.ones(len(best), dtype=bool)))
        except GPSError as error:
            raise GPSError(f"class {name!r}: {error}") from error
    return np.array(found)


def by_threshold(best: Array, errors: Flags | None, certain_above: Threshold) -> dict[str, Any]:
    """Return how many observations are certain, and how many of these are wrong, by one threshold for all classes.

    ``best`` holds max t_h of each; thresholds that leave none certain are not listed.

    >>> import numpy as np
    >>> from gpsuq.classify.thresholds import by_threshold
    >>> found = by_threshold(np.array([0.3, 0.9]), np.array([True, False]), 0.5)
    >>> place = found["above"].index(0.5)
    >>> found["certain"][place], found["wrong"][place], found["certain"][0], found["wrong"][0]
    (1, 0, 2, 1)
    """
    used = np.asarray(certain_above, dtype=float)
    in_use = [float(used)] if used.ndim == 0 else []
    grid = np.concatenate([np.linspace(0.0, 0.99, 100), np.quantile(best, np.linspace(0.0, 1.0, 101)), in_use])
    above = [float(value) for value in np.unique(grid.round(4)) if (best > value).any()]
    return {
        "above": above,
        "certain": [int((best > value).sum()) for value in above],
        "wrong": None if errors is None else [int(errors[best > value].sum()) for value in above],
        "n": len(best),
        "in_use": in_use[0] if in_use else None,
    }


def _fewest(error: float, confidence: float) -> float:
    """Return how many observations without a mistake show, with this confidence, that the error is below a target."""
    if not 0.0 < error < 1.0:
        raise GPSError(f"error must be between 0 and 1, got {error}")
    return float(np.log(1.0 - confidence) / np.log1p(-error))


def check_calibration_size(n: int, error: float, *, confidence: float = 0.9) -> None:
    """Raise where so few validation observations cannot show that an error is below a target.

    >>> from gpsuq.classify.thresholds import check_calibration_size
    >>> check_calibration_size(100, 0.02)
    Traceback (most recent call last):
    gpsuq.errors.GPSError: 100 validation observations cannot show an error below 0.02: at least 114 are needed
    """
    fewest = math.ceil(_fewest(error, confidence))
    if n < fewest:
        few = f"{n} validation observations cannot show an error below {error:g}"
        raise GPSError(f"{few}: at least {fewest} are needed")


def _just_below(value: float) -> float:
    return float(np.nextafter(value, -np.inf))
