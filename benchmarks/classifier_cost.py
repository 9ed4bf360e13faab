"""What draws cost: a training step beside the plain network's, and verdicts beside Monte Carlo dropout's.

Everything is timed interleaved in one run, medians of several rounds; only ratios mean anything.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import torch
from torch import nn

BATCH, IMAGES, DRAWS = 100, 200, 200


def training(seconds: float) -> dict[str, float]:
    from common import interleaved

    from gpsuq import Recipe, class_score, noisify
    from gpsuq.core.losses import log_score
    from gpsuq.core.noise import affine_layers
    from paper.networks import paper_cnn

    x, y = torch.rand(BATCH, 1, 28, 28), torch.randint(0, 10, (BATCH,))

    def stepper(network, loss):
        optimizer = Recipe().make_optimizer(network.train())

        def step():
            optimizer.zero_grad()
            loss(network).backward()
            optimizer.step()

        return step

    functions = {"plain": stepper(paper_cnn(10), lambda network: nn.functional.cross_entropy(network(x), y))}
    for draws in (4, 10):
        network = noisify(paper_cnn(10), "head.0", 0.5, example=x)
        functions[f"gps, M = {draws}"] = stepper(
            network, lambda network, draws=draws: class_score(network(x, draws=draws), y).mean()
        )
        functions[f"products of its added rows alone, M = {draws}"] = products((draws - 1) * BATCH)
    late = noisify(paper_cnn(10), affine_layers(paper_cnn(10), x)[-2], 0.5, example=x)
    functions["gps, noise at the last hidden layer, M = 10"] = stepper(
        late, lambda network: log_score(network(x, draws=10), y).mean()
    )
    found = interleaved(functions, seconds=seconds)
    ratios = {name: round(found[name] / found["plain"], 3) for name in found}
    return ratios | {"plain step, ms": round(found["plain"], 1)}


def products(rows: int, width: int = 800, layers: int = 5):
    """Give the matrix products, forward and backward, of so many more rows in the layers behind the noise.

    They are what no implementation saves: one plus this ratio is the least that a step can cost.
    """
    x, gradient, weight = torch.rand(rows, width), torch.rand(rows, width), torch.rand(width, width)

    def run():
        for _ in range(layers):
            x @ weight.T
            gradient @ weight
            gradient.T @ x

    return run


def judging(seconds: float) -> dict[str, float]:
    from common import interleaved

    gps, late, dropout, x = trained_models()
    network = dropout.network_

    def full_passes():
        layers = [layer for layer in network.modules() if type(layer).__name__ == "_DrawnDropout"]
        with torch.no_grad():
            for layer in layers:
                layer.train()
            inputs = torch.from_numpy(x)
            for _ in range(DRAWS):
                torch.softmax(network(inputs), -1)
            for layer in layers:
                layer.eval()

    def plain_pass():
        with torch.no_grad():
            torch.softmax(network(torch.from_numpy(x)), -1)

    functions = {
        "plain pass": plain_pass,
        "gps, last hidden layer, distance": lambda: late.uncertainty(x, DRAWS),
        "gps, last hidden layer, distance, adaptive": lambda: late.uncertainty(x, DRAWS, error_rate=0.05),
        "gps": lambda: gps.uncertainty(x, DRAWS),
        "gps, adaptive": lambda: gps.uncertainty(x, DRAWS, error_rate=0.05),
        "dropout, trunk once": lambda: dropout.uncertainty(x, DRAWS),
        "dropout, full passes": full_passes,
    }
    found = interleaved(functions, seconds=seconds)
    return {name: round(time / found["gps"], 3) for name, time in found.items()} | {
        "last hidden layer, distance, adaptive / plain pass": round(
            found["gps, last hidden layer, distance, adaptive"] / found["plain pass"], 3
        ),
        "gps, ms per image": round(found["gps"] / len(x), 2),
        "draws, adaptive": round(float(gps.uncertainty(x, DRAWS, error_rate=0.05).n_draws.mean()), 1),
    }


def trained_models():
    """Give GPS networks, the paper's and one that knows distance, and one with dropout, after an epoch, and images."""
    from gpsuq import GPSClassifier, GPSError, Recipe
    from gpsuq.classify.baselines import DropoutClassifier
    from gpsuq.datasets import load_images
    from paper.networks import paper_cnn

    try:
        train, test = load_images("mnist"), load_images("mnist", "test")
        x, y, fresh = train.pixels()[:5_000], train.labels[:5_000], test.pixels()[:IMAGES]
    except GPSError:
        rng = np.random.default_rng(0)
        y = rng.integers(0, 10, 2000)
        x = (rng.random((2000, 1, 28, 28)) + y[:, None, None, None] / 5).astype(np.float32)
        fresh = x[:IMAGES]
    recipe = Recipe(epochs=1)
    gps = GPSClassifier(lambda: paper_cnn(10), "head.0", recipe=recipe).fit(x, y)
    aware = {"layer": "auto", "loss": "log", "spread": "distance", "verdict": "combined"}
    late = GPSClassifier(lambda: paper_cnn(10), **aware, recipe=recipe).fit(x, y)
    dropout = DropoutClassifier(lambda: paper_cnn(10, dropout=0.25), recipe=recipe).fit(x, y)
    return gps, late, dropout, fresh


def main() -> None:
    from common import write

    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"))
    parser.add_argument("--seconds", type=float, default=60.0)
    arguments = parser.parse_args()
    result = {
        "training step / plain": training(arguments.seconds),
        "judging / gps": judging(arguments.seconds),
    }
    print(result)
    write(
        arguments.out,
        "classifier_cost",
        f"python benchmarks/classifier_cost.py --seconds {arguments.seconds:g}",
        result,
    )


if __name__ == "__main__":
    main()
