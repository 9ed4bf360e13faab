"""The state of a module as tensors that can be written."""

from __future__ import annotations

from torch import Tensor, nn


def whole(module: nn.Module, prefix: str) -> dict[str, Tensor]:
    """Give the state of a module under names that begin so, each tensor in memory of its own."""
    return {
        f"{prefix}{name}": tensor.detach().cpu().clone().contiguous() for name, tensor in module.state_dict().items()
    }
