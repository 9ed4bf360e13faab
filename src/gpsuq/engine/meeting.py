"""How processes that ``torchrun`` started find each other, also when it starts them again."""

from __future__ import annotations

import time
from uuid import uuid4

import torch
from torch.distributed import init_process_group
from torch.distributed.constants import default_pg_timeout
from torch.distributed.distributed_c10d import PrefixStore, Store
from torch.distributed.rendezvous import rendezvous

from gpsuq.errors import GPSError

_MOMENT = 0.05  # seconds between two looks whether the first process has answered


def meet(device: torch.device) -> None:
    """Form the group of all processes, in a part of their store where no earlier start of theirs has left anything.

    ``torchrun`` keeps the store when it starts processes again, and in it the addresses of those that are dead. Who
    reads one before its new owner has come is refused there, or both wait for the other to connect, for half an hour
    (https://github.com/pytorch/pytorch/issues/135712).
    """
    store, rank, n = next(rendezvous("env://"))
    on_gpu = device.type == "cuda"
    init_process_group(
        "nccl" if on_gpu else "gloo",
        store=of_this_start(store, rank, n),
        rank=rank,
        world_size=n,
        device_id=device if on_gpu else None,
    )


def of_this_start(store: Store, rank: int, n: int) -> Store:
    """Return a part of a store that all processes which were started together know, and none from before.

    The first process names it. Others may read a name from before, and believe one when they are answered there.
    ``torchrun`` does count restarts, but each machine its own.
    """
    me = uuid4().hex
    if rank == 0:
        store.set("start", me)
        ours = PrefixStore(me, store)
        for other in range(1, n):
            ours.set(ours.get(f"rank {other}").decode(), "welcome")
        return ours
    deadline = time.monotonic() + default_pg_timeout.total_seconds()
    while time.monotonic() < deadline:
        ours = PrefixStore(store.get("start").decode(), store)
        ours.set(f"rank {rank}", me)
        if ours.check([me]):
            return ours
        time.sleep(_MOMENT)
    raise GPSError(f"process {rank} of {n} had no answer from the first one in {default_pg_timeout}: start all again")
