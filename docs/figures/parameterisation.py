"""One parameter for all observations against one parameter for each: what the two mean for the same data."""

import matplotlib.pyplot as plt
from matplotlib.axes import Axes

from gpsuq.plots.style import COLORS, figure_style

OBSERVATIONS = ("1", "2", "n")
PLACES = (0.0, 1.2, 3.0)
LEVELS = {"y": 0.0, "theta": 1.0, "z": 2.0}


def node(axes: Axes, x: float, y: float, text: str, color: str, *, seen: bool = False) -> None:
    """Draw a circle with a symbol; what is observed is filled."""
    axes.add_patch(plt.Circle((x, y), 0.32, facecolor=color if seen else "white", edgecolor=color, lw=2, zorder=2))
    axes.text(x, y, text, ha="center", va="center", fontsize=13, color="white" if seen else "black", zorder=3)


def arrow(axes: Axes, start: tuple[float, float], end: tuple[float, float]) -> None:
    """Draw an arrow from node to node."""
    style = {"arrowstyle": "-|>", "color": "0.35", "shrinkA": 22, "shrinkB": 24, "lw": 1.4, "mutation_scale": 15}
    axes.annotate("", xy=end, xytext=start, arrowprops=style, zorder=1)


def draw_global(axes: Axes) -> None:
    """One theta; a posterior is what is known about it."""
    middle = sum(PLACES) / len(PLACES)
    node(axes, middle, LEVELS["theta"] + 0.5, r"$\theta$", COLORS["bayes"])
    for x, number in zip(PLACES, OBSERVATIONS, strict=True):
        arrow(axes, (middle, LEVELS["theta"] + 0.5), (x, LEVELS["y"]))
        node(axes, x, LEVELS["y"], f"$y_{number}$", COLORS["gps"], seen=True)
    axes.set_title("Global: one $\\theta$ for all\nits posterior narrows as $n$ grows", fontsize=11)


def draw_individual(axes: Axes) -> None:
    """A theta for each observation, all made by one generator."""
    for x, number in zip(PLACES, OBSERVATIONS, strict=True):
        arrow(axes, (x, LEVELS["z"]), (x, LEVELS["theta"]))
        arrow(axes, (x, LEVELS["theta"]), (x, LEVELS["y"]))
        node(axes, x, LEVELS["z"], f"$Z_{number}$", COLORS["good"])
        node(axes, x, LEVELS["theta"], rf"$\theta_{number}$", COLORS["bayes"])
        node(axes, x, LEVELS["y"], f"$y_{number}$", COLORS["gps"], seen=True)
        axes.text(x + 0.12, 1.5, "$G$", fontsize=12, va="center")
    axes.set_title("Individual: $\\theta_i = G(Z_i)$\ntheir law stays as wide as the data are mixed", fontsize=11)


with figure_style():
    figure, panels = plt.subplots(1, 2, figsize=(8.0, 3.3), layout="constrained")
    for axes, draw in zip(panels, (draw_global, draw_individual), strict=True):
        draw(axes)
        axes.text(2.1, LEVELS["y"], "…", fontsize=16, ha="center", va="center")
        axes.set(xlim=(-0.6, 3.6), ylim=(-0.45, 2.45), aspect="equal")
        axes.axis("off")
