"""Numbers as people read them: digits that their column needs, values with their intervals, shares with theirs."""

from __future__ import annotations

import math
from numbers import Integral
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.stats import norm

_SMALLEST, _LARGEST = 1e-4, 1e7  # numbers beyond are written with an exponent
_ALIKE = 1e2  # ratio of the largest to the smallest number of a column that has one count of decimals


def shown_number(value: float) -> str:
    """Return a number with four digits, as people write it.

    >>> [shown_number(value) for value in (123456.7, 0.5, 1.23456, 1.23e-11)]
    ['123,457', '0.5', '1.235', '1.23e-11']
    """
    if not math.isfinite(value) or (value and not _SMALLEST <= abs(value) < _LARGEST):
        return f"{value:.3g}"
    text = f"{value:,.{_decimals(abs(value))}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def shown_numbers(column: pd.Series) -> list[str]:
    """Return the cells of a column as people read them: numbers of one size have the same decimals."""
    numbers = [cell for cell in column if isinstance(cell, float) and math.isfinite(cell) and cell]
    sizes = sorted(map(abs, numbers))
    alike = sizes and sizes[-1] < _LARGEST and sizes[0] > max(_SMALLEST, sizes[-1] / _ALIKE)
    whole = all(cell == int(cell) for cell in numbers)
    decimals = 0 if whole else _decimals(sizes[-1]) if alike else None
    return [_cell(cell, decimals) for cell in column]


def _cell(value: Any, decimals: int | None) -> str:
    if value is None or value != value:
        return ""
    if isinstance(value, float):
        return shown_number(value) if decimals is None or abs(value) >= _LARGEST else f"{value:,.{decimals}f}"
    return f"{value:,}" if isinstance(value, Integral) and not isinstance(value, bool) else str(value)


def _decimals(size: float) -> int:
    """Return how many decimals show four digits of a number of some size."""
    return max(0, 3 - math.floor(math.log10(size))) if size else 0


def binomial_interval(found: Any, of: Any, coverage: float = 0.95) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return Wilson's interval for a share, of how many were found of how many; from 0 to 1 where there are none.

    >>> [round(float(end), 3) for end in binomial_interval(0, 100)]
    [0.0, 0.037]
    """
    z = norm.isf((1.0 - coverage) / 2.0)
    count, share = np.asarray(of, dtype=float), np.asarray(found) / np.maximum(of, 1)
    middle, width = share * count + z**2 / 2.0, z * np.sqrt(count * share * (1.0 - share) + z**2 / 4.0)
    low, high = (middle - width) / (count + z**2), (middle + width) / (count + z**2)
    return np.clip(low, 0.0, 1.0), np.clip(high, 0.0, 1.0)
