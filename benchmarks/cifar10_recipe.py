"""How networks and their training do on validation images: CIFAR-10's training images without trucks, every tenth."""

from __future__ import annotations

import argparse
from pathlib import Path

EVERY = 10


def measured(options: argparse.Namespace) -> dict[str, float]:
    import torch
    from validation import Validation

    from gpsuq import GPSClassifier, Recipe
    from gpsuq.augment import ShiftAndFlip
    from gpsuq.datasets import load_images
    from gpsuq.networks import paper_resnet, small_resnet

    images = load_images("cifar10")
    data = Validation.of(images, images.classes.index("truck"), EVERY)
    examples = torch.from_numpy(data.known.rows(slice(0, 5000)).pixels())

    def network() -> torch.nn.Module:
        made = (
            small_resnet(9, examples, width=options.width)
            if options.network == "modern"
            else paper_resnet(9, images=examples)
        )
        return made.to(memory_format=torch.channels_last)

    model = GPSClassifier(
        network,
        "head.0",
        recipe=Recipe(epochs=options.epochs, learning_rate=options.learning_rate, weight_decay=options.weight_decay),
        spread_weight=options.spread_weight,
        random_state=options.seed,
        progress=True,
    )
    model.fit(data.known.pixels(), data.known.labels, augment=ShiftAndFlip(4), checkpoint=options.checkpoint)
    return data.judge(model, options.seed) | {"training seconds": round(model.seconds_, 1)}


def main() -> None:
    from common import write

    parser = argparse.ArgumentParser()
    parser.add_argument("--network", choices=("modern", "paper"), default="modern")
    parser.add_argument("--width", type=int, default=32)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--learning-rate", type=float, default=0.1)
    parser.add_argument("--weight-decay", type=float, default=5e-4)
    parser.add_argument("--spread-weight", type=float, default=0.05)
    parser.add_argument("--seed", type=int, default=1000)
    parser.add_argument("--checkpoint", type=Path)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"))
    options = parser.parse_args()
    result = measured(options)
    print(result)
    chosen = {name: value for name, value in vars(options).items() if name not in ("checkpoint", "out")}
    command = " ".join(f"--{name.replace('_', '-')} {value}" for name, value in chosen.items())
    name = "cifar10_recipe_" + "_".join(map(str, chosen.values()))
    write(options.out, name, f"python benchmarks/cifar10_recipe.py {command}", result)


if __name__ == "__main__":
    main()
