"""Processes that are started again: they meet each other, not who was there before, and go on from one checkpoint."""

import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path

import numpy as np
import pytest
from torch.distributed import HashStore

from gpsuq.engine.meeting import of_this_start
from gpsuq.errors import GPSError

SCRIPT = Path(__file__).parent / "restarts_script.py"
TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "--max-restarts=1")
KEPT, ALL = 20, 40  # steps when the last checkpoint before the kill was written, and at the end


def started_together(store, late):
    """Return the parts of a store in which three processes meet, one of which comes late."""
    with ThreadPoolExecutor(3) as pool:
        early = [pool.submit(of_this_start, store, rank, 3) for rank in range(3) if rank != late]
        time.sleep(0.2)
        return [of_this_start(store, late, 3), *(each.result() for each in early)]


@pytest.mark.parametrize("late", range(3))
def test_processes_meet_where_none_was_before(late):
    store = HashStore()
    for start in ("first", "second"):
        found = started_together(store, late)
        assert not any(part.check(["address"]) for part in found)
        found[0].set("address", start)
        assert [part.get("address") for part in found] == [start.encode()] * 3


def test_a_process_gives_up_when_the_first_one_does_not_come(monkeypatch):
    store = HashStore()
    of_this_start(store, 0, 1)  # of an earlier start
    monkeypatch.setattr("gpsuq.engine.meeting.default_pg_timeout", timedelta(seconds=0.2))
    with pytest.raises(GPSError, match="process 1 of 2 had no answer"):
        of_this_start(store, 1, 2)


@pytest.mark.slow
def test_a_fit_ends_the_same_when_one_of_two_processes_is_killed(tmp_path):
    """The second process is late after the restart, and has no checkpoint of its own: the first one's counts."""
    command = (sys.executable, *TORCHRUN, str(SCRIPT), str(tmp_path))
    torchrun = subprocess.Popen(command, env=os.environ | {"OMP_NUM_THREADS": "1"})
    try:
        assert torchrun.wait(timeout=300) == 0
    finally:
        torchrun.terminate()  # which ends its processes, too
    for rank in range(2):
        whole, killed = (dict(np.load(tmp_path / f"{how}-{rank}.npz")) for how in ("whole", "killed"))
        assert whole.pop("taken").tolist() == list(range(ALL))
        assert killed.pop("taken").tolist() == list(range(KEPT, ALL))
        assert all(np.array_equal(killed[name], value) for name, value in whole.items())
