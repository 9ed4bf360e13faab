r"""A classifier for other runtimes: ONNX files of its trunk and of its head, whose second input is the noise Z.

The trunk takes inputs (n, ...) to features, the input of the layer where noise first enters; the head takes features
and noise (draw, q) to logits (n, draw, class). So draws are not frozen, and the trunk runs once however many there are.
Where noise is scaled by how strange an observation is, the trunk also gives that, (n,), and the head takes it. Several
members are side by side in both: the trunk gives the features of all, and the head the logits of every member under all
draws, one member after the other.
"""

from __future__ import annotations

import json
import logging
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from gpsuq.core.noise import NoisyNetwork, Seen, entering
from gpsuq.core.seeds import random_block
from gpsuq.errors import GPSError, needs
from gpsuq.storage.directories import HEAD_FILE, TRUNK_FILE, VERDICT_FILE, replaced

_ROWS, _DRAWS = 3, 5  # neither is 1, which an exporter would take for fixed
_TOLERANCE = 1e-5
_SEEN = ("features", "strangeness")  # what the trunk gives; the second where it knows


class _Trunk(nn.Module):
    """All that runs before the noise: features, and how strange they are where the network knows that."""

    def __init__(self, network: NoisyNetwork, layer: str) -> None:
        super().__init__()
        self.network, self.layer = network, layer

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        found: list[Tensor] = []
        with entering(self.network.module, self.layer, lambda features: found.append(features)):
            # What comes behind the layer is no part of the result, and dropped.
            strangeness = self.network.strangeness(x) if self.network.watched else self.network.module(x)
        return (found[0], strangeness) if self.network.watched else (found[0],)


class _Head(nn.Module):
    """All that runs from the noise on."""

    def __init__(self, network: NoisyNetwork, one: Tensor) -> None:
        super().__init__()
        self.network, self.one = network, one

    def forward(self, features: Tensor, noise: Tensor, strangeness: Tensor | None = None) -> Tensor:
        return self.network.again(Seen((self.one,), features, strangeness), noise=noise[None])


class _Trunks(nn.Module):
    """The trunks of several members: features, behind those of each how strange it finds them, and the mean of that."""

    def __init__(self, trunks: Sequence[_Trunk]) -> None:
        super().__init__()
        self.trunks = nn.ModuleList(trunks)

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        seen = [trunk(x) for trunk in self.trunks]
        if len(seen[0]) == 1:
            return (torch.cat([features for (features,) in seen], 1),)
        known = torch.cat([torch.cat([features, strange[:, None]], 1) for features, strange in seen], 1)
        return known, torch.stack([strange for _, strange in seen], 1).mean(1)


class _Heads(nn.Module):
    """The heads of several members, which share the noise."""

    def __init__(self, heads: Sequence[_Head]) -> None:
        super().__init__()
        self.heads, self.watched = nn.ModuleList(heads), bool(heads[0].network.watched)

    def forward(self, features: Tensor, noise: Tensor) -> Tensor:
        logits = []
        for head, part in zip(self.heads, features.chunk(len(self.heads), 1), strict=True):
            known = (part[:, :-1], noise, part[:, -1]) if self.watched else (part, noise)
            logits.append(head(*known))
        return torch.cat(logits, 1)


def write_onnx(
    networks: Sequence[NoisyNetwork],
    shape: tuple[int, ...],
    verdict: dict[str, Any],
    path: Path,
    force: bool,
    dtype: torch.dtype = torch.float32,
) -> Path:
    """Write trunk, head and verdict into a directory, after a comparison with the networks; return the path.

    ``shape`` and ``dtype`` are those of one input, ``verdict`` what the file beside the networks says. ``force``
    replaces what was exported before.
    """
    with needs("onnx", "exporting to ONNX"):
        import onnxruntime  # slow to load
        import onnxscript  # noqa: F401 (torch needs it)
    members = [network._on_trial().float() for network in networks]
    x, noise = _example(members[0], shape, dtype, _ROWS, _DRAWS)
    for network in members:
        network.check(x)
    trunks = [_Trunk(network, network.first_layer(x)) for network in members]
    heads = [_Head(network, x[:1]) for network in members]
    several = len(members) > 1
    trunk, head = (_Trunks(trunks), _Heads(heads)) if several else (trunks[0], heads[0])
    with torch.no_grad():
        seen = dict(zip(_SEEN, trunk(x), strict=False))
        taken = {"features": seen["features"], "noise": noise} | ({} if several else seen)
        exported = {
            TRUNK_FILE: _exported(trunk, {"x": x}, list(seen)),
            HEAD_FILE: _exported(head, taken, ["logits"]),
        }
    sessions = tuple(onnxruntime.InferenceSession(exported[name]) for name in (TRUNK_FILE, HEAD_FILE))
    for rows, draws in ((1, 2), (2 * _ROWS, 3 * _DRAWS)):  # other numbers than those it was exported with
        _compare(members, sessions, *_example(members[0], shape, dtype, rows, draws))
    try:
        with replaced(path, force=force) as directory:
            for name, content in exported.items():
                (directory / name).write_bytes(content)
            (directory / VERDICT_FILE).write_text(json.dumps(verdict, indent=1) + "\n", encoding="utf-8")
    except OSError as error:
        raise GPSError(f"{path} could not be written ({error}); what was there before is as it was") from error
    return path


def _example(
    network: NoisyNetwork, shape: tuple[int, ...], dtype: torch.dtype, rows: int, draws: int
) -> tuple[Tensor, Tensor]:
    """Return inputs (rows, ...) and noise (draws, q); integers are 0 or 1, which every vocabulary has."""
    x = torch.randn(rows, *shape, generator=random_block(0, "export"))
    x = x if dtype.is_floating_point else (x > 0).to(dtype)
    return x, network.draw_noise(1, draws, random_block(0, "export noise"))[0]


def _compare(networks: Sequence[NoisyNetwork], sessions: tuple[Any, ...], x: Tensor, noise: Tensor) -> None:
    """Raise where exported parts say other things than the networks."""
    with torch.no_grad():
        wanted = torch.cat([network(x, noise=noise[None]) for network in networks], 1).numpy()
    trunk, head = sessions
    seen = dict(zip(_SEEN, trunk.run(None, {"x": x.numpy()}), strict=False)) | {"noise": noise.numpy()}
    found = head.run(None, {taken.name: seen[taken.name] for taken in head.get_inputs()})[0]
    off = float(np.abs(found - wanted).max() / max(1.0, np.abs(wanted).max()))
    if not off <= _TOLERANCE:
        raise GPSError(f"the exported network is off by {off:.1e} of its largest logit: nothing was written")


def _exported(module: nn.Module, inputs: dict[str, Tensor], outputs: list[str]) -> bytes:
    """Return a module as the content of an ONNX file; the first dimension of every input may have any size."""
    log = logging.getLogger("torch.onnx")
    level = log.level
    log.setLevel(logging.ERROR)  # it speaks of packages that are not here
    sizes = {name: {0: torch.export.Dim.AUTO} for name in inputs}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # torch's own
            program = torch.export.export(module, (), kwargs=inputs, dynamic_shapes=sizes, strict=False)
            names = {"input_names": list(inputs), "output_names": outputs}
            made = torch.onnx.export(program, dynamo=True, verbose=False, **names)  # type: ignore[arg-type]
    except Exception as error:  # whatever the exporter stumbles over in a network of the user's
        raise GPSError(f"this network cannot be exported to ONNX: {error}") from error
    finally:
        log.setLevel(level)
    assert made is not None
    content: bytes = made.model_proto.SerializeToString()
    return content
