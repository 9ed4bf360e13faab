"""What a fitted network classifier says: draws of class probabilities, verdicts, and the threshold of those."""

from __future__ import annotations

import math
import numbers
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from gpsuq.classify.decisions import (
    ClassUncertainty,
    Flags,
    Threshold,
    assess,
    combined_criterion,
    joined,
    threshold_in_words,
    wrong,
)
from gpsuq.classify.inputs import Mapped, labels_of
from gpsuq.classify.plots import threshold_curves
from gpsuq.classify.sequential import MeanTest, SequentialTest, draws_in_looks
from gpsuq.classify.thresholds import by_threshold, threshold_for_coverage, threshold_for_error, thresholds_by_class
from gpsuq.core.noise import Seen
from gpsuq.engine.diagnostics import Finding
from gpsuq.engine.progress import counting_bar
from gpsuq.errors import GPSError, listed
from gpsuq.reports.compact import InNotebooks, compact
from gpsuq.storage import save

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Array = NDArray[np.float64]
T = TypeVar("T")

SeenByEach = tuple[Seen | None, ...]
"""By each network of a classifier that has noise."""

DEFAULT_DRAWS = 200
_ROWS, _IMAGES = 4000, 500  # rows (observations and draws) and observations that are passed at once, at most


class JudgingClassifier(InNotebooks, ABC):
    """A classifier whose class probabilities have draws, once it is fitted; subclasses say what a draw is."""

    _most_draws: float = math.inf
    _temperature: float = 1.0
    _strangeness_weight: float | None = None
    progress: bool
    classes_: NDArray[Any]
    uqc_level_: float
    certain_above_: Threshold
    findings_: list[Finding]

    @abstractmethod
    def _logits(self, x: Tensor, draws: slice) -> Tensor:
        """Return the logits of the draws with these numbers, (n, draw, class); the same at every call."""

    def _passed(self, x: Tensor, draws: slice, seen: SeenByEach = ()) -> tuple[Tensor, SeenByEach]:
        """Return those logits, and what networks made of x before their noise; a later call need not do so again."""
        return self._logits(x, draws), ()

    @abstractmethod
    def _inputs(self, X: Any) -> Tensor | Mapped:
        """Return checked inputs."""

    @abstractmethod
    def _encoded(self, labels: NDArray[Any]) -> NDArray[np.int64]:
        """Return labels as numbers of classes."""

    def sample_proba(self, X: Any, n_draws: int = DEFAULT_DRAWS) -> NDArray[np.float32]:
        """Return draws of the class probabilities, (n, draw, class); the same draws of Z for all observations."""
        return np.concatenate(self._drawn(X, n_draws, lambda samples, _: samples))

    def predict_proba(self, X: Any) -> Array:
        """Return the mean probabilities over draws, (n, class)."""
        return np.concatenate(self._drawn(X, DEFAULT_DRAWS, lambda samples, _: samples.mean(1, dtype=np.float64)))

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the most probable class, whatever the verdict."""
        probabilities = self.predict_proba(X)
        return np.asarray(self.classes_[probabilities.argmax(1)])

    def uncertainty(self, X: Any, n_draws: int = DEFAULT_DRAWS, *, error_rate: float | None = None) -> ClassUncertainty:
        """Return verdicts and scores for every observation.

        Parameters
        ----------
        X
            Inputs (n, ...).
        n_draws
            Draws for each, at most.
        error_rate
            None takes all draws for all observations. A number stops early where a verdict is settled: one settled so
            differs from that of infinitely many draws with at most this probability (:mod:`gpsuq.classify.sequential`).
        """
        n_draws = self._available(n_draws)
        if error_rate is None or n_draws < 2:
            return joined(self._drawn(X, n_draws, self._assessed))
        looks, settled = self._sequential_test(n_draws, error_rate)
        parts, order = [], []

        def drawn_until_settled(start: int, part: Tensor) -> None:
            waiting = np.arange(len(part))
            seen: SeenByEach = ()
            samples: NDArray[np.float32] = np.empty((len(part), 0, len(self.classes_)), dtype=np.float32)
            for look, draws in enumerate(draws_in_looks(looks)):
                fresh, seen = self._probabilities(part, draws, seen)
                samples, strange = np.concatenate([samples, fresh], 1), _strangeness(seen)
                done = settled(look, samples, strange)
                if done.any():
                    parts.append(self._assessed(samples[done], None if strange is None else strange[done]))
                    order.append(start + waiting[done])
                waiting, samples, left = waiting[~done], samples[~done], torch.from_numpy(~done)
                if len(waiting) == 0:
                    break
                part, seen = part[left], tuple(None if each is None else each[left] for each in seen)

        self._in_chunks(self._inputs(X), looks[0], drawn_until_settled)
        return joined(parts, np.concatenate(order))

    def _sequential_test(
        self, n_draws: int, error_rate: float
    ) -> tuple[tuple[int, ...], Callable[[int, NDArray[np.float32], Array | None], Flags]]:
        """Return numbers of draws at which to look, and what says of a look, draws and strangeness who is settled."""
        weight = self._strangeness_weight
        if weight is not None:
            mean_test, level = MeanTest.planned(n_draws, error_rate), np.asarray(self.certain_above_)

            def mean_settled(look: int, samples: NDArray[np.float32], strange: Array | None) -> Flags:
                best = samples.mean(1).argmax(1)
                known = np.full(len(samples), np.nan) if strange is None else strange
                values = combined_criterion(samples[np.arange(len(best)), :, best], known, weight)
                return mean_test.settled(look, values, np.broadcast_to(level, len(self.classes_))[best])

            return mean_test.looks, mean_settled
        # Below one half several classes can pass at once, so that each has a part of the error rate.
        threshold = float(np.min(self.certain_above_))
        rivals = 1 if threshold >= 0.5 else max(1, int(1.0 / max(threshold, 1.0 / len(self.classes_))))
        test = SequentialTest.planned(n_draws, self.uqc_level_, error_rate / rivals)
        return test.looks, lambda look, samples, _: test.settled(look, self._below(samples))

    def _drawn(self, X: Any, n_draws: int, function: Callable[[NDArray[np.float32], Any], T]) -> list[T]:
        """Apply a function to draws of class probabilities and to strangeness, part by part of the observations."""
        draws = slice(0, self._available(n_draws))
        x = self._inputs(X)

        def drawn(_: int, part: Tensor) -> T:
            samples, seen = self._probabilities(part, draws)
            return function(samples, _strangeness(seen))

        return self._in_chunks(x, draws.stop, drawn)

    def _available(self, n_draws: int) -> int:
        """Return how many of the draws that were asked for there are."""
        check_is_fitted(self)
        if not isinstance(n_draws, numbers.Integral) or n_draws < 1:
            raise GPSError(f"n_draws must be a positive integer, got {n_draws!r}")
        return int(min(n_draws, self._most_draws))

    def _in_chunks(self, x: Tensor | Mapped, n_draws: int, function: Callable[[int, Tensor], T]) -> list[T]:
        """Call a function with the number of the first and the observations of every part that is passed at once."""
        size = min(_IMAGES, max(1, _ROWS // n_draws))
        results = []
        with counting_bar(self.progress and len(x) > size, "drawing", len(x)) as advance:
            for start in range(0, len(x), size):
                results.append(function(start, x[start : start + size]))
                advance(min(len(x), start + size))
        return results

    def _below(self, samples: NDArray[np.float32]) -> NDArray[np.int64]:
        """Count the draws in which the class that a verdict is about does not exceed its threshold, in float64."""
        counts = (samples <= np.asarray(self.certain_above_, dtype=np.float64)).sum(1)
        if np.ndim(self.certain_above_) == 0:
            return np.asarray(counts.min(1))
        best = np.quantile(samples, self.uqc_level_, axis=1).argmax(1)
        return np.asarray(counts[np.arange(len(best)), best])

    def calibrate(
        self,
        X: Any,
        y: Any,
        *,
        target: float,
        of: Literal["error", "coverage"] = "error",
        by_class: bool = False,
    ) -> Any:
        """Set the threshold of the verdict by validation data that the network was not trained on.

        Parameters
        ----------
        X, y
            Inputs and labels.
        target
            ``of="error"``: certain observations are wrong with probability at most ``target``, with 90% confidence
            (:mod:`gpsuq.classify.thresholds`); ``of="coverage"``: a share ``target`` is to be certain.
        by_class
            Whether each class has a threshold of its own, by the observations that it is the best class of: the target
            then holds for every one of them. With one threshold for all, a class that is easily recognised has hardly
            an Uncertain verdict, and strangers that resemble it pass.
        """
        if of not in ("error", "coverage"):
            raise GPSError(f'of must be "error" or "coverage", got {of!r}')
        verdicts = self.uncertainty(X)
        best = verdicts.uqc.max(1)
        errors = None if of == "coverage" else self._wrong(verdicts, y)

        def threshold(rows: Flags) -> float:
            if errors is None:
                return threshold_for_coverage(best[rows], target)
            return threshold_for_error(best[rows], errors[rows], target)

        if by_class:
            self.certain_above_ = thresholds_by_class(verdicts.uqc, threshold, self.classes_)
        else:
            self.certain_above_ = threshold(np.ones(len(best), dtype=bool))
        return self

    def plot(self, X: Any, y: Any = None) -> Figure:
        """Plot the share of observations that is certain by the threshold, and with labels how often that is wrong."""
        verdicts = self.uncertainty(X)
        errors = None if y is None else self._wrong(verdicts, y)
        return threshold_curves(by_threshold(verdicts.uqc.max(1), errors, self.certain_above_))

    def _compact(self) -> str:
        above = threshold_in_words(self.certain_above_)
        lead = f"Certain where a class has a probability above {above} in {1 - self.uqc_level_:.0%} of the draws."
        if self._strangeness_weight is not None:
            lead = f"Certain where the probability of a class and of being no stranger is above {above}."
        return compact(f"{type(self).__name__} of {listed(self.classes_)}", lead, self.findings_)

    def save(self, path: str | Path, *, force: bool = False) -> Path:
        """Write the classifier into a directory that :func:`gpsuq.load` reads.

        Nothing in it is code: a network of your own has to be passed again, ``gpsuq.load(path, network=...)``.
        """
        return save(self, path, force=force)

    def encoded(self, y: Any) -> NDArray[np.int64]:
        """Return labels as numbers of classes, in the order of ``classes_``: what ``classify.decisions`` takes."""
        check_is_fitted(self)
        return self._encoded(labels_of(y, len(y)))

    def _wrong(self, verdicts: ClassUncertainty, y: Any) -> Flags:
        return wrong(verdicts.mean, self._encoded(labels_of(y, len(verdicts))))

    def _assessed(self, samples: NDArray[np.float32], strangeness: Array | None = None) -> ClassUncertainty:
        return assess(
            samples,
            classes=self.classes_,
            uqc_level=self.uqc_level_,
            certain_above=self.certain_above_,
            strangeness=strangeness,
            strangeness_weight=self._strangeness_weight,
        )

    def _probabilities(self, x: Tensor, draws: slice, seen: SeenByEach = ()) -> tuple[NDArray[np.float32], SeenByEach]:
        """Return the class probabilities of some draws, as many of them at once as memory should hold.

        What was seen of x in an earlier call saves to run all before the noise again; it comes back too.
        """
        step, parts = max(1, _ROWS // len(x)), []
        with torch.no_grad():
            for start in range(draws.start, draws.stop, step):
                logits, seen = self._passed(x, slice(start, min(start + step, draws.stop)), seen)
                parts.append(torch.softmax(logits.float() / self._temperature, -1).cpu())
        result: NDArray[np.float32] = torch.cat(parts, 1).numpy()
        if not np.isfinite(result).all():
            raise GPSError("the network gives NaN or infinite outputs; check its weights and the scale of the inputs")
        return result, seen


def _strangeness(seen: SeenByEach) -> Array | None:
    """Return how strange observations are (n,), the mean over the networks that know."""
    known = [each.strangeness for each in seen if each is not None and each.strangeness is not None]
    return torch.stack(known).mean(0).double().cpu().numpy() if known else None
