"""Run by ``test_meeting`` under ``torchrun``: a fit, and one whose second process dies, and comes late after that.

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

from gpsuq import GPS, MLP, Algorithm, Location, ObservationModel, Scale
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


def fitted(how):
    """Fit, and write which steps were taken and what was found."""
    gps = GPS(
        ObservationModel(Normal, loc=Location(), scale=Scale()),
        MLP(),  # one training, whose steps can be counted
        algorithm=Algorithm(n_steps=40, batch_size=50, n_draws=10, evaluate_every=10),
    )
    kept = Path(sys.argv[1]) / f"{how}-{os.environ['RANK']}"
    uq = gps.fit(np.random.default_rng(0).normal(size=100), checkpoint=kept, checkpoint_every=10)
    np.savez(kept.parent / f"{kept.name}.npz", taken=taken, **uq.draws(10))


if __name__ == "__main__":
    torch.set_num_threads(1)
    second, again = os.environ["RANK"] == "1", os.environ["TORCHELASTIC_RESTART_COUNT"] != "0"
    if second and again:
        time.sleep(LATE)
    if not again:
        TrainingState.next_loss = counting
        fitted("whole")
        taken.clear()
    TrainingState.next_loss = dying if second and not again else counting
    fitted("killed")
