"""Random numbers addressed by (seed, purpose, index), so that resuming and chunking change nothing.

A stream of random numbers depends on the sizes drawn from it. Every block of numbers in gpsuq therefore has a
generator of its own: noise is addressed by step, permutations by epoch, prediction draws by block. What depends on a
row of the data (bootstrap weights, folds) is a hash of (seed, purpose, chain, row) and needs no storage.
"""

from __future__ import annotations

import hashlib
import numbers
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from sklearn.utils import check_random_state
from torch import Tensor

from gpsuq.errors import GPSError

_MASK_31 = 2**31 - 1
_TURN = threading.RLock()


def derive_seed(seed: int, purpose: str, *index: int) -> int:
    """Return the 63-bit seed of the block ``(seed, purpose, index)``."""
    text = "/".join([str(seed), purpose, *map(str, index)])
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big") >> 1


def seed_from(random_state: Any) -> int:
    """Return the seed in what scikit-learn's users pass as ``random_state``: a seed, a generator, or None for any."""
    integral = isinstance(random_state, numbers.Integral)
    seed = int(random_state) if integral else int(check_random_state(random_state).randint(_MASK_31))
    if seed < 0:
        raise GPSError(f"random_state must not be negative, got {seed}")
    return seed


def random_block(seed: int, purpose: str, *index: int, device: torch.device | str = "cpu") -> torch.Generator:
    """Return a fresh ``torch.Generator`` for the block ``(seed, purpose, index)``."""
    return torch.Generator(device=device).manual_seed(derive_seed(seed, purpose, *index))


def uniform_by_row(seed: int, purpose: str, n_chains: int, rows: Tensor) -> Tensor:
    """Return uniforms in (0, 1) of shape ``(n_chains, len(rows))``, each a hash of (seed, purpose, chain, row).

    The same row has the same number whichever rows it is asked with, so weights over a million rows and sixty chains
    are computed for the batch at hand and never stored.
    """
    salts = torch.tensor(
        [derive_seed(seed, purpose, chain) & _MASK_31 for chain in range(n_chains)], device=rows.device
    )
    low, high = rows & _MASK_31, rows >> 31
    state = _mix(_mix(_mix(salts)[:, None] ^ low[None, :]) ^ high[None, :])  # one after the other: equal parts cancel
    return (state.to(torch.float64) + 0.5) / 2.0**31


def _mix(value: Tensor) -> Tensor:
    """Scramble 31-bit integers (multiply, xor-shift, three rounds); int64 holds every product without overflow."""
    for multiplier, shift in ((0x2C1B3C6D, 15), (0x297A2D39, 14), (0x3F4A7C15, 16)):
        value = ((value & _MASK_31) * multiplier) & _MASK_31
        value = value ^ (value >> shift)
    return value


def quasi_normal(n: int, dim: int, seed: int) -> Tensor:
    """Return n standard normal vectors (n, dim) of a scrambled Sobol sequence, whose averages are far less noisy."""
    uniform = torch.quasirandom.SobolEngine(dim, scramble=True, seed=derive_seed(seed, "sobol") & _MASK_31).draw(n)
    normal: Tensor = torch.special.ndtri(uniform.double().clamp(1e-6, 1 - 1e-6))
    return normal.float()


@contextmanager
def unmoved() -> Iterator[list[torch.Generator]]:
    """Give torch's global generators to a block, and put them back as they were afterwards.

    They belong to the whole process, so blocks of several threads take turns.
    """
    with _TURN:
        generators = [torch.default_generator, *(torch.cuda.default_generators if torch.cuda.is_available() else ())]
        states = [generator.get_state() for generator in generators]
        try:
            yield generators
        finally:
            for generator, state in zip(generators, states, strict=True):
                generator.set_state(state)


@contextmanager
def seeded(seed: int, purpose: str, *index: int) -> Iterator[None]:
    """Run a block with torch's global generators seeded for it, and put them back as they were afterwards.

    ``torch.distributions`` samples from the global generator only.
    """
    with unmoved() as generators:
        # Not torch.manual_seed: it formats a stack trace for every backend that has not been started, at every step.
        for generator in generators:
            generator.manual_seed(derive_seed(seed, purpose, *index))
        yield
