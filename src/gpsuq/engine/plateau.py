"""How long to train: at a constant rate while held-out observations gain, then with a rate that falls to zero."""

from __future__ import annotations

import math
from dataclasses import dataclass

from torch import Tensor

_PATIENCE = 5  # evaluations without a clear gain
_LONGEST = 0.5  # of all steps, at the constant rate
_FALL, _SHORTEST_FALL = 1.0, 200  # steps of the fall: for each step before it, and at least


@dataclass
class Plateau:
    """Where a phase of training stands; steps are counted from the phase's first.

    ``reference`` are the held-out scores (chain, observation) that later ones have to beat clearly, ``waited`` how
    many evaluations did not, and ``left`` the step from which the rate falls, None before.
    """

    reference: Tensor | None = None
    waited: int = 0
    left: int | None = None

    def see(self, scores: Tensor) -> None:
        """Compare scores with the reference, over all chains; a gain is clear from one standard error on."""
        if self.reference is None:
            self.reference = scores
            return
        gain = (self.reference - scores).flatten()
        error = float(gain.std(correction=min(1, len(gain) - 1))) / math.sqrt(len(gain))
        clear = float(gain.mean()) > error
        self.waited = 0 if clear else self.waited + 1
        self.reference = scores if clear else self.reference

    def leave(self, step: int, n_steps: int) -> None:
        """Let the rate fall from here, where nothing is gained any more or the fall takes all steps that there are."""
        if self.left is None and (self.waited >= _PATIENCE or step >= _LONGEST * n_steps):
            self.left = step

    def end(self, n_steps: int) -> int:
        """Return the last step of the phase, as far as is known."""
        return n_steps if self.left is None else min(n_steps, self.left + max(_SHORTEST_FALL, round(_FALL * self.left)))

    def rate(self, largest: float, step: int, n_steps: int) -> float:
        """Return the learning rate at a step."""
        if self.left is None or step < self.left:
            return largest
        return largest * 0.5 * (1.0 + math.cos(math.pi * (step - self.left) / max(1, self.end(n_steps) - self.left)))
