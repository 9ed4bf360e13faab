"""A small fitted model of every type that can be saved, and draws from it.

``python tests/small_models.py write DIR`` fits them and writes models and draws; ``read DIR`` loads the models in a new
process and writes their draws as ``again.npz``.
"""

import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.distributions import Normal

from gpsuq import (
    GPS,
    MLP,
    Algorithm,
    GPSClassifier,
    GPSLinearRegression,
    GPSPoissonProcess,
    GPSWarning,
    Location,
    ObservationModel,
    Recipe,
    Scale,
    load,
    noisify,
    save,
)
from gpsuq.classify.baselines import DropoutClassifier, EnsembleClassifier, PlainClassifier

DRAWS = "draws.npz"
RECIPE = Recipe(epochs=3)
ROWS = np.random.default_rng(1).normal(size=(6, 2)).astype(np.float32)


def network() -> nn.Module:
    return nn.Sequential(nn.Linear(2, 4), nn.ReLU(), nn.Dropout(0.2), nn.Linear(4, 2))


MODEL = ObservationModel(Normal, loc=Location(), scale=Scale())
CODE: dict[str, dict[str, Any]] = {
    "linear": {},
    "poisson": {},
    "uq": {"model": MODEL},
    "default": {},
    **{name: {"network": network} for name in ("classifier", "plain", "dropout", "ensemble", "noisy")},
}
"""What has to be passed to load each of them."""


def fitted() -> dict[str, Any]:
    """Fit one of every type in a moment; what is learned does not matter."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 2)).astype(np.float32)
    y = X[:, 0] + 0.5 * rng.normal(size=60)
    labels = np.where(y > 0, "high", "low")
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", GPSWarning)  # so short a training is still falling
        return {
            "linear": GPSLinearRegression(n_chains=2, n_steps=8, n_draws=8, generator=MLP(hidden=(4,))).fit(X, y),
            "poisson": GPSPoissonProcess(
                n_cells=64, frequency=1.0, n_chains=2, n_steps=3, n_draws=2, waves=4, hidden=(4,)
            ).fit(rng.random((30, 2)), (0, 1, 0, 1)),
            "uq": GPS(MODEL, MLP(hidden=(4,)), algorithm=Algorithm(n_steps=10), n_chains=2).fit(y),
            "default": GPSClassifier(recipe=RECIPE).fit(X, labels),
            "classifier": GPSClassifier(network, "3", recipe=RECIPE).fit(X, labels),
            "plain": PlainClassifier(network, recipe=RECIPE).fit(X, labels),
            "dropout": DropoutClassifier(network, recipe=RECIPE).fit(X, labels),
            "ensemble": EnsembleClassifier(network, n_members=2, recipe=RECIPE).fit(X, labels),
            "noisy": noisify(network(), "3").eval(),
        }


def draws(model: Any) -> np.ndarray:
    """Draw a few times with the model's own seed."""
    if isinstance(model, GPSLinearRegression):
        return model.sample_parameters(5).to_numpy()
    if isinstance(model, GPSPoissonProcess):
        return model.sample_intensity(ROWS % 1.0, 5)
    if hasattr(model, "sample_proba"):
        return model.sample_proba(ROWS, 5)
    if hasattr(model, "draws"):
        return np.stack(list(model.draws(5).values()))
    noise = torch.arange(5.0 * model.noise_dim).reshape(1, 5, -1).cos()
    return model(torch.from_numpy(ROWS), noise=noise).detach().numpy()


def write(folder: Path) -> None:
    """Save every model, and what it drew."""
    models = fitted()
    for name, model in models.items():
        save(model, folder / name)
    np.savez_compressed(folder / DRAWS, **{name: draws(model) for name, model in models.items()})


def read(folder: Path) -> dict[str, np.ndarray]:
    """Load every model that was saved, and draw from it."""
    return {name: draws(load(folder / name, **code)) for name, code in CODE.items() if (folder / name).is_dir()}


if __name__ == "__main__":
    if sys.argv[1] == "write":
        write(Path(sys.argv[2]))
    else:
        np.savez(Path(sys.argv[2]) / "again.npz", **read(Path(sys.argv[2])))
