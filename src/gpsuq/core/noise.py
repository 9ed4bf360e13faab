r"""Noise inputs for networks: :func:`noisify` turns any ``nn.Module`` into a generator G(x, Z).

The noise enters beside the input of an affine layer, :math:`W [x; z] + b = W_x x + W_z z + b`. Everything before that
layer runs once per observation; from there on each observation is M rows, one for each draw. A layer that normalises
over the batch then sees all draws, in training as in evaluation.

Noise belongs to a call and not to a layer, so that several threads can share one network.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor, nn

from gpsuq.core.familiarity import Familiarity
from gpsuq.core.noisy_layer import NoisyLinear, Pass, checked_layer, current_pass
from gpsuq.core.seeds import random_block, unmoved
from gpsuq.errors import GPSError

_VECTORS = 128
_TRIED_ROWS, _TRIED_DRAWS = 3, 2
_TOLERANCE = 1e-3


@dataclass(frozen=True)
class Seen:
    """What a network makes of observations before there is noise: it is the same for all draws.

    ``entered`` (n, ...) is what enters the first noisy layer, ``strangeness`` (n,) is known where layers are watched;
    ``one`` are the inputs of one observation, which take a pass to that layer.

    >>> import torch
    >>> from gpsuq import noisify
    >>> network = noisify(torch.nn.Sequential(torch.nn.Linear(2, 4), torch.nn.ReLU(), torch.nn.Linear(4, 3)), "2")
    >>> x, noise = torch.randn(5, 2), torch.randn(1, 7, network.noise_dim)
    >>> outputs, seen = network.eval().judged(x, noise=noise)
    >>> torch.allclose(network.again(seen, noise=noise), outputs)
    True
    """

    one: tuple[Any, ...]
    entered: Tensor
    strangeness: Tensor | None

    def __getitem__(self, rows: Tensor) -> Seen:
        strangeness = None if self.strangeness is None else self.strangeness[rows]
        return Seen(self.one, self.entered[rows], strangeness)


class NoisyNetwork(nn.Module):
    """A network with a noise input, made by :func:`noisify`: ``network(x, draws=M)`` returns outputs (n, M, ...).

    ``module`` is the user's network with those layers replaced; it is trained, copied, pickled and saved as any other.

    >>> import torch
    >>> from torch import nn
    >>> from gpsuq import noisify
    >>> network = noisify(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3)), "2")
    >>> network.layers, network.noise_dim
    (('2',), 4)
    >>> noise = network.draw_noise(rows=1, draws=50)  # the same for all observations
    >>> network(torch.zeros(5, 4), noise=noise).shape
    torch.Size([5, 50, 3])
    >>> outputs, seen = network.judged(torch.zeros(5, 4), noise=noise)
    >>> seen.strangeness is None  # as long as no layer is watched
    True
    >>> bool(torch.equal(network.again(seen, noise=noise), outputs))  # all before the noise is not run again
    True

    Noise may enter at several layers. :meth:`check` tries them on a few observations:

    >>> both = noisify(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3)), ["0", "2"])
    >>> both.noise_dims, [layer.out_features for layer in both.noisy_layers], both.first_layer(torch.zeros(5, 4))
    ([2, 4], [8, 3], '0')
    >>> both.check(torch.zeros(5, 4))

    Of a network that was trained before, the layers in front of the noise can be kept as they are:

    >>> network.keep_features(torch.zeros(5, 4))
    >>> [name for name, weight in network.module.named_parameters() if weight.requires_grad]
    ['2.weight', '2.bias', '2.noise_weight']
    >>> network.train().module[0].training  # layers that are kept stay in evaluation
    False

    Noise of unit size may be next to nothing beside the features of such a network, or drown them. It can be given
    their size, as some observations show it:

    >>> network.match_noise(100.0 * torch.randn(200, 4))
    >>> bool(network.noisy_layers[0].noise_scale > 10.0)
    True
    """

    def __init__(self, module: nn.Module, layers: Sequence[str]) -> None:
        super().__init__()
        self.module, self.layers, self.tried = module, tuple(layers), False
        self.trained: frozenset[str] | None = None
        self.familiarity: Familiarity | None = None
        self.watched: tuple[str, ...] = ()

    @property
    def noisy_layers(self) -> list[NoisyLinear]:
        """The layers where noise enters."""
        return [cast(NoisyLinear, self.module.get_submodule(name)) for name in self.layers]

    @property
    def noise_dims(self) -> list[int]:
        """How many of Z's numbers enter at each layer."""
        return [layer.noise_dim for layer in self.noisy_layers]

    @property
    def noise_dim(self) -> int:
        """q, the dimension of Z."""
        return sum(self.noise_dims)

    @property
    def _where(self) -> str:
        return f"layer {self.layers[0]!r}" if len(self.layers) == 1 else f"layers {', '.join(map(repr, self.layers))}"

    def draw_noise(self, rows: int, draws: int, generator: torch.Generator | None = None) -> Tensor:
        """Draw Z for so many rows, (rows, draws, q); one row can serve all observations."""
        weight = self.noisy_layers[0].noise_weight
        shape = rows, draws, self.noise_dim
        return torch.randn(shape, generator=generator, device=weight.device, dtype=weight.dtype)

    def forward(self, *inputs: Any, draws: int = 1, noise: Tensor | None = None) -> Tensor:
        """Return the outputs of ``draws`` draws for each observation, (n, draws, ...).

        ``noise`` (n or 1, draws, q) takes the place of fresh draws. Those are shared by neighbours in a batch where it
        is large: an observation's own draws are independent, and about a hundred have to be drawn and multiplied.
        """
        if not self.tried:
            self.check(*inputs)
        n = len(inputs[0])
        if noise is None:
            if draws < 1:
                raise GPSError(f"draws must be at least 1, got {draws}")
            sharing = math.ceil(n * draws / _VECTORS)
            noise = self.draw_noise(math.ceil(n / sharing), draws)
        elif noise.dim() != 3 or noise.shape[0] not in (1, n) or noise.shape[2] != self.noise_dim:
            raise GPSError(f"noise must have shape ({n} or 1, draws, {self.noise_dim}), got {tuple(noise.shape)}")
        return self._passed(inputs, n, noise)[0]

    def judged(self, *inputs: Any, noise: Tensor) -> tuple[Tensor, Seen]:
        """Return outputs (n, draws, ...), and what the network made of each observation before its noise."""
        if not self.tried:
            self.check(*inputs)
        return self._passed(inputs, len(inputs[0]), noise)

    def again(self, seen: Seen, *, noise: Tensor) -> Tensor:
        """Return the outputs (n, draws, ...) of other draws for observations that were seen, in evaluation."""
        return self._passed(seen.one, seen.entered.shape[0], noise, seen)[0]  # len() would fix it in an export

    def features(self, *inputs: Any, layers: Sequence[str]) -> Tensor:
        """Return what enters some layers, in the order of their calls, in one row for each observation; without noise.

        Means over positions stand for an observation that has several.
        """
        found: list[Tensor] = []
        with ExitStack() as watching:
            for name in layers:
                watching.enter_context(entering(self.module, name, lambda features: found.append(_flat(features))))
            self.module(*inputs)
        return torch.cat(found, 1)

    def first_layer(self, *inputs: Any) -> str:
        """Return the name of the layer where noise enters first."""
        called: list[str] = []
        with ExitStack() as watching, torch.no_grad():
            for name in self.layers:
                watching.enter_context(entering(self.module, name, lambda _, name=name: called.append(name)))  # type: ignore[misc]
            self.module(*inputs)
        return called[0]

    def watch(self, layers: Sequence[str], familiarity: Familiarity) -> None:
        """Scale noise by how strange the features are that enter some layers, in evaluation: by 1 where familiar.

        None of the layers may be called behind the noise.
        """
        for name in set(layers) - set(self.watched):
            self.module.get_submodule(name).register_forward_pre_hook(self._seen)
        self.watched, self.familiarity = tuple(layers), familiarity

    def strangeness(self, *inputs: Any) -> Tensor:
        """Return how strange observations are, (n,), by the layers that are watched."""
        if self.familiarity is None:
            raise GPSError("the network does not know what is strange: no layer is watched")
        result: Tensor = self.familiarity(self.features(*inputs, layers=self.watched))
        return result

    def _seen(self, _: nn.Module, entered: tuple[Any, ...]) -> None:
        now = current_pass.get()
        if now is None or now.strangeness is not None or self.familiarity is None or self.training:
            return
        now.features.append(_flat(entered[0]))
        if len(now.features) == len(self.watched):
            now.strangeness = self.familiarity(torch.cat(now.features, 1))

    def _passed(self, inputs: tuple[Any, ...], n: int, noise: Tensor, seen: Seen | None = None) -> tuple[Tensor, Seen]:
        layers = self.noisy_layers
        now = Pass(dict(zip(layers, noise.split(self.noise_dims, -1), strict=True)))
        if seen is not None:
            now.strangeness, now.entered = seen.strangeness, seen.entered
        before = current_pass.set(now)
        try:
            output = self.module(*inputs)
        finally:
            current_pass.reset(before)
        for name, layer in zip(self.layers, layers, strict=True):
            if layer not in now.called:
                raise GPSError(f"layer {name!r} is not called by the network's forward: choose another one")
        draws = noise.shape[1]
        if not isinstance(output, Tensor) or output.dim() < 1 or len(output) != n * draws:
            shape = tuple(output.shape) if isinstance(output, Tensor) else type(output).__name__
            raise GPSError(
                f"the network must give one row for each of the {n * draws} rows behind {self._where}, it gave "
                f"{shape}: its layers behind the noise must not fix the number of rows"
            )
        assert now.entered is not None  # all layers were called
        one = tuple(value[:1] if isinstance(value, Tensor) else value for value in inputs)
        return output.reshape(n, draws, *output.shape[1:]), Seen(one, now.entered, now.strangeness)

    def _on_trial(self) -> NoisyNetwork:
        """Return a copy in evaluation with the same weights: to try it leaves modes and hooks of the network alone."""
        weights = {id(tensor): tensor for tensor in (*self.parameters(), *self.buffers())}
        return copy.deepcopy(self, cast(dict[int, Any], weights)).eval()

    def check(self, *inputs: Any) -> None:
        """Pass a few observations, and compare with the slow way: the input repeated, one draw each.

        Raise where the noise cannot enter at this layer: it is not called, called twice, bypassed by a skip connection,
        or the layers behind it mix rows.
        """
        few = tuple(_some_rows(value) for value in inputs)
        n, draws, trial = len(few[0]), _TRIED_DRAWS, self._on_trial()
        noise = self.draw_noise(n, draws, random_block(0, "try", device=self.noisy_layers[0].noise_weight.device))
        repeated = tuple(v.repeat_interleave(draws, 0) if isinstance(v, Tensor) else v for v in few)
        with torch.no_grad():
            try:
                fast, _ = trial._passed(few, n, noise)
            except GPSError:
                raise
            except (RuntimeError, ValueError, IndexError) as error:
                _plain_pass(trial.module, few)  # the user's own mistake first
                raise GPSError(
                    f"{self._where} cannot take noise: behind it an observation is one row for each draw, "
                    f"and the network fails on that ({error}); is there a skip connection around the layer?"
                ) from error
            slow, _ = trial._passed(repeated, n * draws, noise.flatten(0, 1)[:, None])
        if not bool(torch.isfinite(slow).all()):
            raise GPSError("the network gives NaN or infinite outputs; check its weights and the scale of the inputs")
        size = slow.abs().max().clamp_min(1.0)
        if not bool(((fast.flatten(0, 1) - slow[:, 0]).abs() <= _TOLERANCE * size).all()):
            raise GPSError(
                f"{self._where} cannot take noise: the network gives other outputs when draws are passed "
                "together than one by one; is there a skip connection around the layer, or does a layer mix rows?"
            )
        self.tried = True

    def keep_features(self, *inputs: Any, head: str | None = None) -> None:
        """Freeze all that runs before a layer, the first with noise by default: only what follows learns from now on.

        What is frozen keeps its weights and the statistics of its normalisation, and drops nothing out. A pass of some
        ``inputs`` shows which layers those are.
        """
        self.check(*inputs)
        trial = self._on_trial()
        names = {module: name for name, module in trial.module.named_modules()}
        first = {*trial.noisy_layers} if head is None else {*trial.noisy_layers, trial.module.get_submodule(head)}
        reached: set[str] = set()

        def entering(module: nn.Module, _: Any) -> None:
            if reached or module in first:
                reached.add(names[module])

        for module in names:
            module.register_forward_pre_hook(entering)
        with torch.no_grad():
            trial.module(*(_some_rows(value) for value in inputs))
        self.trained = frozenset(reached)
        self.module.requires_grad_(False)
        for name in reached:
            self.module.get_submodule(name).requires_grad_(True)
        self.train(self.training)

    def match_noise(self, *inputs: Any) -> None:
        """Scale noise and its weights like the layer's own features, so that it enters as r p more of them would.

        Noise gets the standard deviation of the features over the ``inputs``, some hundred observations, and its
        weights the size of theirs. Noise weights then learn as fast as those, whatever the scale of the features; with
        noise of unit size beside small features they would learn faster by the square of the ratio, and drown them. A
        layer whose features do not vary is left as it is.
        """
        self.check(*inputs)
        trial = self._on_trial()

        def entering(layer: nn.Module, entered: tuple[Any, ...]) -> None:
            spreads[layer] = entered[0].flatten(0, -2).var(0, correction=0).mean().sqrt()

        spreads: dict[nn.Module, Tensor] = {}
        for layer in trial.noisy_layers:
            layer.register_forward_pre_hook(entering)
        with torch.no_grad():
            trial.module(*inputs)
            for layer in trial.noisy_layers:  # its tensors are those of the network
                if (spread := spreads[layer]) > 0.0:
                    layer.noise_scale.copy_(spread)
                    layer.noise_weight.mul_((layer.weight.square().mean() / layer.noise_weight.square().mean()).sqrt())

    def train(self, mode: bool = True) -> NoisyNetwork:
        """Switch between training and evaluation; layers whose features are kept stay in evaluation."""
        super().train(mode)
        if self.trained is not None:
            for name, module in self.module.named_modules():
                module.training = mode and name in self.trained
        return self


def _plain_pass(module: nn.Module, inputs: Sequence[Any]) -> None:
    try:
        module(*inputs)
    except (RuntimeError, ValueError, IndexError) as error:
        shapes = ", ".join(str(tuple(value.shape)) for value in inputs if isinstance(value, Tensor))
        raise GPSError(f"the network fails on inputs of shape {shapes}: {error}") from error


@contextmanager
def entering(module: nn.Module, layer: str, see: Callable[[Tensor], Any]) -> Iterator[None]:
    """Show the input of a layer to a function, which may return another one in a tuple."""
    handle = module.get_submodule(layer).register_forward_pre_hook(lambda _, entered: see(entered[0]))
    try:
        yield
    finally:
        handle.remove()


def _flat(entered: Tensor) -> Tensor:
    return entered if entered.dim() == 2 else entered.flatten(1, -2).mean(1)


def _some_rows(value: Any) -> Any:
    if not isinstance(value, Tensor):
        return value
    if len(value) == 0:
        raise GPSError("the network was given no observations")
    return value[torch.arange(_TRIED_ROWS, device=value.device) % len(value)]


def noisify(
    module: nn.Module, layer: str | Sequence[str], ratio: float = 0.5, *, example: Tensor | None = None
) -> NoisyNetwork:
    """Return a copy of a network with a noise input at the affine layer named ``layer``, or at several of them.

    Weights are kept, so that a trained network can be taken; the noise weights start as those of a new layer would:
    torch's generator decides them, and is left where it stands.

    Parameters
    ----------
    module
        Any network.
    layer
        Name of an ``nn.Linear`` in it, as ``named_modules`` gives it: ``"fc"``, ``"head.0"``; or a list of names.
    ratio
        The paper's r: q = r p noise numbers for a layer of p inputs, at least one.
    example
        A few observations to try the network on at once; otherwise the first ones that it sees serve for that.

    Examples
    --------
    >>> import torch
    >>> from torch import nn
    >>> from gpsuq import noisify
    >>> network = noisify(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3)), "2")
    >>> network(torch.zeros(5, 4), draws=10).shape
    torch.Size([5, 10, 3])
    """
    if not isinstance(module, nn.Module):
        raise GPSError(f"noisify takes an nn.Module, got {type(module).__name__}")
    if not ratio > 0:
        raise GPSError(f"ratio must be positive, got {ratio}")
    names = [layer] if isinstance(layer, str) else list(layer)
    if not names or len(set(names)) < len(names):
        raise GPSError(f"layer must name one layer or several different ones, got {layer!r}")
    widths = {name: checked_layer(module, name).in_features for name in names}
    network = with_noise(module, {name: max(1, round(ratio * width)) for name, width in widths.items()})
    if example is not None:
        network.check(example)
    return network


def affine_layers(module: nn.Module, *example: Any) -> list[str]:
    """Return the names of the affine layers at the end of a network where noise could enter, in the order of calls.

    From the last one back to the first behind which no layer mixes rows and around which there is no skip connection:
    the input of the first is what the network's head sees of an observation.

    >>> import torch
    >>> from torch import nn
    >>> affine_layers(nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten(), nn.Linear(8, 4), nn.ReLU(), nn.Linear(4, 3)),
    ...               torch.zeros(2, 1, 4, 4))
    ['2', '4']
    """
    called: list[str] = []
    trial = copy.deepcopy(module).eval()
    for name, layer in trial.named_modules():
        if type(layer).forward is nn.Linear.forward:
            layer.register_forward_pre_hook(lambda _, __, name=name: called.append(name))
    with torch.no_grad():
        _plain_pass(trial, [_some_rows(value) for value in example])
    found: list[str] = []
    for name in reversed(called):
        try:
            noisify(module, name).check(*example)
        except GPSError:
            break
        found.insert(0, name)
    if not found:
        raise GPSError("the network has no affine layer (nn.Linear) at its end where noise could enter")
    return found


def with_noise(module: nn.Module, noise_dims: Mapping[str, int]) -> NoisyNetwork:
    """Return a copy of a network with so many noise inputs at each named layer."""
    for name in noise_dims:
        checked_layer(module, name)
    network = NoisyNetwork(copy.deepcopy(module), tuple(noise_dims))
    with unmoved():
        for name, noise_dim in noise_dims.items():
            parent, _, child = name.rpartition(".")
            original = cast(nn.Linear, network.module.get_submodule(name))
            setattr(network.module.get_submodule(parent), child, NoisyLinear(original, noise_dim))
    return network
