"""A network as a task of the loop, epoch by epoch: what is random in an epoch depends on (seed, epoch) only."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from lightning_fabric import Fabric
from torch import Tensor, nn

from gpsuq.engine.checkpoints import optimizer_tensors, restore_optimizer
from gpsuq.engine.fingerprint import fingerprint
from gpsuq.engine.settings import Recipe
from gpsuq.engine.sources import Batches
from gpsuq.engine.task import Task
from gpsuq.errors import DivergenceError, GPSError
from gpsuq.files import under

Loss = Callable[[nn.Module, Tensor, Tensor], Tensor]
"""From the network, inputs and labels to the mean loss."""


@dataclass
class NetworkTraining(Task):
    """A network in training, in place: epochs that are done, the mean loss of each, and the seconds that they took.

    ``about`` describes what a checkpoint must agree with beside network, data, recipe and seed, such as the loss.
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
    losses_of_epochs: list[float] = field(default_factory=list)
    seconds: float = 0.0
    finished: bool = False
    keep_every: int = 1

    def __post_init__(self) -> None:
        if self.batches.length == 0:
            raise GPSError("there is nothing to train on: at least 2 observations are needed")
        if self.fabric.world_size > 1:
            raise GPSError("networks are trained in one process; use a Fabric with one device")
        self.n_epochs = self.recipe.n_epochs(self.batches.length)
        self.n_steps = self.n_epochs * self.batches.length
        self._module, self.optimizer = self.fabric.setup(self.network, self.recipe.make_optimizer(self.network))
        self._last = math.nan

    def address(self) -> tuple[Any, ...]:
        return self.seed, "epoch", self.epoch

    def rate(self) -> float:
        return self.recipe.rate(self.step, self.n_steps)

    def losses(self) -> Iterator[Tensor]:
        """Yield the loss of every batch of the next epoch."""
        self.network.train()
        started, total = time.perf_counter(), 0.0
        for x, y in self.batches.epoch(self.epoch):
            loss = self.loss(self._module, x.to(self.fabric.device), y.to(self.fabric.device))
            self._last = float(loss.detach())
            yield loss
            total += self._last
        self.losses_of_epochs.append(total / self.batches.length)
        self.seconds += time.perf_counter() - started

    def see_gradients(self) -> None:
        if not math.isfinite(self._last):
            raise DivergenceError(
                f"the loss is not finite at step {self.step}: lower the learning rate, check the inputs' scale"
            )

    def end_block(self) -> None:
        self.epoch += 1
        self.finished = self.epoch >= self.n_epochs
        if self.finished:
            self.network.eval()

    def shown(self) -> str:
        return f"loss {self._last:.4f}"

    def identity(self) -> str:
        state = dict(self.network.state_dict())
        return fingerprint((repr(self.network), self.recipe, self.seed, self.about, state, self.batches.digest()))

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        tensors = {f"network/{name}": value for name, value in self.network.state_dict().items()}
        done = {"epoch": self.epoch, "losses": self.losses_of_epochs, "seconds": self.seconds}
        return tensors | optimizer_tensors(self.optimizer), done

    def restore(self, tensors: dict[str, Tensor], meta: dict[str, Any]) -> None:
        self.network.load_state_dict(under(tensors, "network/"))
        restore_optimizer(self.optimizer, under(tensors, "optimizer/"))
        self.epoch, self.seconds = int(meta["epoch"]), float(meta["seconds"])
        self.losses_of_epochs = [float(loss) for loss in meta["losses"]]
        self.step = self.epoch * self.batches.length
        self.finished = self.epoch >= self.n_epochs
        if self.finished:
            self.network.eval()
