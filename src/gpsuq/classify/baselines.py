"""What a classifier with draws is compared to: the plain network, Monte Carlo dropout, an ensemble; same interface."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from numbers import Integral
from typing import Any, ClassVar, cast

import torch
from lightning_fabric import Fabric
from sklearn.utils._param_validation import Interval
from torch import Tensor, nn

from gpsuq.classify.network import NetworkClassifier, like_weights
from gpsuq.core.seeds import derive_seed, random_block, seed_from
from gpsuq.engine.fitting import whole_or_not_at_all
from gpsuq.engine.networks import Loss
from gpsuq.engine.parallel import independent
from gpsuq.engine.ranks import fabric_or_default
from gpsuq.engine.settings import Recipe
from gpsuq.errors import GPSError


class PlainClassifier(NetworkClassifier):
    """The network as it is, trained by cross-entropy; its one draw is the softmax response.

    Parameters are those of :class:`gpsuq.GPSClassifier` that do not concern noise.

    >>> import numpy as np
    >>> from gpsuq import Recipe
    >>> from gpsuq.classify.baselines import PlainClassifier
    >>> X = np.random.default_rng(0).normal(size=(200, 2))
    >>> model = PlainClassifier(recipe=Recipe(epochs=20)).fit(X, X[:, 0] > 0)
    >>> model.predict([[-2.0, 0.0], [2.0, 0.0]])
    array([False,  True])
    """

    _most_draws: float = 1

    def _made(self, network: nn.Module, example: Tensor) -> nn.Module:
        return network

    def _loss(self, recipe: Recipe) -> Loss:
        return lambda network, x, y: nn.functional.cross_entropy(network(x), y)

    def _logits(self, x: Tensor, draws: slice) -> Tensor:
        logits: Tensor = self.network_(like_weights(self.network_, x))
        return logits[:, None]


class DropoutClassifier(PlainClassifier):
    """Monte Carlo dropout: a draw is the network with some nodes left out, the same ones for all observations.

    The network needs ``nn.Dropout`` layers. Everything before the first one runs once per observation.

    >>> import numpy as np
    >>> from torch import nn
    >>> from gpsuq import Recipe
    >>> from gpsuq.classify.baselines import DropoutClassifier
    >>> X = np.random.default_rng(0).normal(size=(100, 2))
    >>> network = nn.Sequential(nn.Linear(2, 16), nn.ReLU(), nn.Dropout(0.5), nn.Linear(16, 2))
    >>> model = DropoutClassifier(network, recipe=Recipe(epochs=2)).fit(X, X[:, 0] > 0)
    >>> model.sample_proba(X, n_draws=50).shape
    (100, 50, 2)
    """

    _most_draws = math.inf

    def _made(self, network: nn.Module, example: Tensor) -> nn.Module:
        return DropoutNetwork(network)

    def _logits(self, x: Tensor, draws: slice) -> Tensor:
        network = cast(DropoutNetwork, self.network_)
        return network.sample(like_weights(network, x), draws, self.seed_)


class EnsembleClassifier(PlainClassifier):
    """Deep ensemble: ``n_members`` plain networks from different seeds, each of them a draw.

    :meth:`of` takes plain classifiers that were trained already.

    >>> import numpy as np
    >>> from gpsuq import Recipe
    >>> from gpsuq.classify.baselines import EnsembleClassifier, PlainClassifier
    >>> X = np.random.default_rng(0).normal(size=(100, 2))
    >>> model = EnsembleClassifier(n_members=3, recipe=Recipe(epochs=2)).fit(X, X[:, 0] > 0)
    >>> model.sample_proba(X).shape
    (100, 3, 2)
    >>> members = [PlainClassifier(recipe=Recipe(epochs=2), random_state=seed).fit(X, X[:, 0] > 0) for seed in (1, 2)]
    >>> EnsembleClassifier.of(members).sample_proba(X).shape
    (100, 2, 2)
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = PlainClassifier._parameter_constraints | {
        "n_members": [Interval(Integral, 2, None, closed="left")]
    }

    def __init__(
        self,
        network: Callable[[], nn.Module] | None = None,
        *,
        n_members: int = 5,
        recipe: Recipe | None = None,
        fabric: Fabric | None = None,
        random_state: Any = 0,
        progress: bool = False,
    ) -> None:
        super().__init__(network, recipe=recipe, fabric=fabric, random_state=random_state, progress=progress)
        self.n_members = n_members

    @whole_or_not_at_all
    def fit(self, /, X: Any, y: Any = None, **options: Any) -> EnsembleClassifier:
        """Train all members; the arguments are those of a plain network's."""
        if isinstance(self.network, nn.Module):
            raise GPSError("members start from different weights: pass a function that makes the network")
        if options.get("checkpoint") is not None:
            raise GPSError("train the members one by one with checkpoints, and join them with EnsembleClassifier.of")
        first = seed_from(self.random_state)
        shared = {name: getattr(self, name) for name in ("network", "recipe", "fabric", "progress")}
        seeds = [derive_seed(first, "member", number) >> 32 for number in range(self.n_members)]
        members = [PlainClassifier(**shared, random_state=seed) for seed in seeds]
        fit = partial(PlainClassifier.fit, **options)
        fabric_or_default(self.fabric)  # processes join before members are dealt out
        bar = "members" if self.progress else None
        return self._joined(independent(fit, [(member, X, y) for member in members], bar=bar))

    @classmethod
    def of(cls, members: Sequence[PlainClassifier]) -> EnsembleClassifier:
        """Join plain classifiers that were trained on the same classes."""
        if len(members) < 2:
            raise GPSError(f"an ensemble needs at least 2 members, got {len(members)}")
        first = members[0]
        return cls(first.network, n_members=len(members), recipe=first.recipe, random_state=0)._joined(members)

    def _joined(self, members: Sequence[PlainClassifier]) -> EnsembleClassifier:
        self._take_members(members)
        self.losses_ = []  # those of members are their own
        return self

    @property
    def _most_draws(self) -> int:  # type: ignore[override]
        return len(cast(nn.ModuleList, self.network_))

    def _logits(self, x: Tensor, draws: slice) -> Tensor:
        networks = cast(nn.ModuleList, self.network_)
        x = like_weights(networks, x)
        return torch.stack([network(x) for network in networks[draws.start : draws.stop]], 1)


@dataclass
class _Sampling:
    """One pass that samples: which draws, by which seed, and how many dropout layers were called so far."""

    draws: slice
    seed: int
    calls: int = 0

    def masks(self, p: float, shape: torch.Size) -> Tensor:
        """Return the masks of the layer that is called, (draw, ...), and go on to the next one."""
        blocks = [
            random_block(self.seed, "dropout", self.calls, draw) for draw in range(self.draws.start, self.draws.stop)
        ]
        self.calls += 1
        kept = torch.stack([torch.rand(shape, generator=block) for block in blocks])
        return (kept >= p).float() / (1.0 - p if p < 1.0 else 1.0)


_sampling: ContextVar[_Sampling | None] = ContextVar("sampling", default=None)


class _DrawnDropout(nn.Module):
    """Dropout whose masks are fixed for each draw in a pass that samples; the first call there makes rows of draws."""

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = p

    def forward(self, x: Tensor) -> Tensor:
        sampling = _sampling.get()
        if sampling is None:
            return nn.functional.dropout(x, self.p, self.training)
        first = sampling.calls == 0
        masks = sampling.masks(self.p, x.shape[1:])
        rows = x[:, None] if first else x.unflatten(0, (-1, len(masks)))
        return (rows * masks.to(x)).flatten(0, 1)

    def extra_repr(self) -> str:
        return f"p={self.p}"


class DropoutNetwork(nn.Module):
    """A copy of a network whose dropout layers can be sampled: :meth:`sample` returns (n, draw, class).

    >>> import torch
    >>> from torch import nn
    >>> from gpsuq.classify.baselines import DropoutNetwork
    >>> network = DropoutNetwork(nn.Sequential(nn.Linear(2, 16), nn.ReLU(), nn.Dropout(0.5), nn.Linear(16, 3)))
    >>> x = torch.randn(5, 2)
    >>> draws = network.sample(x, slice(0, 10), seed=0)
    >>> draws.shape, bool(torch.allclose(draws[:, 4:6], network.sample(x, slice(4, 6), seed=0)))
    (torch.Size([5, 10, 3]), True)
    """

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = copy.deepcopy(module)
        found = 0
        for parent in list(self.module.modules()):
            for name, child in parent.named_children():
                if type(child) is nn.Dropout:
                    setattr(parent, name, _DrawnDropout(child.p))
                    found += 1
                elif isinstance(child, nn.modules.dropout._DropoutNd):
                    raise GPSError(f"layer {name!r} is of type {type(child).__name__}; only nn.Dropout can be sampled")
        if found == 0:
            raise GPSError("the network has no nn.Dropout layer to sample")

    def forward(self, x: Tensor) -> Tensor:
        """Pass as the plain network does."""
        result: Tensor = self.module(x)
        return result

    def sample(self, x: Tensor, draws: slice, seed: int) -> Tensor:
        """Return the outputs of the draws with these numbers, (n, draw, ...); each leaves out nodes of its own."""
        before = _sampling.set(_Sampling(draws, seed))
        try:
            output: Tensor = self.module(x)
        except RuntimeError as error:
            raise GPSError(
                f"the network cannot be sampled ({error}): is there a skip connection around a dropout layer?"
            ) from error
        finally:
            _sampling.reset(before)
        return output.reshape(len(x), -1, *output.shape[1:])
