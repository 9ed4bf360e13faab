"""The affine layer with a noise input: what it does in a pass of a network, and which layers can be replaced by one."""

from __future__ import annotations

import math
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from gpsuq.errors import GPSError

_CLOSED = (nn.MultiheadAttention, nn.TransformerEncoderLayer, nn.TransformerDecoderLayer)


class NoisyLinear(nn.Linear):
    r"""Affine layer with a noise input: rows (n, ..., p) and noise (g, M, q) to rows (n M, ..., out).

    Behind another such layer the rows are (n M, ..., p) already, and each gets the noise of its own draw.
    Of g < n rows of noise each serves as many neighbours, n / g rounded up. Noise is the same at all positions of an
    observation that has several, (n, T, p). Outside a call of a ``NoisyNetwork`` there is no noise, and
    the layer is the plain one.
    """

    noise_weight: nn.Parameter
    noise_scale: Tensor

    def __init__(self, layer: nn.Linear, noise_dim: int) -> None:
        # Not nn.Linear's own constructor: the layer's parameters stay the same objects, tied weights stay tied.
        nn.Module.__init__(self)
        self.in_features, self.out_features = layer.in_features, layer.out_features
        self.weight, self.bias = layer.weight, layer.bias
        self.noise_dim = noise_dim
        bound = 1.0 / math.sqrt(self.in_features + noise_dim)
        self.noise_weight = nn.Parameter(layer.weight.new_empty(self.out_features, noise_dim).uniform_(-bound, bound))
        self.register_buffer("noise_scale", layer.weight.new_ones(()))
        self.train(layer.training)

    def reset_parameters(self) -> None:
        """Initialise all weights as a plain layer of p + q inputs would."""
        bound = 1.0 / math.sqrt(self.in_features + self.noise_dim)
        for parameter in self.parameters(recurse=False):
            nn.init.uniform_(parameter, -bound, bound)

    def forward(self, input: Tensor) -> Tensor:
        """Return the affine map of the input, once for each draw where there is noise."""
        now = current_pass.get()
        if now is None or self not in now.noise:
            return super().forward(input)
        if self in now.called:
            raise GPSError("the layer that was noisified is called twice in one pass: choose one that is called once")
        if not now.called:
            input = now.entered = input if now.entered is None else now.entered
        plain = super().forward(input)
        moved = (self.noise_scale * now.noise[self]) @ self.noise_weight.T  # (row of noise, draw, out)
        rows = plain.unflatten(0, (-1, moved.shape[1])) if now.called else plain[:, None]
        now.called.add(self)
        if 1 < len(moved) < len(rows):
            sharing = math.ceil(len(rows) / len(moved))
            moved = moved[:, None].expand(-1, sharing, -1, -1).flatten(0, 1)[: len(rows)]
        if now.scale is not None:
            moved = moved * now.scale[:, None, None]
        moved = moved.reshape(*moved.shape[:2], *(1,) * (plain.dim() - 2), self.out_features)  # at all positions
        return (rows + moved).flatten(0, 1)

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *others: Any) -> None:
        state_dict.setdefault(f"{prefix}noise_scale", torch.ones(()))  # what was saved before there was one
        super()._load_from_state_dict(state_dict, prefix, *others)

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, noise_dim={self.noise_dim}"


@dataclass
class Pass:
    """One call of a network: the noise of each noisy layer, and those that were called, behind which draws are rows.

    Noise is scaled by ``scale`` (n,), how strange observations are, where that is known. What was given as ``entered``
    takes the place of what reaches the first of the layers.
    """

    noise: dict[NoisyLinear, Tensor]
    called: set[NoisyLinear] = field(default_factory=set)
    strangeness: Tensor | None = None
    entered: Tensor | None = None
    features: list[Tensor] = field(default_factory=list)

    @property
    def scale(self) -> Tensor | None:
        """By how much more the draws of an observation are to differ: not at all where it is familiar.

        Strangeness grows as the square of a distance does, and noise with the distance.
        """
        return None if self.strangeness is None else self.strangeness.clamp_min(1.0).sqrt()


current_pass: ContextVar[Pass | None] = ContextVar("pass", default=None)


def checked_layer(module: nn.Module, layer: str) -> nn.Linear:
    """Return the named layer; raise where noise cannot enter at it."""
    named = dict(module.named_modules(remove_duplicate=False))
    if layer not in named or layer == "":
        linear = [name for name, item in named.items() if name and isinstance(item, nn.Linear)]
        choices = ", ".join(map(repr, linear)) if linear else "none"
        raise GPSError(f"the network has no layer {layer!r}; affine layers in it: {choices}")
    target = named[layer]
    around = next(
        (item for name, item in named.items() if layer.startswith(f"{name}.") and isinstance(item, _CLOSED)), None
    )
    if around is not None:
        raise GPSError(
            f"layer {layer!r} is inside an nn.{type(around).__name__}, which uses its weights without calling it, or "
            "adds its input again: noise cannot enter there; choose an nn.Linear behind it"
        )
    if isinstance(target, NoisyLinear):
        raise GPSError(f"layer {layer!r} has a noise input already")
    if not isinstance(target, nn.Linear) or type(target).forward is not nn.Linear.forward:
        raise GPSError(f"layer {layer!r} is of type {type(target).__name__}; noise can enter at an nn.Linear only")
    if isinstance(target.weight, nn.UninitializedParameter):
        raise GPSError(f"layer {layer!r} does not know its size yet: pass the network one batch first")
    if not isinstance(target.weight, nn.Parameter) or target._forward_pre_hooks or target._forward_hooks:
        raise GPSError(
            f"layer {layer!r} has hooks or a weight that is computed (weight or spectral normalisation): noise cannot "
            "enter there; choose another layer"
        )
    if sum(item is target for item in named.values()) > 1:
        raise GPSError(f"layer {layer!r} is used under several names, so that it would be called twice; choose another")
    return target
