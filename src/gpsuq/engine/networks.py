"""A network as a task of the loop; what is random in a step depends on (seed, step) only, orders on the epoch."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from lightning_fabric import Fabric
from torch import Tensor, nn

from gpsuq.engine.checkpoints import optimizer_tensors, restore_optimizer
from gpsuq.engine.fingerprint import fingerprint
from gpsuq.engine.normalisation import normalise_alone, normalise_together
from gpsuq.engine.ranks import n_ranks, rank, several, summed, take_first
from gpsuq.engine.settings import Recipe
from gpsuq.engine.sources import Batches
from gpsuq.engine.task import Task
from gpsuq.errors import DivergenceError, GPSError
from gpsuq.files import under

Loss = Callable[[nn.Module, Tensor, Tensor], Tensor]
"""From the network, inputs and labels to the mean loss."""

_COUNTS = ("step", "epoch", "total", "seconds")


@dataclass
class NetworkTraining(Task):
    """A network in training, in place: epochs that are done, the mean loss of each, and the seconds that they took.

    ``about`` describes what a checkpoint must agree with beside network, data, recipe and seed, such as the loss.
    ``total`` is the sum of the losses of the epoch so far.
    """

    network: nn.Module
    loss: Loss
    batches: Batches
    recipe: Recipe
    seed: int
    fabric: Fabric
    about: str = ""
    step: int = 0
    epoch: int = 0
    total: float = 0.0
    losses_of_epochs: list[float] = field(default_factory=list)
    seconds: float = 0.0
    finished: bool = False

    def __post_init__(self) -> None:
        if self.batches.length == 0:
            raise GPSError("there is nothing to train on: at least 2 observations are needed")
        self.keep_every = self.batches.length
        self.n_epochs = self.recipe.n_epochs(self.batches.length)
        self.n_steps = self.n_epochs * self.batches.length
        if several():
            normalise_together(self.network)
        self._module, self.optimizer = self.fabric.setup(self.network, self.recipe.make_optimizer(self.network))
        self._last, self._started = math.nan, 0.0

    def address(self) -> tuple[Any, ...]:
        return self.seed, "step", self.step, rank()

    def rate(self) -> float:
        return self.recipe.rate(self.step, self.n_steps)

    def next_loss(self) -> Tensor:
        """Return the loss of the next batch; with several processes each has its share of it."""
        self._started = time.perf_counter()
        self.network.train()
        x, y, share = self.batches.batch(self.step)
        loss = share * self.loss(self._module, x.to(self.fabric.device), y.to(self.fabric.device))
        self._last = float(loss.detach())
        return loss

    def see_gradients(self) -> None:
        if not math.isfinite(self._last):
            raise DivergenceError(
                f"the loss is not finite at step {self.step}: lower the learning rate, check the inputs' scale"
            )

    def end_step(self) -> None:
        self.total += self._last
        self.seconds += time.perf_counter() - self._started
        if self.step % self.batches.length == 0:
            take_first(self.network.buffers())  # the same in all processes, but for what a user's layers count
            mean = summed(torch.tensor(self.total, dtype=torch.float64)) / (n_ranks() * self.batches.length)
            self.losses_of_epochs.append(float(mean))
            self.epoch, self.total = self.epoch + 1, 0.0
            self._see_end()

    def _see_end(self) -> None:
        self.finished = self.epoch >= self.n_epochs
        if self.finished:
            self.network.eval()
            normalise_alone(self.network)

    def shown(self) -> str:
        return f"loss {self._last:.4f}"

    def identity(self) -> str:
        state = dict(self.network.state_dict())
        return fingerprint((self.recipe, self.seed, self.about, state, self.batches.digest()), layers=self.network)

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        tensors = {f"network/{name}": value for name, value in self.network.state_dict().items()}
        done = {name: getattr(self, name) for name in _COUNTS} | {"losses": self.losses_of_epochs}
        return tensors | optimizer_tensors(self.optimizer), done

    def restore(self, tensors: dict[str, Tensor], meta: dict[str, Any]) -> None:
        self.network.load_state_dict(under(tensors, "network/"))
        restore_optimizer(self.optimizer, under(tensors, "optimizer/"))
        for name in _COUNTS:
            setattr(self, name, meta[name])
        self.losses_of_epochs = [float(loss) for loss in meta["losses"]]
        self._see_end()
