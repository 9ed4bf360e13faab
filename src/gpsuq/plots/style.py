"""The look that all figures share: Okabe-Ito colours, light grids, labels large enough to read."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLORS = {
    "gps": "#0072B2",
    "bayes": "#D55E00",
    "truth": "#000000",
    "data": "#7F7F7F",
    "good": "#009E73",
    "other": "#CC79A7",
    "light": "#56B4E9",
    "warm": "#E69F00",
}
"""Colours by role (Okabe and Ito's palette), the same in every figure."""

_STYLE: dict[str, Any] = {
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#E5E5E5",
    "grid.linewidth": 0.8,
    "axes.titlesize": 11,
    "axes.labelsize": 10,
    "xtick.labelsize": 9,
    "ytick.labelsize": 9,
    "legend.fontsize": 9,
    "legend.frameon": False,
    "figure.constrained_layout.use": True,
    "savefig.dpi": 150,
}


def figure_style() -> AbstractContextManager[None]:
    """Return the context in which figures are made; the caller's own settings come back afterwards.

    A figure of your own that looks like the others; ``COLORS`` names their colours by role:

    >>> import matplotlib.pyplot as plt
    >>> from gpsuq.plots.style import COLORS, figure_style
    >>> with figure_style():
    ...     figure, ax = plt.subplots()
    ...     (line,) = ax.plot([0, 1], [0, 1], color=COLORS["gps"])
    >>> line.get_color(), ax.spines["top"].get_visible()
    ('#0072B2', False)
    """
    import matplotlib

    return matplotlib.rc_context(_STYLE)  # type: ignore[arg-type]


@contextmanager
def subplots(n_rows: int = 1, n_columns: int = 1, **options: Any) -> Iterator[tuple[Figure, Any]]:
    """Open a figure and its axes, like ``plt.subplots``, in the style of all figures."""
    import matplotlib.pyplot as plt  # when it is needed: loading it takes long

    with figure_style():
        yield plt.subplots(n_rows, n_columns, **options)


def plain(name: object, longest: int | None = None) -> str:
    r"""Escape the dollar signs in the name of a column or class, which figures would take for mathematics.

    >>> from gpsuq.plots.style import plain
    >>> plain("a name that is rather long", longest=10)
    'a name th…'
    """
    text = str(name)
    shown = text if longest is None or len(text) <= longest else f"{text[: longest - 1]}…"
    return shown.replace("$", r"\$")


def save_figure(figure: Figure, path: Path) -> Path:
    """Write a figure and close it, without a time stamp so that equal figures are equal files.

    >>> import tempfile
    >>> from pathlib import Path
    >>> from matplotlib.figure import Figure
    >>> from gpsuq.plots.style import save_figure
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save_figure(Figure(), Path(folder, "figures", "empty.png")).name
    'empty.png'
    """
    import matplotlib.pyplot as plt

    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, metadata={"Software": None} if path.suffix == ".png" else None)
    plt.close(figure)
    return path
