"""The demo: scissors, and a table and digits that scikit-learn ships; offline, in about a minute."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from sklearn.datasets import load_iris
from torch import nn
from torch.distributions import Normal

from gpsuq.classify.estimator import GPSClassifier
from gpsuq.classify.plots import class_boxplots
from gpsuq.classify.report import classifier_page
from gpsuq.core.models import ObservationModel, linear_regression
from gpsuq.core.parameters import Location
from gpsuq.datasets import Regression, load_images, scissors
from gpsuq.engine.checkpoints import UNFINISHED
from gpsuq.engine.progress import stage
from gpsuq.errors import GPSError
from gpsuq.gps import GPS
from gpsuq.linear.baselines import BayesianLinearPosterior
from gpsuq.plots.style import COLORS, save_figure, subplots
from gpsuq.reports.page import Block, Page, Picture, Section, Table, Text, write_page
from gpsuq.tables.reading import write_table
from gpsuq.uq.distribution import UQDistribution

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FILES = (
    "report.html",
    *(f"scissors/{name}" for name in ("scissors.png", "marginals.png")),
    *(f"iris/{name}" for name in ("summary.csv", "petal_length.png")),
    *(f"digits/{name}" for name in ("verdicts.csv", "most_uncertain.png")),
)
"""What the demo writes, and may write again."""

_COVERAGE = 0.9
_DRAWS = 4000
_NOISE_CM = 0.3


def fit_scissors(data: Regression, seed: int, **options: Any) -> UQDistribution:
    """Fit the linear model without intercept, as in the paper, with default settings unless ``options`` say else."""
    return GPS(linear_regression(intercept=False), seed=seed, **options).fit(data.X, data.y)


def three_panels(data: Regression, posterior: BayesianLinearPosterior, uq: UQDistribution) -> Figure:
    """Plot figure 2 of the paper: the data, the posterior of the slope, the UQ distribution of the slope."""
    posterior_draws = posterior.sample_parameters(_DRAWS)["x0"]
    slopes = uq.draws(_DRAWS)["slope"].ravel()
    bins = np.linspace(-1.6, 1.6, 81).tolist()
    with subplots(1, 3, figsize=(11, 3.4)) as (figure, (left, middle, right)):
        left.plot(data.X[:, 0], data.y, ".", color=COLORS["data"], markersize=3, alpha=0.5)
        left.set(xlabel="x", ylabel="y", title=f"Data (n = {len(data.y):,})")
        panels = (
            (middle, posterior_draws, "Bayesian posterior of the slope", COLORS["bayes"]),
            (right, slopes, "UQ distribution of the slope (GPS)", COLORS["gps"]),
        )
        for axis, draws, title, color in panels:
            axis.hist(draws, bins=bins, density=True, color=color)
            for truth in (-1.0, 1.0):
                axis.axvline(truth, color=COLORS["truth"], linestyle="--", linewidth=1)
            axis.set(xlabel="slope", ylabel="density", title=title, xlim=(-1.6, 1.6))
        height = 0.9 * middle.get_ylim()[1]
        middle.annotate("true slopes", (1.0, height), (0.93, height), ha="right", fontsize=9)
    return figure


def iris(*, progress: bool = False) -> tuple[UQDistribution, pd.DataFrame]:
    """Fit petal lengths of 150 irises, y_i ~ N(theta_i, 0.3^2), without telling which species a flower is."""
    bunch = load_iris(as_frame=True)
    species = bunch.target_names[bunch.target]
    table = pd.DataFrame({"petal_length_cm": bunch.data["petal length (cm)"], "species": species})
    model = ObservationModel(lambda theta: Normal(theta, _NOISE_CM), theta=Location())
    return GPS(model, progress=progress).fit(table["petal_length_cm"]), table


def iris_figure(uq: UQDistribution, table: pd.DataFrame) -> Figure:
    """Plot the data and the UQ distribution of the typical length, with the species' means for comparison."""
    theta = uq.draws(_DRAWS)["theta"].ravel()
    bins = np.linspace(0.5, 7.5, 57).tolist()
    with subplots(2, 1, figsize=(7, 5), sharex=True) as (figure, (top, bottom)):
        top.hist(table["petal_length_cm"], bins=bins, color=COLORS["data"])
        top.set(ylabel="flowers", title="Petal lengths of 150 irises")
        bottom.hist(theta, bins=bins, density=True, color=COLORS["gps"])
        bottom.set(xlabel="petal length, cm", ylabel="density", title="UQ distribution of a flower's typical length")
        for number, (species, mean) in enumerate(table.groupby("species")["petal_length_cm"].mean().items()):
            bottom.axvline(mean, color=COLORS["truth"], linestyle=("--", ":", "-.")[number], label=f"mean of {species}")
        bottom.legend()
    return figure


def digits(out: Path, *, progress: bool = False) -> tuple[list[Path], Page]:
    """Train a small network on digits, write its verdicts and show one that is uncertain; return its report."""
    train, test = (load_images("digits", split) for split in ("train", "test"))
    network = nn.Sequential(
        nn.Flatten(),
        *(nn.Linear(64, 64), nn.BatchNorm1d(64), nn.ReLU()),
        *(nn.Linear(64, 64), nn.BatchNorm1d(64), nn.ReLU()),
        nn.Linear(64, len(train.classes)),
    )
    model = GPSClassifier(network, layer="1", random_state=0, progress=progress)
    model.fit(train.pixels(), train.labels)
    verdicts = model.uncertainty(test.pixels())
    out.mkdir(parents=True, exist_ok=True)
    table = verdicts.to_frame().assign(label=test.labels)
    table = table.set_axis(pd.Index(table.index + 1, name="image"))  # the gallery counts from 1, too
    write_table(table, out / "verdicts.csv", index=True)
    least = int(verdicts.uqc_shortfall.argmax())
    draws, image, truth = model.sample_proba(test.pixels()[[least]])[0], test.bytes[least], str(test.labels[least])
    title = "the most uncertain digit"
    figure = class_boxplots(draws, image, model.classes_, truth=truth, uqc=verdicts.uqc[least], title=title)
    files = [out / "verdicts.csv", save_figure(figure, out / "most_uncertain.png")]
    return files, classifier_page(model, test.pixels(), test.labels, verdicts=verdicts)


def refuse_foreign(out: Path) -> None:
    """Raise where a directory holds anything that the demo did not write, such as a saved model."""
    files = (path.relative_to(out) for path in out.rglob("*") if not path.is_dir())
    foreign = next((file for file in files if file.parts[0] != UNFINISHED and file.as_posix() not in FILES), None)
    if foreign is not None:
        raise GPSError(f"{out} holds {foreign}, which is no part of the demo; choose another directory")


def run(out: Path, *, progress: bool = False) -> tuple[list[Path], list[str]]:
    """Write figures, tables and one page that shows them; return their paths, and the findings in a sentence each."""
    refuse_foreign(out)
    with stage("scissors"):
        data = scissors(seed=0)
        slopes = fit_scissors(data, 0, progress=progress)
        posterior = BayesianLinearPosterior(fit_intercept=False).fit(data.X, data.y)
        crossing = save_figure(three_panels(data, posterior, slopes), out / "scissors" / "scissors.png")
        laws = save_figure(slopes.plot_marginals(), out / "scissors" / "marginals.png")
    with stage("irises"):
        uq, table = iris(progress=progress)
    lengths = save_figure(iris_figure(uq, table), out / "iris" / "petal_length.png")
    summary = write_table(uq.summary(), out / "iris" / "summary.csv", index=True)
    with stage("digits"):
        more, verdicts = digits(out / "digits", progress=progress)
    region = uq.interval(_COVERAGE, of="population", kind="highest-density")["theta"]
    pieces = " and ".join(f"{lower:.1f} to {upper:.1f}" for lower, upper in region)
    sentences = [
        "Scissors: half of 2,000 rows have slope 1, half -1. The posterior of one slope sits at 0; the UQ distribution "
        "has both.",
        f"Irises: {_COVERAGE:.0%} of the flowers have a typical petal length of {pieces} cm.",
        f"Digits: {verdicts.lead}",
    ]
    panels = "Crossing data, the Bayesian posterior of the slope, the UQ distribution of the slope"
    irises: list[Block] = [
        Text(sentences[1]),
        Picture(lengths, "Petal lengths and the UQ distribution of a flower's typical length"),
        Table(uq.summary(), "Summary of the UQ distribution"),
    ]
    page = Page(
        "gpsuq: a population of parameters instead of one estimate",
        "Three data sets, one idea: parameters differ between observations, and the law of that difference is learned.",
        [
            Section(
                "Scissors: two slopes where a posterior sees none",
                [Text(sentences[0]), Picture(crossing, panels, wide=True)],
            ),
            Section("Irises: species that nobody named", irises),
            Section("Digits: when not to trust them", [Text(sentences[2]), *verdicts.sections[0].blocks]),
            *(replace(section, title=f"Digits: {section.title.lower()}") for section in verdicts.sections[1:]),
        ],
    )
    report = write_page(page, out / "report.html")
    return [crossing, laws, summary, lengths, *more, report], sentences
