"""Several processes that train one model: who is who, what each takes, and what all of them add up to.

Processes are started by ``torchrun`` or by a ``Fabric`` of the user's. With one process every function here returns
what it was given.
"""

from __future__ import annotations

import atexit
from collections.abc import Callable, Iterable
from functools import cache
from inspect import signature
from os import environ
from typing import Any, TypeVar

import numpy as np
import torch
from lightning_fabric import Fabric
from lightning_fabric.strategies.ddp import DDPStrategy
from numpy.typing import NDArray
from torch import Tensor, distributed
from torch.nn.parallel import DistributedDataParallel

from gpsuq.errors import GPSError

T = TypeVar("T", Tensor, NDArray[Any])
A = TypeVar("A")


def several() -> bool:
    """Whether this process trains together with others."""
    return distributed.is_available() and distributed.is_initialized() and distributed.get_world_size() > 1


def rank() -> int:
    """Return the number of this process, 0 where it is alone; the first one writes."""
    return distributed.get_rank() if several() else 0


def n_ranks() -> int:
    """Return how many processes there are."""
    return distributed.get_world_size() if several() else 1


def wait_for_all() -> None:
    """Return when every process has come here."""
    if several():
        distributed.barrier()


def summed(values: T) -> T:
    """Return the sum over all processes of a tensor or array, the same in every one of them."""
    if not several():
        return values
    total = torch.as_tensor(np.asarray(values)) if isinstance(values, np.ndarray) else values.detach()
    total = total.to(_device(), copy=True)
    distributed.all_reduce(total)
    if isinstance(values, np.ndarray):
        return np.asarray(total.cpu()).reshape(values.shape).astype(values.dtype)
    return total.to(values.device)


def gathered(value: A) -> list[A]:
    """Return the objects of all processes, in their order; they must not be large."""
    if not several():
        return [value]
    values: list[Any] = [None] * n_ranks()
    distributed.all_gather_object(values, value)
    return values


def by_first(function: Callable[..., A], *arguments: Any) -> A:
    """Return, in every process, what a function returns in the first one, which alone calls it."""
    if not several():
        return function(*arguments)
    values: list[Any] = [function(*arguments) if rank() == 0 else None]
    distributed.broadcast_object_list(values, device=_device())
    value: A = values[0]
    return value


def take_first(tensors: Iterable[Tensor]) -> None:
    """Give the tensors of every process, in place, the values that they have in the first one."""
    if several():
        for tensor in tensors:
            distributed.broadcast(tensor, 0)


def share(rows: Tensor) -> tuple[Tensor, float]:
    """Return this process's share of the rows of a batch, and what the mean over it counts in that over all.

    The mean over processes of (count times mean over the share) is the mean over all rows. A process for which nothing
    is left takes the first row, which counts 0.
    """
    if not several():
        return rows, 1.0
    mine = rows[rank() :: n_ranks()]
    return (mine, len(mine) * n_ranks() / len(rows)) if len(mine) else (rows[:1], 0.0)


def fabric_or_default(fabric: Fabric | None) -> Fabric:
    """Return a Fabric that is ready: the user's, that of ``torchrun``, or one process on this CPU."""
    if fabric is None and _started_by_torchrun():
        return _by_torchrun()
    ready = Fabric(accelerator="cpu", devices=1, precision="32-true") if fabric is None else fabric
    if ready.world_size > 1 and not several():
        ready.launch()
    if ready.world_size != n_ranks():
        raise GPSError(
            f"{n_ranks()} processes were started, but this fit has a Fabric of {ready.world_size}: pass the one that "
            "they were launched with (fabric=...)"
        )
    return ready


def join() -> None:
    """Let this process know the others that ``torchrun`` started, if it did."""
    if _started_by_torchrun() and not several():
        _by_torchrun()


def _started_by_torchrun() -> bool:
    return distributed.is_available() and distributed.is_torchelastic_launched() and int(environ["WORLD_SIZE"]) > 1


@cache  # a process joins the others once
def _by_torchrun() -> Fabric:
    n_local = int(environ["LOCAL_WORLD_SIZE"])
    fabric = Fabric(
        accelerator="cuda" if torch.cuda.is_available() else "cpu",
        devices=n_local,
        num_nodes=int(environ["WORLD_SIZE"]) // n_local,
        strategy=DDPStrategy(gradient_as_bucket_view=True, **_own_buffers()),
        precision="32-true",
    )
    from gpsuq.engine.meeting import meet  # a torch that was built for one process has no stores

    meet(fabric.device)
    fabric.launch()  # which keeps to the group that is there
    # Threads of the group that still run when the interpreter ends would abort the process (once in three, when busy).
    atexit.register(_leave)
    return fabric


def _own_buffers() -> dict[str, Any]:
    """Return the option that exchanges no buffers before every step: once an epoch is enough (:func:`take_first`)."""
    options = signature(DistributedDataParallel).parameters
    return {"forward_sync_buffers" if "forward_sync_buffers" in options else "broadcast_buffers": False}  # torch < 2.13


def _leave() -> None:
    """Leave the other processes."""
    if distributed.is_initialized():
        distributed.destroy_process_group()


def _device() -> torch.device:
    """Return where this process's communication takes tensors from."""
    on_gpu = distributed.get_backend() == "nccl"
    return torch.device("cuda", torch.cuda.current_device()) if on_gpu else torch.device("cpu")
