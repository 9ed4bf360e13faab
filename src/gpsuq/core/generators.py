"""Generators G(Z) and G(X, Z): noise to the raw numbers behind a model's parameters, for all chains at once.

Noise has shape (chain, 1 or observation, draw, noise_dim): 1 where the generator does not see x, so that one set of
draws serves the whole batch. Every weight carries a leading chain dimension; one chain is the same code.
"""

from __future__ import annotations

import copy
import functools
import inspect
import itertools
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from gpsuq.core.parameters import DataScale, ParameterMap
from gpsuq.core.seeds import random_block, seeded
from gpsuq.errors import GPSError

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "tanh": torch.tanh,
    "relu": torch.relu,
    "silu": nn.functional.silu,
}

# A shared value is one number, where a network's output moves with thousands of weights: it has to go faster.
_SHARED_GAIN = 10.0
_NARROW = 8  # outputs of a layer for which products of matrices are slow


def even_normals(shape: Sequence[int], like: Tensor) -> Tensor:
    """Return noise (chain, observation, draw, q) whose draws are spread evenly, each of them standard Normal by itself.

    The draws of a chain and observation are a Sobol sequence that is shifted at random: means over draws are then far
    less noisy than those of independent ones, best of all if their number is a power of two.

    >>> noise = even_normals((1, 1, 1024, 2), torch.empty(0))
    >>> bool((noise.mean(2).abs() < 0.01).all())
    True
    """
    *lead, n_draws, width = shape
    shift = torch.rand(*lead, 1, width, dtype=like.dtype, device=like.device)
    level = (shift + _sobol(n_draws, width).to(like)).frac()
    edge = torch.finfo(like.dtype).eps
    noise: Tensor = torch.special.ndtri(level.clamp(edge, 1.0 - edge))
    return noise


@functools.lru_cache
def _sobol(count: int, width: int) -> Tensor:
    return torch.quasirandom.SobolEngine(width).draw(count, dtype=torch.float64)


class ChainBody(nn.Module, ABC):
    """A network from noise (and x) to raw numbers (chain, 1 or observation, draw, width)."""

    spec: GeneratorSpec
    noise_dim: int
    conditional: bool

    @abstractmethod
    def forward(self, noise: Tensor, x: Tensor | None) -> Tensor:
        """Map noise (and x, where the generator is conditional) to raw numbers."""

    @abstractmethod
    def select(self, chains: Sequence[int]) -> None:
        """Keep the named chains, in this order; one may be named several times."""

    def chain_of(self) -> dict[str, int | None]:
        """Return which chain owns each named parameter; None where its first dimension runs over chains, as here."""
        return dict.fromkeys((name for name, _ in self.named_parameters()), None)


class GeneratorSpec(ABC):
    """What kind of generator to build; its sizes are known only once the data are."""

    conditional: bool

    @abstractmethod
    def build(self, width: int, n_chains: int, scale: DataScale, n_features: int | None, seed: int) -> ChainBody:
        """Build the network for ``width`` raw numbers and ``n_chains`` chains."""


@dataclass(frozen=True)
class MLP(GeneratorSpec):
    """Multilayer perceptron G(Z), or G(X, Z) where ``conditional``.

    Parameters
    ----------
    hidden
        Widths of the hidden layers.
    noise_dim
        q, the dimension of Z.
    conditional
        Whether the generator sees x. Where it does not, all observations share the same law of parameters.
    activation
        ``"tanh"``, ``"relu"`` or ``"silu"``.
    gain
        Factor of the last layer, whose weights start as many times smaller: it learns as many times as fast.

    Examples
    --------
    One that sees x, with four noise inputs:

    >>> from gpsuq import MLP
    >>> MLP(hidden=(32, 32), noise_dim=4, conditional=True).noise_dim
    4
    """

    hidden: tuple[int, ...] = (64, 64, 64)
    noise_dim: int = 2
    conditional: bool = False
    activation: str = "tanh"
    gain: float = 1.0

    def __post_init__(self) -> None:
        if not 0.0 < self.gain < math.inf:
            raise GPSError(f"MLP: gain must be positive, got {self.gain}")
        if self.noise_dim < 1 or any(width < 1 for width in self.hidden):
            raise GPSError(f"MLP: noise_dim and all widths must be at least 1, got {self.noise_dim} and {self.hidden}")
        if self.activation not in ACTIVATIONS:
            raise GPSError(f"MLP: unknown activation {self.activation!r}; use one of {', '.join(ACTIVATIONS)}")

    def build(self, width: int, n_chains: int, scale: DataScale, n_features: int | None, seed: int) -> ChainBody:
        """Build the perceptron; each chain's weights depend on the seed and its own number only."""
        if self.conditional and n_features is None:
            raise GPSError("a conditional generator G(X, Z) needs covariates: call fit(X, y)")
        return _ChainMLP(self, width, n_chains, scale if self.conditional else None, n_features or 0, seed)


class ChainLinear(nn.Module):
    """Affine layer for every chain at once: weight (chain, in, out), bias (chain, 1, out)."""

    def __init__(self, n_in: int, n_out: int, n_chains: int, seed: int, name: str) -> None:
        super().__init__()
        bound = 1.0 / math.sqrt(n_in)
        blocks = [random_block(seed, f"init/{name}", chain) for chain in range(n_chains)]
        stacked = torch.stack([torch.rand(n_in + 1, n_out, generator=block) * (2 * bound) - bound for block in blocks])
        self.weight = nn.Parameter(stacked[:, :-1].clone())
        self.bias = nn.Parameter(stacked[:, -1:].clone())

    def forward(self, inputs: Tensor) -> Tensor:
        """Map (chain, rows, in) to (chain, rows, out)."""
        if self.weight.shape[2] < _NARROW and not torch.is_grad_enabled():
            # Five times as fast; gradients keep to the other way, so that steps of the same seed are those of before.
            return torch.baddbmm(self.bias.mT, self.weight.mT.contiguous(), inputs.mT).mT
        return torch.baddbmm(self.bias, inputs, self.weight)


class _ChainMLP(ChainBody):
    x_center: Tensor
    x_scale: Tensor

    def __init__(
        self, spec: MLP, width: int, n_chains: int, scale: DataScale | None, n_features: int, seed: int
    ) -> None:
        super().__init__()
        self.spec, self.noise_dim, self.conditional = spec, spec.noise_dim, scale is not None
        self.activation, self.gain = ACTIVATIONS[spec.activation], spec.gain
        widths = [spec.noise_dim, *spec.hidden, width]
        self.layers = nn.ModuleList(
            ChainLinear(n_in, n_out, n_chains, seed, str(depth))
            for depth, (n_in, n_out) in enumerate(itertools.pairwise(widths))
        )
        if scale is not None and scale.x_center is not None and scale.x_scale is not None:
            self.from_x = ChainLinear(scale.x_width or n_features, widths[1], n_chains, seed, "x")
            self.register_buffer("x_center", scale.x_center)
            self.register_buffer("x_scale", scale.x_scale)
        if spec.gain != 1.0:
            last = self.layers[-1] if spec.hidden else self
            with torch.no_grad():
                for parameter in last.parameters():
                    parameter.div_(spec.gain)

    def forward(self, noise: Tensor, x: Tensor | None) -> Tensor:
        n_chains, n_rows, n_draws, _ = noise.shape
        hidden: Tensor = self.layers[0](noise.reshape(n_chains, n_rows * n_draws, -1))
        if self.conditional and x is not None:
            # W [x; z] = Wx x + Wz z: the part that sees x is computed once per observation, not once per draw.
            flat = ((x - self.x_center) / self.x_scale).reshape(*x.shape[:2], -1)
            seen = self.from_x(flat.expand(n_chains, -1, -1))
            hidden = (hidden.reshape(n_chains, n_rows, n_draws, -1) + seen[:, :, None]).flatten(1, 2)
            n_rows = x.shape[1]
        for layer in self.layers[1:]:
            hidden = layer(self.activation(hidden))
        if self.gain != 1.0:
            hidden = self.gain * hidden
        return hidden.reshape(n_chains, n_rows, n_draws, -1)

    def select(self, chains: Sequence[int]) -> None:
        for parameter in self.parameters():
            parameter.data = parameter.data[list(chains)].clone()


@dataclass(frozen=True)
class FromModule(GeneratorSpec):
    """Any ``nn.Module`` of the user's as generator: ``module(z)``, or ``module(x, z)`` where ``conditional``.

    It sees noise of shape ``(rows, draws, noise_dim)`` and x of shape ``(rows, 1, *one_x)``; it returns ``(rows, draws,
    number of raw parameters)``. Each chain is a copy of its own, newly initialised where its layers can be; pass
    ``reinitialise=False`` to keep weights that were trained before.

    >>> from torch import nn
    >>> from gpsuq import FromModule
    >>> layers = nn.Sequential(nn.Linear(3, 16), nn.Tanh(), nn.Linear(16, 2))
    >>> FromModule(layers, noise_dim=3).conditional
    False
    """

    module: nn.Module
    noise_dim: int
    conditional: bool = False
    reinitialise: bool = True

    def build(self, width: int, n_chains: int, scale: DataScale, n_features: int | None, seed: int) -> ChainBody:
        """Copy the module for each chain and check what it returns."""
        body = _ChainStack(self, n_chains, seed)
        if self.conditional:
            return body
        dtype = next((p.dtype for p in self.module.parameters()), torch.get_default_dtype())
        try:
            with torch.no_grad():
                shape = tuple(body(torch.zeros(n_chains, 1, 2, self.noise_dim, dtype=dtype), None).shape)
        except (RuntimeError, TypeError) as error:
            raise GPSError(
                f"the generator failed on noise of shape (1, 2, {self.noise_dim}) (rows, draws, noise_dim): {error}"
            ) from error
        if shape != (n_chains, 1, 2, width):
            raise GPSError(f"the generator must return {width} numbers per draw, it returned shape {shape[1:]}")
        return body


class _ChainStack(ChainBody):
    def __init__(self, spec: FromModule, n_chains: int, seed: int) -> None:
        super().__init__()
        self.spec, self.noise_dim, self.conditional = spec, spec.noise_dim, spec.conditional
        self.copies = nn.ModuleList(copy.deepcopy(spec.module) for _ in range(n_chains))
        for chain, module in enumerate(self.copies if spec.reinitialise else ()):
            with seeded(seed, "init", chain):
                for layer in module.modules():
                    if callable(reset := getattr(layer, "reset_parameters", None)):
                        reset()

    def forward(self, noise: Tensor, x: Tensor | None) -> Tensor:
        if not self.conditional:
            return torch.stack([module(z) for module, z in zip(self.copies, noise, strict=True)])
        assert x is not None
        rows = noise.expand(-1, x.shape[1], -1, -1)
        each = x.expand(len(self.copies), *x.shape[1:])
        return torch.stack([module(xs, z) for module, xs, z in zip(self.copies, each, rows, strict=True)])

    def select(self, chains: Sequence[int]) -> None:
        self.copies = nn.ModuleList(copy.deepcopy(self.copies[chain]) for chain in chains)

    def chain_of(self) -> dict[str, int | None]:
        return {name: int(name.split(".")[1]) for name, _ in self.named_parameters()}


class Generator(nn.Module):
    """The whole way from noise to named parameters in the user's units: body, shared values, units.

    Parameters that do not vary with the noise are one learned value per chain.
    """

    shared: Tensor

    def __init__(self, body: ChainBody, parameter_map: ParameterMap, n_chains: int) -> None:
        super().__init__()
        self.body, self.parameter_map, self.n_chains = body, parameter_map, n_chains
        shared = torch.zeros(n_chains, 1, 1, parameter_map.width(random=False))
        if shared.numel():
            self.shared = nn.Parameter(shared)
        else:  # a parameter that no loss depends on would stall training in several processes
            self.register_buffer("shared", shared)

    @property
    def noise_dim(self) -> int:
        """q, the dimension of Z."""
        return self.body.noise_dim

    @property
    def conditional(self) -> bool:
        """Whether parameters depend on x."""
        return self.body.conditional

    def forward(self, noise: Tensor, x: Tensor | None = None) -> dict[str, Tensor]:
        """Map noise (chain, 1 or observation, draw, q) to parameters (chain, 1 or observation, draw, *shape)."""
        raw = self.body(noise, x if self.conditional else None)
        values: dict[str, Tensor] = self.parameter_map(raw, random=True)
        if self.shared.shape[-1]:
            shared = (_SHARED_GAIN * self.shared).expand(-1, 1, raw.shape[2], -1)
            values |= self.parameter_map(shared, random=False)
        return {name: values[name] for name in self.parameter_map.declared}

    def select(self, chains: Sequence[int]) -> Generator:
        """Return a copy that has the named chains, in this order; one may be named several times."""
        result = copy.deepcopy(self)
        result.body.select(chains)
        result.shared.data = result.shared.data[list(chains)].clone()
        result.n_chains = len(chains)
        return result

    def chain_views(self) -> Iterator[tuple[str, nn.Parameter, int | None]]:
        """Yield each parameter with its name and the chain that owns it, as :meth:`ChainBody.chain_of` has it."""
        owners = self.body.chain_of()
        for name, parameter in self.named_parameters():
            yield name, parameter, owners.get(name.removeprefix("body."))


def as_generator_spec(generator: GeneratorSpec | nn.Module | None) -> GeneratorSpec:
    """Return the declaration of a generator: the default perceptron for None, itself, or one made of a module."""
    if generator is None:
        return MLP()
    if isinstance(generator, GeneratorSpec):
        return generator
    if isinstance(generator, nn.Module):
        noise_dim = getattr(generator, "noise_dim", None)
        if not isinstance(noise_dim, int):
            raise GPSError(
                "a generator of your own needs its noise dimension: pass FromModule(module, noise_dim=...), "
                "or give the module an integer attribute noise_dim"
            )
        arguments = [p for p in inspect.signature(generator.forward).parameters.values() if p.default is p.empty]
        return FromModule(generator, noise_dim, conditional=len(arguments) > 1)
    raise GPSError(f"generator must be an nn.Module or a declaration such as MLP(), got {type(generator).__name__}")
