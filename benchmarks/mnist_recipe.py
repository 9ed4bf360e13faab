"""How a recipe does on validation images: MNIST's training images without the digit 1, judged by every twelfth.

This is how the default of ``GPSClassifier`` was chosen.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

EVERY, LEFT_OUT = 12, 1


def measured(
    weight_decay: float, off_data_spread: float, spread_weight: float, ratio: float, epochs: int, seed: int
) -> dict[str, float]:
    import torch
    from validation import Validation

    from gpsuq import GPSClassifier, Recipe
    from gpsuq.datasets import load_images
    from paper.networks import paper_cnn

    data = Validation.of(load_images("mnist"), LEFT_OUT, EVERY)
    recipe = replace(Recipe(), epochs=epochs, weight_decay=weight_decay)
    model = GPSClassifier(
        lambda: paper_cnn(9).to(memory_format=torch.channels_last),
        "head.0",
        recipe=recipe,
        ratio=ratio,
        spread="even",
        verdict="quantile",
        spread_weight=spread_weight,
        off_data_spread=off_data_spread,
        random_state=seed,
        progress=True,
    ).fit(data.known.pixels(), data.known.labels)
    return data.judge(model, seed)


def main() -> None:
    from common import write

    parser = argparse.ArgumentParser()
    parser.add_argument("--weight-decay", type=float, default=5e-4)
    parser.add_argument("--off-data-spread", type=float, default=0.05)
    parser.add_argument("--spread-weight", type=float, default=0.05)
    parser.add_argument("--ratio", type=float, default=0.5)
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--seed", type=int, default=1000)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"))
    options = parser.parse_args()
    names = ("weight_decay", "off_data_spread", "spread_weight", "ratio", "epochs", "seed")
    settings = [getattr(options, name) for name in names]
    result = measured(*settings)
    print(result)
    command = "python benchmarks/mnist_recipe.py --weight-decay {:g} --off-data-spread {:g} "
    command += "--spread-weight {:g} --ratio {:g} --epochs {} --seed {}"
    write(options.out, "mnist_recipe_{:g}_{:g}_{:g}_{:g}_{}_{}".format(*settings), command.format(*settings), result)


if __name__ == "__main__":
    main()
