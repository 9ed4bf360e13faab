"""What draws cost: a training step beside the plain network's, and verdicts beside Monte Carlo dropout's.

Everything is timed interleaved in one run of one thread, medians of several rounds of process time; only ratios mean
anything.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn

BATCH, IMAGES, DRAWS = 100, 200, 200


def training(seconds: float) -> dict[str, float]:
    from common import interleaved

    from gpsuq import GPSClassifier, Recipe, class_score, noisify
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
    model = GPSClassifier()
    model.spread_weight_ = model.spread_weight
    for draws in (4, 10):
        loss = model._loss(Recipe(n_draws=draws))
        functions[f"gps by default, M = {draws}"] = stepper(
            model._noisy(paper_cnn(10), x), lambda network, loss=loss: loss(network, x, y)
        )
    found = interleaved(functions, seconds=seconds, clock=time.process_time)
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
        "gps by default": lambda: late.uncertainty(x, DRAWS),
        "gps by default, adaptive": lambda: late.uncertainty(x, DRAWS, error_rate=0.05),
        "gps": lambda: gps.uncertainty(x, DRAWS),
        "gps, adaptive": lambda: gps.uncertainty(x, DRAWS, error_rate=0.05),
        "dropout, trunk once": lambda: dropout.uncertainty(x, DRAWS),
        "dropout, full passes": full_passes,
    }
    found = interleaved(functions, seconds=seconds, clock=time.process_time)
    return {name: round(taken / found["gps"], 3) for name, taken in found.items()} | {
        "gps by default, adaptive / plain pass": round(found["gps by default, adaptive"] / found["plain pass"], 3),
        "gps, ms per image": round(found["gps"] / len(x), 2),
        "draws, adaptive": round(float(gps.uncertainty(x, DRAWS, error_rate=0.05).n_draws.mean()), 1),
        "draws by default, adaptive": round(float(late.uncertainty(x, DRAWS, error_rate=0.05).n_draws.mean()), 1),
    }


def trained_models():
    """Give GPS networks, the paper's and the default, and one with dropout, after an epoch, and images."""
    from gpsuq import GPSClassifier, GPSError, Recipe
    from gpsuq.classify.baselines import DropoutClassifier
    from gpsuq.datasets import load_images
    from paper.networks import paper_cnn

    try:
        train, test = load_images("mnist"), load_images("mnist", "test")
        x, y, fresh = train.pixels()[:10_000], train.labels[:10_000], test.pixels()[:IMAGES]
    except GPSError:
        rng = np.random.default_rng(0)
        y = rng.integers(0, 10, 2000)
        x = (rng.random((2000, 1, 28, 28)) + y[:, None, None, None] / 5).astype(np.float32)
        fresh = x[:IMAGES]
    recipe = Recipe(epochs=1)
    paper = {"spread": "even", "verdict": "quantile"}
    gps = GPSClassifier(lambda: paper_cnn(10), "head.0", **paper, recipe=recipe).fit(x, y)
    late = GPSClassifier(lambda: paper_cnn(10), recipe=recipe).fit(x, y)
    dropout = DropoutClassifier(lambda: paper_cnn(10, dropout=0.25), recipe=recipe).fit(x, y)
    return gps, late, dropout, fresh


def main() -> None:
    from common import write

    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"))
    parser.add_argument("--seconds", type=float, default=60.0)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
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
