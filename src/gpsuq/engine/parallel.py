"""Independent tasks through ``joblib``: here, one after the other, or where the user's ``parallel_config`` sends them.

Results are the same bit for bit wherever a task runs. It brings its own seeds, and it has one thread: the order of sums
depends on how many there are, and one is what as many workers as cores need. Without workers that costs the paper's
network of images 1.6 times the time of two threads, a perceptron nothing (``benchmarks/workers.py``).
"""

from __future__ import annotations

import os
import platform
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

import torch
from joblib import Parallel, delayed, effective_n_jobs
from joblib.parallel import get_active_backend
from threadpoolctl import threadpool_limits

from gpsuq.engine.checkpoints import note_resumed, place_of_tasks, resumable, was_resumed
from gpsuq.engine.progress import counting_bar, silent
from gpsuq.engine.ranks import join, several

R = TypeVar("R")

_TURN = threading.RLock()  # threads and generators belong to the whole process: its tasks take turns
_inside: ContextVar[bool] = ContextVar("inside", default=False)


@dataclass(frozen=True)
class _Around:
    """What tasks take along: who called, whether they show bars, and where their trainings are kept."""

    caller: tuple[str, int]
    shows_bars: bool
    directory: Path | None


@dataclass(frozen=True)
class _Done(Generic[R]):
    """What a task brings back: its number and result, whether a training was read from disk, and its warnings."""

    number: int
    result: R
    resumed: bool
    warned: list[dict[str, Any]]


def independent(
    function: Callable[..., R],
    tasks: Sequence[tuple[Any, ...]],
    *,
    bar: str | None = None,
    on_done: Callable[[int, R], None] | None = None,
) -> list[R]:
    """Call ``function(*task)`` for every task; return the results in the order of the tasks.

    Tasks run in this process one after the other, unless ``joblib.parallel_config`` is set around. A task that is
    alone, those of a task, and those of processes that train together run here in any case. Warnings in other processes
    are issued here at the end. A :func:`~gpsuq.engine.checkpoints.resumable` block around keeps trainings of all tasks.

    Parameters
    ----------
    function, tasks
        What to call, and the arguments of every call. Both are sent to workers.
    bar
        Name of a progress bar that counts tasks where they run side by side; otherwise they show their own.
    on_done
        Is called with the number and the result of a task as soon as it is done, whatever their order.

    Examples
    --------
    >>> from joblib import parallel_config
    >>> from gpsuq.engine.parallel import independent
    >>> with parallel_config(n_jobs=2):
    ...     independent(pow, [(2, 3), (3, 2)])
    [8, 9]
    """
    join()
    here = len(tasks) < 2 or several() or _inside.get()
    one_by_one = here or effective_n_jobs(Parallel().n_jobs) == 1
    around = _Around(_process(), one_by_one, place_of_tasks())
    # A tuple travels with its task. Dask would send arrays ahead to a worker, and lose them with it.
    calls = [delayed(_run)(function, number, task, around) for number, task in enumerate(tasks)]
    done: dict[int, _Done[R]] = {}
    with counting_bar(bar is not None and not one_by_one, bar or "", len(tasks)) as advance:
        for each in (run(*arguments) for run, arguments, _ in calls) if here else _side_by_side(calls):
            done[each.number] = each
            if on_done is not None:
                on_done(each.number, each.result)
            advance(len(done))
    in_order = [done[number] for number in range(len(tasks))]
    if any(each.resumed for each in in_order):
        note_resumed()
    registry: dict[Any, Any] = {}  # by which the user's filters know what was said before
    for each in in_order:
        for warning in each.warned:
            warnings.warn_explicit(**warning, registry=registry)
    return [each.result for each in in_order]


def _side_by_side(calls: list[Any]) -> Iterator[Any]:
    """Yield what calls return, as it comes, or all at the end where the backend cannot do better."""
    as_it_comes = get_active_backend()[0].supports_return_generator
    yield from Parallel(return_as="generator_unordered" if as_it_comes else "list")(calls)


def _run(function: Callable[..., R], number: int, task: tuple[Any, ...], around: _Around) -> _Done[R]:
    """Call a function in one thread, with what the caller has around it, while no other task runs in this process."""
    with ExitStack() as stack:
        stack.enter_context(_TURN)
        stack.enter_context(one_thread())
        stack.enter_context(resumable(around.directory, keep=True))
        stack.callback(_inside.reset, _inside.set(True))  # tasks of this one would wait for its turn to end
        if not around.shows_bars:
            stack.enter_context(silent())
        caught: list[warnings.WarningMessage] = []
        if _process() != around.caller:
            caught = stack.enter_context(warnings.catch_warnings(record=True))
            warnings.simplefilter("always")  # the caller's filters decide
        result = function(*task)
        told = ("message", "category", "filename", "lineno")
        warned = [{name: getattr(warning, name) for name in told} for warning in caught]
        return _Done(number, result, was_resumed(), warned)


@contextmanager
def one_thread() -> Iterator[None]:
    """Let torch and BLAS have one thread inside, and as many as before afterwards."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with threadpool_limits(1):
            yield
    finally:
        torch.set_num_threads(before)


def _process() -> tuple[str, int]:
    return platform.node(), os.getpid()
