"""Training states on disk: one safetensors file, written atomically, that no code runs from."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any
from uuid import uuid4

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from gpsuq.descriptions import describe
from gpsuq.errors import CheckpointError
from gpsuq.training import Problem, TrainingState, enter_phase

FORMAT = 1
_FILE = "training.safetensors"


def fingerprint(problem: Problem, state: TrainingState) -> str:
    """Digest of all that decides where training ends: data, settings, model, first weights, seed.

    It is taken before the first step, while the weights are still the first ones.
    """
    generator = state.generator
    parts = (
        *(problem.algorithm, problem.plan, problem.distance, problem.seed, problem.source.sample),
        *(generator.parameter_map.declared, state.loss.model.function, dict(generator.state_dict())),
    )
    # A network of the user's is trained in copies, whose first weights are not its own where they start anew.
    layers = describe(generator.body.spec, weights=False)
    return hashlib.blake2b(f"{describe(parts)} {layers}".encode(), digest_size=16).hexdigest()


def save_checkpoint(directory: Path, state: TrainingState) -> Path:
    """Write the whole state; a crash while writing leaves the previous checkpoint as it was."""
    tensors = {f"generator/{name}": value for name, value in state.generator.state_dict().items()}
    for index, values in state.optimizer.state_dict()["state"].items():
        tensors |= {f"optimizer/{index}/{key}": torch.as_tensor(value) for key, value in values.items()}
    if state.best is not None:
        tensors |= {f"best/{name}": value for name, value in state.best.items()}
    for name, scores in (("best_scores", state.best_scores), ("last_scores", state.last_scores)):
        if scores is not None:
            tensors[name] = scores
    tensors |= {"stale": state.stale, "skipped": state.skipped}
    history = state.history
    for name, values in (("fit", history.fit), ("pair", history.pair), ("held_out", history.held_out)):
        if values:
            tensors[f"history/{name}"] = torch.stack(values)
    meta = {
        "fingerprint": state.fingerprint,
        "step": state.step,
        "phase": state.phase,
        "phase_start": state.phase_start,
        "noise_variance": state.noise_variance,
        "finished": state.finished,
        "evaluated_at": history.evaluated_at,
    }
    directory.mkdir(parents=True, exist_ok=True)
    return write_state(directory / _FILE, tensors, meta)


def write_state(path: Path, tensors: dict[str, Tensor], meta: dict[str, Any]) -> Path:
    """Write tensors and what describes them into one file, whole or not at all."""
    copies = {
        name: tensor.detach().cpu().clone(memory_format=torch.contiguous_format) for name, tensor in tensors.items()
    }
    return write_atomically(path, save(copies, {"gpsuq": json.dumps({"format": FORMAT} | meta)}))


def read_state(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Read what :func:`write_state` wrote; no code runs from it."""
    try:
        with safe_open(path, framework="pt") as file:
            meta = json.loads((file.metadata() or {})["gpsuq"])
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
    except FileNotFoundError as error:
        raise CheckpointError(f"there is no checkpoint in {path.parent}") from error
    except (SafetensorError, KeyError, ValueError, OSError) as error:
        raise CheckpointError(f"{path} is damaged or no gpsuq checkpoint ({error}); delete it to start anew") from error
    if meta.get("format") != FORMAT:
        raise CheckpointError(f"{path} has format {meta.get('format')}, this version of gpsuq reads {FORMAT}")
    return tensors, meta


def read_state_of(path: Path, key: str) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
    """Read a state that was written with this ``key``; None where there is none, or another or damaged one."""
    try:
        tensors, meta = read_state(path)
    except CheckpointError:
        return None
    return (tensors, meta) if meta.get("key") == key else None


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
    """Give a new hidden name in the same directory; what is made under it has the user's usual permissions."""
    return path.with_name(f".{path.name}.{uuid4().hex}")


def has_checkpoint(directory: Path) -> bool:
    """Whether a directory holds a checkpoint."""
    return (directory / _FILE).is_file()


def load_checkpoint(directory: Path, problem: Problem, state: TrainingState) -> TrainingState:
    """Bring a freshly initialised state, with its fingerprint, to where the checkpoint was written."""
    path = directory / _FILE
    tensors, meta = read_state(path)
    if meta["fingerprint"] != state.fingerprint:
        raise CheckpointError(
            f"{path} belongs to a fit with another model or other first weights, or with other data, settings or seed; "
            "delete it, or choose another directory"
        )
    if meta["phase"] > 0:
        enter_phase(problem, state, meta["phase"], meta["noise_variance"])
    state.generator.load_state_dict(under(tensors, "generator/"))
    restore_optimizer(state.optimizer, under(tensors, "optimizer/"))
    state.best = {name: t.to(state.generator.shared.device) for name, t in under(tensors, "best/").items()} or None
    state.best_scores, state.last_scores = tensors.get("best_scores"), tensors.get("last_scores")
    state.stale, state.skipped = tensors["stale"], tensors["skipped"]
    for name in ("fit", "pair", "held_out"):
        if f"history/{name}" in tensors:
            getattr(state.history, name).extend(tensors[f"history/{name}"].unbind(0))
    state.history.evaluated_at.extend(meta["evaluated_at"])
    state.step, state.phase_start = meta["step"], meta["phase_start"]
    state.finished = meta["finished"]
    return state


def restore_optimizer(optimizer: torch.optim.Optimizer, tensors: dict[str, Tensor]) -> None:
    """Give an optimiser the state that was saved as ``index/key``, every tensor laid out in memory as its weight is.

    A fused optimiser walks through weights and state side by side, and files do not keep layouts such as channels last.
    """
    weights = [weight for group in optimizer.param_groups for weight in group["params"]]
    saved: dict[str, Any] = optimizer.state_dict() | {"state": {}}
    for name, tensor in tensors.items():
        index, key = name.split("/")
        weight = weights[int(index)]
        laid_out = torch.empty_like(weight).copy_(tensor) if tensor.shape == weight.shape else tensor
        saved["state"].setdefault(int(index), {})[key] = laid_out
    optimizer.load_state_dict(saved)


def under(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """Give the tensors whose names begin so, without that beginning."""
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}
