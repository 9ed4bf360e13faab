"""Memory that is kept after it was freed: seen from outside, in a process of its own."""

import ctypes
import subprocess
import sys
from pathlib import Path

import pytest

from paper import memory

PROGRAM = """
import sys
import torch
from paper.memory import keep_freed_memory

def held():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096

if sys.argv[1] == "keep":
    assert keep_freed_memory()
before = held()
tensor = torch.ones(50_000_000)
del tensor
print(held() - before)
"""


@pytest.mark.skipif(
    not Path("/proc/self/statm").exists() or not hasattr(ctypes.CDLL(None), "mallopt"), reason="needs Linux with glibc"
)
def test_freed_memory_is_kept_where_it_was_asked_for():
    kept, given_back = (
        int(subprocess.run([sys.executable, "-c", PROGRAM, how], check=True, capture_output=True, text=True).stdout)
        for how in ("keep", "no")
    )
    assert kept > 150e6  # of 200 MB
    assert given_back < 50e6


def test_another_c_library_is_left_alone(monkeypatch):
    monkeypatch.setattr(ctypes, "CDLL", lambda name: object())
    assert not memory.keep_freed_memory()
