"""Training by epochs: resuming ends where an uninterrupted run ends, checkpoints are safe, recipes as stated."""

import math
import os
import signal
from dataclasses import replace

import pytest
import torch
from lightning_fabric import Fabric
from torch import nn

from gpsuq import GPSError, GPSWarning, PaperRecipe, Recipe, noisify
from gpsuq.engine.checkpoints import FILE
from gpsuq.engine.loop import train
from gpsuq.engine.networks import NetworkTraining
from gpsuq.engine.sources import ArrayBatches
from gpsuq.errors import CheckpointError, DivergenceError

RECIPE = Recipe(epochs=4, batch_size=10)


class InterruptionError(Exception):
    pass


@pytest.fixture
def batches():
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(55, 4, generator=generator)
    return ArrayBatches(x, (x[:, 0] > 0).long(), 10, seed=0)


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.2), nn.Linear(8, 2))


def loss(module, x, y):
    return nn.functional.cross_entropy(module(x), y)


def train_network(network, loss, batches, recipe, *, seed, about="", checkpoint=None, on_step=None):
    fabric = Fabric(accelerator="cpu", devices=1)
    training = NetworkTraining(network, loss, batches, recipe, seed, fabric, about)
    train(training, fabric, checkpoint=checkpoint, on_step=on_step)
    return training


def test_a_resumed_run_ends_where_an_uninterrupted_one_ends(batches, tmp_path):
    whole = network()
    expected = train_network(whole, loss, batches, RECIPE, seed=3)

    def stop(task):
        if task.step == 15:  # in the third epoch
            raise InterruptionError

    stopped = network()
    with pytest.raises(InterruptionError):
        train_network(stopped, loss, batches, RECIPE, seed=3, checkpoint=tmp_path, on_step=stop)
    resumed = network()
    found = train_network(resumed, loss, batches, RECIPE, seed=3, checkpoint=tmp_path)
    assert found.losses_of_epochs == pytest.approx(expected.losses_of_epochs)
    for name, value in whole.state_dict().items():
        assert torch.equal(resumed.state_dict()[name], value), name
    again = network()
    train_network(again, loss, batches, RECIPE, seed=3, checkpoint=tmp_path)  # nothing left to do
    assert torch.equal(again[0].weight, whole[0].weight)


def test_a_resumed_run_keeps_the_layout_of_weights_in_memory(tmp_path):
    """Momentum read from a file lies in memory as its weight does, or the fused optimiser would mix its numbers."""
    x = torch.randn(40, 3, 6, 6, generator=torch.Generator().manual_seed(0))
    images = ArrayBatches(x, (x[:, 0, 0, 0] > 0).long(), 10, seed=0)

    def convolution():
        torch.manual_seed(0)
        layers = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten(), nn.Linear(64, 2))
        return layers.to(memory_format=torch.channels_last)

    whole, resumed = convolution(), convolution()
    train_network(whole, loss, images, RECIPE, seed=3)

    def stop(task):
        if task.step == 10:  # in the third epoch
            raise InterruptionError

    with pytest.raises(InterruptionError):
        train_network(convolution(), loss, images, RECIPE, seed=3, checkpoint=tmp_path, on_step=stop)
    train_network(resumed, loss, images, RECIPE, seed=3, checkpoint=tmp_path)
    assert torch.equal(resumed[0].weight, whole[0].weight)


class ShrinkingFirst:
    """Halves the inputs of the first two epochs."""

    def __call__(self, x):
        raise AssertionError("training asks for the epoch")

    def for_epoch(self, number):
        return (lambda x: x / 2) if number < 2 else (lambda x: x)


def test_an_augmentation_is_asked_for_the_epoch_that_it_is_in(batches):
    batches = ArrayBatches(batches.x, batches.y, 10, 0, ShrinkingFirst())
    sizes = [sum(float(x.abs().sum()) for x, *_ in batches.epoch(number)) for number in range(4)]
    total = float(batches.x.abs().sum())
    assert sizes == pytest.approx([total / 2, total / 2, total, total], rel=1e-5)


def test_another_loss_or_architecture_does_not_join_a_checkpoint(batches, tmp_path):
    train_network(network(), loss, batches, RECIPE, seed=3, checkpoint=tmp_path)
    with pytest.raises(CheckpointError, match="other data, settings"):
        train_network(network(), loss, batches, RECIPE, seed=3, checkpoint=tmp_path, about="another loss")
    other = network()
    other[2] = nn.Tanh()
    with pytest.raises(CheckpointError, match="other data, settings"):
        train_network(other, loss, batches, RECIPE, seed=3, checkpoint=tmp_path)


def test_checkpoints_of_other_runs_and_damaged_ones_are_refused(batches, tmp_path):
    train_network(network(), loss, batches, RECIPE, seed=3, checkpoint=tmp_path)
    with pytest.raises(CheckpointError, match="other data, settings or seed"):
        train_network(network(), loss, batches, RECIPE, seed=4, checkpoint=tmp_path)
    with pytest.raises(CheckpointError, match="other data"):
        train_network(
            network(), loss, ArrayBatches(batches.x, 1 - batches.y, 10, 0), RECIPE, seed=3, checkpoint=tmp_path
        )
    whole, newest = network(), tmp_path / FILE
    train_network(whole, loss, batches, RECIPE, seed=3)
    newest.write_bytes(newest.read_bytes()[:200])
    resumed = network()
    with pytest.warns(GPSWarning, match="went on from the one before"):
        train_network(resumed, loss, batches, RECIPE, seed=3, checkpoint=tmp_path)
    assert torch.equal(resumed[0].weight, whole[0].weight)
    for file in tmp_path.iterdir():
        file.write_bytes(file.read_bytes()[:200])
    with pytest.raises(CheckpointError, match="damaged"):
        train_network(network(), loss, batches, RECIPE, seed=3, checkpoint=tmp_path)


def test_a_changed_forward_does_not_join_a_checkpoint(batches, tmp_path):
    class Doubled(nn.Linear):
        def forward(self, x):
            return 2.0 * super().forward(x)

    class Tripled(nn.Linear):
        def forward(self, x):
            return 3.0 * super().forward(x)

    Tripled.__qualname__ = Doubled.__qualname__
    networks = []
    for kind in (Doubled, Tripled):
        torch.manual_seed(0)
        networks.append(nn.Sequential(kind(4, 2)))
    train_network(networks[0], loss, batches, RECIPE, seed=3, checkpoint=tmp_path)
    with pytest.raises(CheckpointError, match="other data, settings"):
        train_network(networks[1], loss, batches, RECIPE, seed=3, checkpoint=tmp_path)


@pytest.mark.parametrize(("number", "raised"), [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, SystemExit)])
def test_a_signal_lets_the_step_end_and_keeps_it(batches, tmp_path, number, raised):
    """In the middle of an epoch: the state after the step is kept, and a resumed run ends where one in one go does."""
    whole, stopped, resumed = network(), network(), network()
    expected = train_network(whole, loss, batches, RECIPE, seed=3)

    def stop(task):
        if task.step == 15:
            os.kill(os.getpid(), number)

    with pytest.raises(raised) as caught:
        train_network(stopped, loss, batches, RECIPE, seed=3, checkpoint=tmp_path, on_step=stop)
    assert number == signal.SIGINT or caught.value.code == 143
    steps = []
    found = train_network(
        resumed, loss, batches, RECIPE, seed=3, checkpoint=tmp_path, on_step=lambda task: steps.append(task.step)
    )
    assert steps[0] == 16
    assert found.losses_of_epochs == expected.losses_of_epochs
    for name, value in whole.state_dict().items():
        assert torch.equal(resumed.state_dict()[name], value), name
    assert signal.getsignal(number) is not None
    assert "hear" not in str(signal.getsignal(number))


def test_a_full_disk_costs_the_checkpoint_not_the_run(batches, tmp_path, monkeypatch):
    train_network(network(), loss, batches, replace(RECIPE, epochs=1), seed=3, checkpoint=tmp_path)
    before = next(tmp_path.iterdir()).read_bytes()

    def full(*args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("gpsuq.files.os.replace", full)
    elsewhere = tmp_path / "new"
    with pytest.warns(GPSWarning, match="No space left"):
        done = train_network(network(), loss, batches, RECIPE, seed=3, checkpoint=elsewhere)
    assert done.epoch == 4
    assert next(file for file in tmp_path.iterdir() if file.is_file()).read_bytes() == before
    assert list(elsewhere.iterdir()) == []


def test_a_loss_that_is_not_finite_is_named(batches):
    with pytest.raises(DivergenceError, match="not finite"):
        train_network(network(), lambda m, x, y: loss(m, x, y) * math.nan, batches, RECIPE, seed=0)


def test_every_row_is_seen_once_an_epoch_and_orders_differ(batches):
    seen = [torch.cat([x[:, 0] for x, *_ in batches.epoch(number)]) for number in (0, 1, 0)]
    assert torch.equal(seen[0].sort().values, batches.x[:, 0].sort().values)
    assert not torch.equal(seen[0], seen[1])
    assert torch.equal(seen[0], seen[2])
    odd = ArrayBatches(batches.x[:11], batches.y[:11], 10, seed=0)
    assert [len(x) for x, *_ in odd.epoch(0)] == [10]  # one row has no variance to normalise by


def test_noise_weights_are_never_decayed():
    module = noisify(nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3), nn.Linear(3, 2)), "0")
    optimizer = Recipe(weight_decay=0.1).make_optimizer(module)
    decayed = {id(p) for group in optimizer.param_groups if group["weight_decay"] for p in group["params"]}
    names = {name for name, p in module.named_parameters() if id(p) in decayed}
    assert names == {"module.0.weight", "module.2.weight"}


def test_the_papers_recipe_and_schedules():
    paper = PaperRecipe()
    assert (paper.n_draws, paper.n_outcomes, paper.batch_size, paper.momentum) == (10, 5, 100, 0.0)
    assert paper.rate(0, 100) == 0.01
    assert paper.rate(3, 100) == pytest.approx(0.005)
    ours = Recipe(learning_rate=1.0)
    rates = [ours.rate(step, 100) for step in range(100)]
    assert max(rates) == pytest.approx(1.0)
    assert rates.index(max(rates)) == 15
    assert rates[-1] < 0.02
    assert ours.n_epochs(600) == 10
    assert ours.n_epochs(3) == 334


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"epochs": 0}, "epochs"),
        ({"batch_size": 1}, "batch_size"),
        ({"n_draws": 1}, "n_draws"),
        ({"n_outcomes": 0}, "n_outcomes"),
        ({"learning_rate": 0.0}, "learning_rate"),
        ({"momentum": 1.0}, "momentum"),
        ({"weight_decay": -1.0}, "weight_decay"),
        ({"schedule": "steps"}, "schedule"),
    ],
)
def test_bad_recipes_are_refused(options, message):
    with pytest.raises(GPSError, match=message):
        Recipe(**options)


def test_nothing_to_train_on(batches):
    with pytest.raises(GPSError, match="at least 2"):
        train_network(network(), loss, ArrayBatches(batches.x[:1], batches.y[:1], 10, 0), RECIPE, seed=0)
