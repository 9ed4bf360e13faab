"""What to be careful about in a fitted intensity."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gpsuq.engine.diagnostics import Finding
from gpsuq.errors import needs
from gpsuq.poisson.tiles import place_numbers
from gpsuq.spatial.grids import Grid, cells_for
from gpsuq.spatial.statistics import Envelope
from gpsuq.spatial.windows import Array

with needs("points", "a point pattern"):
    import shapely

_FEW_POINTS = 50
_HARDLY_KNOWN = 0.5
_HARDLY_FILLED = 0.25
_COARSE = 0.1  # steps of coordinates, in mean distances between points, above which distances show them
_ON_LATTICE = 1e-3
_SURPRISING = 0.05


def findings(grid: Grid, patterns: Sequence[Array], n_outside: int, estimation: Array) -> list[Finding]:
    """Judge patterns, how many points were dropped, and the relative standard deviation of the estimate by cell."""
    points = np.concatenate(patterns)
    each = len(points) // len(patterns)
    filled = shapely.LineString(points).convex_hull.area / grid.window.area
    typical = float(np.median(estimation))
    twins = sum(len(pattern) - 1 - int(place_numbers(pattern).max(initial=-1)) for pattern in patterns)
    step = _lattice_step(points)
    spacing = float(np.sqrt(grid.window.area * len(patterns) / len(points)))
    found = {
        "few-points": (
            len(points) < _FEW_POINTS,
            f"{len(points)} points say little about an intensity: only its level and its broadest features can be "
            "learned. More points, or replicates of the pattern, would help",
        ),
        "hardly-known": (
            typical > _HARDLY_KNOWN,
            f"at a typical place the intensity is known with a relative standard deviation of {typical:.0%}: do not "
            "read details off the map",
        ),
        "coarse-grid": (
            2 * grid.n_x * grid.n_y < cells_for(each),
            f"the grid of {grid.n_x} x {grid.n_y} cells is coarse for {each} points in a pattern: what is smaller than "
            "a cell is lost. Leave n_cells out, or see whether compare_grid() says that it matters",
        ),
        "dropped-points": (
            n_outside > 0,
            f"points outside the window were dropped ({n_outside}): check that window and points have the same "
            "coordinates",
        ),
        "duplicates": (
            twins > 0,
            f"{twins} points lie exactly where another does, which a process with an intensity never does: check for "
            "rows entered twice. They stay in the counts; goodness of fit leaves such pairs out",
        ),
        "rounded-coordinates": (
            step > _COARSE * spacing,
            f"coordinates are multiples of {step:.3g}, where points are {spacing:.3g} apart on average: goodness of "
            "fit and all that rests on small distances see the rounding. Take coordinates with more digits",
        ),
        "empty-window": (
            filled < _HARDLY_FILLED,
            f"the points fill {filled:.0%} of the window: where they could not have been seen, the window must not "
            "reach, as empty parts of it count as evidence of a low intensity",
        ),
    }
    return [Finding(code, message) for code, (holds, message) in found.items() if holds]


def _lattice_step(points: Array) -> float:
    """Return the larger step of a lattice that the coordinates lie on, 0 where they lie on none."""
    steps = [0.0]
    for values in points.T:
        apart = np.diff(np.unique(values))
        if len(apart) > 1 and len(apart) < len(values) - 1:
            in_steps = apart / apart.min()
            if np.abs(in_steps - np.rint(in_steps)).max() < _ON_LATTICE * in_steps.max():
                steps.append(float(apart.min()))
    return max(steps)


def of_distances(envelope: Envelope) -> Finding | None:
    """Judge distances between points beside those in simulated patterns; None where they are alike."""
    if envelope.p_value > _SURPRISING:
        return None
    if envelope.clustered:
        what, so = "attract each other (or share a feature too small for the map)", "more variable than stated"
    else:
        what, so = "keep apart", "less variable than stated: intervals are too wide"
    return Finding(
        "distances",
        f"distances between points are not as in simulated patterns ({envelope.shown}): points {what}, beyond what an "
        f"intensity can describe. Counts in regions are then {so}",
    )
