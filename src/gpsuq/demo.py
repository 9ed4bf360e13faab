"""The demo: scissors, and a robust regression on data that scikit-learn ships; offline, in about a minute."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
from sklearn.datasets import load_diabetes
from torch import Tensor
from torch.distributions import StudentT

from gpsuq.experiments import scissors
from gpsuq.gps import GPS
from gpsuq.models import ObservationModel
from gpsuq.parameters import Location, Scale, Slope
from gpsuq.plots import save_figure
from gpsuq.uq import UQDistribution


def robust_regression() -> ObservationModel:
    """Student-t regression with 4 degrees of freedom: a model of a user's own, in three lines."""

    def student_t(x: Tensor, slope: Tensor, intercept: Tensor, scale: Tensor) -> StudentT:
        return StudentT(4.0, intercept + (x * slope).sum(-1), scale)

    return ObservationModel(student_t, slope=Slope(), intercept=Location(random=False), scale=Scale(random=False))


def diabetes(*, progress: bool = False) -> UQDistribution:
    """Fit disease progression on body mass index, blood pressure and a serum value (442 patients)."""
    data = load_diabetes(as_frame=True).frame
    return GPS(robust_regression(), progress=progress).fit(data[["bmi", "bp", "s5"]], data["target"])


def run(out: Path, *, progress: bool = False) -> tuple[list[Path], pd.DataFrame]:
    """Write the demo's figures and tables; give their paths and the summary of the diabetes fit."""
    files = scissors.run(0, 1, out / "scissors", force=True)
    uq = diabetes(progress=progress)
    summary = uq.summary()
    table = out / "diabetes" / "summary.csv"
    table.parent.mkdir(parents=True, exist_ok=True)
    summary.to_csv(table)
    return [*files, table, save_figure(uq.plot_pairs(), out / "diabetes" / "pairs.png")], summary
