"""Run by ``test_processes``, alone and by ``torchrun``: writes the gradient of the first step of every kind of fit."""

import sys
import warnings
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.distributions import Normal
from torch.utils.data import DataLoader, TensorDataset

import gpsuq.classify.network
import gpsuq.gps
import gpsuq.poisson.fit
from gpsuq import (
    GPS,
    MLP,
    GPSClassifier,
    GPSLinearRegression,
    GPSPoissonProcess,
    Location,
    ObservationModel,
    Recipe,
    Scale,
    noisify,
)
from gpsuq.core.noise import NoisyNetwork
from gpsuq.datasets import scissors
from gpsuq.engine.ranks import fabric_or_default, gathered, rank, share

real_randn, real_rand, real_train = torch.randn, torch.rand, gpsuq.classify.network.train


def same_for_all_rows(*shape, **options):
    """Draw noise (..., row, draw, q) that does not differ between rows, so that it is the same in all processes."""
    *lead, _, draws, q = shape[0] if isinstance(shape[0], tuple) else shape
    rows = (shape[0] if isinstance(shape[0], tuple) else shape)[-3]
    options["generator"] = torch.Generator().manual_seed(0)
    return real_randn(*lead, 1, draws, q, **options).expand(*lead, rows, draws, q)


def same_shifts(*lead_and_rows, **options):
    """Shift even noise (..., row, 1, q) by what does not differ between rows."""
    *lead, rows, one, q = lead_and_rows
    options["generator"] = torch.Generator().manual_seed(0)
    return real_rand(*lead, 1, one, q, **options).expand(*lead, rows, one, q)


class Captured(Exception):  # noqa: N818 (a way out, not an error)
    """Carries the gradient out of a fit."""


def capture(task, fabric, **_):
    torch.randn, torch.rand = same_for_all_rows, same_shifts
    fabric.backward(task.next_loss())
    torch.randn, torch.rand = real_randn, real_rand
    weights = [weight for group in task.optimizer.param_groups for weight in group["params"]]
    raise Captured(torch.cat([weight.grad.flatten() for weight in weights if weight.grad is not None]))


def batch_normalised():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3))


def fits():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(101, 3)), rng.normal(size=101)
    labels, table = rng.integers(3, size=101), scissors(301)
    tensors = torch.from_numpy(X).float(), torch.from_numpy(y).float()
    model = ObservationModel(Normal, loc=Location(), scale=Scale())
    at_x = ObservationModel(lambda x, loc, scale: Normal(loc, scale), loc=Location(), scale=Scale())
    recipe = Recipe(batch_size=25, epochs=1)
    classifier = GPSClassifier(batch_normalised, "0", recipe=recipe, off_data_spread=0.0)
    pairs = DataLoader(TensorDataset(tensors[0], torch.from_numpy(labels)), batch_size=25, shuffle=True)
    return {
        "gps": lambda: GPS(model).fit(y),
        "conditional": lambda: GPS(at_x, MLP(conditional=True)).fit(X, y),
        "loader": lambda: GPS(model).fit(DataLoader(TensorDataset(tensors[1]), batch_size=25, shuffle=True)),
        "linear": lambda: GPSLinearRegression(spread_weight=0.1).fit(table.X, table.y),
        "poisson": lambda: GPSPoissonProcess(n_cells=1024).fit(rng.random((300, 2)), (0, 1, 0, 1)),
        "classifier": lambda: classifier.fit(X, labels),
        "classifier-loader": lambda: classifier.fit(pairs),
    }


def own_loop():
    """Return the gradient of a loop of a user's own."""
    fabric = fabric_or_default(None)
    torch.manual_seed(0)
    network = noisify(nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 1)), "0")
    module = fabric.setup(network)
    x, noise = real_randn(10, 3), real_randn(1, 5, network.noise_dim)
    mine, counts = share(torch.arange(10))
    fabric.backward(counts * module(x[mine], noise=noise).square().mean())
    return torch.cat([weight.grad.flatten() for weight in network.parameters()])


class Remembers(nn.Module):
    """Keeps the first number that it saw, which differs between the shares of a batch."""

    def __init__(self):
        super().__init__()
        self.register_buffer("last", torch.zeros(()))

    def forward(self, x):
        if self.training:
            self.last.copy_(x[0, 0].detach())
        return x


def buffers_after_an_epoch():
    """Return what a layer of a user's own remembers after training, in each process."""
    rng = np.random.default_rng(0)
    network = nn.Sequential(Remembers(), nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 3))
    model = GPSClassifier(
        network, "1", recipe=Recipe(batch_size=25, epochs=1), loss="score", spread="even", verdict="quantile"
    )
    model.fit(rng.normal(size=(100, 3)), rng.integers(3, size=100))
    return torch.stack(gathered(next(b for name, b in model.network_.named_buffers() if name.endswith("last"))))


if __name__ == "__main__":
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    for module in (gpsuq.gps, gpsuq.poisson.fit, gpsuq.classify.network):
        module.train = capture
    NoisyNetwork.draw_noise = lambda network, rows, draws, generator=None: same_for_all_rows(
        rows, draws, network.noise_dim
    )
    gradients = {"own-loop": own_loop()}
    for name, fit in fits().items():
        try:
            fit()
        except Captured as captured:
            gradients[name] = captured.args[0]
    gpsuq.classify.network.train = real_train
    gradients["buffers"] = buffers_after_an_epoch()
    if rank() == 0:
        torch.save(gradients, Path(sys.argv[1]))
