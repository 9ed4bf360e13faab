"""Training of a network, epoch by epoch, with checkpoints: what is random in an epoch depends on (seed, epoch) only."""

from __future__ import annotations

import hashlib
import math
import time
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from lightning_fabric import Fabric
from torch import Tensor, nn

from gpsuq.checkpoints import read_state, restore_optimizer, under, write_state
from gpsuq.descriptions import describe
from gpsuq.errors import CheckpointError, DivergenceError, GPSError, GPSWarning
from gpsuq.recipes import Recipe
from gpsuq.seeds import derive_seed, random_block, seeded

_FILE = "network.safetensors"

Loss = Callable[[nn.Module, Tensor, Tensor], Tensor]
"""From the network, inputs and labels to the mean loss."""


class Batches(ABC):
    """Where batches come from, epoch by epoch."""

    @abstractmethod
    def __len__(self) -> int:
        """Give the number of batches in an epoch."""

    @abstractmethod
    def epoch(self, number: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Give the batches of an epoch."""

    @abstractmethod
    def digest(self) -> bytes:
        """Give what tells these data from others."""


@dataclass(frozen=True)
class ArrayBatches(Batches):
    """Batches of data in memory, in a new order every epoch; a last batch of a single row is left out.

    ``prepare`` maps the inputs of a batch, such as augmentation does; it may draw random numbers. One that has a method
    ``for_epoch`` is asked by it for what maps the inputs of that epoch.
    """

    x: Tensor
    y: Tensor
    batch_size: int
    seed: int
    prepare: Callable[[Tensor], Tensor] | None = None

    def __len__(self) -> int:
        whole, rest = divmod(len(self.x), self.batch_size)
        return whole + (rest > 1)

    def epoch(self, number: int) -> Iterator[tuple[Tensor, Tensor]]:
        order = torch.randperm(len(self.x), generator=random_block(self.seed, "order", number))
        for_epoch = getattr(self.prepare, "for_epoch", None)
        prepare = self.prepare if for_epoch is None else for_epoch(number)
        for start in range(0, len(self) * self.batch_size, self.batch_size):
            rows = order[start : start + self.batch_size]
            x = self.x[rows]
            yield x if prepare is None else prepare(x), self.y[rows]

    def digest(self) -> bytes:
        digest = hashlib.blake2b(repr((tuple(self.x.shape), self.x.dtype)).encode(), digest_size=16)
        for tensor in (self.y, self.x):
            digest.update(tensor.contiguous().numpy().data)
        if self.prepare is not None:
            digest.update(describe(self.prepare).encode())
        return digest.digest()


@dataclass(frozen=True)
class LoaderBatches(Batches):
    """Batches of a ``DataLoader`` (or any iterable of pairs that can be passed through again and again).

    ``counts`` is the number of rows of each class, as a first pass found them; a batch of one row is left out. A
    generator of the loader's own is seeded anew for every epoch, so that a resumed run sees the same order.
    """

    loader: Iterable[Any]
    encode: Callable[[Any], Tensor]
    n_batches: int
    counts: tuple[int, ...]
    seed: int

    def __len__(self) -> int:
        return self.n_batches

    def epoch(self, number: int) -> Iterator[tuple[Tensor, Tensor]]:
        generator = getattr(self.loader, "generator", None)
        if isinstance(generator, torch.Generator):
            generator.manual_seed(derive_seed(self.seed, "order", number))
        seen = 0
        for x, y in self.loader:
            if len(x) > 1:
                seen += 1
                if seen <= self.n_batches:
                    yield x.float(), self.encode(y)
        if seen != self.n_batches:
            raise GPSError(
                f"the DataLoader gave {self.n_batches} batches at first and {seen} in epoch {number}: it must give the "
                "same number every time it is passed through"
            )

    def digest(self) -> bytes:
        return repr((self.n_batches, self.counts)).encode()


@dataclass
class Training:
    """Where training stands: epochs that are done, the mean loss of each, and the seconds that they took."""

    epoch: int = 0
    losses: list[float] = field(default_factory=list)
    seconds: float = 0.0


def train_network(
    network: nn.Module,
    loss: Loss,
    batches: Batches,
    recipe: Recipe,
    *,
    seed: int,
    about: str = "",
    fabric: Fabric | None = None,
    checkpoint: Path | None = None,
    on_step: Callable[[int, int, float], None] | None = None,
) -> Training:
    """Train in place, through all epochs of the recipe; with ``checkpoint``, go on from where a run was stopped.

    ``about`` describes what a checkpoint must agree with beside network, data, recipe and seed, such as the loss;
    ``on_step`` is told the step, the number of steps and the loss.
    """
    if len(batches) == 0:
        raise GPSError("there is nothing to train on: at least 2 observations are needed")
    fabric = Fabric(accelerator="cpu", devices=1, precision="32-true") if fabric is None else fabric
    if fabric.world_size > 1:
        raise GPSError("networks are trained in one process; use a Fabric with one device")
    identity = "" if checkpoint is None else _fingerprint(network, batches, recipe, seed, about)
    optimizer = recipe.make_optimizer(network)
    module, wrapped = fabric.setup(network, optimizer)
    training = Training()
    if checkpoint is not None and (checkpoint / _FILE).exists():
        training = _restored(checkpoint / _FILE, network, wrapped, identity)
    n_epochs = recipe.n_epochs(len(batches))
    n_steps = n_epochs * len(batches)
    while training.epoch < n_epochs:
        network.train()
        started, total = time.perf_counter(), 0.0
        step = training.epoch * len(batches)
        try:
            with seeded(seed, "epoch", training.epoch):
                for x, y in batches.epoch(training.epoch):
                    for group in wrapped.param_groups:
                        group["lr"] = recipe.rate(step, n_steps)
                    value = loss(module, x.to(fabric.device), y.to(fabric.device))
                    wrapped.zero_grad()
                    fabric.backward(value)
                    number = float(value.detach())
                    if not math.isfinite(number):
                        raise DivergenceError(
                            f"the loss is not finite at step {step}: lower the learning rate, check the inputs' scale"
                        )
                    wrapped.step()
                    total += number
                    step += 1
                    if on_step is not None:
                        on_step(step, n_steps, number)
        except KeyboardInterrupt:
            if checkpoint is None or training.epoch == 0:
                raise
            raise KeyboardInterrupt(
                f"interrupted in epoch {training.epoch + 1} of {n_epochs}; {checkpoint} holds those before it, and the "
                "same call goes on from there"
            ) from None
        training.losses.append(total / len(batches))
        training.epoch += 1
        training.seconds += time.perf_counter() - started
        if checkpoint is not None:
            _save(checkpoint, network, wrapped, training, identity)
    network.eval()
    return training


def _fingerprint(network: nn.Module, batches: Batches, recipe: Recipe, seed: int, about: str) -> str:
    """Digest of everything that decides where training ends: layers and first weights, data, recipe, seed, loss."""
    digest = hashlib.blake2b(repr((network, recipe, seed, about)).encode(), digest_size=16)
    for name, value in network.state_dict().items():
        digest.update(name.encode())
        digest.update(value.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data)
    digest.update(batches.digest())
    return digest.hexdigest()


def _save(directory: Path, network: nn.Module, optimizer: Any, training: Training, identity: str) -> None:
    tensors = {f"network/{name}": value for name, value in network.state_dict().items()}
    for index, values in optimizer.state_dict()["state"].items():
        tensors |= {f"optimizer/{index}/{key}": value for key, value in values.items() if isinstance(value, Tensor)}
    meta = {"fingerprint": identity, "epoch": training.epoch, "losses": training.losses, "seconds": training.seconds}
    try:
        directory.mkdir(parents=True, exist_ok=True)
        write_state(directory / _FILE, tensors, meta)
    except OSError as error:  # the run is worth more than the checkpoint
        warnings.warn(
            f"the checkpoint of epoch {training.epoch} could not be written to {directory} ({error}); training goes "
            "on, and an earlier checkpoint is as it was",
            GPSWarning,
            stacklevel=3,
        )


def _restored(path: Path, network: nn.Module, optimizer: Any, identity: str) -> Training:
    tensors, meta = read_state(path)
    if meta.get("fingerprint") != identity:
        raise CheckpointError(
            f"{path} belongs to a training with other data, settings or seed; delete it, or choose another directory"
        )
    network.load_state_dict(under(tensors, "network/"))
    restore_optimizer(optimizer, under(tensors, "optimizer/"))
    return Training(int(meta["epoch"]), [float(value) for value in meta["losses"]], float(meta["seconds"]))
