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
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

from gpsuq.classify.decisions import CERTAIN_ABOVE, joined, risk_coverage, wrong
from gpsuq.classify.export import write_onnx
from gpsuq.classify.findings import ALARMING, SETTLING, settling_findings, unsettled_finding
from gpsuq.classify.inputs import labels_of, set_aside
from gpsuq.classify.members import FOLDS, left_out, members_on_parts, trained_members
from gpsuq.classify.network import NetworkClassifier
from gpsuq.classify.noisy import NoisyClassifier
from gpsuq.classify.off_data import BOX, PatchSizes, patch_sizes, unlike_the_data
from gpsuq.classify.settling import best_temperature, combined_verdict
from gpsuq.core.losses import class_score, log_score, probability_spread
from gpsuq.core.seeds import seed_from
from gpsuq.engine.fitting import whole_or_not_at_all
from gpsuq.engine.networks import Loss
from gpsuq.engine.parallel import independent
from gpsuq.engine.progress import stage
from gpsuq.engine.ranks import fabric_or_default
from gpsuq.engine.settings import Recipe
from gpsuq.errors import GPSError, warn

SPREAD_WEIGHT = 0.05
"""Default price of spread at the data."""

SPREAD_WEIGHTS = (0.5, 0.2, 0.1, SPREAD_WEIGHT, 0.0, -0.05)
"""Weights of the spread that ``"auto"`` tries, the highest price first."""

OFF_DATA_SPREAD = 0.05
"""Default reward for spread at inputs unlike the data."""

OFF_DATA_SHARE = 0.1
"""How many inputs unlike the data a step has, for each observation."""

_VALIDATION_SHARE, _FEW_VALIDATION = 0.1, 50  # set aside: a tenth, or up to a fifth where that is fewer than 50
_MANY, _OF_A_CLASS = 20_000, 10  # rows above which, and of a class below which, one network is trained, not five
_FEWEST = 50  # observations of which some are set aside


class GPSClassifier(NoisyClassifier):
    r"""Classifier with random logits, :math:`\theta_i = G(x_i, Z_i)`: a network with a noise input at one layer.

    It is trained by a score of the labels under the predictive, the mixture over draws of Z. "Uncertain" is the verdict
    where the probability of the best class, times that of being no stranger to the training data, is too low: mistakes
    and strangers are told by one number. The paper's own form, whose verdict is by the spread over draws alone, is
    ``GPSClassifier(network, layer=None, spread="even", verdict="quantile", spread_weight=0, off_data_spread=0)``.

    Parameters
    ----------
    network
        Your network, which is copied and keeps its weights, or a function that makes a new one; None makes a perceptron
        for tables.
    layer
        Name of the affine layer where noise enters, or names of several; None takes the first one that can take it.
        ``"auto"`` does so where that layer sees the inputs themselves, as in a table, and takes the last hidden one
        behind other layers, such as convolutions: a draw costs next to nothing there.
    ratio
        Noise inputs for each input of that layer, the paper's r.
    loss
        ``"score"`` is the paper's kernel score of the labels; ``"log"`` is -log of the mean probability over draws.
    spread
        ``"distance"`` scales the noise, once the network is trained, by how strange the features at the head's input
        are beside those of the training (:mod:`gpsuq.core.familiarity`): draws spread off the data by construction.
        ``"even"`` gives all observations the same noise, as the paper does.
    verdict
        What a prediction must exceed to be certain. ``"combined"`` is the mean probability times that of being no
        stranger: how much strangeness counts, a temperature of the probabilities and a threshold (which leaves as many
        certain as the paper's) are settled by validation data, and no strangers are needed. ``"quantile"`` is the
        paper's criterion, the 5% quantile of a class over draws, with the threshold one half.
    members, how
        How many networks there are, whose draws are taken in turn, and what they are: ``"networks"`` are trained from
        different seeds, ``"snapshots"`` are one network after further short cycles of training, ``"heads"`` share the
        layers before the noise. Each of ``"parts"`` leaves a part of the rows out, which say how long to train all of
        them, where the recipe does not, and settle the verdict. None is five of these where ``network`` is None, up to
        20,000 rows, and at least 10 of a class; and one network otherwise. :meth:`of` joins classifiers that were
        trained already.
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
        the noise stays as it is (with ``layer="auto"``, before the first layer that could take it), and only what is
        behind is trained, so that a step costs less; noise has the size of the features.
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
        The trained network with its noise input; a ``ModuleList`` of several members.
    losses_, findings_
        Mean loss of every epoch, and what there is to say about the training, in plain words.
    spread_weight_, spread_path_
        The weight in use, and what it was chosen by (None where it was given).
    uqc_level_, certain_above_
        The verdict: certain where the largest criterion of a class, its ``uqc_level_`` quantile unless the verdict is
        combined, is above ``certain_above_``, one number or one for each class.
    temperature_, strangeness_weight_
        What logits are divided by, and the odds of a stranger that the combined verdict counts with (None in the
        paper's).

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

    Several members, and strangers that are told:

    >>> members = [GPSClassifier(members=1, random_state=seed).fit(X, y) for seed in (0, 1)]
    >>> both = GPSClassifier.of(members).settle(X[:800], y[:800], (X[800:], y[800:]))
    >>> len(both.networks_), bool(both.uncertainty([[9.0, 9.0]]).strangeness[0] > 5.0)
    (2, True)
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = NetworkClassifier._parameter_constraints | {
        "layer": [str, list, tuple, None],
        "loss": [StrOptions({"score", "log"})],
        "spread": [StrOptions({"even", "distance"})],
        "verdict": [StrOptions({"quantile", "combined"})],
        "members": [Interval(Integral, 1, None, closed="left"), None],
        "how": [StrOptions({"networks", "snapshots", "heads", "parts"})],
        "ratio": [Interval(Real, 0, None, closed="neither")],
        "spread_weight": [Interval(Real, None, None, closed="neither"), StrOptions({"auto"})],
        "off_data_spread": [Interval(Real, 0, 1, closed="left")],
        "off_data_patch": [Interval(Integral, 1, None, closed="left"), StrOptions({BOX}), list, tuple, None],
        "features": [StrOptions({"learn", "keep"})],
    }
    network_: nn.Module
    spread_path_: pd.DataFrame | None
    strangeness_weight_: float | None

    def __init__(
        self,
        network: nn.Module | Callable[[], nn.Module] | None = None,
        layer: str | Sequence[str] | None = "auto",
        *,
        ratio: float = 0.5,
        loss: Literal["score", "log"] = "score",
        spread: Literal["distance", "even"] = "distance",
        verdict: Literal["combined", "quantile"] = "combined",
        members: int | None = None,
        how: Literal["networks", "snapshots", "heads", "parts"] = "networks",
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
        self.loss, self.spread, self.verdict, self.members, self.how = loss, spread, verdict, members, how
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

        ``validation`` (X, y), which the network has not seen, serves to choose the spread weight and to settle how
        strange is strange and a combined verdict. Without it, members on parts are judged by the rows that they left
        out, and one network leaves a tenth out (up to a fifth, where that is fewer than 50). Of fewer than 50
        observations, or of a ``DataLoader``, nothing is left out: the verdict is then the paper's and knows no
        strangers, and ``findings_`` say so.
        """
        if self.features == "keep" and self.network is None:
            raise GPSError('features="keep" is for a network that was trained before: pass network=...')
        seed = seed_from(self.random_state)
        n_parts = self._n_parts(X, y)
        if y is not None and hasattr(X, "__len__"):
            self._inputs(X, reset=True)  # what is wrong is named by its place in all rows, not in those that are kept
        if n_parts:
            classes = np.unique(labels_of(y, len(X))) if classes is None else classes
        elif validation is None:
            X, y, validation = self._parted(X, y, seed)
        options: dict[str, Any] = {"classes": classes, "augment": augment}
        place = None if checkpoint is None else Path(checkpoint)
        self.temperature_, self.strangeness_weight_ = 1.0, None
        if self.spread_weight == "auto":
            assert validation is not None
            self._choose_spread_weight(X, y, validation, place, seed, options)
        else:
            self.spread_weight_, self.spread_path_ = float(self.spread_weight), None
            self._train(X, y, n_parts, place, seed, options)
        if self._settles and validation is not None:
            self._settle([(self, X, y, validation)])
        elif self._settles and n_parts:
            self._settle([(self._alone(k), *left_out(X, y, n_parts, k, seed)) for k in range(n_parts)])
        elif self._settles:
            self.findings_.append(unsettled_finding())
        for finding in self.findings_:
            if finding.code in ALARMING:
                warn(finding.message)
        return self

    @property
    def _settles(self) -> bool:
        """Whether validation data settles something after training."""
        return self.spread == "distance" or self.verdict == "combined"

    def _choose_spread_weight(
        self, X: Any, y: Any, validation: tuple[Any, Any], place: Path | None, seed: int, options: dict[str, Any]
    ) -> None:
        """Train for each of a few weights, and keep the one whose score ranks its mistakes best."""

        def tried(weight: float) -> tuple[float, GPSClassifier]:
            model = copy.copy(self)
            model.random_state, model.spread_weight_ = seed, weight
            with stage(f"spread weight {weight:g}"):
                model._train(X, y, 0, None if place is None else place / f"spread{weight:g}", seed, options)
                verdicts = model.uncertainty(validation[0])
            return risk_coverage(verdicts.uqc_shortfall, model._wrong(verdicts, validation[1])).area, model

        fabric_or_default(self.fabric)  # processes join before trainings are dealt out
        bar = "spread weights" if self.progress else None
        areas, models = zip(*independent(tried, [(weight,) for weight in SPREAD_WEIGHTS], bar=bar), strict=True)
        self._take_over(models[areas.index(min(areas))])  # on ties the higher price
        self.spread_path_ = pd.DataFrame({"aurc": areas}, index=pd.Index(SPREAD_WEIGHTS, name="spread_weight"))

    def _train(self, X: Any, y: Any, n_parts: int, place: Path | None, seed: int, options: dict[str, Any]) -> None:
        """Train the network, or all members."""
        if n_parts:
            self._join(members_on_parts(self, X, y, n_parts, place, seed, options))
        elif self.members in (1, None):
            NetworkClassifier.fit(self, X, y, checkpoint=place, **options)
        else:
            self._join(trained_members(self, X, y, place, seed, options))

    def _n_parts(self, X: Any, y: Any) -> int:
        """Return how many members there are that leave rows out, 0 for none."""
        if self.members is None and (self.network is not None or self.spread_weight == "auto"):
            return 0
        if y is None or not hasattr(X, "__len__") or len(X) < _FEWEST:
            return 0
        if self.members is not None:
            return self.members * (self.how == "parts" and self.members > 1)
        few = len(X) <= _MANY and len(X) >= _OF_A_CLASS * len(np.unique(labels_of(y, len(X))))
        return FOLDS if few else 0

    @classmethod
    def of(cls, members: Sequence[GPSClassifier]) -> GPSClassifier:
        """Join classifiers of one member each that were trained on the same classes.

        Their verdict is the paper's until :meth:`settle` is called.
        """
        if len(members) < 2 or any(len(member.networks_) != 1 for member in members):
            raise GPSError("at least 2 classifiers of one member each can be joined: fit them with members=1")
        model = copy.copy(members[0])
        model.members = len(members)
        model._join(members)
        return model

    def _join(self, models: Sequence[GPSClassifier]) -> None:
        self._take_members(models)
        self.temperature_, self.strangeness_weight_ = 1.0, None  # what was settled for one says nothing of all

    # --- what validation data settles ---------------------------------------------------------------------------------

    def settle(self, X: Any, y: Any, validation: tuple[Any, Any]) -> GPSClassifier:
        """Settle what ``spread`` and ``verdict`` ask for again; return the classifier.

        X and y are training data, or a ``DataLoader`` of them, and ``validation`` others: for a classifier that was
        joined from several, or whose validation data changed.
        """
        check_is_fitted(self)
        if not self._settles:
            raise GPSError('there is nothing to settle: set spread="distance" or verdict="combined"')
        self._settle([(self, X, y, validation)])
        return self

    def _settle(self, judges: Sequence[tuple[GPSClassifier, Any, Any, tuple[Any, Any]]]) -> None:
        """Settle by what judges, who were trained on X and y, say of validation data: all members, or each of its own.

        What is learned of a network's features is kept with the network, so that this classifier knows it too.
        """
        self.temperature_, self.strangeness_weight_ = 1.0, None
        self.findings_ = [finding for finding in self.findings_ if finding.code not in SETTLING]
        if self.spread == "distance":
            for judge, X, y, (aside, _) in judges:
                judge._learn_familiarity(X, y, judge._inputs(aside))
        if self.verdict == "combined":
            self.certain_above_ = CERTAIN_ABOVE
            logits = [judge._some_logits(judge._inputs(aside), self.encoded(y)) for judge, _, _, (aside, y) in judges]
            self.temperature_ = best_temperature(*(torch.cat(part) for part in zip(*logits, strict=True)))
            parts = []
            for judge, _, _, (aside, _) in judges:
                judge.temperature_, judge.strangeness_weight_ = self.temperature_, None
                judge.certain_above_ = CERTAIN_ABOVE
                parts.append(judge.uncertainty(aside))
            verdicts = joined(parts)
            errors = wrong(verdicts.mean, np.concatenate([self.encoded(y) for *_, (_, y) in judges]))
            self.strangeness_weight_, self.certain_above_ = combined_verdict(verdicts, errors)
            self.findings_ += settling_findings(len(errors), int(errors.sum()))

    def _alone(self, member: int) -> GPSClassifier:
        """Return a classifier of one member's network."""
        alone = copy.copy(self)
        alone.network_ = self.networks_[member]
        return alone

    @property
    def _temperature(self) -> float:  # type: ignore[override]
        return getattr(self, "temperature_", 1.0)

    @property
    def _strangeness_weight(self) -> float | None:  # type: ignore[override]
        return getattr(self, "strangeness_weight_", None)

    def export_onnx(self, path: str | Path, *, force: bool = False) -> Path:
        """Write the network for runtimes without torch: ``trunk.onnx``, ``head.onnx`` and ``verdict.json``.

        The trunk takes inputs (n, ...) to features, the head takes features and noise (draws, q) to logits
        (n, draws, class), of several members as many for each: noise is an input, and the trunk runs once.
        ``verdict.json`` has the classes, q, and what makes a prediction Certain. Both are compared with this network
        before anything is written.
        """
        check_is_fitted(self)
        verdict = {
            "classes": self.classes_.tolist(),
            "input_shape": list(self.input_shape_),
            "noise_dim": self.networks_[0].noise_dim,
            "temperature": self._temperature,
            "strangeness_weight": self._strangeness_weight,
            "uqc_level": self.uqc_level_,
            "certain_above": np.asarray(self.certain_above_).tolist(),
        }
        shape = tuple(self.input_shape_)
        return write_onnx(self.networks_, shape, verdict, Path(path), force, self._input_type)

    def _parted(self, X: Any, y: Any, seed: int) -> tuple[Any, Any, tuple[Any, Any] | None]:
        """Return the data to train on, and what is set aside of it, if anything has to be and can be."""
        chooses = self.spread_weight == "auto"
        if chooses or (self._settles and y is not None and hasattr(X, "__len__") and len(X) >= _FEWEST):
            if y is None:
                raise GPSError('with a DataLoader, spread_weight="auto" needs validation=(X, y)')
            return set_aside(X, y, _validation_share(len(X)), seed)
        return X, y, None

    def _about(self) -> str:
        patches = "" if self.off_data_patch is None else f" in patches of {self.off_data_patch}"
        kept = ", features kept" if self.features == "keep" else ""
        spread = f"spread weight {self.spread_weight_:g}, off the data {self.off_data_spread:g}{patches}"
        log = ", log" if self.loss == "log" else ""
        return f"{super()._about()}, {spread}{kept}{log}"

    def _loss(self, recipe: Recipe) -> Loss:
        spread_weight, off_data_spread, logarithmic = self.spread_weight_, self.off_data_spread, self.loss == "log"
        patch_sizes(self.off_data_patch)  # every size is checked before training
        scale = float(recipe.n_draws) if recipe.sum_over_draws else 1.0

        def loss(network: nn.Module, x: Tensor, y: Tensor) -> Tensor:
            n = len(x)
            strange = math.ceil(OFF_DATA_SHARE * n) if off_data_spread else 0
            inputs = torch.cat([x, self._off_data(x, strange)]) if strange else x
            every = network(inputs, draws=recipe.n_draws)
            logits = every[:n]
            if logarithmic:
                value = log_score(logits, y).mean()
            else:
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


def _validation_share(n: int) -> float:
    """Return which share of n observations is set aside."""
    return max(_VALIDATION_SHARE, min(2.0 * _VALIDATION_SHARE, _FEW_VALIDATION / max(n, 1)))
