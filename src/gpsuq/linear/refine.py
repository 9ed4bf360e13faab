"""The generator of a law of coefficients: a law that could be written down, and a network that bends it.

G(Z) = start(Z) + network(Z), where the network puts out zeros at first, so that training by the kernel score goes on
from the law that maximum likelihood found, towards whatever shape the data ask for. The kernel has scales from the
noise up to the range of y: mass that a draw puts far out is seen wherever it lies.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gpsuq.core.distances import MMD
from gpsuq.core.generators import MLP, ChainBody, Generator
from gpsuq.core.kernels import Gaussian, Mixture
from gpsuq.core.models import linear_regression
from gpsuq.core.parameters import DataScale, ParameterMap
from gpsuq.engine.settings import Algorithm
from gpsuq.gps import GPS
from gpsuq.linear.laws import Law
from gpsuq.linear.sample import LinearSettings, Sample

Array = NDArray[np.floating]

_LEARNING_RATE = 1e-2  # twice the general default: the start has done what needs small steps
_NARROWEST = 4.0  # bandwidth over the noise variance: narrow tells spread from sigma
_LEAST_SIGMA = 1e-15  # in units of the residuals of a robust fit: below it numbers are equal
_RATIO = 8.0  # of neighbouring bandwidths
_WIDEST = 2.0  # times the 99.5% quantile of the residuals' size


class StartedBody(ChainBody):
    """Raw numbers (slopes, log sigma, level) of each chain's own starting law, plus those of a perceptron.

    The perceptron leaves the level alone unless it is ``random_level``: its spread cannot be told from sigma.
    """

    cuts: Tensor
    mean: Tensor
    loadings: Tensor
    passes: Tensor

    def __init__(self, laws: Sequence[Law], spec: MLP, seed: int, *, random_level: bool) -> None:
        super().__init__()
        n_chains, most = len(laws), max(len(law.share) for law in laws)
        q, depth = laws[0].loadings.shape[1:]
        self.spec, self.conditional = spec, False
        self.noise_dim = max(spec.noise_dim, 1 + depth)
        cuts, mean = torch.full((n_chains, most - 1), torch.inf), torch.zeros(n_chains, most, q + 1)
        loadings = torch.zeros(n_chains, most, q + 1, self.noise_dim - 1)
        for chain, law in enumerate(laws):
            k = len(law.share)
            cuts[chain, : k - 1] = torch.from_numpy(law.cuts)
            raw = np.column_stack([law.mean[:, :-1], np.log(law.sigma), law.mean[:, -1]])
            mean[chain, :k] = torch.from_numpy(raw)
            loadings[chain, :k, : q - 1, :depth] = torch.from_numpy(law.loadings[:, :-1].copy())
            loadings[chain, :k, q, :depth] = torch.from_numpy(law.loadings[:, -1].copy())
        passes = torch.ones(q + 1)
        passes[-1] = float(random_level)
        for name, value in (("cuts", cuts), ("mean", mean), ("loadings", loadings), ("passes", passes)):
            self.register_buffer(name, value)
        wide = replace(spec, noise_dim=self.noise_dim)
        self.network = wide.build(q + 1, n_chains, unit_scale(q - 1), None, seed)
        for last in list(self.network.parameters())[-2:]:  # weight and bias of the last layer
            torch.nn.init.zeros_(last)

    def forward(self, noise: Tensor, x: Tensor | None) -> Tensor:
        flat = noise[:, 0]
        component = (flat[:, :, :1] > self.cuts[:, None]).sum(-1)
        chain = torch.arange(len(flat), device=flat.device)[:, None].expand_as(component)
        if self.mean.shape[1] == 1:
            moved = flat[:, :, 1:] @ self.loadings[:, 0].mT
        else:
            moved = (self.loadings[chain, component] @ flat[:, :, 1:, None])[..., 0]
        start = self.mean[chain, component] + moved
        bent: Tensor = self.network(noise, None)
        return start[:, None] + bent * self.passes

    def select(self, chains: Sequence[int]) -> None:
        self.network.select(chains)
        for name in ("cuts", "mean", "loadings"):
            setattr(self, name, getattr(self, name)[list(chains)].clone())


def unit_scale(width: int) -> DataScale:
    """Return the scale of so many whitened columns, and of residuals in their own units."""
    return DataScale(torch.zeros(()), torch.ones(()), torch.zeros(width), torch.ones(width), width)


def started_generator(laws: Sequence[Law], spec: MLP, seed: int, *, random_level: bool) -> Generator:
    """Return the generator whose chains start from the laws."""
    width = laws[0].mean.shape[1] - 1
    declared = linear_regression(random_intercept=True).parameters
    body = StartedBody(laws, spec, seed, random_level=random_level)
    return Generator(body, ParameterMap(declared, width, unit_scale(width)), len(laws))


def refine(
    laws: Sequence[Law],
    sample: Sample,
    settings: LinearSettings,
    spread_weights: Sequence[float],
    folds: Sequence[int] | None = None,
) -> Generator:
    """Train one chain from each law with a spread weight of its own, without the rows of its fold."""
    sigma = float(np.median([np.sqrt(law.share @ np.square(law.sigma)) for law in laws]))
    gps = GPS(
        linear_regression(random_intercept=True),
        settings.generator,
        MMD(_kernel(sample, sigma)),
        algorithm=Algorithm(
            n_steps=settings.n_steps,
            n_draws=settings.n_draws,
            batch_size=settings.batch_size,
            learning_rate=_LEARNING_RATE,
            evaluate_every=None,  # what is held out decides between laws, not on when to stop
        ),
        n_chains=len(laws),
        reweight=None,
        holdout=0.0,
        spread_weight=list(spread_weights),
        folds=None if folds is None else list(folds),
        seed=settings.seed,
        progress=settings.progress,
        fabric=settings.fabric,
    )
    start = started_generator(laws, settings.generator, settings.seed, random_level=settings.random_level)
    x, y, mask, weight = sample.tensors()
    state = gps.train(x, y, mask=mask, weight=weight, start=start)[1]
    return state.generator.cpu().eval()


def _kernel(sample: Sample, sigma: float) -> Mixture:
    """Mix Gaussians from a little above the noise to the range of y; squared distances add up over the measures."""
    measures = sample.n_measures / sample.n_observations
    narrow = _NARROWEST * max(sigma, _LEAST_SIGMA) ** 2 * measures
    wide = max((_WIDEST * sample.far(0.995)) ** 2 * measures, 4.0 * narrow)
    count = int(np.ceil(np.log(wide / narrow) / np.log(_RATIO))) + 1
    return Mixture(tuple(Gaussian(float(b)) for b in np.geomspace(narrow, wide, count)))


def generator_draws(generator: Generator, noise: Tensor) -> tuple[Array, Array]:
    """Return coefficients (chain, draw, q), the level last, and sigmas (chain, draw) of noise ((chain,) draw, q)."""
    noise = noise.expand(generator.n_chains, *noise.shape[-2:])[:, None]
    with torch.no_grad():
        values = {name: value[:, 0].double() for name, value in generator(noise).items()}
    coefficients = torch.cat([values["slope"], values["intercept"][..., None]], -1)
    return coefficients.numpy(), values["sigma"].numpy()
