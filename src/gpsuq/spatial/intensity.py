"""What every model of an intensity offers: its value, its integral, and the likelihood of points."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np

from gpsuq.errors import GPSError
from gpsuq.spatial.windows import Array


class IntensityModel(ABC):
    """An intensity over a window."""

    @abstractmethod
    def intensity(self, points: Array) -> Array:
        """Return the expected number of points per unit of area at each point (n, 2)."""

    @abstractmethod
    def integral(self) -> float:
        """Return the expected number of points in the window."""

    def log_likelihood(self, points: Array) -> float:
        r"""Return the log-likelihood of a Poisson process with this intensity, per point; higher is better.

        .. math:: \frac{1}{n} \Bigl( \sum_i \log \lambda(s_i) - \int_W \lambda(s)\, ds \Bigr)
        """
        if len(points) == 0:
            raise GPSError("the log-likelihood per point needs points")
        return float((np.log(self.intensity(points)).sum() - self.integral()) / len(points))
