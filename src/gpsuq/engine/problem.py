"""What is fixed while chains are trained: the data, the score, the algorithm, and how chains are evaluated."""

from __future__ import annotations

from dataclasses import dataclass

from lightning_fabric import Fabric

from gpsuq.core.distances import Distance
from gpsuq.engine.chains import ChainPlan
from gpsuq.engine.settings import Algorithm
from gpsuq.engine.sources import BatchSource


@dataclass(frozen=True)
class Problem:
    """What is fixed during training."""

    source: BatchSource
    plan: ChainPlan
    algorithm: Algorithm
    distance: Distance
    seed: int
    fabric: Fabric
    evaluation_draws: int = 200
    evaluation_rows: int = 400  # scored at once, so that memory stays bounded
    together: bool = False  # chains stop, and go back to their best state, together: by the mean over all of them

    @property
    def n_phases(self) -> int:
        """Two where the distance wants to be refined by the noise that the fit found, else one."""
        return 1 if self.distance.refine(1.0) is None or self.algorithm.n_steps < 2 else 2

    def phase_steps(self, phase: int) -> int:
        """Return the steps of a phase; together they make ``n_steps``."""
        half = self.algorithm.n_steps // self.n_phases
        return self.algorithm.n_steps - half if phase == self.n_phases - 1 and self.n_phases > 1 else half
