"""How measures change with one factor at a time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from gpsuq.plots.style import COLORS, figure_style

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

_ORDER = ("data", "truth", "gps", "bayes", "good")
_MARKERS = ("o", "s", "^", "D", "v")
_ROOM = 30  # letters below a panel


def factor_panels(tables: Mapping[str, pd.DataFrame], unit: str = "%") -> Figure:
    """Plot a panel for each factor: its values (index) across, one line for each measure (column)."""
    import matplotlib.pyplot as plt

    n_columns = min(3, len(tables))
    n_rows = -(-len(tables) // n_columns)
    with figure_style():
        figure, panels = plt.subplots(
            n_rows, n_columns, figsize=(3.3 * n_columns, 2.7 * n_rows + 0.5), sharey=True, squeeze=False
        )
        for ax, (factor, table) in zip(panels.flat, tables.items(), strict=False):
            places = range(len(table))
            for number, measure in enumerate(table.columns):
                color, marker = COLORS[_ORDER[number % len(_ORDER)]], _MARKERS[number % len(_MARKERS)]
                ax.plot(places, table[measure], color=color, marker=marker, markersize=5, label=measure)
            names = [f"{value:g}" if isinstance(value, float) else str(value) for value in table.index]
            crowded = sum(map(len, names)) > _ROOM
            ax.set_xticks(places, names, rotation=30 if crowded else 0, ha="right" if crowded else "center")
            ax.margins(x=0.12)
            ax.set_xlabel(factor)
        for ax in panels[:, 0]:
            ax.set_ylabel(unit)
        for ax in panels.flat[len(tables) :]:
            ax.set_visible(False)
        handles, labels = panels[0, 0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside upper center", ncols=min(3, len(labels)))
    return figure
