"""CIFAR-10, section 4 of the paper: its network and one of today; Table 1, and Table 2 without trucks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from torch import nn

from gpsuq.classify.estimator import SPREAD_WEIGHT
from gpsuq.classify.off_data import BOX
from gpsuq.datasets import load_images
from gpsuq.datasets.images import CIFAR10_CLASSES, Images
from gpsuq.engine.settings import Recipe
from gpsuq.errors import GPSError
from paper import images
from paper.augment import ShiftAndFlip, WindowsFirst
from paper.image_tables import Published
from paper.networks import paper_resnet, small_resnet
from paper.record import Asked

NETWORKS: dict[str, Callable[..., nn.Module]] = {"paper": paper_resnet, "modern": small_resnet}
EPOCHS = {"paper": 20, "modern": 12}
_WINDOWS = 0.6  # of the modern network's epochs, the first
LEARNING_RATE = 0.1
HEAD = Recipe(epochs=3, n_draws=3)
OFF_DATA_PATCH = (None, BOX, BOX, BOX)  # one part of images of grain, three of those with a box of another image
_SPREAD_WEIGHT = {"paper": 0.5, "modern": SPREAD_WEIGHT}  # price of spread at the data
_HEAD_LAYERS = {"paper": tuple(f"head.{3 * n}" for n in range(7)), "modern": ("head.0", "head.3", "head.6")}
_NOISE_LAYERS = {"paper": ("head.0",), "modern": _HEAD_LAYERS["modern"]}
_EXAMPLES = 5000  # images that inputs are standardised or whitened by
_MEMBERS = 3
COVERAGE = 0.77
_PAPER: dict[int, Published] = {
    1: {
        "plain": (16.50, None, None),
        "dropout": (16.65, 10.37, 13.83),
        "gps-0.5": (15.95, 6.81, 22.48),
        "gps-0.25": (17.36, 7.89, 24.54),
    },
    2: {"dropout": (53.50, 47.53), "gps-0.5": (72.30, 77.24)},
}
_LITERATURE = {
    "VGG16, self-adaptive training (published)": (6.05, 3.37, 1.93, 0.67),
    "VGG16, softmax response (published)": (6.79, 4.55, 2.89, 1.05),
}


def cifar10_study(network: str, epochs: int | None = None) -> images.Study:
    """Return the study of CIFAR-10 with the paper's network or the modern one, trained on shifted and mirrored images.

    The modern network's first epochs see windows of them.
    """
    if network not in NETWORKS:
        raise GPSError(f"network must be one of {', '.join(NETWORKS)}, got {network!r}")
    epochs = epochs or EPOCHS[network]
    augment = ShiftAndFlip(2)
    train, test = (load_images("cifar10", split) for split in ("train", "test"))

    def made(data: Images, dropout: float) -> nn.Module:
        examples = torch.from_numpy(data.rows(slice(0, _EXAMPLES)).pixels())
        return NETWORKS[network](len(data.classes), images=examples, dropout=dropout)

    return images.Study(
        f"cifar10 {network}",
        train,
        test,
        made,
        _NOISE_LAYERS[network],
        Recipe(epochs=epochs, learning_rate=LEARNING_RATE),
        left_out=CIFAR10_CLASSES.index("truck"),
        head_layers=_HEAD_LAYERS[network],
        members=_MEMBERS,
        coverage=COVERAGE,
        head=HEAD,
        spread_weight=_SPREAD_WEIGHT[network],
        off_data_patch=OFF_DATA_PATCH,
        augment=augment if network == "paper" else WindowsFirst(augment, epochs=round(_WINDOWS * epochs)),
        paper=_PAPER,
        literature=_LITERATURE,
    )


def run(asked: Asked, table: int, methods: Sequence[str], epochs: int | None, *, network: str) -> list[Path]:
    """Train and judge the methods with ``network="paper"`` or ``"modern"``."""
    return images.run(cifar10_study(network, epochs), asked, table, methods)
