"""What a fitted regression consists of: generators of several kinds, what they say of rows, and a calibration."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.stats import norm
from torch import Tensor

from gpsuq.core.calibration import Calibration
from gpsuq.core.generators import Generator
from gpsuq.engine.diagnostics import Finding
from gpsuq.regress.affine import Affine
from gpsuq.regress.families import Array, Family, Parameters
from gpsuq.regress.forest import Forest

JUDGES = 2  # chains that have not seen a row: one for each time that rows are dealt into folds
DRAWS = 16  # of each chain, that predictions are made of
_BACKGROUND = 2.0  # standard deviations of y: how far the rest of the mass spreads that rows cannot rule out
_COMPONENT_CELLS = 1 << 18  # row x component, at once: what is computed of them stays in the cache


@dataclass(frozen=True)
class Network:
    """Trained networks, and the noise of all predictions, which is the same for all rows and chains."""

    generator: Generator
    noise: Tensor  # (draw, q)
    n_outputs: int

    @property
    def n_chains(self) -> int:
        """How many chains there are."""
        return self.generator.n_chains

    def select(self, chains: Sequence[int]) -> Network:
        """Return the named chains."""
        return replace(self, generator=self.generator.select(chains))

    def blocks(self, x: Array, step: int) -> Iterator[dict[str, Array]]:
        """Yield the parameters of so many rows at a time."""
        return (self.parameters(x[start : start + step]) for start in range(0, len(x), step))

    def parameters(self, x: Array) -> dict[str, Array]:
        """Return the parameters of every draw, (row, chain and draw, output)."""
        noise = self.noise.expand(self.n_chains, 1, -1, -1)
        with torch.no_grad():
            found = self.generator(noise, torch.from_numpy(np.ascontiguousarray(x))[None, :, None])
        shape = self.n_chains, len(x), len(self.noise)
        return {
            name: value.expand(*shape, *value.shape[3:])
            .reshape(*shape, self.n_outputs)
            .permute(1, 0, 2, 3)
            .reshape(len(x), -1, self.n_outputs)
            .double()
            .numpy()
            for name, value in found.items()
        }


@dataclass(frozen=True)
class Member:
    """One kind of generator after training, with ``DRAWS`` draws of each chain, and how much it counts."""

    name: str
    drawn: Network | Forest | Affine
    weight: float = 1.0


@dataclass(frozen=True)
class LeftOut:
    """Rows that chains of one kind had left out: their numbers, their judges' (row, judge), and parameters.

    Parameters are (row, judge and draw, output).
    """

    rows: NDArray[np.int64]
    judges: NDArray[np.int64]
    parameters: dict[str, Array]


@dataclass
class RegressionFit:
    """Everything that predictions are made of."""

    family: Family
    members: list[Member]
    center: Array  # of y, one for each output
    scale: Array
    seed: int
    calibrations: list[Calibration] = field(default_factory=list)
    ranks: Array = field(default_factory=lambda: np.empty((0, 1)))  # calibrated, of rows left out: (row, output)
    rows: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, dtype=np.int64))  # their numbers
    judges: NDArray[np.int64] = field(default_factory=lambda: np.empty((0, JUDGES), dtype=np.int64))  # chains, by row
    findings: list[Finding] = field(default_factory=list)
    held_out: dict[str, list[float]] = field(default_factory=dict)  # scores on the way, by kind
    steps: list[int] = field(default_factory=list)

    @property
    def n_outputs(self) -> int:
        """How many outcomes a row has."""
        return len(self.center)

    @property
    def weights(self) -> Array:
        """Weight of every component, (component,)."""
        each = [np.full(m.drawn.n_chains * DRAWS, m.weight / (m.drawn.n_chains * DRAWS)) for m in self.members]
        return np.concatenate(each)

    @property
    def chain_of(self) -> NDArray[np.int64]:
        """Number of the chain of every component, counted over all kinds."""
        n_chains = sum(member.drawn.n_chains for member in self.members)
        return np.repeat(np.arange(n_chains), DRAWS)

    def blocks(self, x: Array) -> Iterator[tuple[slice, dict[str, Array]]]:
        """Yield the parameters (row, component, output) of some rows at a time, in the units of the training."""
        step = max(1, _COMPONENT_CELLS // (len(self.weights) * self.n_outputs))
        together = zip(*(member.drawn.blocks(x, step) for member in self.members), strict=True)
        for start, found in zip(range(0, len(x), step), together, strict=True):
            whole = {name: np.concatenate([part[name] for part in found], axis=1) for name in found[0]}
            yield slice(start, start + step), whole

    def with_background(self, density: Array, y: Array) -> Array:
        """Mix a density at y (row,) with a wide Normal that counts like one row more than were left out."""
        if self.family.units == "own" or not len(self.rows):
            return density
        share = 1.0 / (len(self.rows) + 1)
        return np.asarray((1.0 - share) * density + share * norm.pdf(y, scale=_BACKGROUND))

    def to_units(self, y: Array) -> Array:
        """Return outcomes (row, output) in the units of the training."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.asarray(((np.log(y) if self.family.units == "log" else y) - self.center) / self.scale)

    def from_units(self, y: Array, output: int) -> Array:
        """Return numbers of one output in the user's units."""
        there = self.center[output] + self.scale[output] * y
        return np.asarray(np.exp(there) if self.family.units == "log" else there)


def output_of(parameters: Parameters, output: int) -> dict[str, Array]:
    """Return the parameters (row, component) of one output."""
    return {name: value[:, :, output] for name, value in parameters.items()}


def moments(mean: Array, variance: Array, weight: Array) -> tuple[Array, Array]:
    """Return mean and variance (row,) of mixtures whose components have these (row, component)."""
    center = mean @ weight
    total = variance @ weight + np.square(mean - center[:, None]) @ weight
    return center, np.maximum(total, np.finfo(float).tiny)
