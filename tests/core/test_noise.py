"""Noise inputs: the fast way equals the slow one, layers that cannot take noise are found, copies are copies."""

import copy
import importlib.util
import pickle

import pytest
import torch
from torch import nn

from gpsuq import GPSError, noisify
from gpsuq.core.noise import NoisyNetwork
from gpsuq.core.noisy_layer import NoisyLinear
from paper.networks import paper_cnn


class Residual(nn.Module):
    """A small residual network; ``head`` takes noise, ``inner`` is bypassed by a skip connection."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 3, padding=1)
        self.norm = nn.BatchNorm2d(4)
        self.inner = nn.Linear(8, 8)
        self.head = nn.Sequential(nn.Linear(4, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 3))

    def forward(self, x):
        y = torch.relu(self.norm(self.conv(x)))
        y = y + self.inner(y)
        return self.head(y.mean((2, 3)))


class Twice(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.unused = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x):
        return self.layer(torch.relu(self.layer(x)))


class FixesRows(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x):
        return self.layer(x).reshape(len(x), -1)


class MixesRows(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x):
        return self.layer(x) * x.sum()


def mlp(norm):
    return nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8) if norm else nn.Identity(), nn.ReLU(), nn.Linear(8, 3))


NETWORKS = {
    "mlp": (lambda: mlp(norm=False), "0", (4,)),
    "mlp with batch norm": (lambda: mlp(norm=True), "0", (4,)),
    "last layer": (lambda: mlp(norm=True), "3", (4,)),
    "two layers": (lambda: mlp(norm=True), ("0", "3"), (4,)),
    "two layers of the paper's": (lambda: paper_cnn(10, width=20), ("head.0", "head.6"), (1, 28, 28)),
    "paper": (lambda: paper_cnn(10, width=20), "head.0", (1, 28, 28)),
    "residual": (Residual, "head.0", (1, 8, 8)),
}


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("name", NETWORKS)
def test_the_fast_way_equals_the_slow_one(name, training):
    torch.manual_seed(0)
    make, layer, shape = NETWORKS[name]
    network = noisify(make(), layer).double()
    x = torch.randn(6, *shape, dtype=torch.float64)
    network.train()(x, draws=3)  # running means that are not zero
    network.train(training)
    noise = network.draw_noise(6, 4)
    before = copy.deepcopy(network)
    fast = network(x, noise=noise)
    slow = before(x.repeat_interleave(4, 0), noise=noise.reshape(24, 1, -1))
    assert fast.shape[:2] == (6, 4)
    assert torch.allclose(fast.flatten(0, 1), slow[:, 0], atol=1e-10)
    assert fast.var(1).min() > 0
    # The layer is that of the stacked input [x; z].
    noisy = network.noisy_layers[0]
    rows = torch.randn(5, noisy.in_features, dtype=torch.float64)
    z = torch.randn(5, 1, noisy.noise_dim, dtype=torch.float64)
    stacked = torch.cat([noisy.weight, noisy.noise_weight], 1)
    alone = NoisyNetwork(nn.Sequential(noisy), ["0"])
    assert torch.allclose(alone(rows, noise=z)[:, 0], torch.cat([rows, z[:, 0]], 1) @ stacked.T + noisy.bias)


def test_positions_of_an_observation_share_its_noise():
    network = noisify(nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 2)), "0")
    x = torch.randn(3, 7, 4)
    noise = network.draw_noise(3, 6)
    output = network(x, noise=noise)
    assert output.shape == (3, 6, 7, 2)
    assert torch.allclose(output[:, :, 2], network(x[:, 2], noise=noise), atol=1e-6)


def test_noise_for_one_row_serves_all():
    network = noisify(mlp(norm=True), "0").eval()
    x, noise = torch.randn(5, 4), torch.randn(1, 7, 2)
    assert torch.allclose(network(x, noise=noise), network(x, noise=noise.expand(5, -1, -1)))
    assert torch.allclose(network(x[:2], noise=noise), network(x, noise=noise)[:2], atol=1e-6)


def test_shared_draws_are_independent_inside_an_observation():
    """A layer that gives Z itself: every draw standard normal, those of one observation different and uncorrelated."""
    torch.manual_seed(0)
    network = noisify(nn.Sequential(nn.Linear(2, 1, bias=False)), "0", ratio=0.5)
    with torch.no_grad():
        network.noisy_layers[0].weight.zero_()
        network.noisy_layers[0].noise_weight.fill_(1.0)
        values = torch.cat([network(torch.zeros(200, 2), draws=8)[..., 0] for _ in range(800)])[::13]
    assert len(values) > 12_000
    assert abs(float(values.mean())) < 0.02
    assert float(values.std()) == pytest.approx(1.0, abs=0.02)
    correlation = torch.corrcoef(values.T) - torch.eye(8)
    assert float(correlation.abs().max()) < 0.04
    assert all(len(row.unique()) == 8 for row in values[:200])


@pytest.mark.parametrize("n", [1, 7, 16, 17, 100, 1000])
def test_neighbours_share_draws_where_there_are_many(n):
    network = noisify(nn.Sequential(nn.Linear(2, 1)), "0", ratio=0.5)
    values = network(torch.zeros(n, 2), draws=8)[..., 0]
    assert values.shape == (n, 8)
    assert len(values.unique()) <= 128
    assert len(values.unique()) == 8 * n or n > 16


def test_noise_at_several_layers_is_one_z():
    torch.manual_seed(0)
    network = noisify(mlp(norm=False), ["3", "0"], 0.5)
    assert network.noise_dims == [4, 2]
    x = torch.randn(300, 4)
    assert network(x, draws=5).shape == (300, 5, 3)
    noise = network.draw_noise(1, 1)
    moved = noise.clone()
    moved[..., :4] += 1.0  # at the last layer: the outputs move as one
    with torch.no_grad():
        change = network(x, noise=moved) - network(x, noise=noise)
    assert torch.allclose(change, change[:1].expand_as(change), atol=1e-5)
    with pytest.raises(GPSError, match="different"):
        noisify(mlp(norm=False), ["0", "0"])
    with pytest.raises(GPSError, match="no layer '9'"):
        noisify(mlp(norm=False), ["0", "9"])


def test_spread_is_alike_in_training_and_evaluation():
    torch.manual_seed(0)
    network = noisify(mlp(norm=True), "0")
    x = torch.randn(400, 4)
    for _ in range(60):
        network(x, draws=10)
    with torch.no_grad():
        trained = torch.stack([network.train()(x, draws=10).var(1).mean() for _ in range(60)]).mean()
        evaluated = torch.stack([network.eval()(x, draws=10).var(1).mean() for _ in range(60)]).mean()
    assert 0.9 < float(trained / evaluated) < 1.1


def test_trained_weights_are_kept_and_the_original_is_untouched():
    original = mlp(norm=False)
    before = copy.deepcopy(original.state_dict())
    network = noisify(original, "0", ratio=0.25)
    assert network.noise_dim == 1
    x = torch.randn(5, 4)
    assert torch.allclose(network(x, noise=torch.zeros(1, 1, 1))[:, 0], original(x))
    network(x, draws=2).sum().backward()
    assert isinstance(original[0], nn.Linear)
    assert not isinstance(original[0], NoisyLinear)
    assert all(torch.equal(value, before[name]) for name, value in original.state_dict().items())


def test_copies_pickles_and_state_dicts_are_the_network():
    network = noisify(Residual(), "head.0")
    x, noise = torch.randn(2, 1, 8, 8), torch.randn(2, 5, 2)
    expected = network.eval()(x, noise=noise)
    assert torch.equal(copy.deepcopy(network)(x, noise=noise), expected)
    assert torch.equal(pickle.loads(pickle.dumps(network))(x, noise=noise), expected)
    other = noisify(Residual(), "head.0").eval()
    other.load_state_dict(network.state_dict())
    assert torch.equal(other(x, noise=noise), expected)


def test_tied_weights_stay_tied():
    module = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4))
    module[2].weight = module[0].weight
    network = noisify(module, "2")
    assert network.module[2].weight is network.module[0].weight


def test_threads_share_a_network(threads):
    network = noisify(Residual(), ["head.0", "head.3"]).eval()
    calls = [(torch.randn(3, 1, 8, 8), network.draw_noise(1, 1 + number % 7)) for number in range(400)]
    one_by_one = [network(x, noise=noise) for x, noise in calls]
    network.tried = False  # so that the first calls try it, side by side
    together = threads.map(lambda call: network(call[0], noise=call[1]), calls)
    assert all(map(torch.equal, together, one_by_one))


def test_to_make_and_to_try_a_network_moves_nothing():
    module = Residual().train()
    state = torch.get_rng_state()
    network = noisify(module, "head.0", example=torch.zeros(2, 1, 8, 8))
    network.match_noise(torch.ones(5, 1, 8, 8))
    assert torch.equal(torch.get_rng_state(), state)
    assert all(part.training and not part._forward_pre_hooks for part in network.modules())
    assert network.module.norm.num_batches_tracked == 0


def test_a_network_of_the_users_own_file(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(
        "from torch import nn\n"
        "class Mine(nn.Module):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        "        self.body, self.fc = nn.Linear(6, 5), nn.Linear(5, 2)\n"
        "    def forward(self, x):\n"
        "        return self.fc(self.body(x.flatten(1)).relu())\n"
    )
    spec = importlib.util.spec_from_file_location("mine", path)
    mine = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(mine)
    assert noisify(mine.Mine(), "fc")(torch.randn(3, 2, 3), draws=4).shape == (3, 4, 2)


@pytest.mark.parametrize(
    ("make", "layer", "shape", "message"),
    [
        (lambda: mlp(norm=False), "head", (4,), r"no layer 'head'; affine layers in it: '0', '3'"),
        (lambda: nn.Sequential(nn.ReLU()), "0", (4,), "type ReLU"),
        (Twice, "layer", (4,), "called twice"),
        (Twice, "unused", (4,), "not called"),
        (Residual, "inner", (1, 8, 8), "skip connection"),
        (FixesRows, "layer", (4,), "must not fix the number of rows|cannot take noise"),
        (MixesRows, "layer", (4,), "mix rows"),
        (lambda: nn.Sequential(nn.LazyLinear(3)), "0", (4,), "one batch first"),
        (lambda: mlp(norm=False), "0", (5,), "fails on inputs of shape"),
    ],
)
def test_layers_that_cannot_take_noise_are_found(make, layer, shape, message):
    example = torch.randn(2, *shape)
    with pytest.raises(GPSError, match=message):
        noisify(make(), layer, example=example)
    if "layer" not in message:
        with pytest.raises(GPSError, match=message):
            noisify(make(), layer)(example, draws=2)


def test_bad_arguments_are_refused():
    shared = nn.Linear(4, 4)
    with pytest.raises(GPSError, match="several names"):
        noisify(nn.Sequential(shared, nn.ReLU(), shared), "0")
    with pytest.raises(GPSError, match="ratio"):
        noisify(mlp(norm=False), "0", ratio=0.0)
    with pytest.raises(GPSError, match=r"nn\.Module"):
        noisify(lambda x: x, "0")
    network = noisify(mlp(norm=False), "0")
    with pytest.raises(GPSError, match="already"):
        noisify(network.module, "0")
    with pytest.raises(GPSError, match="draws"):
        network(torch.zeros(2, 4), draws=0)
    with pytest.raises(GPSError, match="noise must have shape"):
        network(torch.zeros(2, 4), noise=torch.zeros(3, 1, 2))
    with pytest.raises(GPSError, match="no observations"):
        noisify(mlp(norm=False), "0")(torch.zeros(0, 4))
    network.check(torch.zeros(1, 4))
    assert network.training
    with pytest.raises(RuntimeError):
        network(torch.zeros(2, 9))
    assert network.module(torch.zeros(2, 4)).shape == (2, 3)  # what failed has left no noise


def test_kept_features_are_not_trained():
    torch.manual_seed(0)
    x = torch.randn(6, 1, 8, 8)
    network = noisify(Residual(), "head.0")
    network.keep_features(x)
    assert network.trained == {"head.0", "head.1", "head.2", "head.3"}
    before = {name: value.clone() for name, value in network.state_dict().items()}
    network.train()
    assert not network.module.norm.training
    assert network.module.head[1].training
    network(x, draws=4).square().mean().backward()
    trained = {name for name, parameter in network.named_parameters() if parameter.grad is not None}
    assert trained == {name for name, _ in network.named_parameters() if name.startswith("module.head.")}
    torch.optim.SGD([p for p in network.parameters() if p.requires_grad], lr=0.1).step()
    moved = {name for name, value in network.state_dict().items() if not torch.equal(value, before[name])}
    assert moved
    assert all(name.startswith("module.head.") for name in moved)  # nor have the statistics of conv's norm
    assert not network.eval().module.head[1].training


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e3])
def test_noise_is_matched_to_the_size_of_the_features(scale):
    torch.manual_seed(0)
    x = scale * torch.randn(500, 40) + 5.0 * scale
    network = noisify(nn.Sequential(nn.Linear(40, 60), nn.BatchNorm1d(60), nn.Linear(60, 30)), ["0", "2"], ratio=0.5)
    network.train()
    network.match_noise(x)
    assert network.training
    first = network.noisy_layers[0]
    over_inputs = network.module[0](x).var(0).mean()
    over_draws = (network.module[0].noise_scale * torch.randn(2000, 20) @ first.noise_weight.T).var(0).mean()
    assert (over_draws / over_inputs).item() == pytest.approx(0.5, rel=0.15)
    # A step moves both kinds of weights alike.
    network(x, draws=4).square().sum().backward()
    assert 0.2 < (first.noise_weight.grad.std() / (first.weight.grad - first.weight.grad.mean(1, True)).std()) < 5.0


def test_noise_beside_constant_features_is_left_alone():
    network = noisify(nn.Sequential(nn.Linear(4, 3)), "0")
    before = network.noisy_layers[0].noise_weight.detach().clone()
    network.match_noise(torch.ones(20, 4))
    assert torch.equal(network.noisy_layers[0].noise_weight, before)
    assert network.noisy_layers[0].noise_scale == 1.0


def test_networks_that_were_saved_without_a_size_of_the_noise_are_read():
    network = noisify(nn.Sequential(nn.Linear(4, 3)), "0")
    weights = network.state_dict()
    del weights["module.0.noise_scale"]
    again = noisify(nn.Sequential(nn.Linear(4, 3)), "0")
    again.match_noise(torch.randn(20, 4))
    again.load_state_dict(weights)
    assert again.noisy_layers[0].noise_scale == 1.0
    assert torch.equal(again.noisy_layers[0].noise_weight, network.noisy_layers[0].noise_weight)
