"""Blocks that several reports share: the UQ distribution, its modes, where its spread comes from, what to beware of."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from gpsuq.core.summaries import density_pieces
from gpsuq.engine.diagnostics import Finding
from gpsuq.plots.checks import spread_shares
from gpsuq.plots.distributions import marginals, pairs
from gpsuq.reports.page import Block, Picture, Table, Text

PIECES_COVERAGE = 0.9
MOST_PARAMETERS = 40


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


def summary_block(summary: pd.DataFrame, what: str) -> Table:
    """Show the mean of every parameter, and where that of one observation (``what`` it is called) lies."""
    columns = ["mean", "mean_lower", "mean_upper", "heterogeneity_sd", "population_lower", "population_upper"]
    return Table(summary[columns], f"Mean over {what}s (95%), and where the value of one {what} lies (95%)")


def pieces_of(draws: pd.DataFrame, summary: pd.DataFrame) -> pd.DataFrame:
    """Give the pieces of the parameters that differ more between observations than between chains.

    Where chains differ more, each of their values would look like a piece of its own.
    """
    known = summary.loc[[str(name) for name in draws]]
    differs = ~(known["heterogeneity_sd"] <= known["estimation_sd"])
    return density_pieces(draws.loc[:, differs.to_numpy()], PIECES_COVERAGE)


def mode_blocks(pieces: pd.DataFrame, names: Sequence[str]) -> list[Block]:
    """Show what :func:`pieces_of` found, and say which of the ``names`` have no pieces to speak of."""
    blocks: list[Block] = []
    if len(pieces):
        caption = f"Smallest regions that hold {PIECES_COVERAGE:.0%} of the draws, one row for each separate piece"
        blocks.append(Table(pieces.rename(columns={"share": "share of the draws"}), caption))
    alike = [name for name in names if name not in pieces.index]
    if alike:
        blocks.append(
            Text(
                f"No pieces are listed for {', '.join(alike)}: chains differ by more than observations do, so that "
                "these data show no subgroups in them."
            )
        )
    return blocks


def spread_blocks(summary: pd.DataFrame) -> list[Block]:
    """Show heterogeneity against estimation uncertainty, for every parameter."""
    return [
        Text(
            "Two kinds of uncertainty that must not be mixed up: how parameters differ between observations, which "
            "more data do not reduce, and how little these data say about their law, which they do."
        ),
        Picture(
            spread_shares(summary.head(MOST_PARAMETERS)), "Shares of heterogeneity and estimation in each variance"
        ),
        Table(summary[["heterogeneity_sd", "estimation_sd"]], "Standard deviations"),
    ]


def row_names(index: pd.Index) -> pd.Index:
    """Count rows from 1, unless the table names them."""
    return index + 1 if isinstance(index, pd.RangeIndex) and index.start == 0 else index


def column_table(table: pd.DataFrame) -> pd.DataFrame:
    """Describe the columns of a table of numbers, a row for each."""
    described = table.describe().T[["mean", "std", "min", "50%", "max"]]
    return described.rename(columns={"50%": "median", "std": "sd"}).rename_axis("column")


def finding_blocks(findings: Sequence[Finding]) -> list[Block]:
    """Say what the diagnostics found."""
    if not findings:
        return [Text("Nothing to be careful about was found.", "good")]
    return [Text(f"{finding.message[:1].upper()}{finding.message[1:]}.", "advice") for finding in findings]
