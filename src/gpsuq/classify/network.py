"""What all network classifiers share: data in and training; :mod:`gpsuq.classify.judging` has what comes out."""

from __future__ import annotations

import copy
import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from lightning_fabric import Fabric
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from torch import Tensor, nn

from gpsuq.classify.decisions import (
    CERTAIN_ABOVE,
    UQC_LEVEL,
)
from gpsuq.classify.findings import Trained, setup_findings, training_findings
from gpsuq.classify.inputs import Mapped, is_loader, labels_of, takes_integers, warn_of_lost_digits
from gpsuq.classify.judging import JudgingClassifier
from gpsuq.classify.networks import default_network
from gpsuq.core.arrays import check_finite_rows
from gpsuq.core.seeds import seed_from, seeded, unmoved
from gpsuq.engine.fingerprint import fingerprint
from gpsuq.engine.fitting import validated, whole_or_not_at_all
from gpsuq.engine.loop import train
from gpsuq.engine.networks import Loss, NetworkTraining
from gpsuq.engine.progress import training_bar
from gpsuq.engine.ranks import fabric_or_default
from gpsuq.engine.settings import Recipe
from gpsuq.engine.sources import ArrayBatches, Batches, Labelled, LoaderBatches
from gpsuq.errors import GPSError

_FEW, _SOME = 3, 100  # observations to try a network on, and to see the size of its features
_FINDING_DRAWS = 20


class NetworkClassifier(JudgingClassifier, ClassifierMixin, BaseEstimator, ABC):  # type: ignore[misc]
    """A network whose class probabilities have draws; subclasses say what is trained, and what a draw is.

    Examples
    --------
    Any of them can be put in the place of another. Probabilities are means over draws;
    :mod:`gpsuq.classify.decisions` takes labels as numbers of classes.

    >>> import numpy as np
    >>> from gpsuq import GPSClassifier, Recipe
    >>> from gpsuq.classify.baselines import PlainClassifier
    >>> X = np.random.default_rng(0).normal(size=(100, 2))
    >>> for kind in (GPSClassifier, PlainClassifier):
    ...     model = kind(recipe=Recipe(epochs=2)).fit(X, X[:, 0] > 0)
    ...     model.sample_proba(X, n_draws=50).shape, model.predict_proba(X).shape, model.predict(X).shape
    ((100, 50, 2), (100, 2), (100,))
    ((100, 1, 2), (100, 2), (100,))
    >>> model.encoded([True, False])
    array([1, 0])
    >>> half = model.calibrate(X, X[:, 0] > 0, target=0.5, of="coverage")
    >>> half.uncertainty(X).to_frame()["uncertain"].mean().round(1)
    np.float64(0.5)
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "network": [nn.Module, callable, None],
        "recipe": [Recipe, None],
        "fabric": [Fabric, None],
        "progress": ["boolean"],
    }
    integers_: bool = False
    network_: nn.Module

    def __init__(
        self,
        network: nn.Module | Callable[[], nn.Module] | None = None,
        *,
        recipe: Recipe | None = None,
        fabric: Fabric | None = None,
        random_state: Any = 0,
        progress: bool = False,
    ) -> None:
        self.network, self.recipe, self.fabric = network, recipe, fabric
        self.random_state, self.progress = random_state, progress

    @abstractmethod
    def _made(self, network: nn.Module, example: Tensor) -> nn.Module:
        """Return the network that is trained."""

    @abstractmethod
    def _loss(self, recipe: Recipe) -> Loss:
        """Return the loss that is minimised."""

    # --- fitting -----------------------------------------------------------------------------------------------------

    @whole_or_not_at_all
    def fit(
        self,
        X: Any,
        y: Any = None,
        *,
        classes: ArrayLike | None = None,
        augment: Callable[[Tensor], Tensor] | None = None,
        checkpoint: str | Path | None = None,
    ) -> Any:
        """Train the network.

        Parameters
        ----------
        X, y
            Inputs (n, ...) and labels of any kind; or a ``DataLoader`` of pairs, and no y.
        classes
            Labels in the order of the network's outputs; by default those in the data, sorted.
        augment
            Changes the inputs of a batch at random, such as shifts and flips of images do.
        checkpoint
            Directory for a state after every epoch; a run that was stopped goes on from there.
        """
        seed = seed_from(self.random_state)
        recipe = Recipe() if self.recipe is None else self.recipe
        batches, example, counts = self._batches(X, y, classes, augment, recipe, seed)
        with seeded(seed, "init"):
            initial = self._initial(example)
            network = self._made(initial, like_weights(initial, example[:_SOME]))
        fabric = fabric_or_default(self.fabric)
        network = network.to(fabric.device)
        self._check_outputs(network, example)
        training = NetworkTraining(network, self._loss(recipe), batches, recipe, seed, fabric, self._about())
        with training_bar(self.progress) as advance:
            train(training, fabric, checkpoint=None if checkpoint is None else Path(checkpoint), on_step=advance)
        self._keep(network, training.losses_of_epochs, training.seconds, seed)
        with seeded(seed, "findings"):
            self.findings_ += setup_findings(self._trained(network, next(batches.epoch(0)), counts))
        return self

    def _trained(self, network: nn.Module, some: Labelled, counts: NDArray[np.intp]) -> Trained:
        """Return what the network makes of a batch."""
        draws = slice(0, self._available(_FINDING_DRAWS))
        with torch.no_grad():
            logits = self._logits(some.x, draws).float().cpu()
        return Trained(network, some.x, some.y, logits, self.classes_, counts)

    def _keep(self, network: nn.Module, losses: list[float], seconds: float, seed: int) -> None:
        self.network_, self.losses_, self.seconds_, self.seed_ = network, losses, seconds, seed
        self.uqc_level_, self.certain_above_ = UQC_LEVEL, CERTAIN_ABOVE
        self.findings_ = training_findings(losses)

    def _take_over(self, other: NetworkClassifier) -> None:
        """Replace what an earlier fit learned, such as names of columns, by what another classifier did."""
        kept = {name: value for name, value in vars(self).items() if not name.endswith("_")}
        learned = {name: value for name, value in vars(other).items() if name.endswith("_")}
        self.__dict__ = kept | learned

    def _take_members(self, members: Sequence[NetworkClassifier]) -> None:
        """Hold the networks of several classifiers, trained on the same classes, and what the first of them learned."""
        first = members[0]
        if any(list(member.classes_) != list(first.classes_) for member in members):
            raise GPSError("the members must know the same classes")
        self._take_over(first)
        networks = nn.ModuleList(member.network_ for member in members)
        self._keep(networks, first.losses_, sum(member.seconds_ for member in members), first.seed_)
        self.findings_ = list({finding.code: finding for member in members for finding in member.findings_}.values())

    def _about(self) -> str:
        """Describe what decides the training beside network, data, recipe and seed."""
        return type(self).__name__

    def _initial(self, example: Tensor) -> nn.Module:
        """Return a copy of the user's network, one that their function makes, or the default one for tables."""
        if self.network is None:
            if example.dim() == 2:
                return default_network(example, len(self.classes_))
            raise GPSError(f"inputs of shape {tuple(example.shape[1:])} need a network of their own: pass network=...")
        made = copy.deepcopy(self.network) if isinstance(self.network, nn.Module) else self.network()
        if not isinstance(made, nn.Module):
            raise GPSError(f"network must be an nn.Module or make one, it made a {type(made).__name__}")
        return made

    def _batches(
        self, X: Any, y: Any, classes: ArrayLike | None, augment: Any, recipe: Recipe, seed: int
    ) -> tuple[Batches, Tensor, NDArray[np.intp]]:
        """Check the data and learn the classes; return batches, some inputs as an example, and counts of classes."""
        if y is None and is_loader(X):
            if augment is not None:
                raise GPSError("augment is for arrays; let the dataset of your DataLoader augment")
            with seeded(seed, "scan"):
                return self._loader_batches(X, classes, seed)
        x = self._inputs(X, reset=True)
        labels = labels_of(y, len(x))
        self._set_classes(np.unique(labels) if classes is None else np.asarray(classes))
        encoded = self._encoded(labels)
        batches = ArrayBatches(x, torch.from_numpy(encoded), recipe.batch_size, seed, augment)
        example = x if isinstance(x, Tensor) else x[:_SOME]
        return batches, example, np.bincount(encoded, minlength=len(self.classes_))

    def _loader_batches(
        self, loader: Iterable[Any], classes: ArrayLike | None, seed: int
    ) -> tuple[Batches, Tensor, NDArray[np.intp]]:
        """Pass through a loader once: check it, learn its classes, count its batches."""
        example, found, seen = None, [], hashlib.blake2b(digest_size=16)
        for number, item in enumerate(loader):
            if not isinstance(item, (tuple, list)) or len(item) != 2 or not isinstance(item[0], Tensor):
                raise GPSError("the DataLoader must yield pairs (inputs, labels) of tensors")
            x, y = item
            if not bool(torch.isfinite(x).all()):
                raise GPSError(f"batch {number} of the DataLoader has NaN or infinite values in its inputs")
            if example is None:
                self._learn_type(x[:_FEW])
                warn_of_lost_digits(x, None)
                example = x.to(self._input_type)
            found.append(labels_of(y, len(x)))
            seen.update(fingerprint((x, found[-1])).encode())
        if example is None:
            raise GPSError("the DataLoader yields nothing: check its dataset and batch size")
        names, counts = np.unique(np.concatenate(found), return_counts=True)
        self._set_classes(names if classes is None else np.asarray(classes))
        self.input_shape_ = tuple(example.shape[1:])
        self.n_features_in_ = int(np.prod(self.input_shape_))
        n_batches = sum(len(labels) > 1 for labels in found)
        # What a loader changes at random, by numbers that torch does not seed, cannot tell data from others.
        digest = f"{seen.hexdigest()} in {counts}" if _repeats(loader, example, seed) else f"{counts}"

        def encode(y: Any) -> Tensor:
            return torch.from_numpy(self._encoded(labels_of(y, len(y))))

        of_classes = np.bincount(self._encoded(np.concatenate(found)), minlength=len(self.classes_))
        return LoaderBatches(loader, encode, n_batches, digest, seed, self._input_type), example, of_classes

    def _learn_type(self, few: Any) -> None:
        """Learn from some inputs whether the network takes integers."""
        self.integers_ = takes_integers(self.network, torch.as_tensor(few))

    @property
    def _input_type(self) -> torch.dtype:
        return torch.int64 if self.integers_ else torch.float32

    def _set_classes(self, classes: NDArray[Any]) -> None:
        if classes.ndim != 1 or len(np.unique(classes)) != len(classes):
            raise GPSError(f"classes must be a list of different labels, got {classes.tolist()}")
        if len(classes) < 2:
            raise GPSError(f"y has one class only ({classes.tolist()[0]!r}); a classifier needs at least 2 classes")
        self.classes_ = classes

    def _encoded(self, labels: NDArray[Any]) -> NDArray[np.int64]:
        known = self.classes_.tolist()
        numbers = {label: number for number, label in enumerate(known)}
        found = np.array([numbers.get(label, -1) for label in labels.tolist()], dtype=np.int64)
        if (found < 0).any():
            row = int(found.argmin())
            raise GPSError(f"label {labels.tolist()[row]!r} in row {row} is none of the classes {known}")
        return found

    def _inputs(self, X: Any, *, reset: bool = False) -> Tensor | Mapped:
        """Check inputs (n, ...), or those of a ``DataLoader``, and return them as a tensor of floats.

        Integers stay what they are for a network that takes nothing else. An array of images in a file
        (``numpy.memmap``) stays there.
        """
        if is_loader(X):
            with unmoved():  # a DataLoader draws a seed even where it does not shuffle
                X = torch.cat([item[0] if isinstance(item, (tuple, list)) else item for item in X])
        if isinstance(X, Tensor):
            X = X.detach().cpu().numpy()
        if not hasattr(X, "ndim"):
            X = np.asarray(X)
        if isinstance(X, np.memmap) and X.ndim > 2:
            X = Mapped(X)
        if reset:
            rows = X.array if isinstance(X, Mapped) else X
            few = np.array(rows[:_FEW]) if isinstance(rows, np.ndarray) or hasattr(rows, "iloc") else np.zeros(1)
            self._learn_type(few if few.dtype.kind in "iu" else np.zeros(1))
        dtype: type[np.generic] = np.int64 if self.integers_ else np.float32
        if X.ndim <= 2:
            table, kind = X, None if self.integers_ else dtype
            X = validated(self, X, reset=reset, dtype=kind, accept_sparse=False, ensure_min_samples=1)
            if reset:
                warn_of_lost_digits(table, getattr(self, "feature_names_in_", None))
        array = X.array if isinstance(X, Mapped) else np.asarray(X)
        if array.dtype.kind not in "biuf":
            raise GPSError(f"X must hold numbers, got {array.dtype}")
        if self.integers_ and array.dtype.kind not in "iu":
            raise GPSError(f"X must hold integers, as the network takes nothing else, got {array.dtype}")
        if len(X) == 0:
            raise GPSError("X holds no observations")
        result: Tensor | Mapped
        if isinstance(X, Mapped):
            result = Mapped(X.array, dtype, X.rows)
            result.check()
        else:
            array = np.array(array, dtype=dtype)  # a copy: the user's may be read-only
            check_finite_rows("X", array.reshape(len(array), -1))
            result = torch.from_numpy(array)
        shape = array.shape[1:]
        if reset:
            self.input_shape_, self.n_features_in_ = shape, int(np.prod(shape))
            if len(shape) > 1:
                self.__dict__.pop("feature_names_in_", None)  # of an earlier fit to a table
        elif shape != self.input_shape_:
            raise GPSError(f"an observation has shape {shape}, the network was trained on {self.input_shape_}")
        return result

    def _check_outputs(self, network: nn.Module, example: Tensor) -> None:
        few, training = like_weights(network, example[:_FEW]), network.training
        with torch.no_grad(), unmoved():
            try:
                output = network.eval()(few)
            except (RuntimeError, ValueError, IndexError) as error:
                raise GPSError(f"the network fails on inputs of shape {tuple(few.shape)}: {error}") from error
        network.train(training)
        if not isinstance(output, Tensor) or output.shape[:-1] not in ((len(few),), (len(few), 1)):
            raise GPSError("the network must give one row of class scores (logits) for each observation")
        width, wanted = output.shape[-1], len(self.classes_)
        if width != wanted:
            raise GPSError(f"the network has {width} outputs for {wanted} classes; they must be as many")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.three_d_array = True
        tags.non_deterministic = False
        return tags


def _repeats(loader: Iterable[Any], example: Tensor, seed: int) -> bool:
    """Whether a loader that is opened again with the same seed begins with the same inputs."""
    with seeded(seed, "scan"):
        first = next(iter(loader), None)
    return first is not None and torch.equal(first[0].to(example.dtype), example)


def like_weights(network: nn.Module, x: Tensor) -> Tensor:
    """Move inputs to the device and floating-point type of the network's weights; integers stay integers."""
    weight = next(network.parameters(), None)
    if weight is None:
        return x
    return x.to(weight.device, weight.dtype if x.is_floating_point() else x.dtype)
