"""The law of an intensity that was fitted: its mean, what is uncertain about it, and draws of surfaces."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from gpsuq.errors import DivergenceError
from gpsuq.poisson.errors import ErrorField, off_by
from gpsuq.poisson.kernels import between_cells
from gpsuq.poisson.surfaces import SurfaceBody
from gpsuq.poisson.tiles import Locations
from gpsuq.spatial.grids import Grid
from gpsuq.spatial.windows import Array

_NUMBERS = 1 << 22  # held at once when evaluating surfaces


@dataclass(frozen=True)
class Choice:
    """The chosen value, and the table of those tried."""

    value: float
    table: pd.DataFrame


@dataclass(frozen=True)
class SurfaceNoise:
    """What draws of surfaces are made of, standard normal but for the first: one row per draw.

    ``chain`` (draw,) names whose loadings are taken, ``noise`` (draw, q) is Z, ``wobble`` (draw, mode) mixes the errors
    of the estimate; without modes there are none.
    """

    chain: NDArray[np.intp]
    noise: Array
    wobble: Array

    def one(self, draw: int) -> SurfaceNoise:
        """Return a single draw."""
        return SurfaceNoise(self.chain[[draw]], self.noise[[draw]], self.wobble[[draw]])

    @property
    def without_errors(self) -> SurfaceNoise:
        """The same draws of Z around the mean as it was estimated."""
        return SurfaceNoise(self.chain, self.noise, self.wobble[:, :0])


@dataclass(frozen=True)
class Surfaces:
    """What is known of the intensity at places: log mean (n,), relative errors (mode, n), loadings (chain, n, q)."""

    log_mean: Array
    apart: Array
    loading: Array

    def draws(self, noise: SurfaceNoise) -> Array:
        """Return the intensity of every draw, (draw, n); their mean is the mean intensity."""
        result = np.tile(self.log_mean, (len(noise.chain), 1))
        for number in np.unique(noise.chain) if self.loading.any() else ():
            mine, loading = noise.chain == number, self.loading[number]
            result[mine] += noise.noise[mine] @ loading.T - 0.5 * np.square(loading).sum(-1)
        np.exp(result, out=result)
        if noise.wobble.shape[1]:
            result *= off_by(noise.wobble @ self.apart, np.square(self.apart).sum(0))
        if not np.isfinite(result).all():
            raise DivergenceError("the intensity is not finite: training diverged or the model was damaged; fit again")
        return result

    @property
    def heterogeneity(self) -> Array:
        """Standard deviation over Z, within chains, relative to the mean, (n,)."""
        return np.asarray(np.sqrt(np.expm1(np.square(self.loading).sum(-1)).mean(0)))

    @property
    def estimation(self) -> Array:
        """Standard deviation of the errors of the estimate, relative to the mean, (n,)."""
        return np.asarray(np.sqrt(np.square(self.apart).sum(0)))


@dataclass(frozen=True)
class KernelPart:
    """What kernel estimates and a constant add to the mean intensity: an image on a grid of its own."""

    grid: Grid
    image: Array

    def at(self, points: Array) -> Array:
        """Return the values at points (n, 2)."""
        return between_cells(self.image, self.grid, points)


@dataclass(frozen=True)
class PoissonFit:
    """Trained surfaces of all chains and the image beside them, with what leads from there to the user's units.

    ``level`` (chain,) is log of the intensity where the network gives 0, ``weight`` (chain,) its share of the mean.
    Chains whose loadings are drawn have a spread above 0.
    """

    body: SurfaceBody
    locations: Locations
    grid: Grid
    level: Array
    weight: Array
    kernel: KernelPart | None
    error: ErrorField
    smoothness: Choice | None
    frequency: float
    spread: Choice

    @property
    def varying(self) -> NDArray[np.intp]:
        """The chains whose loadings are drawn: those that have any, or else the first."""
        having = self.body.spread.flatten().nonzero().flatten().numpy()
        return np.asarray(having if len(having) else np.zeros(1, dtype=np.intp))

    def chains(self, points: Array) -> tuple[Array, Array]:
        """Return log of each chain's mean intensity (chain, n) and its loadings (chain, n, q)."""
        mean, loading = log_means(self.body, self.locations, points)
        return mean + self.level[:, None], loading

    def surfaces(self, points: Array) -> Surfaces:
        """Return what draws at points (n, 2) are made of."""
        mean, loading = self._evaluated(points)
        return Surfaces(np.log(mean), self.error.modes(self.grid, points, mean), loading[self.varying])

    def without_errors(self, points: Array) -> Surfaces:
        """Return what draws are made of where the mean is taken as it was estimated."""
        mean, loading = self._evaluated(points)
        return Surfaces(np.log(mean), np.empty((0, len(points))), loading[self.varying])

    def mean(self, points: Array) -> Array:
        """Mean intensity over chains and draws, (n,)."""
        return self._evaluated(points)[0]

    def _evaluated(self, points: Array) -> tuple[Array, Array]:
        logs, loading = self.chains(points)
        with np.errstate(over="ignore"):
            mean = self.weight @ np.exp(logs)
        if self.kernel is not None:
            mean = mean + self.kernel.at(points)
        return np.maximum(mean, np.finfo(float).tiny), loading


def log_means(body: SurfaceBody, locations: Locations, points: Array) -> tuple[Array, Array]:
    """Return log of each chain's mean over Z, up to its level (chain, n), and its loadings (chain, n, q)."""
    width = max(body.spec.waves, *body.spec.hidden)
    blocks = torch.from_numpy(points).split(max(1, _NUMBERS // (len(body.wave) * width)))
    with torch.no_grad():
        found = [body.surfaces(locations.inputs(block.numpy())[None]) for block in blocks]
    mean, loading = (torch.cat(parts, 1).double().numpy() for parts in zip(*found, strict=True))
    # The mean over Z of exp(m + B'Z) is exp(m + |B|^2 / 2).
    return mean + 0.5 * np.square(loading).sum(-1), loading
