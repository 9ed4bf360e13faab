"""Figures of classifiers: class probabilities of one image, risk against coverage, reliability, galleries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gpsuq.core.numbers import binomial_interval
from gpsuq.plots.style import COLORS, figure_style, plain, subplots

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from gpsuq.classify.decisions import Reliability

_ORDER = ("gps", "bayes", "good", "other", "warm", "light", "data")
_MARKERS = ("o", "s", "^", "D", "v", "P", "X")
_SHOWN_DRAWS = 40


def _look(number: int) -> dict[str, Any]:
    """Return colour and marker of a curve."""
    return {"color": COLORS[_ORDER[number % len(_ORDER)]], "marker": _MARKERS[number % len(_MARKERS)]}


def show_image(ax: Axes, image: NDArray[np.generic]) -> None:
    """Show an image (channel, row, column) without axes."""
    picture = image[0] if len(image) == 1 else np.moveaxis(image, 0, -1)
    ax.imshow(picture, cmap="gray_r" if len(image) == 1 else None, interpolation="nearest")
    ax.set_axis_off()


def class_boxplots(
    samples: NDArray[np.floating[Any]],
    image: NDArray[np.generic],
    classes: ArrayLike,
    *,
    truth: str,
    uqc: NDArray[np.floating[Any]],
    certain_above: float | ArrayLike = 0.5,
    title: str = "",
) -> Figure:
    """Plot draws of the class probabilities (draw, class) of one image as boxes, with the criterion of each class.

    >>> import numpy as np
    >>> from gpsuq.classify.decisions import assess
    >>> from gpsuq.classify.plots import class_boxplots
    >>> samples = np.array([[0.9, 0.1], [0.6, 0.4], [0.8, 0.2]])  # three draws, two classes
    >>> uqc = assess(samples[None]).uqc[0]
    >>> figure = class_boxplots(samples, np.zeros((1, 8, 8)), ["cat", "dog"], truth="cat", uqc=uqc)
    >>> [label.get_text() for label in figure.axes[1].get_xticklabels()]
    ['cat', 'dog']
    """
    import matplotlib.pyplot as plt

    names = [plain(name) for name in np.asarray(classes)]
    positions = np.arange(len(names))
    rng = np.random.default_rng(0)
    with figure_style():
        figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.4), width_ratios=(1, 3))
        show_image(left, image)
        left.set_title(f"label {plain(truth)}")
        boxes = right.boxplot(samples, positions=positions, widths=0.55, showfliers=False, patch_artist=True)
        for box in boxes["boxes"]:
            box.set(facecolor="#DCEAF4", edgecolor=COLORS["gps"])
        for line in boxes["medians"]:
            line.set(color=COLORS["gps"], linewidth=1.5)
        some = samples[:_SHOWN_DRAWS]
        across = positions + rng.uniform(-0.18, 0.18, some.shape)
        right.plot(across.ravel(), some.ravel(), "+", color=COLORS["bayes"], markersize=3, alpha=0.6, zorder=3)
        right.plot([], [], "+", color=COLORS["bayes"], label="draws")
        right.plot(positions, uqc, "x", color=COLORS["truth"], markersize=8, markeredgewidth=2, label="$t_h$")
        thresholds = np.broadcast_to(np.asarray(certain_above), positions.shape)
        right.hlines(
            thresholds, positions - 0.5, positions + 0.5,
            color=COLORS["data"], linewidth=1, linestyle="--", label="certain above",
        )  # fmt: skip
        right.set_xticks(positions, names, rotation=0 if max(map(len, names)) < 4 else 30)
        right.set(xlabel="class", ylabel="class probability", ylim=(-0.03, 1.03), title=title)
        right.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), fontsize=8)  # beside the boxes, which may be tall
    return figure


def threshold_curves(found: Mapping[str, Any]) -> Figure:
    """Plot the share that is certain and how often that is wrong, by the threshold of the verdict.

    ``found`` is what :func:`gpsuq.classify.thresholds.by_threshold` returns; bands hold the error with 95% confidence.

    >>> import numpy as np
    >>> from gpsuq.classify.plots import threshold_curves
    >>> from gpsuq.classify.thresholds import by_threshold
    >>> figure = threshold_curves(by_threshold(np.array([0.3, 0.9]), np.array([True, False]), 0.5))
    >>> [ax.get_ylabel() for ax in figure.axes]
    ['certain (%)', 'wrong, of the certain (%)']
    """
    above, certain = np.asarray(found["above"]), np.asarray(found["certain"])
    count = 1 if found["wrong"] is None else 2
    with subplots(count, 1, figsize=(6.4, 0.8 + 2.1 * count), sharex=True, squeeze=False) as (figure, axes):
        axes[0, 0].plot(above, 100.0 * certain / found["n"], color=COLORS["gps"])
        axes[0, 0].set(ylabel="certain (%)", ylim=(0.0, 103.0))
        if found["wrong"] is not None:
            wrong = np.asarray(found["wrong"])
            low, high = binomial_interval(wrong, certain)
            ax = axes[1, 0]
            ax.fill_between(above, 100.0 * low, 100.0 * high, color=COLORS["warm"], alpha=0.3, linewidth=0)
            ax.plot(above, 100.0 * wrong / certain, color=COLORS["bayes"])
            ax.set(ylabel="wrong, of the certain (%)", ylim=(0.0, max(1.0, 250.0 * wrong[0] / certain[0])))
        for ax in axes.flat:
            if found["in_use"] is not None:
                ax.axvline(found["in_use"], color=COLORS["data"], linestyle="--", linewidth=1, label="in use")
        axes[-1, 0].set_xlabel("certain above")
    return figure


def risk_coverage_curves(coverage: Sequence[float], curves: Mapping[str, ArrayLike]) -> Figure:
    """Plot the error of what is kept against the share that is kept, for every method.

    >>> from gpsuq.classify.plots import risk_coverage_curves
    >>> figure = risk_coverage_curves([0.5, 0.8, 1.0], {"GPS": [0.0, 0.01, 0.03], "dropout": [0.01, 0.02, 0.03]})
    >>> len(figure.axes[0].lines)
    2
    """
    import matplotlib.pyplot as plt

    kept = np.asarray(coverage)
    with figure_style():
        figure, ax = plt.subplots(figsize=(6.4, 4.2))
        for number, (name, errors) in enumerate(curves.items()):
            look = _look(number) | {"markevery": max(1, len(kept) // 12), "markersize": 4}
            ax.plot(100 * kept, 100 * np.asarray(errors), label=name, **look)
        ax.set(xlabel="kept (% of the images, most certain first)", ylabel="error among the kept (%)")
        ax.set_ylim(bottom=0)
        ax.legend()
    return figure


def reliability_curves(curves: Mapping[str, Reliability]) -> Figure:
    """Plot accuracy against confidence for every method; the diagonal is calibrated, bars are two standard errors.

    >>> from gpsuq.classify.decisions import reliability
    >>> from gpsuq.classify.plots import reliability_curves
    >>> figure = reliability_curves({"GPS": reliability([[0.9, 0.1]] * 4, [0, 0, 0, 1])})
    >>> [line.get_label() for line in figure.axes[0].lines]
    ['calibrated', 'GPS, ECE 0.1500']
    """
    import matplotlib.pyplot as plt

    with figure_style():
        figure, ax = plt.subplots(figsize=(4.6, 4.4))
        ax.plot([0, 1], [0, 1], color=COLORS["data"], linestyle="--", linewidth=1, label="calibrated")
        for number, (name, curve) in enumerate(curves.items()):
            look = _look(number)
            shrunk = (curve.accuracy * curve.count + 1.0) / (curve.count + 2.0)  # a bin of one image is not sure
            error = 2.0 * np.sqrt(shrunk * (1.0 - shrunk) / (curve.count + 2.0))
            low, high = np.maximum(shrunk - error, 0.0), np.minimum(shrunk + error, 1.0)
            ax.vlines(curve.confidence, low, high, color=look["color"], linewidth=1, alpha=0.5)
            ax.plot(curve.confidence, curve.accuracy, label=f"{name}, ECE {curve.error:.4f}", **look)
        ax.set(xlabel="probability of the predicted class", ylabel="share that is right", aspect="equal")
        ax.legend(loc="lower right")
    return figure


def image_gallery(images: NDArray[np.generic], captions: Sequence[str], *, columns: int = 8) -> Figure:
    """Show images (n, channel, row, column) with captions.

    >>> import numpy as np
    >>> from gpsuq.classify.plots import image_gallery
    >>> figure = image_gallery(np.zeros((3, 1, 8, 8)), ["cat", "dog", "owl"], columns=2)
    >>> [ax.get_title() for ax in figure.axes]
    ['cat', 'dog', 'owl', '']
    """
    import matplotlib.pyplot as plt

    rows = -(-len(images) // columns)
    with figure_style():
        figure, axes = plt.subplots(rows, columns, figsize=(1.35 * columns, 1.75 * rows), squeeze=False)
        for ax in axes.ravel():
            ax.set_axis_off()
        for ax, image, caption in zip(axes.ravel()[: len(images)], images, captions, strict=True):
            show_image(ax, image)
            ax.set_title(caption, fontsize=8)
    return figure
