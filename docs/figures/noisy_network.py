"""A network with a noise input: what runs once per image, and what runs once per draw."""

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.patches import FancyBboxPatch

from gpsuq.plots.style import COLORS, figure_style

ROW, NOISE = 1.0, 2.3


def box(axes: Axes, x: float, y: float, width: float, text: str, color: str) -> None:
    """Draw a labelled box around a centre."""
    shape = FancyBboxPatch((x - width / 2, y - 0.38), width, 0.76, boxstyle="round,pad=0.02,rounding_size=0.1")
    shape.set(facecolor="white", edgecolor=color, lw=2)
    axes.add_patch(shape)
    axes.text(x, y, text, ha="center", va="center", fontsize=10)


def arrow(axes: Axes, start: tuple[float, float], end: tuple[float, float]) -> None:
    """Draw an arrow between boxes."""
    axes.annotate("", xy=end, xytext=start, arrowprops={"arrowstyle": "-|>", "color": "0.35", "lw": 1.4})


with figure_style():
    figure, axes = plt.subplots(figsize=(8.6, 3.3), layout="constrained")
    axes.axvspan(-0.9, 3.2, color=COLORS["gps"], alpha=0.08, lw=0)
    axes.axvspan(3.2, 10.6, color=COLORS["bayes"], alpha=0.08, lw=0)
    axes.text(1.15, 3.05, "once per image", ha="center", fontsize=10, style="italic")
    axes.text(6.9, 3.05, "once per draw, $m = 1, …, M$", ha="center", fontsize=10, style="italic")
    box(axes, 0.0, ROW, 1.2, "image $x$", COLORS["gps"])
    box(axes, 2.1, ROW, 1.7, "your layers\n$h(x)$, $p$ numbers", COLORS["gps"])
    box(axes, 4.6, NOISE, 2.0, "noise $Z_m$\n$q = r\\,p$ numbers", COLORS["good"])
    box(axes, 4.6, ROW, 2.1, "$W_x h(x) + W_z Z_m + b$", COLORS["bayes"])
    box(axes, 7.2, ROW, 1.7, "your layers", COLORS["bayes"])
    box(axes, 9.6, ROW, 1.6, "class\nprobabilities $p_m$", COLORS["bayes"])
    arrow(axes, (0.62, ROW), (1.22, ROW))
    arrow(axes, (2.97, ROW), (3.52, ROW))
    arrow(axes, (4.6, NOISE - 0.4), (4.6, ROW + 0.42))
    arrow(axes, (5.68, ROW), (6.32, ROW))
    arrow(axes, (8.07, ROW), (8.77, ROW))
    axes.text(
        6.9, 0.1, "Uncertain where the 5% quantile of no class's $p_m$ exceeds one half", fontsize=10, ha="center"
    )
    axes.set(xlim=(-0.9, 10.6), ylim=(-0.2, 3.4))
    axes.axis("off")
