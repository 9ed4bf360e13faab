r"""A generator of surfaces: :math:`G(s, Z) = m(s) + B(s)' Z`, mean and loadings from one network of the location.

The location enters as waves of random direction and phase, whose frequencies are normal with a standard deviation of
its own for every chain: low ones can only make smooth surfaces, high ones sharp ones, and zero makes a constant.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn

from gpsuq.core.generators import ChainBody, ChainLinear, GeneratorSpec
from gpsuq.core.parameters import DataScale
from gpsuq.core.seeds import random_block
from gpsuq.errors import GPSError

_FIRST_LOADING = 0.1


@dataclass(frozen=True)
class Surface(GeneratorSpec):
    """Network from locations (and covariates) to the mean of log intensity and its loadings on Z.

    Parameters
    ----------
    frequencies
        For each chain, the standard deviation of the waves' frequencies in cycles per unit of length.
    n_covariates
        Numbers that follow the two coordinates of a location.
    waves
        Number of waves.
    hidden
        Widths of the hidden layers.
    noise_dim
        q, the dimension of Z.
    """

    frequencies: tuple[float, ...]
    n_covariates: int = 0
    waves: int = 64
    hidden: tuple[int, ...] = (32, 32)
    noise_dim: int = 2

    def build(self, width: int, n_chains: int, scale: DataScale, n_features: int | None, seed: int) -> SurfaceBody:
        """Build the network; each chain's weights and waves depend on the seed and its own number only."""
        if n_chains != len(self.frequencies):
            raise GPSError(f"{len(self.frequencies)} frequencies for {n_chains} chains")
        return SurfaceBody(self, seed)


class SurfaceBody(ChainBody):
    """Surfaces of all chains at once."""

    spec: Surface
    wave: Tensor
    phase: Tensor
    on: Tensor
    spread: Tensor

    def __init__(self, spec: Surface, seed: int) -> None:
        super().__init__()
        self.spec = spec
        self.noise_dim, self.conditional = spec.noise_dim, True
        n_chains = len(spec.frequencies)
        blocks = [random_block(seed, "waves", chain) for chain in range(n_chains)]
        numbers = torch.stack([torch.randn(2, spec.waves, generator=block) for block in blocks])
        frequency = torch.tensor(spec.frequencies)[:, None, None]
        self.register_buffer("wave", 2.0 * math.pi * frequency * numbers)
        phases = [2.0 * math.pi * torch.rand(1, spec.waves, generator=block) for block in blocks]
        self.register_buffer("phase", torch.stack(phases))
        self.register_buffer("on", math.sqrt(2.0) * (frequency > 0).to(numbers))
        self.register_buffer("spread", torch.ones(n_chains, 1))
        widths = [spec.waves + spec.n_covariates, *spec.hidden, 1 + spec.noise_dim]
        self.layers = nn.ModuleList(
            ChainLinear(n_in, n_out, n_chains, seed, str(depth))
            for depth, (n_in, n_out) in enumerate(itertools.pairwise(widths))
        )
        last = cast(ChainLinear, self.layers[-1])
        with torch.no_grad():
            # Start flat, with a little spread: at none at all its gradient is zero.
            last.weight.mul_(_FIRST_LOADING)
            last.bias.mul_(_FIRST_LOADING)
            last.bias[..., 1:] += _FIRST_LOADING

    def surfaces(self, inputs: Tensor) -> tuple[Tensor, Tensor]:
        """Map (1, location, 2 + covariates) to the mean (chain, location) and loadings (chain, location, q).

        Loadings are multiplied by ``spread``, and the mean is moved so that E exp(m + B'Z) stays what it is.
        """
        inputs = inputs.expand(len(self.wave), *inputs.shape[1:])
        hidden = torch.sin(torch.baddbmm(self.phase, inputs[..., :2], self.wave)) * self.on
        if self.spec.n_covariates:
            hidden = torch.cat([hidden, inputs[..., 2 : 2 + self.spec.n_covariates]], -1)
        for layer in self.layers[:-1]:
            hidden = torch.tanh(layer(hidden))
        output = self.layers[-1](hidden)
        loading = output[..., 1:]
        mean = output[..., 0] + 0.5 * (1.0 - self.spread.square()) * loading.square().sum(-1)
        return mean, self.spread[..., None] * loading

    def forward(self, noise: Tensor, x: Tensor | None) -> Tensor:
        """Map noise (chain, tile, draw, q) and tiles (1, tile, 1, cell, numbers) to (chain, tile, draw, cell)."""
        assert x is not None
        _, n_tiles, _, n_cells, width = x.shape
        mean, loading = self.surfaces(x.reshape(1, n_tiles * n_cells, width))
        mean = mean.reshape(-1, n_tiles, 1, n_cells)
        loading = loading.reshape(-1, n_tiles, n_cells, self.noise_dim)
        return mean + noise @ loading.transpose(-1, -2)

    def select(self, chains: Sequence[int]) -> None:
        for tensor in (*self.parameters(), *self.buffers()):
            tensor.data = tensor.data[list(chains)].clone()
