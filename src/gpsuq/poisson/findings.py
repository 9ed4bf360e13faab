"""What to be careful about in a fitted intensity."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gpsuq.engine.diagnostics import Finding
from gpsuq.errors import needs
from gpsuq.spatial.grids import Grid, cells_for
from gpsuq.spatial.windows import Array

with needs("points", "a point pattern"):
    import shapely

_FEW_POINTS = 50
_HARDLY_KNOWN = 0.5
_HARDLY_FILLED = 0.25


def findings(grid: Grid, patterns: Sequence[Array], n_outside: int, estimation: Array) -> list[Finding]:
    """Judge patterns, how many points were dropped, and the relative standard deviation of the estimate by cell."""
    points = np.concatenate(patterns)
    each = len(points) // len(patterns)
    filled = shapely.MultiPoint(points).convex_hull.area / grid.window.area
    typical = float(np.median(estimation))
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
        "empty-window": (
            filled < _HARDLY_FILLED,
            f"the points fill {filled:.0%} of the window: where they could not have been seen, the window must not "
            "reach, as empty parts of it count as evidence of a low intensity",
        ),
    }
    return [Finding(code, message) for code, (holds, message) in found.items() if holds]
