"""The demo: scissors, and a table and digits that scikit-learn ships; offline, in about a minute."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.datasets import load_iris
from torch.distributions import Normal

from gpsuq.decisions import SelectiveError, selective_error
from gpsuq.experiments import images, scissors
from gpsuq.experiments.mnist import digits_study
from gpsuq.gps import GPS
from gpsuq.models import ObservationModel
from gpsuq.parameters import Location
from gpsuq.plots import COLORS, class_boxplots, figure_style, save_figure
from gpsuq.uq import UQDistribution

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COVERAGE = 0.9
_NOISE_CM = 0.3


def iris(*, progress: bool = False) -> tuple[UQDistribution, pd.DataFrame]:
    """Fit petal lengths of 150 irises, y_i ~ N(theta_i, 0.3^2), without telling which species a flower is."""
    bunch = load_iris(as_frame=True)
    table = pd.DataFrame(
        {
            "petal_length_cm": bunch.data["petal length (cm)"],
            "species": bunch.target_names[bunch.target],
        }
    )
    model = ObservationModel(lambda theta: Normal(theta, _NOISE_CM), theta=Location())
    return GPS(model, progress=progress).fit(table["petal_length_cm"]), table


def iris_figure(uq: UQDistribution, table: pd.DataFrame) -> Figure:
    """Draw the data and the UQ distribution of the typical length, with the species' means for comparison."""
    import matplotlib.pyplot as plt

    theta = uq.draws(4000)["theta"].ravel()
    bins = np.linspace(0.5, 7.5, 57).tolist()
    with figure_style():
        figure, (top, bottom) = plt.subplots(2, 1, figsize=(7, 5), sharex=True)
        top.hist(table["petal_length_cm"], bins=bins, color=COLORS["data"])
        top.set(ylabel="flowers", title="Petal lengths of 150 irises")
        bottom.hist(theta, bins=bins, density=True, color=COLORS["gps"])
        bottom.set(xlabel="petal length, cm", ylabel="density", title="UQ distribution of a flower's typical length")
        for number, (species, mean) in enumerate(table.groupby("species")["petal_length_cm"].mean().items()):
            bottom.axvline(mean, color=COLORS["truth"], linestyle=("--", ":", "-.")[number], label=f"mean of {species}")
        bottom.legend()
    return figure


def digits(out: Path, *, progress: bool = False) -> tuple[list[Path], SelectiveError]:
    """Train a small network on digits, write its verdicts and show one that is uncertain; give its errors."""
    study = digits_study()
    model = images.estimator(study, "gps-0.5", len(study.train.classes), 0, progress=progress)
    model.fit(study.train.pixels(), study.train.labels)
    verdicts = model.uncertainty(study.test.pixels())
    out.mkdir(parents=True, exist_ok=True)
    verdicts.to_frame().assign(label=study.test.labels).to_csv(out / "verdicts.csv", index_label="image")
    least = int(verdicts.uqc_shortfall.argmax())
    figure = class_boxplots(
        model.sample_proba(study.test.pixels()[[least]])[0],
        study.test.bytes[least],
        model.classes_,
        truth=str(study.test.labels[least]),
        uqc=verdicts.uqc[least],
        title="the most uncertain digit",
    )
    files = [out / "verdicts.csv", save_figure(figure, out / "most_uncertain.png")]
    return files, selective_error(verdicts.mean, study.test.labels, verdicts.uncertain)


def run(out: Path, *, progress: bool = False) -> tuple[list[Path], NDArray[np.floating], SelectiveError]:
    """Write figures and tables; give their paths, the region that holds theta, and the errors on digits."""
    files = scissors.run(0, 1, out / "scissors", force=True)
    uq, table = iris(progress=progress)
    summary = out / "iris" / "summary.csv"
    summary.parent.mkdir(parents=True, exist_ok=True)
    uq.summary().to_csv(summary)
    figure = save_figure(iris_figure(uq, table), out / "iris" / "petal_length.png")
    more, errors = digits(out / "digits", progress=progress)
    region = uq.interval(COVERAGE, of="population", kind="highest-density")["theta"]
    return [*files, summary, figure, *more], region, errors
