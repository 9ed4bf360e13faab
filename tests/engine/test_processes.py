"""Several processes: each takes its share of every batch, and all end with the same generator."""

import subprocess
import sys

import pytest

SCRIPT = """
import warnings
import torch
from lightning_fabric import Fabric
from gpsuq import GPS, Algorithm
from gpsuq.datasets import scissors
from gpsuq.core.models import linear_regression

def work(fabric):
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    data = scissors(400)
    gps = GPS(linear_regression(intercept=False), algorithm=Algorithm(n_steps=40), fabric=fabric)
    print("rank", fabric.global_rank, float(gps.fit(data.X, data.y).draws(200)["slope"].std()), flush=True)

if __name__ == "__main__":
    Fabric(accelerator="cpu", devices=2, strategy="ddp_spawn").launch(work)
"""


@pytest.mark.slow
def test_two_processes_end_with_the_same_generator(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    result = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=300, check=False)
    assert result.returncode == 0, result.stderr[-2000:]
    ranks = dict(line.split()[1:] for line in result.stdout.splitlines() if line.startswith("rank"))
    assert set(ranks) == {"0", "1"}
    assert ranks["0"] == ranks["1"]
    assert float(ranks["0"]) > 0.1
