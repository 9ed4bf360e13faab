"""Verdicts on one trained network: GPS heads beside scores that anybody can compute from the same features.

``GPSUQ_DATA=/path/to/data python benchmarks/verdicts.py --data mnist --seeds 0-2`` trains a plain network for every
seed (with checkpoints in ``--models``), keeps its features, and appends a line for each method to
``results/verdicts/rows.jsonl``; lines that are there are not measured again. A tenth of the training images is set
aside for everything that is chosen; test images are judged once a line. ``--summarise`` turns all lines into
``results/verdicts.md``. CIFAR-10 is without trucks, which are strangers near by; ``--epochs`` and ``--width`` make a
smaller network of the modern one.
"""

from __future__ import annotations

import argparse
import copy
import json
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from common import environment
from numpy.typing import NDArray
from sklearn.neighbors import NearestNeighbors
from torch import Tensor, nn

from gpsuq import GPSClassifier, Recipe
from gpsuq.classify.baselines import DropoutClassifier, PlainClassifier
from gpsuq.classify.decisions import auroc, log_loss, reliability, risk_coverage, wrong
from gpsuq.core.familiarity import FeatureSums
from gpsuq.datasets import load_images
from gpsuq.datasets.images import CIFAR10_CLASSES, Images
from gpsuq.files import write_atomically
from paper.augment import ShiftAndFlip, WindowsFirst
from paper.cifar10 import LEARNING_RATE
from paper.features import outputs, split_network
from paper.networks import paper_cnn, small_resnet

Array = NDArray[np.floating]

COVERAGE = {"mnist": 0.97, "cifar10": 0.77}  # of images set aside, that one threshold of each score leaves certain
HEAD = Recipe(epochs=3, n_draws=10)
NEW = {"layer": "auto", "loss": "log", "spread": "distance", "verdict": "combined"}
PAPER = {"layer": None, "spread": "even", "verdict": "quantile"}
NEW |= {"spread_weight": 0.0, "off_data_spread": 0.0}
PRECISIONS = [10.0**power for power in range(-2, 6)]  # of last-layer weights before there are data
_NEIGHBOURS, _BANK, _DROPOUT = 10, 5000, 0.2
_ABOUT = ("data", "network", "seed", "method", "environment", "commit")


@dataclass(frozen=True)
class Material:
    """A plain network, and what it is trained on and judged by: images (n, c, h, w) and labels as numbers."""

    network: nn.Module
    recipe: Recipe
    augment: Callable[[Tensor], Tensor] | None
    train: tuple[Tensor, Array]
    aside: tuple[Tensor, Array]
    test: tuple[Tensor, Array]
    strangers: dict[str, Tensor]


def parted(images: Images, labels: Array) -> tuple[tuple[Tensor, Array], tuple[Tensor, Array]]:
    """Set a tenth of the images aside, the same whatever the seed."""
    order = np.random.default_rng(0).permutation(len(labels))
    pixels, few = torch.from_numpy(images.pixels()), len(labels) // 10
    return (pixels[order[few:]], labels[order[few:]]), (pixels[order[:few]], labels[order[:few]])


def mnist(epochs: int, width: int) -> Material:
    """Digits by the paper's network; strangers are letters, and digits turned, inverted and on a texture."""
    train, test = (load_images("mnist", split) for split in ("train", "test"))
    pixels = torch.from_numpy(test.pixels())
    texture = torch.rand(pixels.shape, generator=torch.Generator().manual_seed(0))
    blurred = nn.functional.avg_pool2d(texture, 3, stride=1, padding=1)
    strangers = {
        "letters": torch.from_numpy(load_images("notmnist", "test").pixels()),
        "turned": pixels.rot90(1, (2, 3)),
        "inverted": 1.0 - pixels,
        "textured": torch.maximum(pixels, blurred),
        "noise": texture[:2000],
    }
    fit, aside = parted(train, train.labels)
    return Material(paper_cnn(10), Recipe(epochs=epochs or 6), None, fit, aside, (pixels, test.labels), strangers)


def cifar10(epochs: int, width: int) -> Material:
    """Colour images without trucks; strangers are trucks, digits and noise."""
    train, test = (load_images("cifar10", split) for split in ("train", "test"))
    truck, epochs = CIFAR10_CLASSES.index("truck"), epochs or 12
    known = train.rows(train.labels != truck)
    seen = test.rows(test.labels != truck)
    digits = torch.from_numpy(load_images("mnist", "test").pixels()[:2000])
    strangers = {
        "trucks": torch.from_numpy(test.rows(test.labels == truck).pixels()),
        "digits": nn.functional.pad(digits, (2, 2, 2, 2)).expand(-1, 3, -1, -1).contiguous(),
        "noise": torch.rand(2000, 3, 32, 32, generator=torch.Generator().manual_seed(0)),
    }
    fit, aside = parted(known, known.labels)  # trucks are the last class, so that numbers have no gap
    return Material(
        small_resnet(9, images=fit[0][:5000], width=width),
        Recipe(epochs=epochs, learning_rate=LEARNING_RATE),
        WindowsFirst(ShiftAndFlip(2), epochs=round(0.6 * epochs)),
        fit,
        aside,
        (torch.from_numpy(seen.pixels()), seen.labels),
        strangers,
    )


@dataclass(frozen=True)
class Features:
    """What the trunk of the plain network makes of all images, and its head."""

    head: nn.Module
    train: Tensor
    parts: dict[str, Tensor]  # aside, test and strangers


Judged = tuple[dict[str, Array], dict[str, Array]]
"""Of every part: class probabilities (n, H), and a score, higher where a prediction is less to be trusted (n,)."""


def plain(features: Features, score: Callable[[Tensor, Array], Array]) -> Judged:
    """Judge by the plain network and a score of features and probabilities."""
    found: Judged = {}, {}
    for name, part in features.parts.items():
        found[0][name] = softmax(outputs(features.head, part))
        found[1][name] = score(part, found[0][name])
    return found


def softmax(logits: Tensor) -> Array:
    """Return probabilities in double precision, whose rows sum to 1."""
    return torch.softmax(logits.double(), -1).numpy()


def of_classifier(model: Any, features: Features) -> Judged:
    """Judge by a classifier's own verdict."""
    verdicts = {name: model.uncertainty(part) for name, part in features.parts.items()}
    return {name: v.mean for name, v in verdicts.items()}, {name: v.uqc_shortfall for name, v in verdicts.items()}


def laplace(features: Features, labels: Tensor, aside: Array) -> Judged:
    """Judge by a last-layer Laplace approximation: Kronecker factors, 200 draws, precision by images set aside."""
    last = [layer for layer in features.head.modules() if isinstance(layer, nn.Linear)][-1]

    def entered(x: Tensor) -> Tensor:
        found: list[Tensor] = []
        handle = last.register_forward_pre_hook(lambda _, inputs: found.append(inputs[0]))
        outputs(features.head, x)
        handle.remove()
        rows = torch.cat(found).double()
        return torch.cat([rows, rows.new_ones(len(rows), 1)], 1)

    train = entered(features.train)
    weight = torch.cat([last.weight, last.bias[:, None]], 1).detach().double()
    p = torch.softmax(train @ weight.T, 1)
    a, u = torch.linalg.eigh(train.T @ train)  # summed over images; the other factor is their mean
    g, v = torch.linalg.eigh(torch.diag(p.mean(0)) - p.T @ p / len(p))
    noise = torch.randn(200, len(g), generator=torch.Generator().manual_seed(0), dtype=torch.float64)

    def probabilities(rows: Tensor, precision: float) -> Array:
        variance = (rows @ u).square() @ (1.0 / (a.clamp_min(0.0)[:, None] * g.clamp_min(0.0) + precision))
        parts = zip((rows @ weight.T).split(500), variance.sqrt().split(500), strict=True)
        return torch.cat([torch.softmax(m[:, None] + (s[:, None] * noise) @ v.T, 2).mean(1) for m, s in parts]).numpy()

    rows = {name: entered(part) for name, part in features.parts.items()}
    best = min(PRECISIONS, key=lambda precision: log_loss(probabilities(rows["aside"], precision), aside))
    found = {name: probabilities(part, best) for name, part in rows.items()}
    return found, {name: 1.0 - each.max(1) for name, each in found.items()}


def with_dropout(head: nn.Module, p: float) -> nn.Module:
    """Return a copy of a head with dropout behind every rectifier."""
    if isinstance(head, nn.Sequential):
        return nn.Sequential(*(with_dropout(layer, p) for layer in head))
    return nn.Sequential(head, nn.Dropout(p)) if isinstance(head, nn.ReLU) else copy.deepcopy(head)


class OnFeatures(GPSClassifier):
    """GPS on features that a trunk has learned: they are compared as they are, as those of a whole network would be."""

    def _feature_layers(self, network: nn.Module, head: str, layer: Any, example: Tensor) -> list[str]:
        return [head]


def judged(method: str, features: Features, material: Material, seed: int) -> Judged:
    """Train what a method needs on the features, and judge all parts."""
    labels, aside = torch.from_numpy(material.train[1]), (features.parts["aside"], material.aside[1])
    if method == "softmax":
        return plain(features, lambda _, p: 1.0 - p.max(1))
    if method == "energy":
        return plain(features, lambda x, _: -outputs(features.head, x).logsumexp(1).double().numpy())
    if method in ("relative Mahalanobis", "Mahalanobis"):
        sums = FeatureSums(features.train.shape[1], int(labels.max()) + 1)
        for x, y in zip(features.train.split(1000), labels.split(1000), strict=True):
            sums.add(x, y)
        known, place = sums.familiarity(), 0 if method.startswith("relative") else 1
        return plain(features, lambda x, _: known.distances(x)[:, place].double().numpy())
    if method == "nearest neighbours":
        bank = nn.functional.normalize(features.train[:_BANK])
        near = NearestNeighbors(n_neighbors=_NEIGHBOURS, algorithm="brute").fit(bank)
        return plain(features, lambda x, _: near.kneighbors(nn.functional.normalize(x))[0][:, -1])
    if method == "plain head":
        model: Any = PlainClassifier(features.head, recipe=HEAD, random_state=seed)
        return of_classifier(model.fit(features.train, material.train[1]), features)
    if method == "Laplace, last layer":
        return laplace(features, labels, material.aside[1])
    if method == "MC dropout":
        model = DropoutClassifier(with_dropout(features.head, _DROPOUT), recipe=HEAD, random_state=seed)
        model.fit(features.train, material.train[1])
        verdicts = {name: model.uncertainty(part) for name, part in features.parts.items()}
        return {name: v.mean for name, v in verdicts.items()}, {
            name: v.predictive_entropy for name, v in verdicts.items()
        }
    options: dict[str, Any] = {"recipe": HEAD, "random_state": seed, "features": "keep"}
    if method == "GPS, paper's":
        model = GPSClassifier(features.head, **PAPER, **options, spread_weight=0.0, off_data_spread=0.0)
    elif method == "GPS, price and reward":
        model = GPSClassifier(features.head, **PAPER, **options)
    else:
        model = OnFeatures(features.head, **NEW, **options)
        return of_classifier(model.fit(features.train, material.train[1], validation=aside), features)
    return of_classifier(model.fit(features.train, material.train[1]), features)


METHODS = (
    *("softmax", "energy", "nearest neighbours", "Mahalanobis", "relative Mahalanobis"),
    *("plain head", "Laplace, last layer", "MC dropout", "GPS, paper's", "GPS, price and reward", "GPS, distance"),
)


def measured(method: str, data: str, features: Features, material: Material, seed: int) -> dict[str, Any]:
    """Return what a method measures on test images and strangers."""
    started = time.perf_counter()
    probabilities, scores = judged(method, features, material, seed)
    seconds = time.perf_counter() - started
    labels = material.test[1].astype(np.intp)
    errors = wrong(probabilities["test"], labels)
    threshold = np.quantile(scores["aside"], COVERAGE[data])
    certain = scores["test"] <= threshold
    return {
        "error": float(errors.mean()),
        "log loss": log_loss(probabilities["test"], labels),
        "ECE": reliability(probabilities["test"], labels).error,
        "AURC x 1000": 1000.0 * risk_coverage(scores["test"], errors).area,
        "Uncertain": float((~certain).mean()),
        "certain error": float(errors[certain].mean()),
        **{f"{name} Uncertain": float((scores[name] > threshold).mean()) for name in material.strangers},
        **{f"{name} AUROC": auroc(scores["test"], scores[name]) for name in material.strangers},
        "seconds": round(seconds, 1),
    }


def prepared(material: Material, seed: int, models: Path) -> Features:
    """Train the plain network where that has not been done, and return its features, which are kept beside it."""
    torch.manual_seed(seed)
    model = PlainClassifier(material.network, recipe=material.recipe, random_state=seed)
    model.fit(*material.train, augment=material.augment, checkpoint=models)
    trunk, head = split_network(model.network_, "head.0")
    kept = models / "features.pt"
    if not kept.exists():
        parts = {"train": material.train[0], "aside": material.aside[0], "test": material.test[0]}
        torch.save({name: outputs(trunk, x) for name, x in (parts | material.strangers).items()}, kept)
    features = torch.load(kept, weights_only=True)
    return Features(head, features.pop("train"), features)


def summarise(out: Path) -> None:
    """Write means over seeds, and their standard deviations, as tables."""
    frame = pd.DataFrame([json.loads(line) for line in (out / "verdicts" / "rows.jsonl").read_text().splitlines()])
    frame = frame.drop_duplicates(["data", "network", "seed", "method"], keep="last")
    lines = ["# Verdicts on one trained network", ""]
    for (data, network), part in frame.groupby(["data", "network"]):
        measures = [name for name in part.columns if name not in _ABOUT and part[name].notna().any()]
        seeds = part.seed.nunique()
        lines += [f"## {data}, {network}, {seeds} seed{'s' if seeds > 1 else ''}", ""]
        lines += ["| | " + " | ".join(measures) + " |", "|" + "---|" * (1 + len(measures))]
        for method in [m for m in METHODS if m in set(part.method)]:
            own = part[part.method == method][measures]
            cells = [_cell(name, own[name]) for name in measures]
            lines.append(f"| {method} | " + " | ".join(cells) + " |")
        lines.append("")
    write_atomically(out / "verdicts.md", "\n".join(lines).encode())


def _cell(name: str, values: pd.Series) -> str:
    """Write a mean and the standard deviation over seeds; shares and AUROC in per cent."""
    share = 1.0 if name in ("log loss", "AURC x 1000", "seconds") else 100.0
    spread = f" ± {share * values.std():.2g}" if len(values) > 1 else ""
    return f"{share * values.mean():.4g}{spread}"


def commit() -> str:
    """Return the commit that measures."""
    command = ["git", "-C", str(Path(__file__).parent), "rev-parse", "--short", "HEAD"]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()


def numbers(text: str) -> list[int]:
    """Read "0,2" or "0-2"."""

    def of(part: str) -> Iterator[int]:
        first, _, last = part.partition("-")
        return iter(range(int(first), int(last or first) + 1))

    return [number for part in text.split(",") for number in of(part)]


def main() -> None:
    """Measure what has no line yet."""
    torch.set_num_threads(1)
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", choices=list(COVERAGE), default="mnist")
    parser.add_argument("--seeds", type=numbers, default=[0])
    parser.add_argument("--epochs", type=int, default=0, help="of the plain network; its own number by default")
    parser.add_argument("--width", type=int, default=32, help="of the modern network")
    parser.add_argument("--methods", type=lambda text: text.split(";"), default=list(METHODS))
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"))
    parser.add_argument("--models", type=Path, default=Path("benchmarks/models"), help="where networks are kept")
    parser.add_argument("--again", action="store_true", help="measure what has a line too; the last line counts")
    parser.add_argument("--summarise", action="store_true")
    asked = parser.parse_args()
    if asked.summarise:
        summarise(asked.out)
        return
    path = asked.out / "verdicts" / "rows.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    done = {(row["data"], row["network"], row["seed"], row["method"]) for row in rows}
    make = {"mnist": mnist, "cifar10": cifar10}[asked.data]
    name = "paper's" if asked.data == "mnist" else f"width {asked.width}"
    network = f"{name}, {asked.epochs or {'mnist': 6, 'cifar10': 12}[asked.data]} epochs"
    for seed in asked.seeds:
        left = [m for m in asked.methods if asked.again or (asked.data, network, seed, m) not in done]
        if not left:
            continue
        torch.manual_seed(seed)
        material = make(asked.epochs, asked.width)
        features = prepared(material, seed, asked.models / f"{asked.data}-{asked.width}-{asked.epochs}-{seed}")
        for method in left:
            about = (asked.data, network, seed, method, environment(), commit())
            row: dict[str, Any] = dict(zip(_ABOUT, about, strict=True))
            row |= measured(method, asked.data, features, material, seed)
            with path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")
            print({key: value for key, value in row.items() if key != "environment"}, flush=True)


if __name__ == "__main__":
    main()
