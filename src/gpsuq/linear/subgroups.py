"""Subgroups of draws: the modes along the direction in which they differ most."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.signal import find_peaks
from scipy.stats import gaussian_kde

Array = NDArray[np.floating]

_GRID = 256
_VALLEY = 0.5  # of the lower of two peaks: a shallower dip is no gap between groups
_SMALLEST = 0.02  # share of the draws


def split_points(values: Array) -> Array:
    """Give the valleys that separate the modes of a sample; none where it has one mode."""
    spread = values.std()
    if not spread > 1e-12 * max(1.0, float(np.abs(values).max())):
        return np.empty(0)
    # Silverman's bandwidth smooths two modes into one: a third of it keeps them apart, the depth test discards ripples.
    density = gaussian_kde(values, bw_method=lambda kde: kde.silverman_factor() / 3.0)
    grid = np.linspace(values.min(), values.max(), _GRID)
    height = density(grid)
    peaks = find_peaks(np.concatenate([[0.0], height, [0.0]]))[0] - 1
    splits: list[float] = []
    last = peaks[0]
    for peak in peaks[1:]:
        valley = last + int(height[last : peak + 1].argmin())
        candidate, lower = float(grid[valley]), splits[-1] if splits else -np.inf
        deep = height[valley] <= _VALLEY * min(height[last], height[peak])
        shares = ((values > lower) & (values <= candidate)).mean(), (values > candidate).mean()
        if deep and min(shares) >= _SMALLEST:
            splits.append(candidate)
            last = peak
        elif height[peak] > height[last]:
            last = peak
    return np.asarray(splits)


def principal_direction(draws: Array) -> Array:
    """Give the unit vector along which draws (m, p) vary most, its largest entry positive."""
    centred = draws - draws.mean(0)
    direction: Array = np.linalg.svd(centred, full_matrices=False)[2][0]
    return -direction if direction[np.abs(direction).argmax()] < 0 else direction
