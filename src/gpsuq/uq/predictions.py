"""Predictions: outcomes of new observations for every draw of theta, and their mixture over draws and chains."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.distributions import Distribution

from gpsuq.core.expectations import BATCH_DIMS, base_distribution, predictive_mean
from gpsuq.core.generators import Generator
from gpsuq.core.models import ObservationModel, expanded
from gpsuq.core.observations import Batch
from gpsuq.core.seeds import random_block, seeded
from gpsuq.errors import DivergenceError, GPSError
from gpsuq.uq.inputs import Array, FittedInputs
from gpsuq.uq.mixture import mixture_cdf, mixture_quantiles

BLOCK = 256
"""Draws share a generator in blocks of this size: how many are asked for at once changes nothing."""

ROWS = 128
"""Observations predicted at once, so that memory stays bounded."""


@dataclass(frozen=True)
class Predictor:
    """A trained generator and its model: theta is drawn, and new observations given theta."""

    generator: Generator
    model: ObservationModel
    chains: Sequence[int]
    seed: int
    inputs: FittedInputs

    def blocks(self, n_draws: int, x: Tensor | None, seed: int | None = None) -> Iterator[dict[str, Tensor]]:
        """Generate full blocks of draws, ``(chain, 1 or observation, block, *shape)``, for the trained chains."""
        if n_draws < 1:
            raise GPSError(f"n_draws must be at least 1, got {n_draws}")
        generator, concomitants = self.generator, self.inputs.concomitants
        if generator.conditional and x is None:
            rows = "" if concomitants is None else f", rows of {', '.join(concomitants)}"
            raise GPSError(f"this generator is G(X, Z): its parameters depend on x, so pass x=...{rows}")
        shape = (generator.n_chains, 1, BLOCK, generator.noise_dim)
        for number in range(-(-n_draws // BLOCK)):
            stream = random_block(self.seed if seed is None else seed, "draw", number)
            noise = torch.randn(shape, generator=stream, dtype=generator.shared.dtype)
            with torch.no_grad():
                values = generator(noise, x)
            drawn = {name: value[self.chains] for name, value in values.items()}
            if lost := [name for name, value in drawn.items() if not bool(torch.isfinite(value).all())]:
                raise DivergenceError(
                    f"draws of {', '.join(lost)} are not finite: training diverged; lower the learning rate"
                )
            yield drawn

    def predictive(self, parameters: Mapping[str, Tensor], x: Tensor | None) -> Distribution:
        """Return the distribution of observations at x, which may have other numbers of measures than in the fit."""
        measures = self.inputs.measures
        seen = () if x is None else tuple(x.shape[BATCH_DIMS : BATCH_DIMS + measures])
        return self.model(parameters, x, one_y=(*seen, *self.inputs.one_y[measures:]))

    def predictives(self, batch: Batch, n_draws: int) -> list[Distribution]:
        """Return the distribution of a batch for every block of draws."""
        return [self.predictive(block, batch.x) for block in self.blocks(n_draws, batch.seen)]

    def outcomes(self, new: Batch, n_draws: int, seed: int | None) -> Iterator[Array]:
        """Draw outcomes, ``(chain, draw, observation, *event)``, some observations at a time."""
        for index, chunk in enumerate(_chunks(new)):
            parts = []
            for number, block in enumerate(self.blocks(n_draws, chunk.seen, seed)):
                predictive = self.predictive(block, chunk.x)
                wide = expanded(predictive, torch.Size([len(self.chains), len(chunk), predictive.batch_shape[2]]))
                with seeded(self.seed if seed is None else seed, "outcome", index, number), _own("sample", wide):
                    parts.append(_hide(wide.sample(), chunk.mask).numpy())
            yield np.moveaxis(np.concatenate(parts, axis=2)[:, :, :n_draws], 2, 1)

    def quantiles(self, new: Batch, levels: Sequence[float], n_draws: int) -> Array:
        """Return quantiles of the mixture over draws, ``(level, observation, *event)``."""
        found = [
            mixture_quantiles(self.predictives(chunk, n_draws), pooled(piece), levels)
            for chunk, piece in zip(_chunks(new), self.outcomes(new, n_draws, None), strict=True)
        ]
        return np.concatenate(found, axis=1)

    def cdf(self, new: Batch, n_draws: int) -> Array:
        """Return P(Y <= y) of observations, of their shape."""
        found = []
        for index, start in enumerate(range(0, len(new), ROWS)):
            chunk = new.part(slice(start, start + ROWS))
            predictives = self.predictives(chunk, n_draws)
            below = mixture_cdf(predictives, chunk.y[0, :, 0])
            if below is None:
                with seeded(self.seed, "cdf", index):
                    shape = (len(self.chains), len(chunk), BLOCK)
                    drawn = [expanded(predictive, torch.Size(shape)).sample() for predictive in predictives]
                below = torch.stack([(d <= chunk.y).float().mean((0, 2)) for d in drawn]).mean(0)
            found.append(_hide_rows(below, chunk))
        return np.concatenate(found)

    def mean(self, new: Batch, n_draws: int) -> Array:
        """Return the mean over draws and chains, ``(observation, *event)``."""
        found = []
        for chunk in _chunks(new):
            predictives = self.predictives(chunk, n_draws)
            with _own("mean", predictives[0]):
                means = torch.cat([predictive_mean(predictive) for predictive in predictives], 2)
            mean = means[:, :, :n_draws].mean((0, 2)).expand(len(chunk), *means.shape[3:])
            found.append(_hide_rows(mean, chunk))
        return np.concatenate(found)


def _chunks(new: Batch) -> Iterator[Batch]:
    """Split the observations to predict into blocks of fixed size, so that memory stays bounded."""
    if new.seen is None:
        yield new  # all have the same predictive
        return
    for start in range(0, len(new), ROWS):
        yield new.part(slice(start, start + ROWS))


@contextmanager
def _own(method: str, predictive: Distribution) -> Iterator[None]:
    """Name what a distribution of the user's own lacks for a prediction."""
    try:
        yield
    except NotImplementedError as error:
        name = type(base_distribution(predictive)).__name__
        raise GPSError(f"{name} has no {method}, which this prediction is made of: add it to the class") from error


def _hide(values: Tensor, mask: Tensor | None) -> Tensor:
    """Put NaN where a padded group has no measure."""
    if mask is None:
        return values
    return torch.where(mask[(..., *(None,) * (values.dim() - mask.dim()))], values, torch.nan)


def _hide_rows(values: Tensor, chunk: Batch) -> Array:
    """Put NaN where a padded group has no measure, in numbers of its observations."""
    hidden: Array = _hide(values, None if chunk.mask is None else chunk.mask[0, :, 0]).numpy()
    return hidden


def pooled(draws: Array) -> Array:
    """Put the draws of all chains into one first axis."""
    return draws.reshape(-1, *draws.shape[2:])
