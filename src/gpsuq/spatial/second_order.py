r"""How points of one or two types lie to each other: K, L and the pair correlation, and envelopes over all distances.

.. math:: K(r) = \sum_{i \ne j} w_{ij} 1[d_{ij} \le r], \qquad g(r) = \sum_{i \ne j} w_{ij}
          \frac{k_h(r - d_{ij})}{2 \pi d_{ij}}, \qquad w_{ij} = \frac{1}{\lambda(s_i) \lambda(s_j) |W \cap (W + s_i -
          s_j)|}

For Poisson processes with these intensities K(r) is the area of a circle, L(r) = r and g(r) = 1. Across types, i runs
over one and j over the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy.spatial import cKDTree

from gpsuq.errors import GPSError
from gpsuq.spatial.simulation import Intensity
from gpsuq.spatial.statistics import Envelope, default_distances, overlap
from gpsuq.spatial.windows import Array, Window

Summary = Literal["K", "L", "pcf"]
_STOYAN = 0.15  # half width of the kernel, in mean distances between points


def summary_function(
    points: Array,
    window: Window,
    distances: Array | None = None,
    *,
    summary: Summary = "pcf",
    intensity: Intensity | None = None,
    others: Array | None = None,
    other_intensity: Intensity | None = None,
) -> Array:
    """Return K, L or the pair correlation of points, or between points and ``others``, at the distances.

    Without intensities patterns are taken as homogeneous.

    >>> import numpy as np
    >>> from gpsuq.spatial import Window
    >>> from gpsuq.spatial.second_order import summary_function
    >>> rng = np.random.default_rng(0)
    >>> oaks = rng.random((400, 2))
    >>> pines = np.clip(oaks[:200] + 0.01 * rng.normal(size=(200, 2)), 0.0, 1.0)  # beside oaks
    >>> square = Window.rectangle(0.0, 1.0, 0.0, 1.0)
    >>> near, far = summary_function(oaks, square, np.array([0.01, 0.2]), others=pines)
    >>> bool(near > 3.0), bool(0.8 < far < 1.2)
    (True, True)
    """
    r = default_distances(window)[1:] if distances is None else np.asarray(distances, dtype=np.float64)
    if summary not in ("K", "L", "pcf"):
        raise GPSError(f'summary must be "K", "L" or "pcf", got {summary!r}')
    weights = _reciprocals(points, window, intensity)
    if others is None:
        n, half = len(points), _STOYAN * np.sqrt(window.area / max(1, len(points)))
        pairs = cKDTree(points).query_pairs(float(r[-1] + half), output_type="ndarray")
        first, second = (np.concatenate([pairs[:, side], pairs[:, 1 - side]]) for side in (0, 1))
        apart, weight = points[first] - points[second], weights[first] * weights[second] * (n / max(1, n - 1))
    else:
        half = _STOYAN * np.sqrt(window.area / max(1, min(len(points), len(others))))
        found = cKDTree(points).sparse_distance_matrix(cKDTree(others), float(r[-1] + half), output_type="ndarray")
        apart = points[found["i"]] - others[found["j"]]
        weight = weights[found["i"]] * _reciprocals(others, window, other_intensity)[found["j"]]
    weight = weight / overlap(window)(apart)
    near = np.hypot(apart[:, 0], apart[:, 1])
    if summary == "pcf":
        order = np.argsort(near)
        return _smoothed(near[order], weight[order], r, half)
    counted = np.bincount(np.searchsorted(r, near), weight, len(r) + 1)[: len(r)]
    k = np.cumsum(counted)
    return np.asarray(k if summary == "K" else np.sqrt(k / np.pi))


def _reciprocals(points: Array, window: Window, intensity: Intensity | None) -> Array:
    """Return 1 / intensity, scaled so that the sum is the area: that takes most of the noise out of the estimates."""
    reciprocal = np.ones(len(points)) if intensity is None else 1.0 / intensity(points)
    return np.asarray(reciprocal * (window.area / max(reciprocal.sum(), 1e-300)))


def _smoothed(near: Array, weight: Array, r: Array, half: float) -> Array:
    """Spread pairs, nearest first, over distances by Epanechnikov's kernel."""
    weight = weight / (2.0 * np.pi * np.maximum(near, 1e-6 * half))
    starts, ends = np.searchsorted(near, r - half), np.searchsorted(near, r + half)
    sums = []
    for place, start, end in zip(r, starts, ends, strict=True):
        kernel = 0.75 / half * (1.0 - np.square((near[start:end] - place) / half))
        # Below half a kernel's width part of it lies below zero, where no distances are.
        reach = min(1.0, place / half)
        inside = 0.5 + 0.75 * (reach - reach**3 / 3.0)
        sums.append(float(kernel @ weight[start:end]) / inside)
    return np.array(sums)


@dataclass(frozen=True)
class GlobalEnvelope(Envelope):
    """A curve of a pattern and an envelope that holds a simulated curve as a whole with probability ``coverage``.

    The envelope is as many standard deviations wide at every distance; the curve leaves it somewhere where ``p_value``
    is at most 1 - coverage.

    >>> import numpy as np
    >>> from gpsuq.spatial.second_order import global_envelope
    >>> simulated = np.random.default_rng(0).normal(size=(99, 5))
    >>> envelope = global_envelope(np.arange(1.0, 6.0), np.array([0.0, 0.0, 5.0, 0.0, 0.0]), simulated, "pcf")
    >>> envelope.p_value, bool(envelope.observed[2] > envelope.upper[2])
    (0.01, True)
    """

    summary: str


def global_envelope(
    distances: Array, observed: Array, simulated: Sequence[Array] | Array, summary: str, coverage: float = 0.95
) -> GlobalEnvelope:
    """Compare a curve with simulated ones at all distances at once, by the largest deviation from their mean.

    >>> import numpy as np
    >>> from gpsuq.spatial.second_order import global_envelope
    >>> simulated = np.random.default_rng(0).normal(size=(39, 5))
    >>> global_envelope(np.arange(1.0, 6.0), np.zeros(5), simulated, "pcf").p_value
    1.0
    """
    curves = np.vstack([observed, simulated])
    outside = int((1.0 - coverage) * len(curves) + 1e-9)
    if outside < 1:
        raise GPSError(f"{len(curves) - 1} simulations are too few for a coverage of {coverage:g}: take more")
    mean, spread = curves.mean(0), curves.std(0, ddof=1)
    deviation = np.abs((curves - mean) / np.where(spread > 0, spread, np.inf)).max(1)
    half = np.sort(deviation)[-outside - 1] * (1.0 + 1e-9) * spread  # the curve that touches it is inside
    p_value = float((deviation >= deviation[0]).mean())
    return GlobalEnvelope(distances, observed, mean - half, mean + half, mean, p_value, summary)
