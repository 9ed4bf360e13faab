r"""The default generator G(X, Z) of a table: perceptrons on encoded columns, with noise at the last hidden layer.

For every chain

.. math:: G(x, z) = A\, \mathrm{silu}(B\, h(x) + C z) + a, \qquad h = \text{hidden layers of the encoded columns},

so that all that depends on x is computed once for an observation, whatever the number of draws. Chains share no weight:
members that share theirs but for multiplicative adapters were no better, and took twice as long.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from gpsuq.core.generators import ACTIVATIONS, ChainBody, ChainLinear, GeneratorSpec
from gpsuq.core.parameters import DataScale
from gpsuq.core.seeds import random_block

FARTHEST = 5.0  # standard deviations: a column beyond what was seen must not run away with the prediction
_BEYOND = 1.0  # widths of a bin by which its first and last piece go on
_NOISE = 2.0  # times as large as other weights at the start, so that draws differ enough to become branches
_BYTE = 256


@dataclass(frozen=True)
class Tabular(GeneratorSpec):
    """Perceptrons on standardised columns, and on pieces of them where there are ``edges``.

    Parameters
    ----------
    hidden
        Widths of the hidden layers that see x.
    width
        Width of the layer where noise enters.
    noise_dim
        q, the dimension of Z.
    dropout
        Share of hidden units left out in each step of training.
    activation
        Of the layers that see x.
    edges
        Of every column, the increasing bounds of the pieces that it is cut into; a piece is 0 below its lower bound, 1
        above its upper one, and linear between. A column with fewer than two bounds is not cut.
    """

    hidden: tuple[int, ...] = (128, 128)
    width: int = 32
    noise_dim: int = 4
    dropout: float = 0.0
    activation: str = "relu"
    edges: tuple[tuple[float, ...], ...] = ()

    def build(self, width: int, n_chains: int, scale: DataScale, n_features: int | None, seed: int) -> ChainBody:
        """Build the perceptrons; each chain's weights depend on the seed and its own number only."""
        assert n_features is not None
        return ChainTabular(self, width, n_chains, n_features, seed)


class Pieces(nn.Module):
    """Columns (..., p) to themselves and to their pieces, side by side: (..., p + pieces)."""

    lower: Tensor
    steepness: Tensor
    smallest: Tensor
    largest: Tensor
    column: Tensor

    def __init__(self, edges: Sequence[Sequence[float]], n_features: int) -> None:
        super().__init__()
        rows: list[tuple[int, float, float, float, float]] = []
        for place, bounds in enumerate(edges):
            pieces = list(itertools.pairwise(bounds))
            for number, (low, high) in enumerate(pieces):
                first, last = number == 0, number == len(pieces) - 1
                rows.append((place, low, 1.0 / (high - low), -_BEYOND * first, 1.0 + _BEYOND * last))
        table = torch.tensor([row[1:] for row in rows], dtype=torch.float64).reshape(-1, 4)
        self.register_buffer("column", torch.tensor([row[0] for row in rows], dtype=torch.int64))
        for name, values in zip(("lower", "steepness", "smallest", "largest"), table.T, strict=True):
            self.register_buffer(name, values.float().contiguous())
        self.n_out = n_features + len(rows)

    def forward(self, x: Tensor) -> Tensor:
        bounded = x.clamp(-FARTHEST, FARTHEST)
        if not len(self.column):
            return bounded
        at = (x[..., self.column] - self.lower) * self.steepness
        return torch.cat([bounded, torch.maximum(torch.minimum(at, self.largest), self.smallest) - 0.5], -1)


def dropped(hidden: Tensor, share: float) -> Tensor:
    """Set a share of the numbers, in steps of 1/256, to zero, and scale up the others.

    Eight numbers are decided by one random integer: torch draws one for each, and spends more on it than on the layer.
    """
    least = round(share * _BYTE)
    words = torch.randint(-(2**63), 2**63 - 1, (-(-hidden.numel() // 8),), device=hidden.device)
    kept = words.view(torch.uint8)[: hidden.numel()].view(hidden.shape) >= least
    return hidden * (kept * (_BYTE / (_BYTE - least)))


class ChainTabular(ChainBody):
    """Perceptrons of all chains, built by :class:`Tabular`."""

    conditional = True

    def __init__(self, spec: Tabular, width: int, n_chains: int, n_features: int, seed: int) -> None:
        super().__init__()
        self.spec, self.noise_dim, self.dropout = spec, spec.noise_dim, spec.dropout
        self.activation = ACTIVATIONS[spec.activation]
        self.pieces = Pieces(spec.edges, n_features)
        widths = [self.pieces.n_out, *spec.hidden]
        self.layers = nn.ModuleList(
            ChainLinear(n_in, n_out, n_chains, seed, str(depth))
            for depth, (n_in, n_out) in enumerate(itertools.pairwise(widths))
        )
        self.before = ChainLinear(widths[-1], spec.width, n_chains, seed, "before")
        blocks = [random_block(seed, "init/noise", chain) for chain in range(n_chains)]
        noise = [torch.randn(spec.noise_dim, spec.width, generator=block) for block in blocks]
        self.from_noise = nn.Parameter(torch.stack(noise) * (_NOISE / math.sqrt(spec.noise_dim)))
        self.after = ChainLinear(spec.width, width, n_chains, seed, "after")

    def forward(self, noise: Tensor, x: Tensor | None) -> Tensor:
        assert x is not None
        n_chains, n_draws = noise.shape[0], noise.shape[2]
        hidden = self.pieces(x.flatten(2)).expand(n_chains, -1, -1)  # (chain, observation, column)
        for layer in self.layers:
            hidden = self.activation(layer(hidden))
            if self.dropout and self.training:
                hidden = dropped(hidden, self.dropout)
        both = self.before(hidden)[:, :, None] + noise @ self.from_noise[:, None]
        raw: Tensor = self.after(nn.functional.silu(both).flatten(1, 2))
        return raw.reshape(n_chains, x.shape[1], n_draws, -1)

    def start_from(self, raw: Tensor) -> None:
        """Add numbers (output,) to what comes out before training."""
        self.after.bias.data += raw

    def select(self, chains: Sequence[int]) -> None:
        for parameter in self.parameters():
            parameter.data = parameter.data[list(chains)].clone()
