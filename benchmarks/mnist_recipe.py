"""How a recipe does on validation images: MNIST's training images without the digit 1, judged by every twelfth.

The test images are never read: this is how the default of ``GPSClassifier`` was chosen.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

DRAWS, STRANGE = 100, 400
LEFT_OUT = 1


def measured(
    weight_decay: float, off_data_spread: float, spread_weight: float, ratio: float, epochs: int, seed: int
) -> dict[str, float]:
    import numpy as np
    import torch

    from gpsuq import GPSClassifier, Recipe
    from gpsuq.datasets import load_images
    from gpsuq.decisions import selective_error
    from gpsuq.networks import paper_cnn

    images = load_images("mnist")
    aside = np.arange(len(images)) % 12 == 0  # not the last ones: they are easier than the test images
    train, validation = images.rows(~aside), images.rows(aside)
    known, seen = train.without(LEFT_OUT), validation.without(LEFT_OUT)
    recipe = replace(Recipe(), epochs=epochs, weight_decay=weight_decay)
    model = GPSClassifier(
        lambda: paper_cnn(9).to(memory_format=torch.channels_last),
        "head.0",
        recipe=recipe,
        ratio=ratio,
        spread_weight=spread_weight,
        off_data_spread=off_data_spread,
        random_state=seed,
        progress=True,
    ).fit(known.pixels(), known.labels)
    verdicts = model.uncertainty(seen.pixels(), DRAWS)
    errors = selective_error(verdicts.mean, seen.labels, verdicts.uncertain)
    unseen = train.rows(train.labels == LEFT_OUT).pixels()[:STRANGE]
    noise = np.random.default_rng(seed).random((STRANGE, 1, 28, 28), dtype=np.float32)
    return {
        "error": 100 * errors.full,
        "certain error": 100 * errors.certain,
        "Uncertain": 100 * errors.uncertain_share,
        "Uncertain ones": 100 * float(model.uncertainty(unseen, DRAWS).uncertain.mean()),
        "Uncertain noise": 100 * float(model.uncertainty(noise, DRAWS).uncertain.mean()),
    }


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
    result = {name: round(value, 3) for name, value in measured(*settings).items()}
    print(result)
    command = "python benchmarks/mnist_recipe.py --weight-decay {:g} --off-data-spread {:g} "
    command += "--spread-weight {:g} --ratio {:g} --epochs {} --seed {}"
    write(options.out, "mnist_recipe_{:g}_{:g}_{:g}_{:g}_{}_{}".format(*settings), command.format(*settings), result)


if __name__ == "__main__":
    main()
