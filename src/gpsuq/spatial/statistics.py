r"""Ripley's K and Besag's L, weighted by a fitted intensity, and envelopes of them from simulations.

.. math:: K(r) = \frac{1}{|W|} \sum_{i \ne j}
          \frac{1[\lVert s_i - s_j \rVert \le r]}{\lambda(s_i) \lambda(s_j)\, e_{ij}},
          \qquad L(r) = \sqrt{K(r) / \pi},

with the translation correction :math:`e_{ij} = |W \cap (W + s_i - s_j)| / |W|`. For a Poisson process with intensity
:math:`\lambda`, L(r) = r: above it points cluster, below it they keep apart.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy.signal import fftconvolve
from scipy.spatial import cKDTree

from gpsuq.engine.progress import counting_bar
from gpsuq.errors import GPSError
from gpsuq.spatial.grids import Grid
from gpsuq.spatial.simulation import Intensity
from gpsuq.spatial.windows import Array, Window

_DISTANCES = 50
_COVARIANCE_CELLS = 1 << 14
_MOST_POINTS = 5000


def default_distances(window: Window) -> Array:
    """Return fifty distances up to a quarter of the shorter side.

    >>> from gpsuq.spatial import Window
    >>> from gpsuq.spatial.statistics import default_distances
    >>> default_distances(Window.rectangle(0.0, 2.0, 0.0, 1.0)).max()
    np.float64(0.25)
    """
    x_min, x_max, y_min, y_max = window.bounds
    return np.linspace(0.0, 0.25 * min(x_max - x_min, y_max - y_min), _DISTANCES)


def l_function(
    points: Array, window: Window, distances: Array | None = None, *, intensity: Intensity | None = None
) -> Array:
    """Return L(r) at the distances; without an intensity the pattern is taken as homogeneous.

    Weights are scaled so that the reciprocals of the intensity at the points sum to the area, which takes most of the
    noise out of the estimate. Two points in the same place are no pair: no process with an intensity has them, and one
    row entered twice would otherwise outweigh all true distances.

    >>> import numpy as np
    >>> from gpsuq.spatial import Window, l_function
    >>> middles = np.linspace(0.05, 0.95, 10)
    >>> lattice = np.stack(np.meshgrid(middles, middles), -1).reshape(-1, 2)  # no neighbour is nearer than 0.1
    >>> l_function(lattice, Window.rectangle(0.0, 1.0, 0.0, 1.0), [0.09, 0.11]).round(2)
    array([0.  , 0.11])
    """
    distances = _checked_distances(distances, window)
    n = len(points)
    if n < 2:
        return np.zeros(len(distances))
    reciprocal = np.ones(n) if intensity is None else 1.0 / intensity(points)
    reciprocal = reciprocal * (window.area / reciprocal.sum())
    pairs = cKDTree(points).query_pairs(float(distances[-1]), output_type="ndarray")
    apart = points[pairs[:, 0]] - points[pairs[:, 1]]
    pairs, apart = pairs[apart.any(1)], apart[apart.any(1)]
    weight = 2.0 * reciprocal[pairs[:, 0]] * reciprocal[pairs[:, 1]] / overlap(window)(apart)
    near = np.searchsorted(distances, np.hypot(apart[:, 0], apart[:, 1]))
    k = np.cumsum(np.bincount(near, weights=weight, minlength=len(distances))[: len(distances)])
    return np.asarray(np.sqrt(k * (n / (n - 1)) / np.pi))


def _checked_distances(distances: Array | None, window: Window) -> Array:
    if distances is None:
        return default_distances(window)
    values = np.asarray(distances, dtype=np.float64)
    if values.ndim != 1 or len(values) == 0 or not (values >= 0.0).all() or not (np.diff(values) > 0.0).all():
        raise GPSError("distances must be a vector of increasing numbers, none below 0")
    return values


@lru_cache(maxsize=4)
def overlap(window: Window) -> Callable[[Array], Array]:
    """Return what maps vectors (n, 2) to the area that the window shares with itself moved by each."""
    x_min, x_max, y_min, y_max = window.bounds
    width, height = x_max - x_min, y_max - y_min
    if window.is_rectangle:
        return lambda by: (width - np.abs(by[:, 0])) * (height - np.abs(by[:, 1]))
    grid = Grid.with_cells(window, _COVARIANCE_CELLS)
    step_x, step_y = grid.cell_size
    covariance = fftconvolve(grid.exposure, grid.exposure[::-1, ::-1]) / (step_x * step_y)

    def overlap(by: Array) -> Array:
        column = np.rint(by[:, 0] / step_x).astype(int) + grid.n_x - 1
        row = np.rint(by[:, 1] / step_y).astype(int) + grid.n_y - 1
        return np.asarray(np.maximum(covariance[row, column], step_x * step_y))

    return overlap


@dataclass(frozen=True)
class Envelope:
    """L of a pattern between its extremes over simulated patterns, and the test on its largest deviation.

    ``lower`` and ``upper`` bound all simulations at each distance; ``p_value`` is the rank of the pattern's largest
    deviation from the mean of all curves (in units of their standard deviation) among theirs, over all distances at
    once.

    >>> import numpy as np
    >>> from gpsuq.spatial import Envelope
    >>> one = np.ones(3)
    >>> envelope = Envelope(np.array([0.0, 0.1, 0.2]), 0.15 * one, 0.05 * one, 0.1 * one, 0.08 * one, p_value=0.025)
    >>> bool((envelope.observed > envelope.upper).all())
    True
    >>> envelope.clustered, envelope.shown
    (True, 'p = 0.025')
    """

    distances: Array
    observed: Array
    lower: Array
    upper: Array
    mean: Array
    p_value: float

    @property
    def shown(self) -> str:
        """The p-value as it is printed everywhere."""
        return f"p = {self.p_value:.3g}"

    @property
    def clustered(self) -> bool:
        """Whether the pattern lies above the simulated ones where it differs most from them."""
        spread = np.maximum(self.upper - self.lower, np.finfo(float).tiny)
        apart = (self.observed - self.mean) / spread
        return bool(apart[np.abs(apart).argmax()] > 0.0)


def l_envelope(
    points: Array | Sequence[Array],
    simulated: Sequence[Array | Sequence[Array]],
    window: Window,
    distances: Array | None = None,
    *,
    intensity: Intensity | None = None,
    estimate: Callable[[Sequence[Array]], Intensity] | None = None,
    progress: bool = False,
) -> Envelope:
    """Compare a pattern's L with those of patterns simulated from a fitted model.

    Where there are replicates, the pattern and each simulation are lists of them, and L is their mean. ``estimate``
    makes an intensity of each pattern, in place of one ``intensity`` for all: that the pattern's own intensity was
    estimated from it then counts alike on both sides. ``progress`` shows a bar: thousands of points take seconds.

    >>> import numpy as np
    >>> from gpsuq.spatial import Window, l_envelope
    >>> rng = np.random.default_rng(0)
    >>> single = rng.random((50, 2))
    >>> pairs = np.concatenate([single, np.clip(single + 0.01, 0.0, 1.0)])
    >>> random = [rng.random((100, 2)) for _ in range(19)]
    >>> l_envelope(pairs, random, Window.rectangle(0.0, 1.0, 0.0, 1.0)).p_value
    0.05
    """
    if len(simulated) < 2:
        raise GPSError(f"an envelope needs at least 2 simulated patterns, got {len(simulated)}")
    distances = _checked_distances(distances, window)
    everything = [[item] if isinstance(item, np.ndarray) else list(item) for item in (points, *simulated)]
    if max(map(len, everything[0]), default=0) < 2:
        raise GPSError("the L function needs at least 2 points")
    curves = np.empty((len(everything), len(distances)))
    with counting_bar(progress, "comparing distances", len(everything)) as advance:
        for done, replicates in enumerate(everything):
            own = intensity if estimate is None else estimate(replicates)
            of_replicates = [l_function(_some(one), window, distances, intensity=own) for one in replicates]
            curves[done] = np.mean(of_replicates, axis=0)
            advance(done + 1)
    spread = curves.std(0, ddof=1)
    deviation = np.abs((curves - curves.mean(0)) / np.where(spread > 0, spread, np.inf)).max(1)
    p_value = float((deviation >= deviation[0]).mean())
    return Envelope(distances, curves[0], curves[1:].min(0), curves[1:].max(0), curves[1:].mean(0), p_value)


def _some(points: Array) -> Array:
    """Thin very many points: L is that of the thinned pattern, too, and pairs grow with the square of their number."""
    if len(points) <= _MOST_POINTS:
        return points
    return points[np.random.default_rng(0).choice(len(points), _MOST_POINTS, replace=False)]
