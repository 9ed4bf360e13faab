"""Run by ``test_meeting`` under ``torchrun``: a fit whose second process may die on the way, and comes late after that.

Each process has a checkpoint directory of its own, as on machines that do not see the same files.
"""

import os
import signal
import sys
import time
from pathlib import Path

import numpy as np
import torch
from torch.distributions import Normal

from gpsuq import GPS, Algorithm, Location, ObservationModel, Scale
from gpsuq.engine.generative import TrainingState

KILLED_AFTER, LATE = 25, 3.0  # steps; seconds
real_loss = TrainingState.next_loss
taken = []


def dying(state):
    if state.step == KILLED_AFTER:
        os.kill(os.getpid(), signal.SIGKILL)
    return real_loss(state)


def counting(state):
    taken.append(state.step)
    return real_loss(state)


if __name__ == "__main__":
    torch.set_num_threads(1)
    folder, killed = Path(sys.argv[1]), sys.argv[2] == "killed"
    second, again = os.environ["RANK"] == "1", os.environ["TORCHELASTIC_RESTART_COUNT"] != "0"
    if second and again:
        time.sleep(LATE)
    TrainingState.next_loss = dying if killed and second and not again else counting
    gps = GPS(
        ObservationModel(Normal, loc=Location(), scale=Scale()),
        algorithm=Algorithm(n_steps=40, batch_size=50, n_draws=10, evaluate_every=10),
    )
    kept = folder / f"{sys.argv[2]}-{os.environ['RANK']}"
    uq = gps.fit(np.random.default_rng(0).normal(size=100), checkpoint=kept, checkpoint_every=10)
    np.savez(folder / f"{kept.name}.npz", taken=taken, **uq.draws(10))
