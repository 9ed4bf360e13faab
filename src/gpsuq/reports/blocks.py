"""Blocks that several reports share: the UQ distribution, its modes, its spread, its calibration, what to beware of."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from gpsuq.core.numbers import shown_number
from gpsuq.core.summaries import density_pieces
from gpsuq.engine.diagnostics import Finding
from gpsuq.plots.diagnostics import observed_and_predicted, pit_histogram, some_points, spread_shares
from gpsuq.plots.distributions import marginals, pairs
from gpsuq.reports.page import Block, Hints, Picture, Table, Text

PIECES_COVERAGE = 0.9
MOST_PARAMETERS = 40
_COVERAGES = (0.5, 0.8, 0.9, 0.95)
_SIDES = {"lower": "from", "upper": "to"}
_OFF = 0.05
_NOTHING = "Nothing to be careful about was found."
_CHANCE = 2.58  # standard errors that chance explains in 99 of 100 cases


def differing_most(summary: pd.DataFrame, most: int) -> list[str]:
    """Name the parameters whose heterogeneity stands out most from their estimation uncertainty, in their own order."""
    spread = summary["heterogeneity_sd"] / summary["estimation_sd"].fillna(0.0).clip(lower=1e-300)
    chosen = np.sort(np.argsort(-spread.to_numpy(), kind="stable")[:most])
    return [str(summary.index[place]) for place in chosen]


def distribution_blocks(draws: pd.DataFrame, note: str = "") -> list[Block]:
    """Show marginals and pairs of draws that are indexed by chain and draw; ``note`` says what is left out."""
    text = "The law of an observation's own parameters. Several peaks are subgroups; a narrow one is a shared value."
    blocks: list[Block] = [
        Text(f"{text} {note}".rstrip()),
        Picture(marginals(draws), "Histograms of the parameters", "Thin outlines are single chains.", wide=True),
    ]
    if draws.shape[1] > 1:
        caption = "Pairs of parameters of one observation."
        blocks.append(Picture(pairs(draws), "Scatter plots of pairs of parameters", caption, wide=True))
    return blocks


def summary_block(summary: pd.DataFrame, what: str, more: Sequence[str] = ()) -> Table:
    """Show the mean of every parameter, and where that of one observation (``what`` it is called) lies.

    ``more`` names further columns of the summary.
    """
    names = {f"mean_{side}": f"mean, {word}" for side, word in _SIDES.items()}
    names |= {f"population_{side}": f"one {what}, {word}" for side, word in _SIDES.items()}
    names["heterogeneity_sd"] = f"sd of {what}s"
    columns = ["mean", "mean_lower", "mean_upper", "heterogeneity_sd", "population_lower", "population_upper"]
    return Table(
        summary[[*columns, *more]].rename(columns=names),
        f"Mean over {what}s (95%), and where the value of one {what} lies (95%)",
    )


def pieces_of(draws: pd.DataFrame, summary: pd.DataFrame) -> pd.DataFrame:
    """Return the pieces of the parameters that differ more between observations than between chains.

    Where chains differ more, each of their values would look like a piece of its own.
    """
    known = summary.loc[[str(name) for name in draws]]
    differs = ~(known["heterogeneity_sd"] <= known["estimation_sd"])
    return density_pieces(draws.loc[:, differs.to_numpy()], PIECES_COVERAGE)


def mode_blocks(pieces: pd.DataFrame, names: Sequence[str]) -> list[Block]:
    """Show what :func:`pieces_of` found, and which of the ``names`` have no pieces to speak of."""
    blocks: list[Block] = []
    if len(pieces):
        caption = f"Smallest regions that hold {PIECES_COVERAGE:.0%} of the draws, one row for each separate piece"
        blocks.append(Table(pieces.rename(columns={"share": "share of the draws"}), caption))
    if alike := [name for name in names if name not in pieces.index]:
        text = (
            f"No pieces are listed for {', '.join(alike)}: chains differ by more than observations do, so that these "
            "data show no subgroups in them."
        )
        blocks.append(Text(text))
    return blocks


def spread_blocks(summary: pd.DataFrame) -> list[Block]:
    """Show heterogeneity against estimation uncertainty, for every parameter."""
    text = (
        "Two kinds of uncertainty that must not be mixed up: how parameters differ between observations, which more "
        "data do not reduce, and how little these data say about their law, which they do."
    )
    figure = spread_shares(summary.head(MOST_PARAMETERS))
    return [
        Text(text),
        Picture(figure, "Shares of heterogeneity and estimation in each variance"),
        Table(summary[["heterogeneity_sd", "estimation_sd"]], "Standard deviations"),
    ]


def calibration(probability: NDArray[np.floating], *, bins: int = 20) -> dict[str, Any]:
    """Count outcomes by the probability of at most them, and those inside central intervals; as JSON holds it."""
    counts, _ = np.histogram(probability, bins=bins, range=(0.0, 1.0))
    inside = {str(c): float((np.abs(probability - 0.5) <= 0.5 * c).mean()) for c in _COVERAGES}
    return {"pit": counts.tolist(), "coverage": inside}


def randomised(below: NDArray[np.floating], at_most: NDArray[np.floating]) -> NDArray[np.float64]:
    """Draw a number between the probability of less and of at most each outcome: uniform for counts, too."""
    chosen: NDArray[np.float64] = below + np.random.default_rng(0).random(np.shape(below)) * (at_most - below)
    return chosen


def calibration_verdict(found: Mapping[str, Any], what: str, *, advice: str) -> Text:
    """Say whether intervals hold what they should of ``what`` ("rows"), with ``advice`` where they are too narrow."""
    n = sum(found["pit"])
    coverage = {float(level): share for level, share in found["coverage"].items()}
    off = {level: abs(share - level) for level, share in coverage.items()}
    wrong = [c for c in coverage if off[c] > max(_OFF, _CHANCE * math.sqrt(c * (1.0 - c) / n))]
    if not wrong:
        said = f"Prediction intervals hold as many {what} as they should, as far as {n:,} can tell."
        return Text(said, "good")
    if all(coverage[level] > level for level in wrong):
        said = (
            f"Prediction intervals are wider than these {what} need: they hold up to {max(off.values()):.0%} more of "
            "them than they should. Little is known for sure; more data narrow them."
        )
        return Text(said, "advice")
    return Text(f"Prediction intervals miss their coverage by up to {max(off.values()):.0%}. {advice}", "advice")


def calibration_blocks(found: Mapping[str, Any], what: str, *, advice: str) -> list[Block]:
    """Show what :func:`calibration` found for ``what``, after its verdict."""
    coverage = {f"{float(level):.0%}": f"{share:.1%}" for level, share in found["coverage"].items()}
    return [
        calibration_verdict(found, what, advice=advice),
        Picture(
            pit_histogram(found["pit"], what),
            "Histogram of the probability of at most y",
            "Flat where the predictive is right; a hump means intervals that are too wide, a bowl too narrow.",
        ),
        Table(pd.DataFrame({"inside": coverage}).rename_axis("prediction interval"), f"Share of the {what} inside"),
    ]


def trust(findings: Sequence[Finding], *judged: Text) -> list[Text]:
    """Return what a page says first of whether to trust a fit: what to be careful about, then what is well.

    That there is nothing to be careful about is said only where neither a finding nor a check says otherwise.

    >>> from gpsuq.reports.blocks import trust
    >>> from gpsuq.reports.page import Text
    >>> [text.text for text in trust([], Text("Intervals are too narrow.", "advice"))]
    ['Intervals are too narrow.']
    >>> [text.kind for text in trust([])]
    ['good']
    """
    careful = [*finding_texts(findings), *(text for text in judged if text.kind == "advice")]
    well = [text for text in judged if text.kind == "good"]
    return [*careful, *well] or [Text(_NOTHING, "good")]


def prediction_picture(shown: pd.DataFrame, target: str) -> Picture:
    """Show outcomes ``y`` of rows against ``predicted`` ones with their intervals, columns 5% and 95%."""
    columns = [shown[name] for name in ("y", "predicted", "5%", "95%")]
    texts = [
        f"row {name}: observed {shown_number(y)}, predicted {shown_number(mean)}\n"
        f"90% interval {shown_number(low)} to {shown_number(high)}"
        for name, y, mean, low, high in zip(shown.index, *columns, strict=True)
    ]
    some = some_points(len(shown))
    return Picture(
        observed_and_predicted(*columns, target=target),
        "Observed outcomes against the mean of their predictive, with 90% intervals",
        "Point at a row to see its name and numbers.",
        hints=Hints(columns[1].iloc[some].tolist(), columns[0].iloc[some].tolist(), [texts[place] for place in some]),
    )


def row_names(index: pd.Index) -> pd.Index:
    """Count rows from 1, unless the table names them."""
    return index + 1 if isinstance(index, pd.RangeIndex) and index.start == 0 else index


def column_table(table: pd.DataFrame) -> pd.DataFrame:
    """Describe the columns of a table of numbers, a row for each."""
    described = table.describe().T[["mean", "std", "min", "50%", "max"]]
    return described.rename(columns={"50%": "median", "std": "sd"}).rename_axis("column")


def finding_texts(findings: Sequence[Finding]) -> list[Text]:
    """Return what the diagnostics found, a text for each."""
    return [Text(f"{finding.message[:1].upper()}{finding.message[1:]}.", "advice") for finding in findings]


def finding_blocks(findings: Sequence[Finding]) -> list[Block]:
    """Show what the diagnostics found, or that it was nothing."""
    return [*finding_texts(findings)] or [Text(_NOTHING, "good")]
