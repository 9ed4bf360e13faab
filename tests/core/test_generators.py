import pytest
import torch
from torch import nn

from gpsuq.core.generators import MLP, ChainLinear, FromModule, Generator, as_generator_spec
from gpsuq.core.parameters import DataScale, Location, ParameterMap, Real, Scale
from gpsuq.errors import GPSError

SCALE = DataScale(torch.tensor(0.0), torch.tensor(1.0), torch.tensor([1.0, 2.0]), torch.tensor([1.0, 4.0]))


def test_a_chain_does_not_depend_on_how_many_there_are():
    many, one = (MLP().build(3, n, SCALE, None, seed=5) for n in (4, 1))
    noise = torch.randn(4, 1, 6, 2)
    assert torch.allclose(many(noise, None)[:1], one(noise[:1], None), atol=1e-6)
    assert not torch.allclose(many(noise, None)[0], many(noise[:1].expand(4, -1, -1, -1), None)[1])


def test_a_layer_says_the_same_without_gradients():
    for n_out in (1, 2, 30):
        layer, inputs = ChainLinear(5, n_out, 3, 0, "any"), torch.randn(3, 7, 5)
        with torch.no_grad():
            assert torch.allclose(layer(inputs), inputs @ layer.weight + layer.bias, atol=1e-6)
        assert torch.allclose(layer(inputs), inputs @ layer.weight + layer.bias, atol=1e-6)


@pytest.mark.parametrize("hidden", [(), (8,)])
def test_gain_moves_the_last_layer_faster_from_the_same_start(hidden):
    plain, fast = (MLP(hidden, conditional=True, gain=gain).build(3, 2, SCALE, 2, seed=0) for gain in (1.0, 10.0))
    x, noise = torch.randn(1, 5, 1, 2), torch.randn(2, 5, 6, 2)
    assert torch.allclose(plain(noise, x), fast(noise, x), atol=1e-6)
    slow, quick = (torch.autograd.grad(body(noise, x).sum(), body.layers[-1].weight)[0] for body in (plain, fast))
    assert torch.allclose(10.0 * slow, quick, atol=1e-4)
    with pytest.raises(GPSError, match="gain"):
        MLP(gain=0.0)


def test_conditional_generator_equals_the_layer_on_concatenated_input():
    body = MLP(hidden=(8,), conditional=True).build(3, 2, SCALE, 2, seed=0)
    x, noise = torch.randn(1, 5, 1, 2), torch.randn(2, 5, 6, 2)
    raw = body(noise, x)
    assert raw.shape == (2, 5, 6, 3)
    standard = (x[0, 4, 0] - SCALE.x_center) / SCALE.x_scale
    first, last = body.layers
    hidden = (
        noise[1, 4, 2] @ first.weight[1] + first.bias[1, 0] + standard @ body.from_x.weight[1] + body.from_x.bias[1, 0]
    )
    expected = hidden.tanh() @ last.weight[1] + last.bias[1, 0]
    assert torch.allclose(raw[1, 4, 2], expected, atol=1e-6)
    shared = torch.randn(2, 1, 6, 2)
    assert torch.allclose(body(shared, x), body(shared.expand(-1, 5, -1, -1), x), atol=1e-6)


def test_shared_parameters_do_not_vary_with_the_noise():
    pm = ParameterMap({"a": Real(2), "b": Location(random=False), "c": Scale()}, None, SCALE)
    generator = Generator(MLP().build(pm.width(random=True), 3, SCALE, None, 0), pm, 3)
    values = generator(torch.randn(3, 1, 10, 2))
    assert list(values) == ["a", "b", "c"]
    assert values["b"].shape == (3, 1, 10)
    assert (values["b"].var(2) == 0).all()
    assert (values["c"].var(2) > 0).all()


def test_any_module_becomes_one_copy_per_chain():
    module = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 2))
    body = FromModule(module, noise_dim=3).build(2, 4, SCALE, None, seed=0)
    noise = torch.randn(1, 1, 5, 3).expand(4, -1, -1, -1)
    raw = body(noise, None)
    assert raw.shape == (4, 1, 5, 2)
    assert not torch.allclose(raw[0], raw[1])
    kept = FromModule(module, noise_dim=3, reinitialise=False).build(2, 2, SCALE, None, seed=0)
    assert torch.allclose(kept(noise[:2], None)[1], module(noise[0]))
    assert set(body.chain_of().values()) == {0, 1, 2, 3}


class Conditional(nn.Module):
    noise_dim = 3

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(5, 2)

    def forward(self, x, z):
        return self.layer(torch.cat([x.expand(*z.shape[:-1], -1), z], -1))


def test_a_module_that_takes_x_is_conditional():
    spec = as_generator_spec(Conditional())
    assert spec.conditional
    body = spec.build(2, 3, SCALE, 2, seed=0)
    assert body(torch.randn(3, 4, 5, 3), torch.randn(1, 4, 1, 2)).shape == (3, 4, 5, 2)


def test_bad_generators_are_named():
    with pytest.raises(GPSError, match="noise dimension"):
        as_generator_spec(nn.Linear(2, 2))
    with pytest.raises(GPSError, match="must be an nn"):
        as_generator_spec("mlp")
    with pytest.raises(GPSError, match="must return 5 numbers"):
        FromModule(nn.Linear(2, 3), 2).build(5, 1, SCALE, None, 0)
    with pytest.raises(GPSError, match="failed on noise"):
        FromModule(nn.Linear(4, 3), 2).build(3, 1, SCALE, None, 0)
    with pytest.raises(GPSError, match="at least 1"):
        MLP(noise_dim=0)
    with pytest.raises(GPSError, match="activation"):
        MLP(activation="gelu2")
    with pytest.raises(GPSError, match="needs covariates"):
        MLP(conditional=True).build(1, 1, SCALE, None, 0)


def _linear_generator(n_chains=3, spec=None, **options):
    from gpsuq.core.models import linear_regression

    scale = DataScale(torch.tensor(1.0), torch.tensor(2.0), torch.zeros(2), torch.tensor([0.5, 4.0]), 2)
    parameter_map = ParameterMap(linear_regression(**options).parameters, 2, scale)
    body = (spec or MLP(hidden=(8,))).build(parameter_map.width(random=True), n_chains, scale, 2, 0)
    return Generator(body, parameter_map, n_chains)


def test_selected_chains_generate_what_they_did():
    module = nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 3))
    for spec in (MLP(hidden=(8,)), FromModule(module, 2)):
        generator = _linear_generator(spec=spec)
        with torch.no_grad():
            generator.shared += torch.arange(3.0).reshape(3, 1, 1, 1)
        noise = torch.randn(1, 1, 4, 2)
        chosen = generator.select([2, 0, 2, 2])
        assert chosen.n_chains == 4
        whole = generator(noise.expand(3, -1, -1, -1))
        for name, value in chosen(noise.expand(4, -1, -1, -1)).items():
            assert torch.allclose(value, whole[name][[2, 0, 2, 2]])
        generator.shared.data.zero_()
        assert float(chosen.shared.detach().abs().max()) > 0  # a copy, not a view
