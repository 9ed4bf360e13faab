"""Image classifiers that say "Uncertain", section 4 of the paper: Table 1 (all classes) and Table 2 (one left out).

Every network is trained with checkpoints in ``models/`` below the output, and what it gave is appended to
``rows.jsonl`` as soon as it exists: a run that was stopped goes on where it was, and rows of further seeds or methods
join the table.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from torch import Tensor, nn

from gpsuq.baselines import DropoutClassifier, EnsembleClassifier, PlainClassifier
from gpsuq.datasets.images import Images
from gpsuq.decisions import (
    ClassUncertainty,
    auroc,
    brier,
    fpr95,
    log_loss,
    reliability,
    risk_coverage,
    selective_error,
    wrong,
)
from gpsuq.errors import GPSError
from gpsuq.estimators.classifier import GPSClassifier
from gpsuq.estimators.network import NetworkClassifier
from gpsuq.experiments.record import write_metrics
from gpsuq.plots import save_figure
from gpsuq.plots.classes import class_boxplots, image_gallery, reliability_curves, risk_coverage_curves
from gpsuq.recipes import Recipe
from gpsuq.seeds import derive_seed

METHODS = ("plain", "dropout", "ensemble", "gps-0.5", "gps-0.25")
COVERAGES = tuple(np.round(np.concatenate([np.arange(0.5, 0.9, 0.01), np.arange(0.9, 1.0005, 0.001)]), 3).tolist())
"""Coverages at which the error of every method is written down."""

_GALLERY = 24
_NOISE_IMAGES = 2000


@dataclass(frozen=True)
class Study:
    """One data set with its network: everything that the two tables need.

    ``network`` makes it for a number of classes and a dropout rate; ``outside`` gives images of another kind, where
    they are at hand; ``paper`` holds the published rows by method: error, certain error and share uncertain in per cent
    for Table 1, share uncertain of the unseen class and of noise for Table 2.
    """

    name: str
    train: Images
    test: Images
    network: Callable[[int, float], nn.Module]
    layer: str
    recipe: Recipe
    left_out: int
    members: int = 5
    dropout: float = 0.25
    spread_weight: float = 0.0
    augment: Callable[[Tensor], Tensor] | None = None
    outside: Callable[[], Images | None] | None = None
    paper: dict[int, dict[str, tuple[float | None, ...]]] = field(default_factory=dict)


def estimator(study: Study, method: str, n_classes: int, seed: int, *, progress: bool) -> NetworkClassifier:
    """Give the classifier of a method; all share one recipe."""
    common: dict[str, Any] = {"recipe": study.recipe, "random_state": seed, "progress": progress}
    if method == "plain":
        return PlainClassifier(lambda: study.network(n_classes, 0.0), **common)
    if method == "dropout":
        return DropoutClassifier(lambda: study.network(n_classes, study.dropout), **common)
    if method.startswith("gps-"):
        return GPSClassifier(
            lambda: study.network(n_classes, 0.0),
            study.layer,
            ratio=float(method.removeprefix("gps-")),
            spread_weight=study.spread_weight,
            **common,
        )
    raise GPSError(f"unknown method {method!r}; use one of {', '.join(METHODS)}, or gps- with another ratio")


def trained(study: Study, method: str, seed: int, data: Images, out: Path, *, progress: bool) -> NetworkClassifier:
    """Train one classifier, from its checkpoint where there is one; an ensemble joins plain networks."""
    if method == "ensemble":
        numbers = range(seed, seed + study.members)
        members = [trained(study, "plain", number, data, out, progress=progress) for number in numbers]
        return EnsembleClassifier.of(members)
    model = estimator(study, method, len(data.classes), seed, progress=progress)
    folder = out / "models" / f"{method}-{seed}"
    return model.fit(data.pixels(), data.labels, augment=study.augment, checkpoint=folder)  # type: ignore[no-any-return]


def quality(verdicts: ClassUncertainty, labels: NDArray[np.int64]) -> dict[str, Any]:
    """Measure verdicts on labelled images."""
    found = selective_error(verdicts.mean, labels, verdicts.uncertain)
    curve = risk_coverage(verdicts.uqc_shortfall, wrong(verdicts.mean, labels))
    return {
        "error": found.full,
        "certain_error": found.certain,
        "uncertain": found.uncertain_share,
        "aurc": curve.area,
        "log_loss": log_loss(verdicts.mean, labels),
        "brier": brier(verdicts.mean, labels),
        "ece": reliability(verdicts.mean, labels).error,
        "error_at_coverage": [curve.at(coverage) for coverage in COVERAGES],
    }


def uniform_noise(study: Study, seed: int) -> NDArray[np.float32]:
    """Give images of independent uniform pixels."""
    rng = np.random.default_rng(derive_seed(seed, "noise images"))
    return rng.random((_NOISE_IMAGES, *study.test.bytes.shape[1:]), dtype=np.float32)


def one_row(study: Study, table: int, method: str, seed: int, out: Path, *, progress: bool) -> dict[str, Any]:
    """Train and judge one method with one seed."""
    started = time.perf_counter()
    data = study.train if table == 1 else study.train.without(study.left_out)
    model = trained(study, method, seed, data, out, progress=progress)
    trained_after = time.perf_counter() - started
    started = time.perf_counter()
    seen = study.test if table == 1 else study.test.without(study.left_out)
    verdicts = model.uncertainty(seen.pixels())
    row: dict[str, Any] = {"method": method, "seed": seed, **quality(verdicts, seen.labels)}
    others = {"noise": uniform_noise(study, seed)}
    if table == 2:
        others["unseen"] = study.test.rows(study.test.labels == study.left_out).pixels()
    outside = None if study.outside is None else study.outside()
    if outside is not None:
        others["outside"] = outside.pixels()
    for name, pixels in others.items():
        strange = model.uncertainty(pixels)
        row[f"{name}_uncertain"] = float(strange.uncertain.mean())
        row[f"{name}_auroc"] = auroc(verdicts.uqc_shortfall, strange.uqc_shortfall)
        row[f"{name}_fpr95"] = fpr95(verdicts.uqc_shortfall, strange.uqc_shortfall)
    row["train_seconds"] = round(trained_after, 1)
    row["judge_seconds"] = round(time.perf_counter() - started, 1)
    row["losses"] = [round(loss, 5) for loss in model.losses_]
    return row


def run(
    study: Study,
    table: int,
    methods: Sequence[str],
    seeds: Sequence[int],
    out: Path,
    command: str,
    *,
    progress: bool = False,
    force: bool = False,
) -> list[Path]:
    """Train and judge all methods for all seeds, then write the table, the numbers and the figures."""
    if table not in (1, 2):
        raise GPSError(f"there are tables 1 and 2, not {table}")
    for method in methods:
        if method != "ensemble":
            estimator(study, method, 2, 0, progress=False)
    out.mkdir(parents=True, exist_ok=True)
    started = time.perf_counter()
    rows = _Rows(out / "rows.jsonl", key=json.dumps([study.name, table, repr(study.recipe), study.spread_weight]))
    if force:
        rows.clear()
    for seed in seeds:
        for method in methods:
            if method == "ensemble" and seed != seeds[0]:
                continue  # one ensemble, of the plain networks
            if not rows.has(method, seed):
                rows.append(one_row(study, table, method, seed, out, progress=progress))
    frame = rows.frame()
    settings = {"study": study.name, "table": table, "recipe": study.recipe, "dropout": study.dropout,
                "spread_weight": study.spread_weight, "members": study.members}  # fmt: skip
    results = {"by_method": summarise(frame), "coverages": list(COVERAGES)}
    text = out / f"table{table}.md"
    text.write_text(paper_table(frame, study, table))
    files = [write_metrics(out, command, settings=settings, results=results, started=started), text]
    return files + figures(study, table, frame, seeds[0], out, progress=progress)


class _Rows:
    """Rows on disk, one line each; a file that belongs to another study or recipe is refused."""

    def __init__(self, path: Path, key: str) -> None:
        self.path, self.key = path, key
        self.rows: list[dict[str, Any]] = []
        if path.exists():
            lines = [json.loads(line) for line in path.read_text().splitlines(keepends=True) if line.endswith("\n")]
            self.rows = [line["row"] for line in lines if line["key"] == key]
            if lines and not self.rows:
                raise GPSError(f"{path} holds rows of other settings; choose another directory or pass --force")

    def clear(self) -> None:
        self.rows = []
        self.path.unlink(missing_ok=True)

    def has(self, method: str, seed: int) -> bool:
        return any(row["method"] == method and row["seed"] == seed for row in self.rows)

    def append(self, row: dict[str, Any]) -> None:
        self.rows.append(row)
        with self.path.open("a") as file:
            file.write(json.dumps({"key": self.key, "row": row}) + "\n")

    def frame(self) -> pd.DataFrame:
        order = {method: number for number, method in enumerate(METHODS)}

        def place(row: dict[str, Any]) -> tuple[int, int]:
            return order.get(row["method"], len(order)), row["seed"]

        rows: list[dict[str, Any]] = sorted(self.rows, key=place)
        return pd.DataFrame(rows)


def mean_curves(frame: pd.DataFrame) -> dict[str, NDArray[np.float64]]:
    """Give every method's error at each coverage, the mean over seeds."""
    return {
        str(method): np.mean(list(rows["error_at_coverage"]), axis=0)
        for method, rows in frame.groupby("method", sort=False)
    }


def summarise(frame: pd.DataFrame) -> dict[str, Any]:
    """Means over seeds with their spread, and every method's error at the coverage of each GPS."""
    result: dict[str, Any] = {}
    curves = mean_curves(frame)
    for method, rows in frame.groupby("method", sort=False):
        numbers = rows.drop(columns=["method", "losses", "error_at_coverage"]).dropna(axis=1)
        entry: dict[str, Any] = {
            str(name): {
                "mean": values.mean(),
                "sd": values.std(ddof=1),
                "median": values.median(),
                "each": list(values),
            }
            for name, values in numbers.items()
        }
        entry["error_at_coverage"] = [round(float(value), 6) for value in curves[str(method)]]
        if str(method).startswith("gps-"):
            coverage = 1.0 - numbers["uncertain"].mean()
            entry["errors_at_its_coverage"] = {
                other: float(np.interp(coverage, COVERAGES, curve)) for other, curve in curves.items()
            }
        result[str(method)] = entry
    return result


def _per_cent(values: pd.Series) -> str:
    spread = f" ± {100 * values.std(ddof=1):.2f}" if len(values) > 1 else ""
    return f"{100 * values.mean():.2f}{spread}"


def paper_table(frame: pd.DataFrame, study: Study, table: int) -> str:
    """Write the table in the paper's layout, its numbers beside ours; per cent, mean and sd over seeds."""
    columns = (
        {"error": "error", "certain_error": "error without Uncertain", "uncertain": "Uncertain"}
        if table == 1
        else {"unseen_uncertain": "Uncertain, unseen class", "noise_uncertain": "Uncertain, noise"}
    )
    more = {"uncertain": "Uncertain, seen test images"} if table == 2 else {}
    heads = [head for title in columns.values() for head in (f"{title} (%)", "paper")]
    heads += [f"{title} (%)" for title in more.values()] + ["seeds"]
    lines = ["| method | " + " | ".join(heads) + " |", "|" + "---|" * (len(heads) + 1)]
    for method, rows in frame.groupby("method", sort=False):
        published = study.paper.get(table, {}).get(str(method), (None,) * len(columns))
        cells = []
        for column, number in zip(columns, published, strict=True):
            cells += [_per_cent(rows[column]), "-" if number is None else f"{number:g}"]
        cells += [_per_cent(rows[column]) for column in more]
        lines.append("| " + " | ".join([str(method), *cells, str(len(rows))]) + " |")
    return "\n".join(lines) + "\n"


def figures(study: Study, table: int, frame: pd.DataFrame, seed: int, out: Path, *, progress: bool) -> list[Path]:
    """Draw risk against coverage for all methods, and for GPS boxplots of class probabilities and galleries."""
    curves = {
        str(m): np.mean(list(rows["error_at_coverage"]), axis=0) for m, rows in frame.groupby("method", sort=False)
    }
    files = [save_figure(risk_coverage_curves(COVERAGES, curves), out / "risk_coverage.png")]
    first = next((m for m in frame["method"] if m.startswith("gps-")), None)
    if first is None:
        return files
    seed = int(frame.loc[frame["method"] == first, "seed"].min())
    data = study.train if table == 1 else study.train.without(study.left_out)
    model = trained(study, first, seed, data, out, progress=progress)
    if table == 1:
        images = study.test
        verdicts = model.uncertainty(images.pixels())
        files.append(
            save_figure(reliability_curves({first: reliability(verdicts.mean, images.labels)}), out / "reliability.png")
        )
        shown = np.flatnonzero(verdicts.uncertain)
        title = "an Uncertain image"
    else:
        images = study.test.rows(study.test.labels == study.left_out)
        verdicts = model.uncertainty(images.pixels())
        shown = np.arange(len(images))
        title = f"class {study.test.classes[study.left_out]!r} was not in training"
    if len(shown) == 0:
        return files
    typical = shown[np.argsort(verdicts.uqc_shortfall[shown])[len(shown) // 2]]
    samples = model.sample_proba(images.rows([typical]).pixels())[0]
    names = images.classes
    figure = class_boxplots(
        samples, images.bytes[typical], model.classes_ if table == 1 else np.delete(np.array(names), study.left_out),
        truth=names[images.labels[typical]], uqc=verdicts.uqc[typical], title=title,
    )  # fmt: skip
    files.append(save_figure(figure, out / "boxplots.png"))
    most = np.argsort(-verdicts.uqc_shortfall, kind="stable")[:_GALLERY]
    known = np.array(data.classes)
    captions = [
        f"{names[images.labels[i]]} → {known[verdicts.mean[i].argmax()]}, {verdicts.mean[i].max():.2f}" for i in most
    ]
    files.append(save_figure(image_gallery(images.bytes[most], captions), out / "most_uncertain.png"))
    return files


def with_epochs(study: Study, epochs: int | None) -> Study:
    """Give the study with another number of epochs, where one is asked for."""
    return study if epochs is None else replace(study, recipe=replace(study.recipe, epochs=epochs))
