"""Batch normalisation over the rows of all processes, on any device: torch's own works on GPUs only."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.nn.functional import all_reduce
from torch.nn.modules.batchnorm import _BatchNorm


class _Together(_BatchNorm):
    """Batch normalisation whose mean and variance in training are those of the rows of all processes."""

    def forward(self, input: Tensor) -> Tensor:
        """Normalise as the plain layer would if it saw the rows of all processes at once."""
        if not self.training:
            return super().forward(input)
        self._check_input_dim(input)  # type: ignore[no-untyped-call]
        channels = (1, -1, *(1,) * (input.dim() - 2))
        rows = input.transpose(0, 1).flatten(1)  # (channel, everything that is averaged)
        count = rows.new_full((1,), rows.shape[1])
        total = all_reduce(torch.cat([rows.sum(1), count]))
        n = total[-1].detach()
        mean = total[:-1] / n
        variance = all_reduce((rows - mean[:, None]).square().sum(1)) / n
        self._remember(mean.detach(), variance.detach() * (n / (n - 1)))
        result: Tensor = (input - mean.reshape(channels)) * torch.rsqrt(variance + self.eps).reshape(channels)
        if self.affine:
            result = result * self.weight.reshape(channels) + self.bias.reshape(channels)
        return result

    def _remember(self, mean: Tensor, variance: Tensor) -> None:
        if self.running_mean is None or self.running_var is None or self.num_batches_tracked is None:
            return
        self.num_batches_tracked.add_(1)
        part = 1.0 / float(self.num_batches_tracked) if self.momentum is None else self.momentum
        self.running_mean.lerp_(mean, part)
        self.running_var.lerp_(variance, part)


_PLAIN: tuple[type[Any], ...] = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)
_TOGETHER = {plain: type(f"{plain.__name__}Together", (_Together, plain), {}) for plain in _PLAIN}
_ALONE = {together: plain for plain, together in _TOGETHER.items()}


def normalise_together(network: nn.Module) -> None:
    """Let the batch normalisation of a network see the rows of all processes; weights and names stay."""
    _exchange(network, _TOGETHER)


def normalise_alone(network: nn.Module) -> None:
    """Make the layers of :func:`normalise_together` what they were."""
    _exchange(network, _ALONE)


def _exchange(network: nn.Module, kinds: dict[type[Any], type[Any]]) -> None:
    for module in network.modules():
        if type(module) in kinds:
            module.__class__ = kinds[type(module)]
