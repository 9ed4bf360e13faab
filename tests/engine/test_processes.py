"""Several processes: together they descend the loss of one process, and one of them writes."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from invoking import invoke

import gpsuq

SCRIPT = Path(__file__).parent / "processes_script.py"
KINDS = ("own-loop", "gps", "conditional", "loader", "linear", "poisson", "classifier", "classifier-loader")


def run(*command, processes):
    """Run a Python command in so many processes."""
    torchrun = ("-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}")
    arguments = (sys.executable, *(torchrun if processes > 1 else ()), *map(str, command))
    result = subprocess.run(
        arguments, capture_output=True, text=True, timeout=300, check=False, env=os.environ | {"OMP_NUM_THREADS": "1"}
    )
    assert result.returncode == 0, result.stderr[-3000:]
    return result


@pytest.fixture(scope="module")
def gradients(tmp_path_factory):
    """Gradients of the first step of every kind of fit, by one process and by two."""
    folder = tmp_path_factory.mktemp("gradients")
    for processes in (1, 2):
        run(SCRIPT, folder / f"{processes}.pt", processes=processes)
    return torch.load(folder / "1.pt"), torch.load(folder / "2.pt")


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_two_processes_have_the_gradient_of_one(gradients, kind):
    """For the same draws; float32 sums in another order differ by some 1e-6 of the largest number."""
    one, two = (each[kind] for each in gradients)
    assert float(one.abs().max()) > 1e-4
    assert torch.allclose(two, one, rtol=0.0, atol=1e-5 * float(one.abs().max()))


@pytest.mark.slow
def test_buffers_of_a_users_layer_are_the_same_in_all_processes(gradients):
    remembered = gradients[1]["buffers"]
    assert len(remembered) == 2
    assert remembered[0] == remembered[1] != 0.0


@pytest.mark.slow
def test_the_command_line_runs_in_two_processes(tmp_path, rng):
    """One process writes and speaks; what two found is what one finds, within the error of the estimate."""
    x = rng.normal(size=300)
    pd.DataFrame({"x": x, "y": rng.choice([-1.0, 1.0], 300) * x}).to_csv(tmp_path / "data.csv", index=False)
    found = []
    for processes in (1, 2):
        out = tmp_path / f"model{processes}"
        command = ("fit", "linear", tmp_path / "data.csv", "--target", "y", "--steps", 20, "--out", out)
        told = invoke(*command) if processes == 1 else run("-m", "gpsuq", *command, processes=processes)
        assert told.stdout.count("Coefficients differ") == 1
        found.append(gpsuq.load(out))
    assert {path.name for path in tmp_path.iterdir()} == {"data.csv", "model1", "model2"}
    spreads = [np.std(model.sample_parameters(500)["x"]) for model in found]
    assert spreads[1] == pytest.approx(spreads[0], rel=0.05)
