"""Counts of points in tiles of cells, and what the network sees of the cells."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gpsuq.core.observations import Batch, Observations
from gpsuq.core.seeds import random_block
from gpsuq.engine.ranks import share
from gpsuq.engine.sources import BatchSource
from gpsuq.errors import GPSError
from gpsuq.poisson.counts import bandwidth_ladder, pooled
from gpsuq.spatial.covariates import CovariateGrid
from gpsuq.spatial.grids import TILE, Grid
from gpsuq.spatial.windows import Array

SCALES = (1, 2, 4, 8, 16)
"""Sides of the blocks whose counts are scored, in cells."""

_BANDWIDTH = 4.0  # of the kernel on stabilised counts
_MOST_COUNTS = 1 << 26  # chains x replicates x cells


@dataclass(frozen=True)
class Locations:
    """From the user's coordinates and covariates to what the network sees: both centred and scaled."""

    center: Array  # (2,)
    length: float  # the window's longest side
    covariates: tuple[CovariateGrid, ...]
    covariate_center: Array
    covariate_scale: Array

    @classmethod
    def over(cls, grid: Grid, covariates: Sequence[CovariateGrid]) -> Locations:
        """Read centre and scale off the cells of a grid."""
        x_min, x_max, y_min, y_max = grid.window.bounds
        nodes = grid.nodes[grid.inside]
        columns = [covariate.at(nodes) for covariate in covariates]
        for covariate, column in zip(covariates, columns, strict=True):
            if not np.isfinite(column).all():
                x, y = nodes[(~np.isfinite(column)).argmax()]
                raise GPSError(f"covariate {covariate.name!r} is missing inside the window, near x = {x:g}, y = {y:g}")
        center, scale = (np.array([reduce(column) for column in columns]) for reduce in (np.mean, np.std))
        return cls(
            np.array([(x_min + x_max) / 2.0, (y_min + y_max) / 2.0]),
            max(x_max - x_min, y_max - y_min),
            tuple(covariates),
            center,
            np.where(scale > 0, scale, 1.0),
        )

    def inputs(self, points: Array) -> Tensor:
        """Return what the network sees of points (n, 2): (n, 2 + covariates)."""
        parts = [(points - self.center) / self.length]
        for number, covariate in enumerate(self.covariates):
            value = (covariate.at(points) - self.covariate_center[number]) / self.covariate_scale[number]
            parts.append(value[:, None])
        return torch.from_numpy(np.concatenate(parts, 1)).float()


def in_tiles(cells: NDArray[np.generic]) -> NDArray[np.generic]:
    """Gather (..., n_y, n_x) into tiles: (..., tile, cell)."""
    *lead, n_y, n_x = cells.shape
    split = cells.reshape(*lead, n_y // TILE, TILE, n_x // TILE, TILE)
    return np.moveaxis(split, -3, -2).reshape(*lead, -1, TILE * TILE)


def place_numbers(points: Array) -> NDArray[np.intp]:
    """Return a number from 0 on for every point (n, 2); points in the same place share it."""
    pairs = np.ascontiguousarray(points, dtype=np.float64).view(np.complex128)  # sorted far faster than rows are
    return np.asarray(np.unique(pairs.ravel(), return_inverse=True)[1])


@dataclass(frozen=True)
class Folds:
    """Points split at random, several times over: which fold of each partition a point of each replicate is in.

    Points in the same place stay together, so that none is left out while its twin is seen.
    """

    n_folds: int
    left_out: tuple[tuple[int, int], ...]  # for each chain, a partition and the fold of it that the chain leaves out
    of_points: tuple[tuple[NDArray[np.int64], ...], ...]  # by partition and replicate

    @classmethod
    def split(cls, patterns: Sequence[Array], n_chains: int, n_folds: int, seed: int) -> Folds:
        """Split the points of every replicate, as often as there are chains for."""
        left_out = tuple(divmod(chain, n_folds) for chain in range(n_chains))
        places = [place_numbers(points) for points in patterns]

        def fold(partition: int, replicate: int) -> NDArray[np.int64]:
            block = random_block(seed, "partition", partition, replicate)
            numbers = torch.randint(n_folds, (len(places[replicate]),), generator=block).numpy()
            return np.asarray(numbers[places[replicate]])

        n_partitions = left_out[-1][0] + 1
        return cls(
            n_folds,
            left_out,
            tuple(tuple(fold(each, replicate) for replicate in range(len(places))) for each in range(n_partitions)),
        )

    @property
    def kept(self) -> float:
        """The share of the points that a chain sees."""
        return 1.0 - 1.0 / self.n_folds

    def counts(self, cells: Sequence[NDArray[np.intp]], size: int) -> NDArray[np.int64]:
        """Count the points that each chain leaves out: (chain, replicate, cell)."""
        parts = [
            [
                np.bincount(fold * size + cell, minlength=self.n_folds * size).reshape(self.n_folds, size)
                for fold, cell in zip(partition, cells, strict=True)
            ]
            for partition in self.of_points
        ]
        return np.stack([np.stack([one[fold] for one in parts[partition]]) for partition, fold in self.left_out])


class PatternSource(BatchSource):
    """Tiles of counts; every chain sees its own part of the points, and is tested on the rest.

    ``cells`` holds the cell of every point of every replicate; every chain of the folds is there ``repeats`` times.
    """

    def __init__(
        self,
        grid: Grid,
        inputs: Tensor,
        cells: Sequence[NDArray[np.intp]],
        folds: Folds,
        repeats: int,
        batch_size: int,
        seed: int,
    ) -> None:
        size, n_chains = grid.n_x * grid.n_y, repeats * len(folds.left_out)
        if size * len(cells) * n_chains > _MOST_COUNTS:
            raise GPSError(
                f"{n_chains} chains on {len(cells)} replicates of {size:,} cells do not fit in memory: take at "
                f"most n_cells={_MOST_COUNTS // (len(cells) * n_chains)}"
            )
        self.seed, self.kept = seed, folds.kept
        counts = np.stack([np.bincount(cell, minlength=size) for cell in cells])
        shape = grid.n_y, grid.n_x
        every = in_tiles(counts.reshape(-1, *shape))  # (replicate, tile, cell)
        left = in_tiles(folds.counts(cells, size).reshape(len(folds.left_out), -1, *shape))
        self._held_out = torch.from_numpy(left).float().flatten(1, 2).repeat(repeats, 1, 1)  # (chain, tile, cell)
        total = torch.from_numpy(every).float().flatten(0, 1)
        self._train = total - self._held_out
        # The mean level is known well enough to start from; the network learns what differs from it.
        self.level = max(float(total.sum()), 1.0) / (len(cells) * grid.window.area)
        smallest = 1e-12 * grid.exposure.max()
        offset = np.log(np.maximum(in_tiles(grid.exposure), smallest) * self.level)[..., None]
        tiles = in_tiles(np.moveaxis(inputs.numpy().reshape(*shape, -1), -1, 0))
        x = torch.from_numpy(np.concatenate([np.moveaxis(tiles, 0, -1), offset], -1)).float()
        seen = torch.from_numpy(in_tiles(grid.exposure).sum(1) > 0).repeat(len(cells))
        self._rows = seen.nonzero().flatten()
        self._x = x.repeat(len(cells), 1, 1)
        self.sample = Observations(total[self._rows], self._x[self._rows])
        self.batch_size = min(batch_size, len(self._rows))
        self.length = len(self._rows) // self.batch_size
        self.weighted, self.n_observations = False, len(self._rows)

    def _tiles(self, counts: Tensor, rows: Tensor, share: float) -> Batch:
        x = self._x[rows].clone()
        x[..., -1] += math.log(share)
        return Batch(counts[:, rows, None], x[None, :, None])

    def epoch(self, number: int, start: int = 0) -> Iterator[tuple[Batch, Tensor]]:
        """Yield all tiles in turn, in an order of this epoch's own."""
        order = torch.randperm(len(self._rows), generator=random_block(self.seed, "epoch", number))
        for first in range(start * self.batch_size, len(self._rows) - self.batch_size + 1, self.batch_size):
            mine, counts = share(order[first : first + self.batch_size])
            tiles = self._tiles(self._train, self._rows[mine], self.kept)
            yield tiles, torch.full((len(self._train), len(mine)), counts)

    def held_out(self, chains: list[int] | None = None) -> Batch:
        """Return the counts of the points that each chain, or each of those named, did not see."""
        counts = self._held_out if chains is None else self._held_out[chains]
        return self._tiles(counts, self._rows, 1.0 - self.kept)

    def scales(self) -> tuple[tuple[tuple[float, ...], ...], tuple[int, ...]]:
        """Return the bandwidths of the kernels and the largest count for every scale."""
        counts = [pooled(self.sample.y, TILE, scale) for scale in SCALES]
        return tuple(bandwidth_ladder(each, _BANDWIDTH) for each in counts), tuple(int(c.max()) for c in counts)
