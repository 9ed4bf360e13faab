"""The report of a network classifier: how good its verdicts are, and a gallery of what it is sure and unsure of."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from gpsuq.classify.decisions import (
    ClassUncertainty,
    Flags,
    Reliability,
    brier,
    log_loss,
    reliability,
    risk_coverage,
    selective_error,
    threshold_in_words,
    wrong,
)
from gpsuq.classify.findings import training_findings
from gpsuq.classify.network import NetworkClassifier
from gpsuq.classify.plots import reliability_curves, risk_coverage_curves
from gpsuq.classify.reasons import reasons
from gpsuq.classify.thresholds import by_threshold
from gpsuq.core.noise import NoisyNetwork
from gpsuq.core.numbers import binomial_interval
from gpsuq.core.summaries import largest
from gpsuq.engine.diagnostics import Finding
from gpsuq.engine.settings import Recipe
from gpsuq.errors import GPSError
from gpsuq.plots.diagnostics import training_curve
from gpsuq.reports.blocks import MOST_PARAMETERS, column_table, finding_blocks, row_names, trust
from gpsuq.reports.page import (
    Block,
    Gallery,
    Page,
    Picture,
    Section,
    Table,
    Text,
    Threshold,
    data_address,
    settings_table,
)
from gpsuq.reports.saved import damage_told, frame_as_json, frame_from_json, read_checks
from gpsuq.tables.reading import check_labels

MOST_ITEMS = 400
CLASSIFIER_PARTS = ("n", "target", "uncertain", "by_class", "quality", "gallery", "labels", "columns")
LATER_PARTS = ("threshold",)
NEEDS_ROWS = True
IN_PYTHON = "classifier_page(gpsuq.load(path, network=...), X, y)"
_RANKINGS = {"uqc_shortfall": "verdict", "error_probability": "mean probability"}
_COVERAGES = np.round(np.linspace(0.5, 1.0, 101), 3)
_MOST_CLASSES = 40  # shown of one observation, and in tables
_MANY_UNCERTAIN = 0.2
_POOR_CALIBRATION = 0.05


def classifier_page(
    model: NetworkClassifier,
    X: Any,
    y: Any = None,
    *,
    images: NDArray[np.generic] | None = None,
    title: str | None = None,
    verdicts: ClassUncertainty | None = None,
) -> Page:
    """Return the report of a classifier on inputs that it was not trained on.

    Parameters
    ----------
    model
        A fitted :class:`gpsuq.GPSClassifier`, or one of its opponents.
    X, y
        Inputs, and their labels where they are known: without them there is nothing to say about errors.
    images
        What to show of the inputs, (n, channel, row, column) of bytes or of numbers from 0 to 1; X itself, where it has
        that shape.
    title
        Heading of the page; None names the target, where the labels have a name.
    verdicts
        ``model.uncertainty(X)``, where that was computed already.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> import numpy as np
    >>> from gpsuq import GPSClassifier, Recipe
    >>> from gpsuq.classify.report import classifier_page
    >>> from gpsuq.reports.page import write_page
    >>> X = np.random.default_rng(0).normal(size=(100, 2))
    >>> y = np.where(X[:, 0] > 0, "right", "left")
    >>> model = GPSClassifier(recipe=Recipe(epochs=2)).fit(X[:80], y[:80])
    >>> page = classifier_page(model, X[80:], y[80:])
    >>> [section.title for section in page.sections]
    ['Observations', 'Verdicts', 'Quality', 'Data', 'What was fitted', 'How to read this']
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_page(page, Path(folder, "report.html")).name
    'report.html'
    """
    return checked_classifier_page(model, classifier_checks(model, X, y, images=images, verdicts=verdicts), title=title)


def saved_page(model: NetworkClassifier | NoisyNetwork, directory: Path, *, progress: bool) -> Page | None:
    """Return the report of a saved classifier by what was kept about its rows; None where nothing was."""
    if (
        not isinstance(model, NetworkClassifier)
        or (checks := read_checks(directory, CLASSIFIER_PARTS, LATER_PARTS)) is None
    ):
        return None
    with damage_told(directory):
        return checked_classifier_page(model, checks)


def judged_page(model: NetworkClassifier, X: pd.DataFrame, y: pd.Series | None) -> Page:
    """Return the report of a saved classifier on the rows of a file."""
    if y is not None:
        check_labels(y, model.classes_)
    return classifier_page(model, X, y)


def classifier_checks(
    model: NetworkClassifier,
    X: Any,
    y: Any = None,
    *,
    images: NDArray[np.generic] | None = None,
    verdicts: ClassUncertainty | None = None,
) -> dict[str, Any]:
    """Judge observations: everything that a report says about them, as JSON holds it."""
    verdicts = model.uncertainty(X) if verdicts is None else verdicts
    labels = None if y is None else model.encoded(y)
    errors = None if labels is None else wrong(verdicts.mean, labels)
    name = getattr(y, "name", None)
    return {
        "n": len(verdicts),
        "target": None if name is None else str(name),
        "uncertain": float(verdicts.uncertain.mean()),
        "by_class": frame_as_json(_by_class(verdicts, errors)),
        "quality": None if labels is None or errors is None else _quality(verdicts, labels, errors),
        "gallery": _gallery(model, verdicts, labels, errors, X, images),
        "threshold": by_threshold(verdicts.uqc.max(1), errors, model.certain_above_),
        "labels": None if labels is None else np.bincount(labels, minlength=len(verdicts.classes)).tolist(),
        "columns": _columns(model, X),
    }


def checked_classifier_page(model: NetworkClassifier, checks: Mapping[str, Any], *, title: str | None = None) -> Page:
    """Return the report of a classifier by what :func:`classifier_checks` found of observations."""
    n, share, quality, target = checks["n"], checks["uncertain"], checks["quality"], checks["target"]
    facts = [("observations", f"{n:,}"), ("Uncertain", f"{share:.1%}")]
    lead = f"{1.0 - share:.1%} of {n:,} observations are certain"
    if quality is not None:
        certain = quality["certain_error"]
        shown = "none is certain" if certain is None else f"{certain:.1%}"
        facts += [("error", f"{quality['error']:.1%}"), ("error where certain", shown)]
        lead += "" if certain is None else f", and {shown} of these are wrong"
        lead += f"; of all, {quality['error']:.1%} are."
    else:
        lead += "."
    found = trust(_findings(model), *_advice(checks), *([] if quality is None else [_verdicts_hold(n, share, quality)]))
    pictured = any(item["image"] for item in checks["gallery"]["items"])
    sections = [
        Section(
            "Gallery" if pictured else "Observations", _gallery_blocks(checks), _strange(checks), folded=not pictured
        ),
        Section("Verdicts", _verdict_blocks(checks), "by predicted class"),
        *([] if quality is None else [Section("Quality", _quality_blocks(quality), "of the probabilities")]),
        Section("Data", _data_blocks(model, checks), "what was judged"),
        Section("What was fitted", _fit_blocks(model), "settings, training and seed"),
        Section("How to read this", [Text(text) for text in _READING]),
    ]
    usual = "A classifier that says when it is uncertain" if target is None else f"Classes of {target}"
    moved = checks["threshold"]  # checks of early versions have none
    block = Threshold(**moved) if moved and moved["above"] else None
    return Page(usual if title is None else title, lead, sections, facts, found, block)


def _verdicts_hold(n: int, share: float, quality: Mapping[str, Any]) -> Text:
    """Say whether certain predictions are wrong less often than Uncertain ones."""
    left = round(n * share)
    kept, wrong_in_all = n - left, round(n * quality["error"])
    lost = round(kept * (quality["certain_error"] or 0.0))
    if not left or not kept:
        return Text(f"{'All' if kept else 'No'} predictions are certain, so that verdicts tell none from the others.")
    (_, high), (low, _) = binomial_interval(lost, kept), binomial_interval(wrong_in_all - lost, left)
    rates = (
        f"{lost:,} of {kept:,} certain predictions are wrong, and {wrong_in_all - lost:,} of {left:,} Uncertain ones"
    )
    if high < low:
        return Text(f"Verdicts tell mistakes: {rates}.", "good")
    return Text(f"{rates}: too few to show that verdicts tell mistakes.", "advice")


def _advice(checks: Mapping[str, Any]) -> list[Text]:
    """Return what is wrong with the verdicts and the probabilities, if anything."""
    share, quality = checks["uncertain"], checks["quality"]
    found = []
    if share > _MANY_UNCERTAIN:
        found.append(
            f"{share:.0%} of the observations are Uncertain. Train longer, or set the threshold by validation data: "
            "calibrate(X_val, y_val, target=0.9, of='coverage')."
        )
    if quality is None:
        found.append("No labels were given, so that nothing here says how often predictions are wrong.")
    elif (off := _diagram(quality).error) > _POOR_CALIBRATION:
        found.append(
            f"Stated probabilities are off by {off:.1%} on average. Judge by ranks, or set the threshold by validation "
            "data with calibrate."
        )
    return [Text(text, "advice") for text in found]


def _findings(model: NetworkClassifier) -> list[Finding]:
    return model.findings_ or training_findings(model.losses_)  # early versions saved losses only


def _strange(checks: Mapping[str, Any]) -> str:
    items = checks["gallery"]["items"]
    counts = {name: sum(bool(item[name]) for item in items) for name in ("uncertain", "wrong")}
    return ", ".join(f"{count} {name}" for name, count in counts.items())


_READING = (
    "Every observation has a distribution of class probabilities, one vector for each draw of the noise. t_h is the 5% "
    "quantile of class h's probability: the observation is certain where some t_h is above the threshold, in other "
    "words where a class has a probability above it in 95% of the draws.",
    "The score that a network is trained by sees the mean probability only. How far draws spread around it comes from "
    "where the noise enters and how the network was trained: it ranks observations by how far they can be trusted, and "
    "is not a posterior over networks.",
)


def _verdict_blocks(checks: Mapping[str, Any]) -> list[Block]:
    return [_most_frequent(frame_from_json(checks["by_class"]).rename_axis("predicted class"), "By predicted class")]


def _most_frequent(by_class: pd.DataFrame, caption: str) -> Table:
    """Show the classes with the most observations, where there are very many."""
    chosen = largest(by_class["observations"].to_numpy(), _MOST_CLASSES)
    few = f": the {len(chosen)} most frequent of {len(by_class):,}" if len(chosen) < len(by_class) else ""
    return Table(by_class.iloc[chosen], caption + few)


def _quality(verdicts: ClassUncertainty, labels: NDArray[np.int64], errors: Flags) -> dict[str, Any]:
    found = selective_error(verdicts.mean, labels, verdicts.uncertain)
    diagram = reliability(verdicts.mean, labels)
    curves = {shown: risk_coverage(verdicts.scores[name], errors) for name, shown in _RANKINGS.items()}
    return {
        "error": found.full,
        "certain_error": None if verdicts.uncertain.all() else found.certain,
        "values": {
            "log loss": log_loss(verdicts.mean, labels),
            "Brier score": brier(verdicts.mean, labels),
            "expected calibration error": diagram.error,
            **{f"area under risk-coverage, {shown}": curve.area for shown, curve in curves.items()},
        },
        "risk": {shown: [curve.at(float(coverage)) for coverage in _COVERAGES] for shown, curve in curves.items()},
        "reliability": {name: values.tolist() for name, values in asdict(diagram).items()},
    }


def _diagram(quality: Mapping[str, Any]) -> Reliability:
    return Reliability(**{name: np.asarray(values) for name, values in quality["reliability"].items()})


def _quality_blocks(quality: Mapping[str, Any]) -> list[Block]:
    return [
        Table(pd.DataFrame({"value": quality["values"]}), "Quality of the probabilities, lower is better"),
        Picture(
            risk_coverage_curves(_COVERAGES.tolist(), quality["risk"]),
            "Error among the observations kept, against the share that is kept",
            "What is wrong among the most certain observations, as more of them are kept.",
        ),
        Picture(
            reliability_curves({"this classifier": _diagram(quality)}),
            "Share of right predictions against the probability of the predicted class",
            "On the diagonal, a stated probability is how often the prediction is right.",
        ),
    ]


def _by_class(verdicts: ClassUncertainty, errors: Flags | None) -> pd.DataFrame:
    predicted = verdicts.prediction.astype(str)

    def percent(flags: Flags, rows: Any = slice(None)) -> pd.Series:
        return (100 * pd.Series(flags[rows]).groupby(predicted[rows], sort=False).mean()).round(2)

    columns = {"observations": pd.Series(predicted).value_counts(), "Uncertain, %": percent(verdicts.uncertain)}
    if errors is not None:
        columns |= {"wrong, %": percent(errors), "wrong where certain, %": percent(errors, ~verdicts.uncertain)}
    names = [name for name in map(str, verdicts.classes) if name in columns["observations"]]
    return pd.DataFrame(columns).loc[names]


def _gallery(
    model: NetworkClassifier,
    verdicts: ClassUncertainty,
    labels: NDArray[np.int64] | None,
    errors: Flags | None,
    X: Any,
    images: NDArray[np.generic] | None,
) -> dict[str, Any]:
    """Return the observations that are shown one by one, and what their boxplots need."""
    n, names, pictures = len(verdicts), [str(name) for name in verdicts.classes], _pictures(X, images)
    mistaken = np.zeros(n, dtype=bool) if errors is None else errors
    why = reasons(verdicts, model.certain_above_, combined=getattr(model, "strangeness_weight_", None) is not None)
    table = isinstance(X, pd.DataFrame)
    titles = [f"row {name}" for name in row_names(X.index)] if table else [f"observation {i + 1}" for i in range(n)]
    boxes = np.stack([*verdicts.quantiles.values(), verdicts.uqc], -1)
    scores = sorted(verdicts.scores.items(), key=lambda pair: pair[0] != "uqc_shortfall")  # the verdict's own first
    most_probable = np.sort(np.argsort(-verdicts.mean, axis=1, kind="stable")[:, :_MOST_CLASSES], axis=1)
    items = [
        {
            "title": titles[row],
            "image": None if pictures is None else thumbnail(pictures[row]),
            "label": None if labels is None else names[labels[row]],
            "prediction": names[int(verdicts.mean[row].argmax())],
            "probability": round(float(verdicts.mean[row].max()), 4),
            "uncertain": bool(verdicts.uncertain[row]),
            "reason": why[row],
            "wrong": bool(mistaken[row]),
            "scores": {name.replace("_", " "): float(f"{score[row]:.4g}") for name, score in scores},
            "classes": most_probable[row].tolist(),
            "boxes": np.round(boxes[row, most_probable[row]], 4).tolist(),
        }
        for row in chosen_items(verdicts, mistaken)
    ]
    return {
        "classes": names,
        "items": items,
        "levels": [f"{level:.0%}" for level in verdicts.quantiles],
        "certain_above": np.broadcast_to(model.certain_above_, len(names)).tolist(),
    }


def _gallery_blocks(checks: Mapping[str, Any]) -> list[Block]:
    held, n = checks["gallery"], checks["n"]
    lists = {name: list(held[name]) for name in ("classes", "items", "levels")}
    # Checks that were written before classes had thresholds of their own hold one number.
    thresholds = np.broadcast_to(np.asarray(held["certain_above"], dtype=np.float64), len(lists["classes"]))
    gallery = Gallery(**lists, certain_above=thresholds.tolist())
    text = "Click on an observation, or press Enter on it, to see the distribution of its class probabilities."
    if len(gallery.classes) > _MOST_CLASSES:
        text += f" The {_MOST_CLASSES} classes that it is likeliest to be of are drawn."
    if len(gallery.items) < n:
        text += f" {len(gallery.items)} of {n:,} are here: wrong ones, Uncertain ones, and others at random."
    return [Text(text), gallery]


def chosen_items(verdicts: ClassUncertainty, errors: Flags, most: int = MOST_ITEMS) -> NDArray[np.int64]:
    """Choose what a gallery shows: wrong and Uncertain observations first, the others at random; at most so many."""
    rng = np.random.default_rng(0)
    is_strange = errors | verdicts.uncertain
    strange, plain = np.flatnonzero(is_strange), np.flatnonzero(~is_strange)
    room = most - min(len(strange), most // 2 if len(plain) >= most // 2 else most - len(plain))
    some = rng.permutation(plain)[:room]
    return np.sort(np.concatenate([rng.permutation(strange)[: most - len(some)], some]))


def _pictures(X: Any, images: NDArray[np.generic] | None) -> NDArray[np.uint8] | None:
    found = np.asarray(X) if images is None and hasattr(X, "shape") else images
    if found is None or found.ndim != 4 or found.shape[1] not in (1, 3):
        if images is not None:
            raise GPSError(f"images must have shape (n, 1 or 3, row, column), got {np.shape(images)}")
        return None
    if found.dtype == np.uint8:
        return found.astype(np.uint8, copy=False)
    if float(found.min()) < 0.0 or float(found.max()) > 1.0:
        return None  # standardised or otherwise no picture
    return np.rint(found.astype(np.float64) * 255.0).astype(np.uint8)


def thumbnail(image: NDArray[np.uint8]) -> str:
    """Return an image (channel, row, column) as an address that holds it; one channel is ink on paper."""
    from PIL import Image

    pixels = 255 - image[0] if len(image) == 1 else np.moveaxis(image, 0, -1)
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, format="PNG", optimize=True)
    return data_address(buffer.getvalue(), "image/png")


def _columns(model: NetworkClassifier, X: Any) -> dict[str, Any] | None:
    """Describe the columns of a table; other inputs have none, and very many say nothing."""
    if np.ndim(X) != 2 or np.shape(X)[1] > MOST_PARAMETERS:
        return None
    names = getattr(model, "feature_names_in_", [f"x{number}" for number in range(np.shape(X)[1])])
    return frame_as_json(column_table(pd.DataFrame(np.asarray(X, dtype=np.float64), columns=names)))


def _data_blocks(model: NetworkClassifier, checks: Mapping[str, Any]) -> list[Block]:
    labels, classes = checks["labels"], checks["gallery"]["classes"]
    rows = {
        "observations judged": f"{checks['n']:,}",
        "numbers in an observation": " x ".join(map(str, model.input_shape_)),
        "labels": "not given" if labels is None else "known",
    }
    blocks: list[Block] = [Table(pd.DataFrame({"value": rows}), "What was judged")]
    if labels is not None:
        counts = pd.DataFrame({"observations": labels}, index=classes).rename_axis("label")
        blocks.append(_most_frequent(counts, "How many observations each class has"))
    if checks["columns"] is not None:
        blocks.append(Table(frame_from_json(checks["columns"]).rename_axis("column"), "Inputs"))
    return blocks


def _fit_blocks(model: NetworkClassifier) -> list[Block]:
    recipe = model.recipe or Recipe()
    params = {name: value for name, value in model.get_params(deep=False).items() if name not in ("network", "recipe")}
    table = settings_table(
        {"type": type(model).__name__} | params | asdict(recipe),
        seed=model.seed_,
        weights=f"{sum(parameter.numel() for parameter in model.network_.parameters()):,}",
        training_seconds=f"{model.seconds_:.1f}",
        certain_above=threshold_in_words(model.certain_above_),
    )
    blocks: list[Block] = [Table(table, "Settings")]
    losses: Sequence[float] = model.losses_
    if len(losses) > 1:
        blocks.append(Picture(training_curve(losses), "Mean loss of every epoch", "Training loss."))
    findings = _findings(model)
    return [*blocks, *finding_blocks(findings)] if findings else blocks
