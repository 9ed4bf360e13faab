"""Heads on features that are computed once: the trunk of a trained network runs once over the images.

It is what ``GPSClassifier(features="keep")`` does, with the images that augmentation gives fixed beforehand: any number
of heads then takes seconds each. Features are kept on disk beside the network that gave them.
"""

from __future__ import annotations

import hashlib
import math
import shutil
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import torch
from torch import Tensor, nn

from gpsuq.classify.estimator import OFF_DATA_SHARE, GPSClassifier
from gpsuq.classify.network import NetworkClassifier
from gpsuq.classify.off_data import PatchSizes, patch_sizes, unlike_the_data
from gpsuq.core.seeds import seeded
from gpsuq.datasets.images import Images
from gpsuq.errors import CheckpointError, GPSError
from gpsuq.files import write_state
from paper.rows import read_state_of

_BATCH = 500


@dataclass(frozen=True)
class Features:
    """Features (n, p) of changed images with their labels, features of inputs unlike the data, and what they took."""

    train: Tensor
    labels: Tensor
    off_data: Tensor
    seconds: float


class HeadGPS(GPSClassifier):
    """GPS on features: noise has their size, and off the data are features of images in disorder."""

    off_data_features: Tensor

    def _made(self, network: nn.Module, example: Tensor) -> nn.Module:
        noisy = self._noisy(network, example)
        noisy.match_noise(example)
        return noisy

    def _off_data(self, x: Tensor, count: int) -> Tensor:
        return self.off_data_features[torch.randint(len(self.off_data_features), (count,))]


def split_network(network: nn.Module, layer: str) -> tuple[nn.Sequential, nn.Sequential]:
    """Cut a sequential network before the child that a layer is in: trunk and head, with their names."""
    names = [name for name, _ in network.named_children()]
    part = layer.partition(".")[0]
    if not isinstance(network, nn.Sequential) or part not in names[1:]:
        raise GPSError(f"a network whose features are kept must be an nn.Sequential with layers before {layer!r}")
    cut = names.index(part)
    return cast(nn.Sequential, network[:cut]), cast(nn.Sequential, network[cut:])


def with_weights(head: nn.Module, trained: nn.Module) -> nn.Module:
    """Return a head with the weights of a trained one, which may differ in layers without any, such as dropout."""
    values = trained.state_dict().values()
    head.load_state_dict(dict(zip(head.state_dict(), values, strict=True)))
    return head


def outputs(trunk: nn.Module, pixels: Tensor, prepare: Callable[[Tensor], Tensor] | None = None) -> Tensor:
    """Pass inputs through a network, batch by batch, without gradients."""
    trunk.eval()
    with torch.no_grad():
        return torch.cat([trunk(batch if prepare is None else prepare(batch)) for batch in pixels.split(_BATCH)])


def kept_features(
    trunk: nn.Module,
    data: Images,
    augment: Callable[[Tensor], Tensor] | None,
    patch: PatchSizes,
    folder: Path,
) -> Features:
    """Return the features of some images, from the file in ``folder`` where it holds the same ones."""
    path = folder / "features.safetensors"
    key = _key(trunk, data, augment, patch)
    kept = read_state_of(path, key)
    if kept is not None:
        tensors, meta = kept
        return Features(tensors["train"], tensors["labels"], tensors["off_data"], float(meta["seconds"]))
    started = time.perf_counter()
    with seeded(0, "features"):
        train = outputs(trunk, torch.from_numpy(data.pixels()), augment)
    strange = off_data_features(trunk, data, patch)
    tensors = {"train": train, "labels": torch.from_numpy(data.labels), "off_data": strange}
    seconds = time.perf_counter() - started
    folder.mkdir(parents=True, exist_ok=True)
    write_state(path, tensors, {"key": key, "seconds": seconds})
    return Features(**tensors, seconds=seconds)


def off_data_features(trunk: nn.Module, data: Images, patch: PatchSizes) -> Tensor:
    """Return features of images unlike the data, a tenth as many as there are images."""

    def unlike(batch: Tensor) -> Tensor:
        return unlike_the_data(batch, math.ceil(OFF_DATA_SHARE * len(batch)), patch_sizes(patch))

    with seeded(0, "off data"):
        return outputs(trunk, torch.from_numpy(data.pixels()), unlike)


def _key(trunk: nn.Module, data: Images, augment: Callable[[Tensor], Tensor] | None, patch: PatchSizes) -> str:
    digest = hashlib.blake2b(repr((trunk, augment, patch)).encode(), digest_size=16)
    for value in trunk.state_dict().values():
        digest.update(value.contiguous().numpy().data)
    digest.update(data.bytes.tobytes())
    digest.update(data.labels.tobytes())
    return digest.hexdigest()


def fit_head(model: NetworkClassifier, features: Features, checkpoint: Path | None = None) -> None:
    """Train a head on features; a checkpoint of other settings gives way, as a head takes a minute."""
    if isinstance(model, HeadGPS):
        model.off_data_features = features.off_data
    try:
        model.fit(features.train, features.labels, checkpoint=checkpoint)
    except CheckpointError:
        if checkpoint is None:
            raise
        shutil.rmtree(checkpoint)
        model.fit(features.train, features.labels, checkpoint=checkpoint)


def join(model: NetworkClassifier, trunk: nn.Sequential, data: Images) -> NetworkClassifier:
    """Put the trunk before a head that was trained on its features: a classifier of images again."""
    bare = isinstance(model.network_, nn.Sequential)  # that of the plain network; the others' has draws around it
    head = cast(nn.Sequential, model.network_ if bare else model.network_.module)
    whole = nn.Sequential(OrderedDict([*trunk.named_children(), *head.named_children()])).eval()
    if bare:
        model.network_ = whole
    else:
        model.network_.module = whole
    model.input_shape_ = tuple(data.bytes.shape[1:])
    model.n_features_in_ = data.bytes[0].size
    return model
