"""What the noise does to a classifier of CIFAR-10, in minutes: heads are trained on the features of one trunk.

A plain network learns the classes but the one that is left out, from nine tenths of the training images. Its trunk then
gives features once, and every setting trains a head on them. Settings differ from the default in one factor at a time,
and are judged by the last tenth, by the class that was left out and by noise, never by test images.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from gpsuq.datasets.images import Images
from gpsuq.decisions import auroc, risk_coverage, selective_error, wrong
from gpsuq.errors import GPSError
from gpsuq.estimators.classifier import OFF_DATA_SPREAD, SPREAD_WEIGHT, GPSClassifier
from gpsuq.experiments import images
from gpsuq.experiments.cifar10 import cifar10_study
from gpsuq.experiments.record import command_line, write_metrics
from gpsuq.networks import feed_forward
from gpsuq.plots import save_figure
from gpsuq.plots.factors import factor_panels
from gpsuq.recipes import Recipe
from gpsuq.reports import experiment_page, write_page
from gpsuq.reports.saved import REPORT_FILE
from gpsuq.seeds import seeded

_ASIDE = 10
_AUGMENTED = 4
_WIDTH, _DEPTH = 200, 2
_BATCH = 500
_STRANGE = 2000

Features = NDArray[np.float32]


@dataclass(frozen=True)
class Setting:
    """One way to give a head noise; the defaults are those of :class:`~gpsuq.GPSClassifier` in the experiments."""

    ratio: float = 0.5
    place: str = "head input"
    draws: int = 4
    noise_decay: float = 0.0
    epochs: int = 8
    spread_weight: float = SPREAD_WEIGHT
    off_data_spread: float = OFF_DATA_SPREAD


FACTORS: dict[str, tuple[Any, ...]] = {
    "ratio": (0.1, 0.25, 0.5, 1.0),
    "place": ("head input", "every layer"),
    "draws": (2, 4, 10),
    "noise_decay": (0.0, 1e-4, 1e-3, 1e-2),
    "epochs": (4, 8, 16),
    "spread_weight": (0.0, 0.05, 0.2),
    "off_data_spread": (0.0, 0.05),
}
"""What is varied, one factor at a time."""

NAMES = {
    "ratio": "noise ratio r",
    "place": "place of the noise",
    "draws": "draws M",
    "noise_decay": "decay of noise weights",
    "epochs": "epochs",
    "spread_weight": "price of spread",
    "off_data_spread": "reward off the data",
}


@dataclass(frozen=True)
class DecayedNoise(Recipe):
    """A recipe that decays noise weights, too; the library's own never does."""

    noise_decay: float = 0.0

    def make_optimizer(self, network: nn.Module) -> torch.optim.Optimizer:
        """Give the optimiser, with the noise weights in a group of their own."""
        optimizer = super().make_optimizer(network)
        noise = {p for name, p in network.named_parameters() if name.endswith("noise_weight")}
        for group in optimizer.param_groups:
            group["params"] = [p for p in group["params"] if p not in noise]
        optimizer.add_param_group({"params": list(noise), "weight_decay": self.noise_decay})
        return optimizer


@dataclass(frozen=True)
class Cache:
    """Features of everything that heads are trained on and judged by."""

    train: Features
    train_labels: NDArray[np.int64]
    seen: Features
    seen_labels: NDArray[np.int64]
    unseen: Features
    noise: Features


def settings() -> Iterator[Setting]:
    """Give the default, and every setting that differs from it in one factor."""
    yield Setting()
    for factor, values in FACTORS.items():
        for value in values:
            setting = replace(Setting(), **{factor: value})
            if setting != Setting():
                yield setting


def features(trunk: nn.Module, pixels: Features) -> Features:
    """Pass images through the trunk."""
    trunk.eval()
    with torch.no_grad():
        parts = [trunk(batch) for batch in torch.from_numpy(pixels).split(_BATCH)]
    return np.asarray(torch.cat(parts).numpy())


def cached(study: images.Study, out: Path, *, progress: bool) -> Cache:
    """Train the trunk where it is not there yet, and give the features."""
    aside = np.arange(len(study.train)) % _ASIDE == 0
    rest, validation = study.train.rows(~aside), study.train.rows(aside)
    known, seen = rest.without(study.left_out), validation.without(study.left_out)
    network = images.trained(study, "plain", 0, known, out, progress=progress).network_
    trunk = network.get_submodule("trunk")
    unseen = study.train.rows(study.train.labels == study.left_out).rows(slice(0, _STRANGE))
    copies = [features(trunk, _augmented(study, known, number)) for number in range(_AUGMENTED)]
    return Cache(
        np.concatenate(copies),
        np.tile(known.labels, _AUGMENTED),
        features(trunk, seen.pixels()),
        seen.labels,
        features(trunk, unseen.pixels()),
        features(trunk, images.uniform_noise(study, 0)),
    )


def _augmented(study: images.Study, data: Images, number: int) -> Features:
    pixels = data.pixels()
    if study.augment is None:
        return pixels
    with seeded(0, "augmented features", number):
        parts: list[Tensor] = [study.augment(batch) for batch in torch.from_numpy(pixels).split(_BATCH)]
    return np.asarray(torch.cat(parts).contiguous().numpy())


def head(setting: Setting, n_inputs: int, n_classes: int, seed: int) -> GPSClassifier:
    """Give the classifier on features that a setting asks for."""
    recipe = DecayedNoise(
        epochs=max(1, setting.epochs // _AUGMENTED), n_draws=setting.draws, noise_decay=setting.noise_decay
    )
    layers = [str(3 * number) for number in range(_DEPTH + 1)]  # each affine layer is followed by two others
    return GPSClassifier(
        lambda: feed_forward(n_inputs, n_classes, width=_WIDTH, depth=_DEPTH),
        layers if setting.place == "every layer" else layers[0],
        ratio=setting.ratio,
        spread_weight=setting.spread_weight,
        off_data_spread=setting.off_data_spread,
        recipe=recipe,
        random_state=seed,
    )


def one_row(cache: Cache, setting: Setting, seed: int) -> dict[str, Any]:
    """Train and judge one head."""
    model = head(setting, cache.train.shape[1], int(cache.train_labels.max()) + 1, seed)
    model.fit(cache.train, cache.train_labels)
    verdicts = model.uncertainty(cache.seen)
    found = selective_error(verdicts.mean, cache.seen_labels, verdicts.uncertain)
    row: dict[str, Any] = {
        "method": repr(setting),
        "seed": seed,
        **asdict(setting),
        "error": found.full,
        "certain_error": found.certain,
        "uncertain": found.uncertain_share,
        "aurc": risk_coverage(verdicts.uqc_shortfall, wrong(verdicts.mean, cache.seen_labels)).area,
    }
    for name, strange in (("unseen", cache.unseen), ("noise", cache.noise)):
        theirs = model.uncertainty(strange)
        row[f"{name}_uncertain"] = float(theirs.uncertain.mean())
        row[f"{name}_auroc"] = auroc(verdicts.uqc_shortfall, theirs.uqc_shortfall)
    return row


MEASURES = {
    "error": "error",
    "certain_error": "certain error",
    "uncertain": "Uncertain, seen classes",
    "unseen_uncertain": "Uncertain, unseen class",
    "noise_uncertain": "Uncertain, noise",
}


def by_factor(frame: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Give one table for each factor: its values by measure, means over seeds in per cent."""
    tables = {}
    for factor, values in FACTORS.items():
        others = [name for name in FACTORS if name != factor]
        default = asdict(Setting())
        same = (frame[others] == pd.Series(default)[others]).all(axis=1)
        means = 100.0 * frame[same].groupby(factor)[list(MEASURES)].mean().reindex(list(values))
        tables[NAMES[factor]] = means.rename(columns=MEASURES)
    return tables


def markdown(tables: dict[str, pd.DataFrame]) -> str:
    """Write all factors as one table."""
    columns = list(MEASURES.values())
    lines = ["| factor | value | " + " | ".join(f"{column} (%)" for column in columns) + " |"]
    lines.append("|" + "---|" * (len(columns) + 2))
    for factor, table in tables.items():
        for value, row in table.iterrows():
            numbers = " | ".join(f"{row[column]:.2f}" for column in columns)
            lines.append(f"| {factor} | {value} | {numbers} |")
    return "\n".join(lines) + "\n"


def run(
    seeds: Sequence[int],
    out: Path,
    *,
    network: str = "modern",
    epochs: int | None = None,
    progress: bool = False,
    force: bool = False,
) -> list[Path]:
    """Train the trunk and all heads, then write the table and the figure; ``epochs`` are those of the trunk."""
    if not seeds:
        raise GPSError("at least one seed is needed")
    study = images.with_epochs(cifar10_study(network), epochs)
    started = time.perf_counter()
    rows = images.begin(out, lambda _: repr(("heads", study.name, study.recipe)), force=force)
    cache: Cache | None = None
    for seed in seeds:
        for setting in settings():
            if not rows.has(repr(setting), seed):
                cache = cache or cached(study, out, progress=progress)
                rows.append(one_row(cache, setting, seed))
    tables = by_factor(rows.frame())
    text = out / "table_heads.md"
    text.write_text(markdown(tables))
    results = {factor: table.round(4).to_dict(orient="index") for factor, table in tables.items()}
    command = command_line("heads", out, seeds=",".join(map(str, seeds)), network=network, epochs=epochs)
    files = [
        write_metrics(out, command, settings={"trunk": study.recipe, "default": Setting(), "seeds": list(seeds)},
                      results=results, started=started),
        text,
        save_figure(factor_panels(tables), out / "factors.png"),
    ]  # fmt: skip
    return [*files, write_page(experiment_page(out), out / REPORT_FILE)]
