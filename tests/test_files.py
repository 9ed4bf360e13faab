"""Files: whole or absent, one writer at a time, read without trust."""

import os
import subprocess
import sys

import pytest
import torch

from gpsuq import GPSError
from gpsuq.errors import CheckpointError
from gpsuq.files import exchange, locked, parsed, read_bytes, read_state, write_atomically, write_state


def test_a_write_that_fails_leaves_the_old_file(tmp_path, monkeypatch):
    path = write_atomically(tmp_path / "a.txt", b"old")

    def full(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        write_atomically(path, b"new")
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["a.txt"]


def test_what_a_killed_process_left_is_written_over(tmp_path):
    (tmp_path / ".a.txt.new").write_bytes(b"half of something long")
    (tmp_path / ".a.txt.lock").touch()
    assert write_atomically(tmp_path / "a.txt", b"new").read_bytes() == b"new"
    assert os.listdir(tmp_path) == ["a.txt"]


HOLD = """
import sys, time
from pathlib import Path
from gpsuq.files import locked
with locked(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.mark.parametrize("end", ["ended", "killed"])
def test_a_lock_ends_with_its_process(tmp_path, end):
    path = tmp_path / "place"
    with subprocess.Popen([sys.executable, "-c", HOLD, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        holder.stdout.readline()
        with pytest.raises(GPSError, match="place is being written by another process"), locked(path):
            pass
        holder.kill() if end == "killed" else holder.stdin.close()
        holder.wait()
    with locked(path):
        assert os.listdir(tmp_path) == [".place.lock"]
    assert os.listdir(tmp_path) == []


def test_two_directories_change_places(tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / name).touch()
    if not exchange(tmp_path / "a", tmp_path / "b"):
        pytest.skip("this file system cannot exchange names")
    assert os.listdir(tmp_path / "a") == ["b"]
    assert not exchange(tmp_path / "a", tmp_path / "missing")


def test_only_ordinary_files_of_some_size_are_read(tmp_path):
    path = write_atomically(tmp_path / "a", b"12345")
    assert read_bytes(path, most=5) == b"12345"
    with pytest.raises(GPSError, match="has 5 bytes, and at most 4 are read"):
        read_bytes(path, most=4)
    (tmp_path / "link").symlink_to(path)
    assert read_bytes(tmp_path / "link") == b"12345"
    with pytest.raises(GPSError, match="is a link"):
        read_bytes(tmp_path / "link", links=False)
    os.mkfifo(tmp_path / "pipe")
    for strange in (tmp_path / "pipe", "/dev/zero"):
        with pytest.raises(GPSError, match="no ordinary file"):
            read_bytes(type(path)(strange))


@pytest.mark.parametrize(
    "text", ["NaN", "[-Infinity]", "9" * 400, '{"a": 1e400}', "[" * 50_000, "{", "\xe9", r'"\uD800"']
)
def test_json_that_says_nothing_finite_is_refused(text):
    with pytest.raises(ValueError, match=r"finite|nested|Expecting|decode|surrogates"):
        parsed(text.encode("latin-1"))


def test_a_state_is_whole_or_refused(tmp_path):
    tensors = {"a": torch.arange(20.0), "b": torch.ones(2, 3, dtype=torch.int64)}
    path = write_state(tmp_path / "state", tensors, {"step": 7})
    content = path.read_bytes()
    read, meta = read_state(path)
    assert meta["step"] == 7
    assert all(torch.equal(read[name], tensors[name]) for name in tensors)
    for changed in (
        content.replace(b'\\"step\\": 7', b'\\"step\\": 8'),
        content.replace(b'"I64"', b'"F64"'),
        content.replace(b"[2,3]", b"[3,2]"),
        content[:-1] + b"\x01",
        content[:-1],
        b"",
    ):
        assert changed != content
        path.write_bytes(changed)
        with pytest.raises(CheckpointError, match="is damaged"):
            read_state(path)


def test_a_state_of_version_0_1_is_read(tmp_path):
    from safetensors.torch import save_file

    save_file({"a": torch.ones(3)}, tmp_path / "state", {"gpsuq": '{"format": 1, "step": 7}'})
    assert read_state(tmp_path / "state")[1]["step"] == 7
