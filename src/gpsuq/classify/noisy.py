"""Classifiers whose draws are those of a noise input: where it enters, what is seen before it, and the draws."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from gpsuq.classify.network import NetworkClassifier, like_weights
from gpsuq.classify.settling import batches, learned_familiarity
from gpsuq.core.noise import NoisyNetwork, Seen, affine_layers, noisify
from gpsuq.core.seeds import random_block

_BLOCK = 50  # draws whose noise is made together, so that more draws begin with the same ones
_TEMPERATURE_DRAWS, _TEMPERATURE_ROWS = 50, 100  # for each observation, and how many of these are passed at once
_LOGITS, _FEWEST_LOGITS = 10_000_000, 200  # what a temperature is fitted by: numbers at most, observations at least


class NoisyClassifier(NetworkClassifier):
    """A classifier of one or several networks with noise; :class:`gpsuq.GPSClassifier` trains and settles them."""

    layer: str | Sequence[str] | None
    ratio: float
    spread: str
    features: str
    feature_layers_: list[str]

    @property
    def networks_(self) -> list[NoisyNetwork]:
        """The networks of all members."""
        network = self.network_
        return list(network) if isinstance(network, nn.ModuleList) else [network]  # type: ignore[arg-type,list-item]

    # --- where noise enters -------------------------------------------------------------------------------------------

    def _made(self, network: nn.Module, example: Tensor) -> nn.Module:
        noisy = self._noisy(network, example)
        if self.features == "keep":
            noisy.keep_features(example, head=self.feature_layers_[0] if self.layer == "auto" else None)
            if noisy is not network:  # noise that was there has its size
                noisy.match_noise(example)
        return noisy

    def _noisy(self, network: nn.Module, example: Tensor) -> NoisyNetwork:
        layer, affine = self.layer, []
        if not isinstance(network, NoisyNetwork) and (layer == "auto" or self.spread == "distance"):
            affine = affine_layers(network, example)
            if layer == "auto":
                layer = affine[0] if _sees_inputs(network, affine[0], example) else affine[-2:][0]
        noisy = self._with_noise(network, layer, example)
        head = affine[0] if affine else noisy.first_layer(example)
        self.feature_layers_ = self._feature_layers(network, head, layer, example)
        return noisy

    def _with_noise(self, network: nn.Module, layer: str | Sequence[str] | None, example: Tensor) -> NoisyNetwork:
        if isinstance(network, NoisyNetwork):
            network.check(example)
            return network
        return noisify(
            network, affine_layers(network, example)[0] if layer is None else layer, self.ratio, example=example
        )

    def _feature_layers(self, network: nn.Module, head: str, layer: Any, example: Tensor) -> list[str]:
        """Return the layers whose inputs say how strange an observation is.

        It is the head's input. Where that is the observation itself, what is learned of it counts as well.
        """
        if not isinstance(layer, str) or isinstance(network, NoisyNetwork) or layer == head:
            return [head]
        return [head, layer] if _sees_inputs(network, head, example) else [head]

    # --- what is seen before it ---------------------------------------------------------------------------------------

    def _learn_familiarity(self, X: Any, y: Any, aside: Any) -> None:
        for network in self.networks_:
            known = learned_familiarity(
                lambda x, network=network: self._features(network, x),  # type: ignore[misc]
                self._training_batches(X, y),
                (x for x, _ in batches(aside)),
                len(self.classes_),
            )
            network.watch(self.feature_layers_, known.to(next(network.parameters()).device))

    def _training_batches(self, X: Any, y: Any) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield training data once, labels as numbers."""
        if y is None:
            return ((x.to(self._input_type), torch.from_numpy(self.encoded(labels))) for x, labels in X)
        return batches(self._inputs(X), torch.from_numpy(self.encoded(y)), shuffled=True)

    def _features(self, network: NoisyNetwork, x: Tensor) -> Tensor:
        with torch.no_grad():
            return network.features(like_weights(network, x), layers=self.feature_layers_).float().cpu()

    def _some_logits(self, aside: Any, labels: NDArray[np.int64]) -> tuple[Tensor, Tensor]:
        """Return logits (n, draw, class) of as many validation observations as memory should hold, and labels."""
        few = max(_FEWEST_LOGITS, _LOGITS // (_TEMPERATURE_DRAWS * len(self.classes_)))
        rows = torch.from_numpy(np.random.default_rng(self.seed_ % 2**32).permutation(len(labels))[:few])
        draws = slice(0, _TEMPERATURE_DRAWS)
        with torch.no_grad():
            parts = [self._passed(aside[some], draws)[0].float().cpu() for some in rows.split(_TEMPERATURE_ROWS)]
        return torch.cat(parts), torch.from_numpy(labels)[rows]

    # --- draws --------------------------------------------------------------------------------------------------------

    def _logits(self, x: Tensor, draws: slice) -> Tensor:
        return self._passed(x, draws)[0]

    def _passed(
        self, x: Tensor, draws: slice, seen: tuple[Seen | None, ...] = ()
    ) -> tuple[Tensor, tuple[Seen | None, ...]]:
        networks = self.networks_
        found: list[Tensor | None] = [None] * (draws.stop - draws.start)
        known: list[Seen | None] = list(seen) or [None] * len(networks)
        for member, network in enumerate(networks):  # draw i is one of member i modulo their number
            own = slice(*(max(0, -(-(end - member) // len(networks))) for end in (draws.start, draws.stop)))
            if own.stop == own.start:
                continue
            weight, before = network.noisy_layers[0].noise_weight, known[member]
            noise = self._noise(network.noise_dim, own, member)[None].to(weight)
            if before is None:
                logits, known[member] = network.judged(like_weights(network, x), noise=noise)
            else:
                logits = network.again(before, noise=noise)
            found[own.start * len(networks) + member - draws.start :: len(networks)] = logits.unbind(1)
        return torch.stack([each for each in found if each is not None], 1), tuple(known)

    def _noise(self, noise_dim: int, draws: slice, member: int) -> Tensor:
        """Return the noise of a member's draws with these numbers, (draws, q)."""
        first, last = draws.start // _BLOCK, -(-draws.stop // _BLOCK)
        also = (member,) if member else ()
        blocks = [
            torch.randn(_BLOCK, noise_dim, generator=random_block(self.seed_, "draws", block, *also))
            for block in range(first, last)
        ]
        start = draws.start - first * _BLOCK
        return torch.cat(blocks)[start : start + draws.stop - draws.start]


def _sees_inputs(network: nn.Module, layer: str, example: Tensor) -> bool:
    """Whether an affine layer takes observations as they are, or as many numbers."""
    n_inputs: Any = network.get_submodule(layer).in_features
    return example.is_floating_point() and bool(n_inputs == math.prod(example.shape[1:]))
