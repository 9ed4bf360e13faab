"""The network that a table gets where the user brings none."""

from __future__ import annotations

import torch
from torch import Tensor, nn

_HIDDEN = (64, 64)


class Standardise(nn.Module):
    """Centre and scale inputs by what was seen first: every column of a table, every channel of images.

    >>> import torch
    >>> from gpsuq.classify.networks import Standardise
    >>> standardise = Standardise(torch.tensor([[1.0, 100.0], [3.0, 300.0]]))
    >>> standardise(torch.tensor([[3.0, 200.0]]))
    tensor([[1., 0.]])
    """

    center: Tensor
    scale: Tensor

    def __init__(self, example: Tensor) -> None:
        super().__init__()
        values = example.double()
        over = tuple(number for number in range(values.dim()) if number != 1)
        scale, center = torch.std_mean(values, over, correction=0, keepdim=True)
        self.register_buffer("center", center[0].float())
        self.register_buffer("scale", torch.where(scale > 0, scale, 1.0)[0].float())

    def forward(self, x: Tensor) -> Tensor:
        """Return (x - center) / scale."""
        return (x - self.center) / self.scale


def default_network(example: Tensor, n_classes: int) -> nn.Sequential:
    """Return a perceptron for rows of a table, (n, columns); noise enters at its first layer.

    >>> import torch
    >>> from gpsuq.classify.networks import default_network
    >>> rows = torch.randn(100, 5)
    >>> default_network(rows, n_classes=3)(rows).shape
    torch.Size([100, 3])
    """
    first, second = _HIDDEN
    hidden = nn.Linear(example.shape[1], first), nn.ReLU(), nn.Linear(first, second), nn.ReLU()
    return nn.Sequential(Standardise(example), *hidden, nn.Linear(second, n_classes))
