"""The networks of the paper's appendix, and a perceptron for tables."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator

import torch
from torch import Tensor, nn

_HIDDEN = (64, 64)


def paper_cnn(n_classes: int, *, width: int = 800, depth: int = 6, dropout: float = 0.0) -> nn.Sequential:
    """Give the paper's network for 28 x 28 images of one channel; its noise enters at ``"head.0"``.

    conv[16,5,1,2]-BN-ReLU-max-pool[2]-conv[32,5,1,2]-BN-ReLU-max-pool[2], flattened to 1,568 numbers, then six layers
    of 800 nodes, each batch-normalised. The appendix names no activation and no last layer for the latter: here every
    node is rectified, and an affine layer to the classes follows. ``dropout`` comes behind every layer of 800 nodes.
    """
    trunk = nn.Sequential(
        *(nn.Conv2d(1, 16, 5, padding=2), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(16, 32, 5, padding=2), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2)),
        nn.Flatten(),
    )
    head = feed_forward(32 * 7 * 7, n_classes, width=width, depth=depth, dropout=dropout)
    return nn.Sequential(OrderedDict(trunk=trunk, head=head))


class Standardise(nn.Module):
    """Centre and scale inputs by what was seen first."""

    center: Tensor
    scale: Tensor

    def __init__(self, example: Tensor) -> None:
        super().__init__()
        values = example.double()
        scale = values.std(0, correction=0)
        self.register_buffer("center", values.mean(0).float())
        self.register_buffer("scale", torch.where(scale > 0, scale, 1.0).float())

    def forward(self, x: Tensor) -> Tensor:
        """Give (x - center) / scale."""
        return (x - self.center) / self.scale


def default_network(example: Tensor, n_classes: int) -> nn.Sequential:
    """Give a perceptron for rows of a table, (n, columns); noise enters at its first layer."""
    first, second = _HIDDEN
    return nn.Sequential(
        Standardise(example),
        nn.Linear(example.shape[1], first),
        nn.ReLU(),
        nn.Linear(first, second),
        nn.ReLU(),
        nn.Linear(second, n_classes),
    )


def feed_forward(n_inputs: int, n_classes: int, *, width: int, depth: int, dropout: float = 0.0) -> nn.Sequential:
    """Give ``depth`` batch-normalised layers of ``width`` nodes, and an affine layer to the classes."""

    def layers() -> Iterator[nn.Module]:
        wide = n_inputs
        for _ in range(depth):
            yield from (nn.Linear(wide, width), nn.BatchNorm1d(width), nn.ReLU())
            if dropout > 0.0:
                yield nn.Dropout(dropout)
            wide = width
        yield nn.Linear(wide, n_classes)

    return nn.Sequential(*layers())
