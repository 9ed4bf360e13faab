"""Image classifiers that say "Uncertain", section 4 of the paper: Table 1 (all classes) and Table 2 (one left out).

Every network is trained with checkpoints in ``models/`` below the output, and what it gave is appended to
``rows.jsonl`` as soon as it exists: a run that was stopped goes on where it was, and rows of further seeds or methods
join the table.
"""

from __future__ import annotations

import hashlib
import math
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from gpsuq.classify.baselines import DropoutClassifier, PlainClassifier
from gpsuq.classify.decisions import (
    ClassUncertainty,
    Flags,
    Reliability,
    Threshold,
    assess,
    auroc,
    brier,
    fpr95,
    is_certain,
    log_loss,
    reliability,
    risk_coverage,
    selective_error,
    wrong,
)
from gpsuq.classify.estimator import OFF_DATA_SPREAD, SPREAD_WEIGHT, GPSClassifier
from gpsuq.classify.network import NetworkClassifier
from gpsuq.classify.off_data import PatchSizes
from gpsuq.classify.plots import class_boxplots, image_gallery, reliability_curves, risk_coverage_curves
from gpsuq.classify.report import classifier_page
from gpsuq.classify.thresholds import threshold_for_coverage, thresholds_by_class
from gpsuq.core.seeds import derive_seed
from gpsuq.datasets.images import Images
from gpsuq.engine.settings import Recipe
from gpsuq.errors import GPSError
from gpsuq.files import write_state
from gpsuq.plots.style import save_figure
from gpsuq.reports.page import Section, write_page
from gpsuq.reports.saved import REPORT_FILE
from paper.features import HeadGPS, fit_head, join, kept_features, split_network, with_weights
from paper.image_tables import (
    BY_CLASS,
    COVERAGES,
    CURVES,
    METHODS,
    ONE,
    Published,
    calibrated_table,
    coverage_table,
    mean_curves,
    paper_table,
    quality_table,
    summarise,
)
from paper.page import experiment_page
from paper.record import Asked
from paper.rows import begin, read_state_of

ON_DATA, ALERT, JOINT = "-on-data", "-alert", "-joint"
"""Suffixes of methods: GPS trained by the paper's loss, the score of the data alone; GPS with noise at every layer of
the head and a high reward for spread off the data, which finds more strangers and ranks mistakes worse; and a method
that is trained as a whole where the study takes features of the plain network."""

PLAIN_HEAD = "plain-head"
"""The plain network, whose head was trained on as long as those of GPS and dropout, without noise."""

ALERT_WEIGHTS = (0.5, 0.4)
"""Price of spread at the data, and reward for it off the data, of a method that is alert."""

_GALLERY = 24
_STRANGE_IMAGES = 2000
_ASIDE = 10
_FEW = 20


@dataclass(frozen=True)
class Study:
    """One data set with its network: everything that the two tables need.

    ``network`` makes it for the images that it is to learn and a dropout rate; ``outside`` returns images of another
    kind, if there are any; ``paper`` holds the published rows by method: error, certain error and share uncertain
    in per cent for Table 1, share uncertain of the unseen class and of noise for Table 2. ``literature`` holds errors
    in per cent that others published for the coverages of :data:`~paper.image_tables.SELECTIVE`. With
    ``coverage`` some training images of Table 2 are set aside, and verdicts that leave this share of them certain are
    judged, too. With ``head`` GPS and Monte Carlo dropout keep the features of the plain network of the same seed, and
    train its head on by this recipe; without, they train the whole network. ``layer``,
    ``spread_weight``, ``off_data_spread`` and ``off_data_patch`` are those of :class:`~gpsuq.GPSClassifier`;
    ``head_layers`` are all layers where noise could enter, if there are more.
    """

    name: str
    train: Images
    test: Images
    network: Callable[[Images, float], nn.Module]
    layer: str | tuple[str, ...]
    recipe: Recipe
    left_out: int
    head_layers: tuple[str, ...] | None = None
    members: int = 5
    dropout: float = 0.25
    coverage: float | None = None
    head: Recipe | None = None
    spread_weight: float = SPREAD_WEIGHT
    off_data_spread: float = OFF_DATA_SPREAD
    off_data_patch: PatchSizes = None
    augment: Callable[[Tensor], Tensor] | None = None
    outside: Callable[[], Images | None] | None = None
    paper: Mapping[int, Published] = field(default_factory=dict)
    literature: Mapping[str, Sequence[float]] = field(default_factory=dict)


def first_layer(study: Study) -> str:
    """Return the name of the layer where the noise enters first."""
    return study.layer if isinstance(study.layer, str) else study.layer[0]


def estimator(
    study: Study, method: str, data: Images, seed: int, *, progress: bool, plain: NetworkClassifier | None = None
) -> NetworkClassifier:
    """Return the classifier of a method for these images; all share one recipe.

    With a ``plain`` network, it is one of features: a head that goes on from that network's.
    """
    recipe = study.recipe if plain is None or study.head is None else study.head
    common: dict[str, Any] = {"recipe": recipe, "random_state": seed, "progress": progress}

    def network(dropout: float = 0.0) -> nn.Module:
        # In this layout convolutions and poolings on a CPU take up to half the time.
        made: nn.Module = study.network(data, dropout).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        if plain is None:
            return made
        heads = (split_network(whole, first_layer(study))[1] for whole in (made, plain.network_))
        return with_weights(*heads)

    if method == PLAIN_HEAD and study.head is None:
        raise GPSError(
            f"{method!r} is for studies that train heads on kept features, and {study.name} is not one of them"
        )
    if method in ("plain", PLAIN_HEAD):
        return PlainClassifier(network, **common)
    if method.removesuffix(JOINT) == "dropout":
        return DropoutClassifier(lambda: network(study.dropout), **common)
    if method.startswith("gps-"):
        price, reward = _weights(study, method)
        noise: dict[str, Any] = {"ratio": _ratio(method), "off_data_patch": study.off_data_patch}
        gps = GPSClassifier if plain is None else HeadGPS
        noise |= {"loss": "score", "spread": "even", "verdict": "quantile"}  # as published
        return gps(network, _layers(study, method), spread_weight=price, off_data_spread=reward, **noise, **common)
    raise GPSError(f"unknown method {method!r}; use one of {', '.join(METHODS)}, or gps- with another ratio")


def _ratio(method: str) -> float:
    try:
        ratio = float(re.sub(f"^gps-|({'|'.join((ON_DATA, ALERT, JOINT))})+$", "", method))
    except ValueError:
        ratio = math.nan
    if not 0.0 < ratio < math.inf:
        raise GPSError(f"{method!r} must have a positive number behind gps-, such as gps-0.5 or gps-0.5{ON_DATA}")
    return ratio


def _layers(study: Study, method: str) -> str | tuple[str, ...]:
    """Return the layers where noise enters."""
    return study.head_layers if ALERT in method and study.head_layers is not None else study.layer


def _weights(study: Study, method: str) -> tuple[float, float]:
    """Return the price of spread at the data, and the reward for it off the data."""
    named = method.removesuffix(JOINT)
    if named.endswith(ON_DATA):
        return 0.0, 0.0
    return ALERT_WEIGHTS if named.endswith(ALERT) else (study.spread_weight, study.off_data_spread)


def _has_kept_features(study: Study, method: str) -> bool:
    """Whether a method trains a head on the features of the plain network, and not the whole network."""
    kept = method == PLAIN_HEAD or method.startswith(("dropout", "gps-"))
    return study.head is not None and kept and not method.endswith(JOINT)


def trained(study: Study, method: str, seed: int, data: Images, out: Path, *, progress: bool) -> NetworkClassifier:
    """Train one classifier, from its checkpoint where there is one.

    The time of a head on kept features counts that of the network whose features they are.
    """
    folder = out / "models" / f"{method}-{seed}"
    if not _has_kept_features(study, method):
        model = estimator(study, method, data, seed, progress=progress)
        return model.fit(data.pixels(), data.labels, augment=study.augment, checkpoint=folder)  # type: ignore[no-any-return]
    plain = trained(study, "plain", seed, data, out, progress=progress)
    trunk, _ = split_network(plain.network_, first_layer(study))
    features = kept_features(trunk, data, study.augment, study.off_data_patch, out / "models" / f"plain-{seed}")
    model = estimator(study, method, data, seed, progress=progress, plain=plain)
    fit_head(model, features, folder)
    model.seconds_ += plain.seconds_ + features.seconds
    return join(model, trunk, data)


def split(study: Study, table: int) -> tuple[Images, Images | None]:
    """Return the images that networks are trained on, and those set aside to calibrate verdicts, if any."""
    data = study.train if table == 1 else study.train.without(study.left_out)
    if table == 1 or study.coverage is None:
        return data, None
    aside = np.arange(len(data)) % _ASIDE == 0
    return data.rows(~aside), data.rows(aside)


def quality(verdicts: ClassUncertainty, labels: NDArray[np.int64]) -> dict[str, Any]:
    """Measure verdicts on labelled images."""
    found = selective_error(verdicts.mean, labels, verdicts.uncertain)
    errors = wrong(verdicts.mean, labels)
    curves = {name: risk_coverage(score, errors) for name, score in verdicts.scores.items()}
    diagram = reliability(verdicts.mean, labels)
    return {
        "error": found.full,
        "certain_error": found.certain,
        "uncertain": found.uncertain_share,
        **{f"aurc_{name}": curve.area for name, curve in curves.items()},
        "log_loss": log_loss(verdicts.mean, labels),
        "brier": brier(verdicts.mean, labels),
        "ece": diagram.error,
        "error_at_coverage": {name: [round(curves[name].at(coverage), 6) for coverage in COVERAGES] for name in CURVES},
        "reliability": [diagram.confidence.tolist(), diagram.accuracy.tolist(), diagram.count.tolist()],
    }


def uniform_noise(study: Study, seed: int) -> NDArray[np.float32]:
    """Return images of independent uniform pixels."""
    rng = np.random.default_rng(derive_seed(seed, "noise images"))
    return rng.random((_STRANGE_IMAGES, *study.test.bytes.shape[1:]), dtype=np.float32)


def strange_images(study: Study, table: int, seed: int) -> dict[str, NDArray[np.float32]]:
    """Return the images that are not of the classes in training: noise, the class left out, and other images."""
    found = {"noise": uniform_noise(study, seed)}
    if table == 2:
        found["unseen"] = study.test.rows(study.test.labels == study.left_out).pixels()
    outside = None if study.outside is None else study.outside()
    if outside is not None:
        every = -(-len(outside) // _STRANGE_IMAGES)
        found["outside"] = outside.rows(slice(None, None, every)).pixels()
    return found


def detection(verdicts: ClassUncertainty, strange: Mapping[str, ClassUncertainty]) -> dict[str, float]:
    """Measure how well strange images are told from those of the classes in training."""
    found = {}
    for name, theirs in strange.items():
        found[f"{name}_uncertain"] = float(theirs.uncertain.mean())
        for score in CURVES:
            found[f"{name}_auroc_{score}"] = auroc(verdicts.scores[score], theirs.scores[score])
        found[f"{name}_fpr95"] = fpr95(verdicts.uqc_shortfall, theirs.uqc_shortfall)
    return found


def calibrated(
    aside: ClassUncertainty,
    coverage: float,
    verdicts: ClassUncertainty,
    labels: NDArray[np.int64],
    strange: Mapping[str, ClassUncertainty],
) -> dict[str, float]:
    """Measure verdicts that leave a share of the images set aside certain: of all of them, and of every best class."""

    def threshold(rows: Flags) -> float:
        return threshold_for_coverage(aside.uqc[rows].max(1), coverage)

    everything = np.ones(len(aside), dtype=bool)
    thresholds: dict[str, Threshold] = {ONE: threshold(everything), BY_CLASS: thresholds_by_class(aside.uqc, threshold)}
    measured: dict[str, float] = {}
    for name, certain_above in thresholds.items():
        found = selective_error(verdicts.mean, labels, ~is_certain(verdicts.uqc, certain_above))
        measured[f"{name}_certain_error"], measured[f"{name}_uncertain"] = found.certain, found.uncertain_share
        for kind, theirs in strange.items():
            measured[f"{name}_{kind}_uncertain"] = float((~is_certain(theirs.uqc, certain_above)).mean())
    return measured


def images_to_judge(study: Study, table: int, seed: int) -> dict[str, NDArray[np.float32]]:
    """Return all images that a method is judged by: of the classes in training, set aside, and strange ones."""
    seen = study.test if table == 1 else study.test.without(study.left_out)
    _, aside = split(study, table)
    known = {"seen": seen.pixels()} | ({} if aside is None else {"aside": aside.pixels()})
    return known | strange_images(study, table, seed)


def plain_predictions(
    study: Study, table: int, seed: int, noise_seed: int, out: Path, *, progress: bool
) -> dict[str, Any]:
    """Return the class probabilities of a plain network for all images, its losses and seconds.

    They are kept in ``predictions/``: an ensemble of networks needs nothing else of its members.
    """
    path = out / "predictions" / f"plain-{seed}-{noise_seed}.safetensors"
    key = row_key(study, table, "plain")
    kept = read_state_of(path, key)
    if kept is not None:
        tensors, meta = kept
        return meta | {"probabilities": {name: tensor.numpy() for name, tensor in tensors.items()}}
    data, _ = split(study, table)
    model = trained(study, "plain", seed, data, out, progress=progress)
    images = images_to_judge(study, table, noise_seed)
    probabilities = {name: model.sample_proba(pixels)[:, 0] for name, pixels in images.items()}
    meta = {"key": key, "seconds": model.seconds_, "losses": model.losses_}
    path.parent.mkdir(parents=True, exist_ok=True)
    write_state(path, {name: torch.from_numpy(values) for name, values in probabilities.items()}, meta)
    return meta | {"probabilities": probabilities}


def judged(
    study: Study, table: int, method: str, seed: int, out: Path, *, progress: bool
) -> tuple[dict[str, ClassUncertainty], float, list[float]]:
    """Train a method, and return its verdicts on all images, the seconds that it took and its losses."""
    if method in ("plain", "ensemble"):
        numbers = range(seed, seed + (study.members if method == "ensemble" else 1))
        members = [plain_predictions(study, table, n, seed, out, progress=progress) for n in numbers]
        every = [member["probabilities"] for member in members]
        verdicts = {name: assess(np.stack([each[name] for each in every], 1)) for name in every[0]}
        return verdicts, sum(member["seconds"] for member in members), members[0]["losses"]
    data, _ = split(study, table)
    model = trained(study, method, seed, data, out, progress=progress)
    verdicts = {name: model.uncertainty(pixels) for name, pixels in images_to_judge(study, table, seed).items()}
    return verdicts, model.seconds_, model.losses_


def one_row(study: Study, table: int, method: str, seed: int, out: Path, *, progress: bool) -> dict[str, Any]:
    """Train and judge one method with one seed."""
    started = time.perf_counter()
    strange, seconds, losses = judged(study, table, method, seed, out, progress=progress)
    verdicts, aside = strange.pop("seen"), strange.pop("aside", None)
    labels = (study.test if table == 1 else study.test.without(study.left_out)).labels
    row: dict[str, Any] = {"method": method, "seed": seed, **quality(verdicts, labels), **detection(verdicts, strange)}
    if aside is not None and study.coverage is not None:
        row |= calibrated(aside, study.coverage, verdicts, labels, strange)
    row["train_seconds"] = round(seconds, 1)
    row["seconds"] = round(time.perf_counter() - started, 1)
    row["losses"] = [round(loss, 5) for loss in losses]
    return row


def run(study: Study, asked: Asked, table: int, methods: Sequence[str]) -> list[Path]:
    """Train and judge all methods for all seeds, then write the table, the numbers and the figures."""
    if table not in (1, 2):
        raise GPSError(f"there are tables 1 and 2, not {table}")
    for method in methods:
        if method != "ensemble":
            estimator(study, method, study.train, 0, progress=False)
    started, out = time.perf_counter(), asked.out
    settings = {"study": study.name, "table": table, "recipe": study.recipe, "dropout": study.dropout,
                "spread_weight": study.spread_weight, "off_data_spread": study.off_data_spread, "alert": ALERT_WEIGHTS,
                "layer": study.layer, "head_layers": study.head_layers, "off_data_patch": study.off_data_patch,
                "head": study.head, "members": study.members, "coverage": study.coverage,
                "augment": repr(study.augment)}  # fmt: skip
    rows = begin(out, partial(row_key, study, table), force=asked.force)
    asked = replace(asked, started=started - rows.seconds)
    for seed in asked.seeds:
        for method in methods:
            if method == "ensemble" and seed != asked.seed:
                continue  # one ensemble, of the plain networks
            if not rows.has(method, seed):
                rows.append(one_row(study, table, method, seed, out, progress=asked.progress))
    frame = rows.frame()
    text = out / f"table{table}.md"
    text.write_text(paper_table(frame, study.paper.get(table, {}), table), encoding="utf-8")
    files = [asked.write(settings, {"by_method": summarise(frame)}), text]
    tables = {
        "quality": quality_table(frame),
        "coverage": coverage_table(frame, study.literature if table == 1 else {}),
    }
    for name, written in tables.items():
        files.append(out / f"table{table}_{name}.md")
        files[-1].write_text(written, encoding="utf-8")
    if table == 2 and study.coverage is not None:
        files.append(out / "table2_calibrated.md")
        files[-1].write_text(calibrated_table(frame), encoding="utf-8")
    return files + figures(study, table, frame, out, progress=asked.progress)


def row_key(study: Study, table: int, method: str) -> str:
    """Describe all that a row of a method depends on, beside its seed."""
    own: tuple[Any, ...] = ()
    if method.startswith("dropout"):
        own = (study.dropout,)
    elif method == "ensemble":
        own = (study.members,)
    elif method.startswith("gps-") and ON_DATA not in method:
        own = _weights(study, method)
        own = own if study.off_data_patch is None else (*own, study.off_data_patch, _layers(study, method))
    if _has_kept_features(study, method):
        own = (*own, study.head)
        own = (*own, "matched noise") if method.startswith("gps-") else own
    if table == 2 and study.coverage is not None:
        own = (*own, study.coverage, BY_CLASS)
    return repr((study.name, layers_digest(study), table, study.recipe, study.left_out, repr(study.augment), *own))


def layers_digest(study: Study) -> str:
    """Digest the layers of a study's network: rows of another one that had the same name are not taken for its own."""
    network = study.network(study.train.rows(slice(0, _FEW)), 0.0)
    return hashlib.blake2b(repr(network).encode(), digest_size=4).hexdigest()


def figures(study: Study, table: int, frame: pd.DataFrame, out: Path, *, progress: bool) -> list[Path]:
    """Draw risk against coverage and reliability of all methods, and for GPS class probabilities and galleries."""
    diagrams = {
        str(method): Reliability(*(np.asarray(values) for values in rows["reliability"].iloc[0]))
        for method, rows in frame.groupby("method", sort=False)
    }
    files = [
        save_figure(risk_coverage_curves(COVERAGES, mean_curves(frame)), out / "risk_coverage.png"),
        save_figure(reliability_curves(diagrams), out / "reliability.png"),
    ]
    first = next((m for m in frame["method"] if m.startswith("gps-")), None)
    if first is None:
        return [*files, write_page(experiment_page(out), out / REPORT_FILE)]
    seed = int(frame.loc[frame["method"] == first, "seed"].min())
    data, _ = split(study, table)
    model = trained(study, first, seed, data, out, progress=progress)
    images = study.test if table == 1 else study.test.rows(study.test.labels == study.left_out)
    verdicts = replace(model.uncertainty(images.pixels()), classes=np.array(data.classes))
    files += _looks(study, table, model, images, verdicts, out)
    page = experiment_page(out)
    labels = images.labels if table == 1 else None
    gallery = classifier_page(model, images.pixels(), labels, images=images.bytes, verdicts=verdicts).sections[0]
    title = f"{first}, seed {seed}: " + ("test images" if table == 1 else "images of the class that was left out")
    sections = [Section(title, gallery.blocks), *page.sections]
    return [*files, write_page(replace(page, sections=sections), out / REPORT_FILE)]


def _looks(
    study: Study, table: int, model: NetworkClassifier, images: Images, verdicts: ClassUncertainty, out: Path
) -> list[Path]:
    """Draw the class probabilities of a typical image, and the most uncertain images."""
    shown = np.flatnonzero(verdicts.uncertain) if table == 1 else np.arange(len(images))
    if len(shown) == 0:
        return []
    left_out = study.test.classes[study.left_out]
    title = "an Uncertain image" if table == 1 else f"class {left_out!r} was not in training"
    typical = shown[np.argsort(verdicts.uqc_shortfall[shown])[len(shown) // 2]]
    samples = model.sample_proba(images.rows([typical]).pixels())[0]
    names = images.classes
    figure = class_boxplots(
        samples, images.bytes[typical], verdicts.classes,
        truth=names[images.labels[typical]], uqc=verdicts.uqc[typical], title=title,
    )  # fmt: skip
    most = np.argsort(-verdicts.uqc_shortfall, kind="stable")[:_GALLERY]
    captions = [f"{names[images.labels[i]]}\n→ {verdicts.prediction[i]}, {verdicts.mean[i].max():.2f}" for i in most]
    return [
        save_figure(figure, out / "boxplots.png"),
        save_figure(image_gallery(images.bytes[most], captions), out / "most_uncertain.png"),
    ]


def with_epochs(study: Study, epochs: int | None) -> Study:
    """Return the study with another number of epochs, where one is asked for."""
    return study if epochs is None else replace(study, recipe=replace(study.recipe, epochs=epochs))
