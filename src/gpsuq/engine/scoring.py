"""How chains are scored: the loss of a batch, and observations scored with the same noise at every call."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.distributions import Categorical, Distribution

from gpsuq.core.distances import Distance
from gpsuq.core.expectations import DRAW_DIM, Terms, base_distribution, predictive_mean
from gpsuq.core.generators import Generator, even_normals
from gpsuq.core.models import ObservationModel
from gpsuq.core.observations import Batch, evenly_spaced
from gpsuq.core.seeds import seeded
from gpsuq.engine.problem import Problem
from gpsuq.engine.ranks import gathered, n_ranks, rank
from gpsuq.errors import GPSError


class PredictiveLoss(nn.Module):
    """Noise and a batch to the loss terms of every chain and observation; one module, so that Fabric sees all of it."""

    def __init__(self, generator: Generator, model: ObservationModel, distance: Distance, spread_unit: float) -> None:
        super().__init__()
        self.generator = generator
        self.model = model
        self.distance = distance
        self.spread_unit = spread_unit

    def predictive(self, noise: Tensor, batch: Batch) -> Distribution:
        """Return the distribution of the batch for each draw."""
        return self.model(self.generator(noise, batch.seen), batch.x, one_y=batch.one_y)

    def forward(
        self,
        noise: Tensor,
        y: Tensor,
        x: Tensor | None,
        mask: Tensor | None,
        w: Tensor | None,
        n_outcomes: int | None,
        with_spread: bool,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return the two terms of the score and the spread, each (chain, observation)."""
        batch = Batch(y, x, mask, w)
        predictive = self.predictive(noise, batch)
        fit, pair = self.distance.terms(predictive, batch, n_outcomes)
        spread = predictive_spread(predictive, batch.mask) / self.spread_unit if with_spread else torch.zeros_like(fit)
        return fit, pair, spread


def predictive_spread(predictive: Distribution, mask: Tensor | None = None) -> Tensor:
    """Variance over draws of E[Y | theta, x], summed over the coordinates of an observation: (chain, observation).

    For a classifier Y is the one-hot vector, so this is the variance of the class probabilities.
    """
    try:
        mean = predictive_mean(predictive)
    except NotImplementedError as error:
        raise GPSError(f"{type(predictive).__name__} has no mean, so spread_weight must be 0") from error
    # Written out: torch's own var takes ten times as long along a short dimension.
    n_draws = mean.shape[DRAW_DIM]
    variance = (mean - mean.mean(DRAW_DIM, keepdim=True)).square().sum(DRAW_DIM) / (n_draws - 1)
    if variance.dim() == DRAW_DIM:
        return variance
    if mask is not None:
        seen = mask.squeeze(DRAW_DIM)
        seen = seen.unsqueeze(-1) if seen.dim() < variance.dim() else seen
        variance = torch.where(seen, variance, torch.zeros_like(variance))
    return variance.flatten(DRAW_DIM).sum(-1)


@dataclass
class ScoredChains:
    """Chains of a generator, and what they are scored by."""

    problem: Problem
    loss: PredictiveLoss

    @property
    def generator(self) -> Generator:
        """The generator."""
        return self.loss.generator


def evaluate(chains: ScoredChains, batch: Batch, repeat: int = 0) -> Terms:
    """Score observations with the same noise at every call, so that states can be compared: (chain, observation).

    Another ``repeat`` takes other noise. Processes divide the work, and all of them return the whole.
    """
    terms = {}
    for start in range(0, len(batch), chains.problem.evaluation_rows)[rank() :: n_ranks()]:
        rows = batch.part(slice(start, start + chains.problem.evaluation_rows))
        # A generator that sees x has noise of its own for each row; otherwise all rows see the same draws.
        address = (repeat, start) if chains.generator.conditional else (repeat,)
        with torch.no_grad(), seeded(chains.problem.seed, "outcomes", repeat, start):
            predictive, rows = sampled_predictive(chains, rows, "evaluate", *address)
            terms[start] = [term.cpu() for term in chains.loss.distance.precise().terms(predictive, rows)]
    found = {start: part for parts in gathered(terms) for start, part in parts.items()}
    return Terms(*(torch.cat(parts, 1) for parts in zip(*(found[start] for start in sorted(found)), strict=True)))


def sampled_predictive(chains: ScoredChains, batch: Batch, purpose: str, *index: int) -> tuple[Distribution, Batch]:
    """Return the predictive of a batch for draws addressed by purpose and index, and the batch on its device."""
    generator = chains.generator
    device, dtype = generator.shared.device, generator.shared.dtype
    batch = batch.to(device, dtype)
    rows = len(batch) if generator.conditional else 1
    shape = (chains.problem.plan.n_chains, rows, chains.problem.evaluation_draws, generator.noise_dim)
    before = chains.loss.training
    chains.loss.eval()
    try:
        with torch.no_grad(), seeded(chains.problem.seed, purpose, *index):
            return chains.loss.predictive(draw_noise(chains, shape), batch), batch
    finally:
        chains.loss.train(before)


def draw_noise(chains: ScoredChains, shape: tuple[int, ...]) -> Tensor:
    """Draw noise: independent where the distance compares draws with each other, spread evenly where it does not."""
    like = chains.generator.shared
    if chains.loss.distance.pairs_draws:
        return torch.randn(shape, device=like.device, dtype=like.dtype)
    return even_normals(shape, like)


def some_rows(problem: Problem) -> Batch:
    """Return a few hundred observations, evenly spaced and the same in every process."""
    data = problem.source.sample
    return data.rows(evenly_spaced(len(data), min(len(data), problem.evaluation_rows)))


def noise_variance(chains: ScoredChains) -> float | None:
    """Median over draws and observations of Var(Y | theta, x), summed over coordinates; None where it is unknown."""
    predictive, batch = sampled_predictive(chains, some_rows(chains.problem), "noise-variance")
    if isinstance(base_distribution(predictive), Categorical):
        return None
    try:
        variance = predictive.variance
    except NotImplementedError:
        return None
    if variance.dim() > DRAW_DIM + 1:
        if batch.mask is not None:
            variance = torch.where(batch.mask, variance, torch.zeros_like(variance))
        variance = variance.flatten(DRAW_DIM + 1).sum(-1)
    variance = variance[torch.isfinite(variance)]
    median = float(variance.median()) if variance.numel() else 0.0
    return median if median > 0 else None
