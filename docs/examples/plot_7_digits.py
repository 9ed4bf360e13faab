"""
A classifier that knows when it does not know
=============================================

Any network becomes one with a noise input: ``GPSClassifier`` takes yours, or a function that makes it. The spread of
the class probabilities over draws of the noise decides whether a prediction is certain.
"""

from torch import nn

from gpsuq import GPSClassifier
from gpsuq.datasets import load_images


def network():
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 10))


train, test = load_images("digits"), load_images("digits", "test")
model = GPSClassifier(network).fit(train.pixels(), train.labels)
verdicts = model.uncertainty(test.pixels())
print(verdicts.to_frame().round(3).head())

# %%
# How often is it wrong, on all images and on those it is certain of? These functions take plain arrays, so that they
# judge any model.

from gpsuq.classify.decisions import risk_coverage, selective_error, wrong  # noqa: E402

print(selective_error(verdicts.mean, test.labels, verdicts.uncertain))
curve = risk_coverage(verdicts.uqc_shortfall, wrong(verdicts.mean, test.labels))
print(f"error at 95% coverage {curve.at(0.95):.4f}, area under the curve {curve.area:.5f}")

# %%
# One uncertain image: boxes of the class probabilities over draws; no cross, the probability of a class and of being no
# stranger, is above the threshold.

import numpy as np  # noqa: E402

from gpsuq.classify.plots import class_boxplots  # noqa: E402

number = np.flatnonzero(verdicts.uncertain)[0]
samples = model.sample_proba(test.pixels()[[number]])[0]
figure = class_boxplots(
    samples, test.bytes[number], model.classes_, truth=test.classes[test.labels[number]], uqc=verdicts.uqc[number]
)

# %%
# A digit that was never seen: trained without "1", the network should not be certain what a "1" is.

known = train.without(1)
model = GPSClassifier(
    lambda: nn.Sequential(nn.Flatten(), nn.Linear(64, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 9))
).fit(known.pixels(), np.array(known.classes)[known.labels])
ones = model.uncertainty(test.rows(test.labels == 1).pixels())
others = model.uncertainty(test.without(1).pixels())
print(f"Uncertain: {ones.uncertain.mean():.0%} of the ones, {others.uncertain.mean():.0%} of the digits it knows")
