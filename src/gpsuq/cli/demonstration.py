"""The demo: scissors, and a table and digits that scikit-learn ships; offline, in about a minute."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.datasets import load_iris
from torch import nn
from torch.distributions import Normal

from gpsuq.classify.estimator import GPSClassifier
from gpsuq.classify.plots import class_boxplots, show_image
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
    from matplotlib.axes import Axes
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
_TRUE_SLOPES = (-1.0, 1.0)
_LENGTHS = np.linspace(0.5, 7.5, 57).tolist()  # edges of a histogram, in cm

Array = NDArray[np.floating]


def fit_scissors(data: Regression, seed: int, **options: Any) -> UQDistribution:
    """Fit the linear model without intercept, as in the paper, with default settings unless ``options`` say else."""
    return GPS(linear_regression(intercept=False), seed=seed, **options).fit(data.X, data.y)


def three_panels(data: Regression, posterior: BayesianLinearPosterior, uq: UQDistribution) -> Figure:
    """Plot figure 2 of the paper: the data, the posterior of the slope, the UQ distribution of the slope."""
    with subplots(1, 3, figsize=(11, 3.4)) as (figure, (left, middle, right)):
        left.plot(data.X[:, 0], data.y, ".", color=COLORS["data"], markersize=3, alpha=0.5)
        left.set(xlabel="x", ylabel="y", title=f"Data (n = {len(data.y):,})")
        _slopes(middle, posterior_draws(posterior), "bayes", "Bayesian posterior of the slope")
        _slopes(right, uq.draws(_DRAWS)["slope"].ravel(), "gps", "UQ distribution of the slope (GPS)")
        height = 0.9 * middle.get_ylim()[1]
        middle.annotate("true slopes", (1.0, height), (0.93, height), ha="right", fontsize=9)
    return figure


def posterior_draws(posterior: BayesianLinearPosterior) -> Array:
    """Draw the slope from its posterior."""
    return posterior.sample_parameters(_DRAWS)["x0"].to_numpy()


def _slopes(axis: Axes, draws: Array, color: str, title: str) -> None:
    """Draw a histogram of slopes, with the true ones."""
    axis.hist(draws, bins=np.linspace(-1.6, 1.6, 81).tolist(), density=True, color=COLORS[color])
    for truth in _TRUE_SLOPES:
        axis.axvline(truth, color=COLORS["truth"], linestyle="--", linewidth=1)
    axis.set(xlabel="slope", ylabel="density", title=title, xlim=(-1.6, 1.6))


def iris(*, progress: bool = False) -> tuple[UQDistribution, pd.DataFrame]:
    """Fit petal lengths of 150 irises, y_i ~ N(theta_i, 0.3^2), without telling which species a flower is."""
    bunch = load_iris(as_frame=True)
    species = bunch.target_names[bunch.target]
    table = pd.DataFrame({"petal_length_cm": bunch.data["petal length (cm)"], "species": species})
    model = ObservationModel(lambda theta: Normal(theta, _NOISE_CM), theta=Location())
    return GPS(model, progress=progress).fit(table["petal_length_cm"]), table


def iris_figure(uq: UQDistribution, table: pd.DataFrame) -> Figure:
    """Plot the data and the UQ distribution of the typical length, with the species' means for comparison."""
    with subplots(2, 1, figsize=(7, 5), sharex=True) as (figure, (top, bottom)):
        top.hist(table["petal_length_cm"], bins=_LENGTHS, color=COLORS["data"])
        top.set(ylabel="flowers", title="Petal lengths of 150 irises")
        _lengths(bottom, uq, table, "UQ distribution of a flower's typical length")
    return figure


def _lengths(axis: Axes, uq: UQDistribution, table: pd.DataFrame, title: str) -> None:
    """Draw the law of a flower's typical length, with the species' means."""
    axis.hist(uq.draws(_DRAWS)["theta"].ravel(), bins=_LENGTHS, density=True, color=COLORS["gps"])
    axis.set(xlabel="petal length, cm", ylabel="density", title=title)
    for number, (species, mean) in enumerate(species_means(table).items()):
        axis.axvline(mean, color=COLORS["truth"], linestyle=("--", ":", "-.")[number], label=f"mean of {species}")
    axis.legend(loc="upper left", bbox_to_anchor=(0.16, 1.0))  # between the two heaps


def species_means(table: pd.DataFrame) -> pd.Series:
    """Return the mean petal length of every species, which the fit does not know."""
    return table.groupby("species")["petal_length_cm"].mean()


def case(
    posterior: Array, slopes: UQDistribution, lengths: UQDistribution, table: pd.DataFrame, digit: UncertainDigit
) -> Figure:
    """Plot what the demo found, on one screen: slopes with and without GPS, petal lengths, the most uncertain digit."""
    with subplots(2, 2, figsize=(8.6, 6.2)) as (figure, ((first, second), (third, fourth))):
        _slopes(first, posterior, "bayes", "One slope for all rows: the posterior")
        _slopes(second, slopes.draws(_DRAWS)["slope"].ravel(), "gps", "A slope for each row: GPS")
        _lengths(third, lengths, table, "Lengths of irises, species not told: GPS")
        fourth.boxplot(
            digit.draws,
            positions=range(len(digit.classes)),
            showfliers=False,
            whis=(5, 95),
            patch_artist=True,
            boxprops={"facecolor": COLORS["light"], "edgecolor": COLORS["gps"]},
            medianprops={"color": COLORS["gps"]},
        )
        fourth.axhline(0.5, color=COLORS["data"], linestyle="--", linewidth=1)
        fourth.set_xticks(range(len(digit.classes)), digit.classes)
        fourth.set(xlabel="class", ylabel="probability", ylim=(-0.03, 1.5), title=f"Uncertain: a {digit.truth}")
        fourth.set_yticks([0.0, 0.5, 1.0])
        show_image(fourth.inset_axes((0.02, 0.66, 0.32, 0.32)), digit.image)
    return figure


@dataclass(frozen=True)
class UncertainDigit:
    """Draws of the class probabilities of an image (draw, class), the image, its label, and names of the classes."""

    draws: Array
    image: NDArray[np.uint8]
    truth: str
    classes: list[str]


def digits(out: Path, *, progress: bool = False) -> tuple[list[Path], Page, UncertainDigit]:
    """Train a small network on digits, write its verdicts, its report, and the digit that is most uncertain."""
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
    page = classifier_page(model, test.pixels(), test.labels, verdicts=verdicts)
    return files, page, UncertainDigit(draws, image, truth, list(map(str, model.classes_)))


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
        more, verdicts, digit = digits(out / "digits", progress=progress)
    told = Text(f"Digits: {verdicts.lead}", verdicts.trust[0].kind)
    found = [_scissors_found(slopes), _irises_found(uq, table), told]
    panels = "Crossing data, the Bayesian posterior of the slope, the UQ distribution of the slope"
    irises: list[Block] = [
        Picture(lengths, "Petal lengths and the UQ distribution of a flower's typical length"),
        Table(uq.summary(), "Summary of the UQ distribution"),
    ]
    whole = "Slopes with and without GPS, petal lengths of irises, and the most uncertain digit"
    gallery, *others = verdicts.sections
    page = Page(
        "A population of parameters instead of one estimate",
        "Parameters differ between observations. gpsuq learns the law of that difference: where subgroups are, and "
        "when a prediction is not to be trusted.",
        [
            Section(
                "Scissors: two slopes where a posterior sees none",
                [Text(found[0].text), Picture(crossing, panels, wide=True)],
                "2,000 rows, simulated",
            ),
            Section("Irises: species that nobody named", [Text(found[1].text), *irises], "150 flowers"),
            replace(gallery, title="Digits: when not to trust them", folded=True),
            *(replace(section, title=f"Digits: {section.title.lower()}") for section in others),
        ],
        trust=found,
        picture=Picture(
            case(posterior_draws(posterior), slopes, uq, table, digit),
            whole,
            "Dashed: true slopes, means of species, and one half.",
        ),
    )
    report = write_page(page, out / "report.html")
    return [crossing, laws, summary, lengths, *more, report], [text.text for text in found]


def _scissors_found(uq: UQDistribution) -> Text:
    """Say where slopes were found, and whether the true ones are there."""
    pieces = uq.interval(_COVERAGE, of="population", kind="highest-density")["slope"][0]
    said = (
        "Scissors: half of 2,000 rows have slope 1, half -1. The posterior of one slope sits at 0; "
        f"{_COVERAGE:.0%} of the UQ distribution lies in {_in_words(pieces)}."
    )
    return Text(said, "good" if _hold(pieces, _TRUE_SLOPES) else "advice")


def _irises_found(uq: UQDistribution, table: pd.DataFrame) -> Text:
    """Say where petal lengths lie, and whether the species' means are there."""
    pieces = uq.interval(_COVERAGE, of="population", kind="highest-density")["theta"]
    means = species_means(table)
    said = (
        f"Irises: {_COVERAGE:.0%} of the flowers have a typical petal length of {_in_words(pieces)} cm; species, which "
        f"the fit does not know, have means of {', '.join(f'{mean:.1f}' for mean in means)}."
    )
    return Text(said, "good" if _hold(pieces, means) else "advice")


def _in_words(pieces: Iterable[tuple[float, float]]) -> str:
    return " and ".join(f"{lower:.2g} to {upper:.2g}" for lower, upper in pieces)


def _hold(pieces: Iterable[tuple[float, float]], values: Iterable[float]) -> bool:
    """Whether each value lies in some piece."""
    found = list(pieces)
    return all(any(lower <= value <= upper for lower, upper in found) for value in values)
