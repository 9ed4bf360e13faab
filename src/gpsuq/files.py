"""Files that are whole or absent, and numbers in them: the one place that knows safetensors."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any
from uuid import uuid4

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load, save
from torch import Tensor, nn

from gpsuq.errors import CheckpointError

FORMAT = 1


def write_state(path: Path, tensors: dict[str, Tensor], meta: dict[str, Any]) -> Path:
    """Write tensors and what describes them into one file, whole or not at all."""
    copies = _copies(tensors)
    described = json.dumps({"format": FORMAT, "checksum": _checksum(copies)} | meta)
    return write_atomically(path, save(copies, {"gpsuq": described}))


def _copies(tensors: dict[str, Tensor], prefix: str = "") -> dict[str, Tensor]:
    """Return tensors in memory of their own, as safetensors wants them, with ``prefix`` before their names."""
    own = torch.contiguous_format
    return {prefix + name: tensor.detach().cpu().clone(memory_format=own) for name, tensor in tensors.items()}


def _checksum(tensors: dict[str, Tensor]) -> str:
    """Return a digest of names and numbers."""
    digest = hashlib.blake2b(digest_size=16)
    for name in sorted(tensors):
        digest.update(name.encode())
        digest.update(tensors[name].contiguous().flatten().view(torch.uint8).numpy().data)
    return digest.hexdigest()


def read_state(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Read what :func:`write_state` wrote; no code runs from it."""
    try:
        with safe_open(path, framework="pt") as file:
            meta = json.loads((file.metadata() or {})["gpsuq"])
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
            if "checksum" in meta and meta["checksum"] != _checksum(tensors):
                raise ValueError("its checksum does not agree")
    except FileNotFoundError as error:
        raise CheckpointError(f"there is no checkpoint in {path.parent}") from error
    except (SafetensorError, KeyError, ValueError, OSError) as error:
        raise CheckpointError(f"{path} is damaged or no gpsuq checkpoint ({error}); delete it to start anew") from error
    if meta.get("format") != FORMAT:
        raise CheckpointError(f"{path} has format {meta.get('format')}, this version of gpsuq reads {FORMAT}")
    return tensors, meta


def write_atomically(path: Path, content: bytes) -> Path:
    """Write a file under a temporary name beside it and move it into place, so that it is whole or absent."""
    temporary = beside(path)
    try:
        with temporary.open("xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    return path


def beside(path: Path) -> Path:
    """Return a new hidden name in the same directory; what is made under it has the user's usual permissions."""
    return path.with_name(f".{path.name}.{uuid4().hex}")


def under(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """Return the tensors whose names begin with ``prefix``, without it."""
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}


def module_tensors(module: nn.Module, prefix: str) -> dict[str, Tensor]:
    """Return the state of a module under names that begin with ``prefix``, each tensor in memory of its own."""
    return _copies(module.state_dict(), prefix)


def tensors_as_bytes(tensors: dict[str, Tensor]) -> bytes:
    """Return tensors as a file holds them."""
    result: bytes = save(tensors)
    return result


def tensors_from_bytes(content: bytes) -> dict[str, Tensor]:
    """Return the tensors that a file holds; no code runs from it."""
    try:
        result: dict[str, Tensor] = load(content)
    except SafetensorError as error:
        raise ValueError(str(error)) from error
    return result
