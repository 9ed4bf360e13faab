"""Files that are whole or absent, read without trust, and numbers in them: the one place that knows safetensors."""

from __future__ import annotations

import ctypes
import hashlib
import json
import math
import operator
import os
import stat
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load, save
from torch import Tensor, nn

from gpsuq.errors import CheckpointError, GPSError

try:
    import fcntl
except ImportError:  # Windows: two writers are not told apart there
    fcntl = None  # type: ignore[assignment]

FORMAT = 1
MOST_TEXT = 1 << 24
"""Bytes that a file of words, such as a description of a model, may have; also the head of a file of tensors."""

_TEMPORARY = ("new", "old", "lock")
_MOST_DIGITS = 300
_PATIENCE = 10.0  # seconds to wait for another process that writes the same file
_HERE, _EXCHANGE = -100, 2  # of renameat2: names count from the working directory; swap them


# --- writing ----------------------------------------------------------------------------------------------------------


def write_atomically(path: Path, content: bytes) -> Path:
    """Write a file under a temporary name beside it and move it into place, so that it is whole or absent.

    The name is always the same, so that what a killed process left is written over.
    """
    with locked(path, patience=_PATIENCE):
        temporary = beside(path, "new")
        try:
            with temporary.open("wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
    return path


def beside(path: Path, kind: str) -> Path:
    """Return the hidden name of what is ``new``, ``old`` or a ``lock`` beside a file or directory."""
    return path.with_name(f".{path.name}.{kind}")


def is_temporary(name: str) -> bool:
    """Whether a name is one of those that :func:`beside` gives: what is under it may go once nobody writes."""
    return name.startswith(".") and name.rpartition(".")[2] in _TEMPORARY


@contextmanager
def locked(path: Path, *, patience: float = 0.0) -> Iterator[None]:
    """Keep other processes from writing a file or directory, or raise where one of them does.

    ``patience`` is how many seconds to wait for it. The lock ends with the process, however that ends, and its file
    goes with it; one that a killed process left is taken over. Where the file system knows no locks, there is none.
    """
    place, deadline = beside(path, "lock"), time.monotonic() + patience
    while (descriptor := _lock(place)) is None:
        if time.monotonic() >= deadline:
            raise GPSError(
                f"{path} is being written by another process: wait until that has ended, or choose another name"
            )
        time.sleep(0.01)
    try:
        yield
    finally:
        place.unlink(missing_ok=True)  # before the lock ends: whoever waits for this file sees that it is gone
        os.close(descriptor)


def _lock(place: Path) -> int | None:
    """Return the descriptor of a lock file that is ours as long as it is open; None where another process has it."""
    descriptor = os.open(place, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o666)
    try:
        if fcntl is not None:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.path.samestat(os.fstat(descriptor), place.stat()):
            return descriptor
    except (BlockingIOError, FileNotFoundError):  # held, or its holder took it away when it had ended
        pass
    except OSError:  # a file system without locks
        return descriptor
    os.close(descriptor)
    return None


def exchange(first: Path, second: Path) -> bool:
    """Swap two names in one operation; return whether that was done, which few systems but Linux can."""
    try:
        renameat2 = ctypes.CDLL(None, use_errno=True).renameat2
    except (OSError, AttributeError, TypeError):
        return False
    return bool(renameat2(_HERE, os.fsencode(first), _HERE, os.fsencode(second), _EXCHANGE) == 0)


# --- reading ----------------------------------------------------------------------------------------------------------


@contextmanager
def regular_file(path: Path, *, most: int | None = None, links: bool = True) -> Iterator[Any]:
    """Open a file to read its bytes; devices, pipes, directories and files of more than ``most`` bytes are refused.

    So are links unless ``links``. Nothing waits: a pipe without a writer would hang whoever opens it.
    """
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    if not links and path.is_symlink():
        raise GPSError(f"{path} is a link; only files are read here")
    with os.fdopen(os.open(path, flags), "rb") as file:
        found = os.fstat(file.fileno())
        if not stat.S_ISREG(found.st_mode):
            raise GPSError(f"{path} is no ordinary file")
        if most is not None and found.st_size > most:
            raise GPSError(f"{path} has {found.st_size:,} bytes, and at most {most:,} are read")
        yield file


def read_bytes(path: Path, *, most: int | None = None, links: bool = True) -> bytes:
    """Return the content of a file, as :func:`regular_file` opens it."""
    with regular_file(path, most=most, links=links) as file:
        content: bytes = file.read()
    return content


def parsed(content: bytes) -> Any:
    """Return the JSON that some bytes hold, or raise ``ValueError``: UTF-8, numbers finite, not nested too deep."""
    try:
        held = json.loads(content.decode("utf-8"), parse_float=_finite, parse_constant=_finite, parse_int=_whole)
        if b"\\ud" in content.lower():  # half a character that is written in two cannot be written again
            json.dumps(held, ensure_ascii=False).encode()
    except RecursionError as error:
        raise ValueError("it is nested too deep") from error
    return held


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text} is no finite number")
    return number


def _whole(text: str) -> int:
    if len(text) > _MOST_DIGITS:
        raise ValueError(f"a number of {len(text):,} digits is not finite where numbers are floats")
    return int(text)


def digest(content: bytes) -> str:
    """Return what tells whether a content was changed."""
    return hashlib.blake2b(content, digest_size=16).hexdigest()


# --- numbers ----------------------------------------------------------------------------------------------------------


def write_state(path: Path, tensors: dict[str, Tensor], meta: dict[str, Any]) -> Path:
    """Write tensors and what describes them into one file, whole or not at all."""
    copies = _copies(tensors)
    described = {"format": FORMAT} | meta
    return write_atomically(path, save(copies, {"gpsuq": json.dumps(described), "digest": _digest(copies, described)}))


def _copies(tensors: dict[str, Tensor], prefix: str = "") -> dict[str, Tensor]:
    """Return tensors in memory of their own, as safetensors wants them, with ``prefix`` before their names."""
    own = torch.contiguous_format
    return {prefix + name: tensor.detach().cpu().clone(memory_format=own) for name, tensor in tensors.items()}


def _digest(tensors: dict[str, Tensor], meta: dict[str, Any]) -> str:
    """Return a digest of names, types, shapes and numbers, and of what describes them."""
    found = hashlib.blake2b(json.dumps(meta, sort_keys=True).encode(), digest_size=16)
    for name, tensor in sorted(tensors.items()):
        found.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        found.update(tensor.contiguous().flatten().view(torch.uint8).numpy().data)
    return found.hexdigest()


def read_state(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Read what :func:`write_state` wrote, unchanged to the last bit; no code runs from it."""
    try:
        with regular_file(path), safe_open(path, framework="pt") as file:
            held = file.metadata() or {}
            meta = parsed(held["gpsuq"].encode())
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
            if "digest" in held and held["digest"] != _digest(tensors, meta):  # 0.1 wrote none
                raise ValueError("its digest does not agree")
            version = meta["format"]
    except FileNotFoundError as error:
        raise CheckpointError(f"there is no checkpoint in {path.parent}") from error
    except (SafetensorError, LookupError, TypeError, ValueError, RuntimeError, OSError) as error:
        raise CheckpointError(f"{path} is damaged or no gpsuq checkpoint ({error}); delete it to start anew") from error
    if version != FORMAT:
        raise CheckpointError(f"{path} has format {version}, this version of gpsuq reads {FORMAT}")
    return tensors, meta


def under(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """Return the tensors whose names begin with ``prefix``, without it."""
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}


def module_tensors(module: nn.Module, prefix: str) -> dict[str, Tensor]:
    """Return the state of a module under names that begin with ``prefix``, each tensor in memory of its own."""
    return _copies(module.state_dict(), prefix)


def tensors_as_bytes(tensors: dict[str, Tensor], meta: dict[str, str]) -> bytes:
    """Return tensors as a file holds them, with some words in its head."""
    result: bytes = save(tensors, meta)
    return result


def tensors_from_bytes(content: bytes) -> dict[str, Tensor]:
    """Return the tensors that a file holds; no code runs from it."""
    try:
        result: dict[str, Tensor] = load(content)
    except SafetensorError as error:
        raise ValueError(str(error)) from error
    return result


def shapes_in(file: Any) -> tuple[dict[str, tuple[int, ...]], dict[str, Any]]:
    """Read the head of an open file of tensors: the shape of each, and the words that were written with them."""
    length = int.from_bytes(file.read(8), "little")
    if length > MOST_TEXT:
        raise ValueError(f"its head has {length:,} bytes")
    head = parsed(file.read(length))
    words = head.pop("__metadata__", {})
    return {name: tuple(map(operator.index, held["shape"])) for name, held in head.items()}, words
