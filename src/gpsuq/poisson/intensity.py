"""An intensity on a grid: what a fitted process says of its window."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd

from gpsuq.spatial.grids import Grid
from gpsuq.spatial.windows import Array


@dataclass(frozen=True)
class IntensitySurface:
    """Mean, standard deviation and quantiles of the intensity on a grid, (n_y, n_x), NaN outside the window.

    >>> import numpy as np
    >>> from gpsuq import GPSPoissonProcess
    >>> points = np.random.default_rng(0).random((150, 2))
    >>> model = GPSPoissonProcess(frequency=1.0, n_chains=2, n_steps=5).fit(points, window=(0, 1, 0, 1))
    >>> surface = model.surface(levels=(0.1, 0.9))
    >>> surface.mean.shape, sorted(surface.quantiles)
    ((32, 32), [0.1, 0.9])
    """

    grid: Grid
    mean: Array
    sd: Array
    quantiles: dict[float, Array]

    def to_frame(self) -> pd.DataFrame:
        """Return a row for each cell inside the window: centre, area, and mean, sd and quantiles of its intensity."""
        inside = self.grid.inside
        nodes = self.grid.nodes[inside]
        columns = {"x": nodes[:, 0], "y": nodes[:, 1], "area": self.grid.exposure[inside]}
        columns |= {"mean": self.mean[inside], "sd": self.sd[inside]}
        return pd.DataFrame(columns | {f"q{level:g}": values[inside] for level, values in self.quantiles.items()})
