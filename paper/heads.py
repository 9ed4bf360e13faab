"""What the noise does to a classifier of CIFAR-10, in minutes: heads are trained on the features of one trunk.

The trunk is that of Table 2's plain network. Settings differ from the default in one factor at a time, and are judged
by the training images that Table 2 sets aside, by training images of the class that was left out and by noise, never
by test images.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from gpsuq.classify.decisions import auroc, risk_coverage, selective_error, wrong
from gpsuq.classify.estimator import OFF_DATA_SPREAD, SPREAD_WEIGHT
from gpsuq.classify.off_data import BOX, PatchSize
from gpsuq.engine.settings import Recipe
from gpsuq.errors import GPSError
from gpsuq.plots.style import save_figure
from gpsuq.reports.page import write_page
from gpsuq.reports.saved import REPORT_FILE
from paper import images
from paper.cifar10 import COVERAGE, HEAD, cifar10_study
from paper.factors import factor_panels
from paper.features import (
    Features,
    HeadGPS,
    fit_head,
    kept_features,
    off_data_features,
    outputs,
    split_network,
)
from paper.image_tables import BY_CLASS, ONE
from paper.page import experiment_page
from paper.record import Asked
from paper.rows import begin


@dataclass(frozen=True)
class Setting:
    """One way to add noise to a head; the defaults are those of the modern network in the experiments."""

    ratio: float = 0.5
    place: str = "every layer"
    draws: int = HEAD.n_draws
    noise_decay: float = 0.0
    epochs: int | None = HEAD.epochs
    learning_rate: float = HEAD.learning_rate
    spread_weight: float = SPREAD_WEIGHT
    off_data_spread: float = OFF_DATA_SPREAD
    off_data: str = "grain, 3 boxes"


FACTORS: dict[str, tuple[Any, ...]] = {
    "ratio": (0.1, 0.25, 0.5, 1.0),
    "place": ("head input", "every layer"),
    "draws": (2, 3, 4, 10),
    "noise_decay": (0.0, 1e-4, 1e-3, 1e-2),
    "epochs": (1, 2, 3, 4, 8),
    "learning_rate": (0.02, 0.05, 0.1),
    "spread_weight": (0.0, 0.05, 0.2, 0.5),
    "off_data_spread": (0.0, 0.05, 0.07, 0.1, 0.4),
    "off_data": ("grain", "16", "box", "grain, 3 x 4", "grain, 3 x 16", "grain, 3 boxes"),
}
"""What is varied, one factor at a time."""

OFF_DATA: dict[str, tuple[PatchSize, ...]] = {
    "grain": (None,),
    "16": (16,),
    "box": (BOX,),
    "grain, 3 x 4": (None, 4, 4, 4),
    "grain, 3 x 16": (None, 16, 16, 16),
    "grain, 3 boxes": (None, BOX, BOX, BOX),
}
"""Images unlike the data: sizes of the patches that come from different images, with equal shares."""

NAMES = {
    "ratio": "noise ratio r",
    "place": "place of the noise",
    "draws": "draws M",
    "noise_decay": "decay of noise weights",
    "epochs": "epochs",
    "learning_rate": "learning rate",
    "spread_weight": "price of spread",
    "off_data_spread": "reward off the data",
    "off_data": "off the data: patches of",
}


@dataclass(frozen=True)
class DecayedNoise(Recipe):
    """A recipe that decays noise weights, too; the library's own never does."""

    noise_decay: float = 0.0

    def make_optimizer(self, network: nn.Module) -> torch.optim.Optimizer:
        """Return the optimiser, with the noise weights in a group of their own."""
        optimizer = super().make_optimizer(network)
        noise = {p for name, p in network.named_parameters() if name.endswith("noise_weight")}
        for group in optimizer.param_groups:
            group["params"] = [p for p in group["params"] if p not in noise]
        optimizer.add_param_group({"params": list(noise), "weight_decay": self.noise_decay})
        return optimizer


@dataclass(frozen=True)
class Material:
    """Features of everything that heads are trained on and judged by; ``off_data`` has them by the size of patches."""

    head: nn.Sequential
    known: Features
    off_data: dict[PatchSize, Tensor]
    seen: Tensor
    seen_labels: NDArray[np.int64]
    unseen: Tensor
    noise: Tensor


def default_setting(study: images.Study) -> Setting:
    """Return the setting of a study's own GPS rows."""
    place = "head input" if len(study.layer) == 1 else "every layer"
    return Setting(place=place, spread_weight=study.spread_weight, off_data_spread=study.off_data_spread)


def settings(default: Setting) -> Iterator[Setting]:
    """Yield the default, and every setting that differs from it in one factor."""
    yield default
    for factor, values in FACTORS.items():
        for value in values:
            setting = replace(default, **{factor: value})
            if setting != default:
                yield setting


def prepared(study: images.Study, out: Path, *, progress: bool) -> Material:
    """Train the trunk where that has not been done, and return the features."""
    data, seen = images.split(study, 2)
    assert seen is not None
    plain = images.trained(study, "plain", 0, data, out, progress=progress)
    trunk, head = split_network(plain.network_, images.first_layer(study))
    unseen = study.train.rows(study.train.labels == study.left_out)
    sizes = {size for several in OFF_DATA.values() for size in several}
    return Material(
        head,
        kept_features(trunk, data, study.augment, study.off_data_patch, out / "models" / "plain-0"),
        {size: off_data_features(trunk, data, size) for size in sorted(sizes, key=str)},
        outputs(trunk, torch.from_numpy(seen.pixels())),
        seen.labels,
        outputs(trunk, torch.from_numpy(unseen.pixels())),
        outputs(trunk, torch.from_numpy(images.uniform_noise(study, 0))),
    )


def classifier(setting: Setting, material: Material, seed: int) -> HeadGPS:
    """Return the classifier on features that a setting asks for."""
    affine = [name for name, layer in material.head.named_modules() if isinstance(layer, nn.Linear)]
    varied = {"n_draws": setting.draws} | {
        name: getattr(setting, name) for name in ("epochs", "learning_rate", "noise_decay")
    }
    return HeadGPS(
        material.head,
        affine if setting.place == "every layer" else affine[0],
        ratio=setting.ratio,
        spread_weight=setting.spread_weight,
        off_data_spread=setting.off_data_spread,
        recipe=DecayedNoise(**(asdict(HEAD) | varied)),
        random_state=seed,
    )


def one_row(material: Material, setting: Setting, seed: int) -> dict[str, Any]:
    """Train and judge one head."""
    model = classifier(setting, material, seed)
    sizes = OFF_DATA[setting.off_data]
    few = len(material.off_data[None]) // len(sizes)  # as many in all, whatever they are made of
    strange_features = torch.cat([material.off_data[size][number * few :][:few] for number, size in enumerate(sizes)])
    fit_head(model, replace(material.known, off_data=strange_features))
    verdicts = model.uncertainty(material.seen)
    found = selective_error(verdicts.mean, material.seen_labels, verdicts.uncertain)
    row: dict[str, Any] = {
        "method": repr(setting),
        "seed": seed,
        **asdict(setting),
        "error": found.full,
        "certain_error": found.certain,
        "uncertain": found.uncertain_share,
        "aurc": risk_coverage(verdicts.uqc_shortfall, wrong(verdicts.mean, material.seen_labels)).area,
    }
    theirs = {name: model.uncertainty(getattr(material, name)) for name in ("unseen", "noise")}
    for name, strange in theirs.items():
        row[f"{name}_uncertain"] = float(strange.uncertain.mean())
        row[f"{name}_auroc"] = auroc(verdicts.uqc_shortfall, strange.uqc_shortfall)
    return row | images.calibrated(verdicts, COVERAGE, verdicts, material.seen_labels, theirs)


MEASURES = {
    "error": "error",
    "certain_error": "certain error",
    "uncertain": "Uncertain",
    "noise_uncertain": "noise found",
    f"{BY_CLASS}_unseen_uncertain": "strangers by class",
    f"{ONE}_unseen_uncertain": "strangers, one threshold",
    "unseen_uncertain": "strangers, default",
    "aurc": "AURC",
}
"""Shares of the seen classes, of noise and of the class that was not in training that are Uncertain; strangers also by
verdicts that leave a share :data:`COVERAGE` of the seen images certain, of every class or of all."""

_DRAWN = 5  # of these measures, the first


def by_factor(frame: pd.DataFrame, default: Setting) -> dict[str, pd.DataFrame]:
    """Return one table for each factor: its values by measure, means over seeds in per cent."""
    tables = {}
    for factor, values in FACTORS.items():
        others = [name for name in FACTORS if name != factor]
        same = (frame[others] == pd.Series(asdict(default))[others]).all(axis=1)
        means = 100.0 * frame[same].groupby(factor)[list(MEASURES)].mean().reindex(list(values))
        tables[NAMES[factor]] = means.rename(columns=MEASURES)
    return tables


def markdown(tables: dict[str, pd.DataFrame]) -> str:
    """Write all factors as one table, in per cent."""
    columns = list(MEASURES.values())
    lines = ["| factor | value | " + " | ".join(columns) + " |"]
    lines.append("|" + "---|" * (len(columns) + 2))
    for factor, table in tables.items():
        for value, row in table.iterrows():
            numbers = " | ".join(f"{row[column]:.2f}" for column in columns)
            lines.append(f"| {factor} | {value} | {numbers} |")
    return "\n".join(lines) + "\n"


def run(asked: Asked, epochs: int | None, *, network: str) -> list[Path]:
    """Train the trunk and all heads, then write the table and the figure; ``epochs`` are those of the trunk."""
    if not asked.seeds:
        raise GPSError("at least one seed is needed")
    study = cifar10_study(network, epochs)
    started, out = time.perf_counter(), asked.out
    default = default_setting(study)
    key = repr(("heads", study.name, images.layers_digest(study), study.recipe, HEAD, repr(study.augment)))
    rows = begin(out, lambda _: key, force=asked.force)
    asked = replace(asked, started=started - rows.seconds)
    material: Material | None = None
    for seed in asked.seeds:
        for setting in settings(default):
            if not rows.has(repr(setting), seed):
                material = material or prepared(study, out, progress=asked.progress)
                begun = time.perf_counter()
                row = one_row(material, setting, seed)
                rows.append(row | {"seconds": round(time.perf_counter() - begun, 1)})
    tables = by_factor(rows.frame(), default)
    text = out / "table_heads.md"
    text.write_text(markdown(tables), encoding="utf-8")
    results = {factor: table.round(4).to_dict(orient="index") for factor, table in tables.items()}
    chosen = {
        "trunk": study.recipe,
        "augment": repr(study.augment),
        "head": HEAD,
        "default": default,
        "seeds": list(asked.seeds),
    }
    files = [
        asked.write(chosen, results),
        text,
        save_figure(
            factor_panels({name: table.iloc[:, :_DRAWN] for name, table in tables.items()}), out / "factors.png"
        ),
    ]
    return [*files, write_page(experiment_page(out), out / REPORT_FILE)]
