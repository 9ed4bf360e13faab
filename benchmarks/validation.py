"""Verdicts on validation images: training images without one class, judged by some that were set aside.

Test images are never read: this is how recipes are chosen.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from gpsuq import GPSClassifier
    from gpsuq.datasets.images import Images

DRAWS, STRANGE = 100, 400


@dataclass(frozen=True)
class Validation:
    """Images to train on, and those that judge: of the classes in training, and of the one left out."""

    known: Images
    seen: Images
    unseen: Images

    @classmethod
    def of(cls, images: Images, left_out: int, every: int) -> Validation:
        aside = np.arange(len(images)) % every == 0  # not the last ones: MNIST's are easier than the test images
        train, rest = images.rows(~aside), images.rows(aside)
        unseen = train.rows(train.labels == left_out).rows(slice(0, STRANGE))
        return cls(train.without(left_out), rest.without(left_out), unseen)

    def judge(self, model: GPSClassifier, seed: int) -> dict[str, float]:
        """Give errors and shares of Uncertain images in per cent."""
        from gpsuq.classify.decisions import risk_coverage, selective_error, wrong

        verdicts = model.uncertainty(self.seen.pixels(), DRAWS)
        errors = selective_error(verdicts.mean, self.seen.labels, verdicts.uncertain)
        curve = risk_coverage(verdicts.uqc_shortfall, wrong(verdicts.mean, self.seen.labels))
        noise = np.random.default_rng(seed).random((STRANGE, *self.seen.bytes.shape[1:]), dtype=np.float32)
        shares = {
            "error": errors.full,
            "certain error": errors.certain,
            "Uncertain": errors.uncertain_share,
            "error at 85% coverage": curve.at(0.85),
            "Uncertain, unseen class": model.uncertainty(self.unseen.pixels(), DRAWS).uncertain.mean(),
            "Uncertain, noise": model.uncertainty(noise, DRAWS).uncertain.mean(),
        }
        return {name: round(100 * float(share), 3) for name, share in shares.items()}
