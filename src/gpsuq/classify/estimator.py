"""A classifier that knows when it does not know, from any network."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from numbers import Integral, Real
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import pandas as pd
import torch
from lightning_fabric import Fabric
from sklearn.model_selection import train_test_split
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

from gpsuq.classify.decisions import risk_coverage
from gpsuq.classify.export import write_onnx
from gpsuq.classify.network import NetworkClassifier
from gpsuq.classify.off_data import BOX, PatchSizes, patch_sizes, unlike_the_data
from gpsuq.core.losses import class_score, probability_spread
from gpsuq.core.noise import NoisyNetwork, noisify
from gpsuq.core.seeds import random_block, seed_from
from gpsuq.engine.fitting import whole_or_not_at_all
from gpsuq.engine.networks import Loss
from gpsuq.engine.parallel import independent
from gpsuq.engine.progress import stage
from gpsuq.engine.ranks import fabric_or_default
from gpsuq.engine.settings import Recipe
from gpsuq.errors import GPSError

SPREAD_WEIGHT = 0.05
"""Default price of spread at the data."""

SPREAD_WEIGHTS = (0.5, 0.2, 0.1, SPREAD_WEIGHT, 0.0, -0.05)
"""Weights of the spread that ``"auto"`` tries, the highest price first."""

OFF_DATA_SPREAD = 0.05
"""Default reward for spread at inputs unlike the data."""

OFF_DATA_SHARE = 0.1
"""How many inputs unlike the data a step has, for each observation."""

_BLOCK = 50  # draws whose noise is made together, so that more draws begin with the same ones
_VALIDATION_SHARE = 0.1


class GPSClassifier(NetworkClassifier):
    r"""Classifier with random logits, :math:`\theta_i = G(x_i, Z_i)`: a network with a noise input at one layer.

    It is trained by the kernel score of the labels under the predictive, the mixture over draws of Z; the spread of the
    class probabilities over draws says how far a prediction can be trusted. "Uncertain" is the verdict where no class
    has a probability above one half in 95% of the draws.

    Parameters
    ----------
    network
        Your network, which is copied and keeps its weights, or a function that makes a new one; None makes a perceptron
        for tables.
    layer
        Name of the affine layer where noise enters, or names of several; None takes the first one.
    ratio
        Noise inputs for each input of that layer, the paper's r.
    spread_weight
        Price of the variance of the class probabilities over draws, at the data: the score does not see it. The higher
        the price, the fewer observations are Uncertain; a negative one rewards spread. ``"auto"`` trains one network
        for each of a few weights and keeps the one whose score ranks its mistakes on validation data best (area under
        the risk-coverage curve).
    off_data_spread
        Reward for the same variance at inputs unlike the data, which the score says nothing of: a tenth of every batch
        more, each number from another observation of it. With this and ``spread_weight`` at 0 it is the paper's loss.
    off_data_patch
        For images: take patches of so many pixels squared from other observations, not single numbers; ``"box"`` puts a
        box of another image into one that is whole otherwise. Of several sizes each gives a share of the inputs unlike
        the data; None is for single numbers.
    features
        ``"learn"`` trains the whole network. ``"keep"`` is for a network that was trained before: all that runs before
        the noise stays as it is, and only the layers behind it are trained, so that a step costs less; noise has
        the size of the features.
    recipe
        How to train; None is ``Recipe()``, :func:`~gpsuq.PaperRecipe` the paper's.
    fabric
        Device, precision and processes, as ``lightning_fabric.Fabric`` takes them; None is this CPU.
    random_state
        Seed; same seed, same machine, same numbers.
    progress
        Whether to show a progress bar.

    Attributes
    ----------
    classes_
        Labels, in the order of the probabilities.
    network_
        The trained network with its noise input.
    losses_, findings_
        Mean loss of every epoch, and what there is to say about the training, in plain words.
    spread_weight_, spread_path_
        The weight in use, and what it was chosen by (None where it was given).
    uqc_level_, certain_above_
        The verdict: certain where the largest ``uqc_level_`` quantile of a class is above ``certain_above_``, one
        number or one for each class.

    Examples
    --------
    >>> import numpy as np
    >>> from gpsuq import GPSClassifier
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(1000, 2))
    >>> y = np.where(X[:, 0] + 0.5 * rng.normal(size=1000) > 0, "right", "left")
    >>> model = GPSClassifier().fit(X, y)
    >>> model.predict([[2.0, 0.0]])
    array(['right'], dtype='<U5')
    >>> bool(model.predict_proba([[2.0, 0.0]])[0, 1] > 0.9)  # the mean of 200 draws, in the order of model.classes_
    True
    >>> model.sample_proba([[2.0, 0.0]], n_draws=50).shape
    (1, 50, 2)
    >>> model.uncertainty([[2.0, 0.0], [0.1, 0.0]]).uncertain
    array([False,  True])
    >>> model = model.calibrate(X, y, target=0.9, of="coverage")  # better by data that it was not trained on
    >>> round(float(model.uncertainty(X).uncertain.mean()), 1)
    0.1
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = NetworkClassifier._parameter_constraints | {
        "layer": [str, list, tuple, None],
        "ratio": [Interval(Real, 0, None, closed="neither")],
        "spread_weight": [Interval(Real, None, None, closed="neither"), StrOptions({"auto"})],
        "off_data_spread": [Interval(Real, 0, 1, closed="left")],
        "off_data_patch": [Interval(Integral, 1, None, closed="left"), StrOptions({BOX}), list, tuple, None],
        "features": [StrOptions({"learn", "keep"})],
    }
    network_: NoisyNetwork

    def __init__(
        self,
        network: nn.Module | Callable[[], nn.Module] | None = None,
        layer: str | Sequence[str] | None = None,
        *,
        ratio: float = 0.5,
        spread_weight: float | Literal["auto"] = SPREAD_WEIGHT,
        off_data_spread: float = OFF_DATA_SPREAD,
        off_data_patch: PatchSizes = None,
        features: Literal["learn", "keep"] = "learn",
        recipe: Recipe | None = None,
        fabric: Fabric | None = None,
        random_state: Any = 0,
        progress: bool = False,
    ) -> None:
        super().__init__(network, recipe=recipe, fabric=fabric, random_state=random_state, progress=progress)
        self.layer, self.ratio, self.features = layer, ratio, features
        self.spread_weight, self.off_data_spread, self.off_data_patch = spread_weight, off_data_spread, off_data_patch

    @whole_or_not_at_all
    def fit(
        self,
        X: Any,
        y: Any = None,
        *,
        classes: Any = None,
        augment: Callable[[Tensor], Tensor] | None = None,
        checkpoint: str | Path | None = None,
        validation: tuple[Any, Any] | None = None,
    ) -> GPSClassifier:
        """Train the network, as :meth:`NetworkClassifier.fit <gpsuq.classify.network.NetworkClassifier.fit>` does.

        ``validation`` (X, y) serves to choose the spread weight; without it, a tenth of the data is set aside for that.
        """
        if self.features == "keep" and self.network is None:
            raise GPSError('features="keep" is for a network that was trained before: pass network=...')
        options: dict[str, Any] = {"classes": classes, "augment": augment}
        if self.spread_weight != "auto":
            self.spread_weight_, self.spread_path_ = float(self.spread_weight), None
            return super().fit(X, y, checkpoint=checkpoint, **options)  # type: ignore[no-any-return]
        seed = seed_from(self.random_state)
        X, y, validation = self._split(X, y, seed) if validation is None else (X, y, validation)

        def tried(weight: float) -> tuple[float, GPSClassifier]:
            folder = None if checkpoint is None else Path(checkpoint) / f"spread{weight:g}"
            model = copy.copy(self)
            model.random_state, model.spread_weight_ = seed, weight
            with stage(f"spread weight {weight:g}"):
                NetworkClassifier.fit(model, X, y, checkpoint=folder, **options)
                verdicts = model.uncertainty(validation[0])
            return risk_coverage(verdicts.uqc_shortfall, model._wrong(verdicts, validation[1])).area, model

        fabric_or_default(self.fabric)  # processes join before trainings are dealt out
        bar = "spread weights" if self.progress else None
        areas, models = zip(*independent(tried, [(weight,) for weight in SPREAD_WEIGHTS], bar=bar), strict=True)
        self._take_over(models[areas.index(min(areas))])  # on ties the higher price
        self.spread_path_ = pd.DataFrame({"aurc": areas}, index=pd.Index(SPREAD_WEIGHTS, name="spread_weight"))
        return self

    def export_onnx(self, path: str | Path, *, force: bool = False) -> Path:
        """Write the network for runtimes without torch: ``trunk.onnx``, ``head.onnx`` and ``verdict.json``.

        The trunk takes inputs (n, ...) to features, the head takes features and noise (draws, q) to logits
        (n, draws, class): noise is an input, and the trunk runs once. ``verdict.json`` has the classes, q, and what
        makes a prediction Certain. Both are compared with this network before anything is written.
        """
        check_is_fitted(self)
        verdict = {
            "classes": self.classes_.tolist(),
            "input_shape": list(self.input_shape_),
            "noise_dim": self.network_.noise_dim,
            "uqc_level": self.uqc_level_,
            "certain_above": np.asarray(self.certain_above_).tolist(),
        }
        return write_onnx(self.network_, tuple(self.input_shape_), verdict, Path(path), force)

    def _split(self, X: Any, y: Any, seed: int) -> tuple[Any, Any, tuple[Any, Any]]:
        """Set a tenth of each class aside."""
        if y is None:
            raise GPSError('spread_weight="auto" with a DataLoader needs validation=(X, y)')
        try:
            rest, aside, y_rest, y_aside = train_test_split(
                X, y, test_size=_VALIDATION_SHARE, stratify=y, random_state=seed % 2**32
            )
        except ValueError as error:
            raise GPSError(f"a tenth of the data cannot be set aside ({error}); pass validation=(X, y)") from error
        return rest, y_rest, (aside, y_aside)

    def _about(self) -> str:
        patches = "" if self.off_data_patch is None else f" in patches of {self.off_data_patch}"
        kept = ", features kept" if self.features == "keep" else ""
        spread = f"spread weight {self.spread_weight_:g}, off the data {self.off_data_spread:g}{patches}"
        return f"{super()._about()}, {spread}{kept}"

    def _made(self, network: nn.Module, example: Tensor) -> nn.Module:
        noisy = self._noisy(network, example)
        if self.features == "keep":
            noisy.keep_features(example)
            noisy.match_noise(example)
        return noisy

    def _noisy(self, network: nn.Module, example: Tensor) -> NoisyNetwork:
        if isinstance(network, NoisyNetwork):
            network.check(example)
            return network
        layer = self.layer
        if layer is None:
            layer = next((name for name, item in network.named_modules() if isinstance(item, nn.Linear)), None)
        if layer is None:
            raise GPSError("the network has no affine layer (nn.Linear) where noise could enter")
        return noisify(network, layer, self.ratio, example=example)

    def _loss(self, recipe: Recipe) -> Loss:
        spread_weight, off_data_spread = self.spread_weight_, self.off_data_spread
        patch_sizes(self.off_data_patch)  # every size is checked before training
        scale = float(recipe.n_draws) if recipe.sum_over_draws else 1.0

        def loss(network: nn.Module, x: Tensor, y: Tensor) -> Tensor:
            n = len(x)
            strange = math.ceil(OFF_DATA_SHARE * n) if off_data_spread else 0
            inputs = torch.cat([x, self._off_data(x, strange)]) if strange else x
            every = network(inputs, draws=recipe.n_draws)
            logits = every[:n]
            value = class_score(logits, y, n_outcomes=recipe.n_outcomes).mean()
            if spread_weight:
                value = value + spread_weight * probability_spread(logits).mean()
            if strange:
                value = value - off_data_spread * probability_spread(every[n:]).mean()
            return scale * value

        return loss

    def _off_data(self, x: Tensor, count: int) -> Tensor:
        """Return so many inputs unlike those of a batch."""
        return unlike_the_data(x, count, patch_sizes(self.off_data_patch))

    def _logits(self, x: Tensor, draws: slice) -> Tensor:
        network = self.network_
        first, last = draws.start // _BLOCK, -(-draws.stop // _BLOCK)
        blocks = [
            torch.randn(_BLOCK, network.noise_dim, generator=random_block(self.seed_, "draws", block))
            for block in range(first, last)
        ]
        start = draws.start - first * _BLOCK
        noise = torch.cat(blocks)[start : start + draws.stop - draws.start]
        weight = network.noisy_layers[0].noise_weight
        result: Tensor = network(x.to(weight), noise=noise[None].to(weight))
        return result
