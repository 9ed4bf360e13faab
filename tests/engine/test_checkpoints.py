"""Interruptions: what was done is kept, the message says how to go on, and the result is that of one go."""

import json
from collections.abc import Callable

import numpy as np
import pandas as pd
import pytest
import torch
from invoking import interrupt_networks, invoke
from torch import nn
from torch.distributions import Normal

from gpsuq import GPS, FromModule, GPSPoissonProcess, GPSWarning, Location, ObservationModel, Scale
from gpsuq.engine.checkpoints import resumable
from gpsuq.engine.generative import TrainingState
from gpsuq.errors import CheckpointError

real_loss = TrainingState.next_loss

pytestmark = pytest.mark.filterwarnings("ignore::gpsuq.GPSWarning")  # of forty steps


@pytest.fixture
def stop_after(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], list[None]]:
    """Let somebody press Ctrl-C, once, after so many steps of training; gives a list that grows with every step."""

    def stop_after(n_steps: int) -> list[None]:
        done = []

        def next_loss(state):
            done.append(None)
            if len(done) == n_steps + 1:
                raise KeyboardInterrupt
            return real_loss(state)

        monkeypatch.setattr(TrainingState, "next_loss", next_loss)
        return done

    return stop_after


def test_a_fit_goes_on_from_its_checkpoint(tmp_path, short, stop_after, rng):
    y = rng.normal(size=100)
    model = ObservationModel(Normal, loc=Location(), scale=Scale())
    whole = GPS(model, algorithm=short).fit(y).draws(10)
    stop_after(25)
    with pytest.raises(KeyboardInterrupt, match="goes on from there"):
        GPS(model, algorithm=short).fit(y, checkpoint=tmp_path, checkpoint_every=10)
    resumed = GPS(model, algorithm=short).fit(y, checkpoint=tmp_path, checkpoint_every=10).draws(10)
    for name, value in whole.items():
        assert np.array_equal(value, resumed[name])
    again = GPS(model, algorithm=short).fit(y, checkpoint=tmp_path)
    assert np.array_equal(again.draws(10)["loc"], whole["loc"])


def test_a_fit_of_another_model_does_not_go_on(tmp_path, short, rng):
    y = rng.normal(size=50)

    def fit(scale):
        model = ObservationModel(lambda theta: Normal(theta, scale), theta=Location())
        return GPS(model, algorithm=short).fit(y, checkpoint=tmp_path).draws(10)["theta"]

    first = fit(0.1)
    with pytest.raises(CheckpointError, match="another model"):
        fit(3.0)
    assert np.array_equal(fit(0.1), first)


def test_a_fit_from_other_weights_does_not_go_on(tmp_path, short, stop_after, rng):
    y = rng.normal(size=50)
    gps = GPS(ObservationModel(Normal, loc=Location(), scale=Scale()), algorithm=short)
    _, state = gps.train(y, checkpoint=tmp_path / "first")
    start = state.generator
    with pytest.raises(CheckpointError, match="first weights"):
        gps.train(y, start=start, checkpoint=tmp_path / "first")
    whole = gps.train(y, start=start)[1].generator(torch.zeros(8, 1, 1, 2))
    stop_after(25)
    with pytest.raises(KeyboardInterrupt):
        gps.train(y, start=start, checkpoint=tmp_path / "second", checkpoint_every=10)
    second = stop_after(-1)
    resumed = gps.train(y, start=start, checkpoint=tmp_path / "second")[1].generator(torch.zeros(8, 1, 1, 2))
    assert len(second) == short.n_steps - 20
    assert torch.equal(resumed["loc"], whole["loc"])


@pytest.mark.parametrize("reinitialise", [True, False])
def test_weights_of_a_network_count_where_they_are_kept(tmp_path, short, rng, reinitialise):
    y = rng.normal(size=50)
    model = ObservationModel(Normal, loc=Location(), scale=Scale())

    def fit(seed):
        torch.manual_seed(seed)
        generator = FromModule(nn.Linear(2, 2), noise_dim=2, reinitialise=reinitialise)
        return GPS(model, generator, algorithm=short).fit(y, checkpoint=tmp_path).draws(10)["loc"]

    first = fit(0)
    assert np.array_equal(fit(0), first)
    if reinitialise:
        assert np.array_equal(fit(1), first)
    else:
        with pytest.raises(CheckpointError, match="first weights"):
            fit(1)


def test_a_block_of_several_fits_goes_on(tmp_path, short, stop_after, rng):
    """The first fit is finished when the second is cut: it is read, not trained again."""
    y = rng.normal(size=100)
    model = ObservationModel(Normal, loc=Location(), scale=Scale())
    folder = tmp_path / "kept"

    def block():
        with resumable(folder):
            return [GPS(model, algorithm=short, seed=0).fit(part).draws(10)["loc"] for part in (y[:50], y[50:])]

    whole = block()
    assert not folder.exists()
    stop_after(short.n_steps + 15)
    with pytest.raises(KeyboardInterrupt, match=f"{folder}.*same command again"):
        block()
    assert len(list(folder.iterdir())) == 1
    stop_after(short.n_steps)  # enough for the second fit alone
    resumed = block()
    assert all(np.array_equal(a, b) for a, b in zip(resumed, whole, strict=True))
    assert not folder.exists()


def test_a_damaged_checkpoint_that_nobody_asked_for_starts_anew(tmp_path, short, stop_after, rng):
    y, folder = rng.normal(size=100), tmp_path / "kept"
    model = ObservationModel(Normal, loc=Location(), scale=Scale())

    def block():
        with resumable(folder):
            return [GPS(model, algorithm=short).fit(part).draws(10)["loc"] for part in (y[:50], y[50:])]

    whole = block()
    stop_after(short.n_steps + 15)
    with pytest.raises(KeyboardInterrupt):
        block()
    stop_after(-1)
    (kept,) = folder.rglob("*.safetensors")
    kept.write_bytes(kept.read_bytes()[:100])
    with pytest.warns(GPSWarning, match="damaged.*started anew"):
        again = block()
    assert all(np.array_equal(a, b) for a, b in zip(again, whole, strict=True))


def test_a_checkpoint_that_cannot_be_written_does_not_end_a_fit(tmp_path, short, monkeypatch, rng):
    def full_disk(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("gpsuq.engine.checkpoints.write_state", full_disk)
    model = ObservationModel(Normal, loc=Location(), scale=Scale())
    y = rng.normal(size=50)
    with resumable(tmp_path / "kept"), pytest.warns(GPSWarning, match="No space"):
        assert np.isfinite(GPS(model, algorithm=short).fit(y).draws(10)["loc"]).all()
    with pytest.warns(GPSWarning, match="No space"):
        GPS(model, algorithm=short).fit(y, checkpoint=tmp_path / "mine")


@pytest.mark.parametrize(("kind", "steps", "stop"), [("linear", 300, 250), ("poisson", 240, 220)])
def test_the_command_line_says_how_to_go_on(tmp_path, stop_after, monkeypatch, rng, kind, steps, stop):
    monkeypatch.setitem(GPSPoissonProcess.__init__.__kwdefaults__, "n_chains", 2)
    if kind == "linear":
        x = rng.normal(size=300)
        y = rng.choice([-1.0, 1.0], 300) * x + 0.2 * rng.normal(size=300)
        pd.DataFrame({"x": x, "y": y}).to_csv(tmp_path / "data.csv", index=False)
        arguments = ["fit", "linear", str(tmp_path / "data.csv"), "--target", "y"]
    else:
        pd.DataFrame(rng.random((60, 2)), columns=["x", "y"]).to_csv(tmp_path / "data.csv", index=False)
        (tmp_path / "w.json").write_text('{"type": "rectangle", "xrange": [0, 1], "yrange": [0, 1]}')
        arguments = ["fit", "poisson", str(tmp_path / "data.csv"), "--window", str(tmp_path / "w.json")]
    stop_after(stop)
    out = tmp_path / "model"
    command = [*arguments, "--steps", str(steps), "--out", str(out)]
    stopped = invoke(*command)
    assert stopped.exit_code == 130
    assert "same command again" in stopped.stderr.replace("\n", " ")
    assert not out.exists()
    second = stop_after(-1)
    assert invoke(*command).exit_code == 0
    whole = stop_after(-1)
    assert invoke(*[*command[:-1], str(tmp_path / "whole")]).exit_code == 0
    assert len(second) < len(whole)
    name = "model.safetensors"
    assert (out / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_dir()) == ["model", "whole"]


def test_an_experiment_goes_on(tmp_path, stop_after):
    out = tmp_path / "scissors"
    command = ["paper", "scissors", "--steps", "40", "--out", str(out)]
    stop_after(45)
    stopped = invoke(*command)
    assert stopped.exit_code == 130
    assert "same command again" in " ".join(stopped.stderr.split())
    second = stop_after(-1)
    assert invoke(*command).exit_code == 0
    assert "resumed" in json.loads((out / "metrics.json").read_text())
    whole = stop_after(-1)
    assert invoke(*[*command, "--force"]).exit_code == 0
    assert len(second) < len(whole)
    assert "resumed" not in json.loads((out / "metrics.json").read_text())
    assert not (out / ".unfinished").exists()


def test_a_forced_experiment_goes_on_without_force(tmp_path, monkeypatch):
    (tmp_path / "metrics.json").write_text("{}")
    command = ["paper", "outliers", "--steps", "4", "--out", str(tmp_path)]

    def stop(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("paper.linear.boxplot_comparison", stop)
        stopped = invoke(*[*command, "--force"])
    assert stopped.exit_code == 130
    assert "same command again without --force to go on" in " ".join(stopped.stderr.split())
    assert not (tmp_path / "metrics.json").exists()  # it would refuse a command without --force
    done = (tmp_path / "replicates.jsonl").read_text()
    assert done
    monkeypatch.setattr("gpsuq.engine.parallel._run", None)  # nothing is computed again
    again = invoke(*command)
    assert again.exit_code == 0, again.output
    assert (tmp_path / "replicates.jsonl").read_text() == done


def test_the_demo_goes_on(tmp_path, stop_after, small_demo):
    command = ["demo", "--out", str(tmp_path / "demo")]
    stop_after(0)
    stopped = invoke(*command)
    assert stopped.exit_code == 130
    assert "give the same command again to start anew" in " ".join(stopped.stderr.split())
    done = stop_after(small_demo.n_steps + 5)
    stopped = invoke(*command)
    assert "same command again to go on from there" in " ".join(stopped.stderr.split())
    again = stop_after(-1)
    assert invoke(*command).exit_code == 0
    whole = stop_after(-1)
    assert invoke(*command).exit_code == 0
    assert len(again) == len(whole) - small_demo.n_steps < len(whole)
    assert len(done) == small_demo.n_steps + 6
    assert not (tmp_path / "demo" / ".unfinished").exists()


def test_an_experiment_with_networks_goes_on(tmp_path, monkeypatch):
    command = ["paper", "mnist", "--data", "digits", "--epochs", "3", "--methods", "plain", "--seeds", "0"]
    command += ["--out", str(tmp_path)]
    seen = interrupt_networks(monkeypatch, 30)
    stopped = invoke(*command)
    assert stopped.exit_code == 130
    assert f"is in {tmp_path}" in " ".join(stopped.stderr.replace("\n", "").split())
    assert "without --force" not in stopped.stderr
    assert invoke(*command).exit_code == 0
    assert len(seen) == 30 + 14  # 14 steps an epoch: the first two were not trained again
