"""`gpsuq fit poisson`, and what the command line says of a process."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from gpsuq.speaking import (
    DropMissingOption,
    ForceOption,
    JsonOption,
    SeedOption,
    StepsOption,
    list_files,
    print_json,
    print_or_write,
    refuse_file,
    speaking,
    watched,
)


def fit(
    points: Annotated[Path, typer.Argument(help="CSV file with a header and columns x and y.")],
    window: Annotated[Path, typer.Option("--window", help="GeoJSON, or JSON with a rectangle's xrange and yrange.")],
    out: Annotated[Path, typer.Option("--out", help="Directory for the model, intensity.csv and figures.")],
    x: Annotated[str, typer.Option("--x", help="Column of x coordinates.")] = "x",
    y: Annotated[str, typer.Option("--y", help="Column of y coordinates.")] = "y",
    replicate: Annotated[
        str | None, typer.Option("--replicate", help="Column that names replicates of the pattern.")
    ] = None,
    covariate: Annotated[
        list[Path] | None,
        typer.Option("--covariate", help="GeoTIFF, or CSV grid with a JSON of its axes beside it; may be repeated."),
    ] = None,
    drop_missing: DropMissingOption = False,
    drop_outside: Annotated[bool, typer.Option("--drop-outside", help="Leave out points outside the window.")] = False,
    seed: SeedOption = 0,
    steps: StepsOption = None,
    as_json: JsonOption = False,
    force: ForceOption = False,
) -> None:
    """Fit a random intensity to your own point pattern.

    Example: gpsuq fit poisson points.csv --window window.json --out model
    """
    with speaking() as console:
        from gpsuq.engine.checkpoints import resumable, unfinished
        from gpsuq.plots.style import save_figure
        from gpsuq.poisson.estimator import DEFAULT_STEPS, GPSPoissonProcess
        from gpsuq.poisson.plots import envelope
        from gpsuq.poisson.report import poisson_page
        from gpsuq.reports.page import write_page
        from gpsuq.spatial import read_window
        from gpsuq.spatial.reading import read_points
        from gpsuq.storage import write_model
        from gpsuq.storage.directories import replaced, written_files
        from gpsuq.tables.reading import write_table

        region = read_window(window)
        inside = None if drop_outside else region
        patterns = read_points(points, x, y, replicate, drop_missing=drop_missing, window=inside)
        estimator = GPSPoissonProcess(
            outside="drop" if drop_outside else "error",
            random_state=seed,
            progress=watched(),
            n_steps=DEFAULT_STEPS if steps is None else steps,
        )
        with resumable(unfinished(out)), replaced(out, force=force) as folder:
            estimator.fit(patterns, region, covariates=covariate or ())
            write_model(estimator, folder)
            write_table(estimator.surface().to_frame(), folder / "intensity.csv", index=False)
            save_figure(estimator.plot(), folder / "intensity.png")
            fitness = estimator.goodness_of_fit()
            save_figure(envelope(fitness, estimator.window_), folder / "envelope.png")
            write_page(poisson_page(estimator, fitness), folder / "report.html")
    files = written_files(out)
    if as_json:
        print_json(facts(estimator) | {"p_value": fitness.p_value, "files": list(map(str, files))})
        return
    show(console, estimator)
    console.print(f"L function of the points beside those of simulated patterns: {fitness.shown}.")
    list_files(console, files)


def simulate(
    model: Annotated[Path, typer.Argument(help="Directory of a saved Poisson process.")],
    n: Annotated[int, typer.Option("-n", min=1, help="Number of patterns.")] = 1,
    out: Annotated[Path | None, typer.Option("--out", help="CSV file to write; otherwise it is printed.")] = None,
    seed: Annotated[int, typer.Option("--seed", help="Seed.")] = 0,
    as_json: JsonOption = False,
    force: ForceOption = False,
) -> None:
    """Simulate new point patterns from a fitted process: columns pattern, x and y.

    Example: gpsuq simulate model -n 20 --out simulated.csv
    """
    with speaking() as console:
        import pandas as pd

        from gpsuq.errors import GPSError
        from gpsuq.poisson.estimator import GPSPoissonProcess
        from gpsuq.storage import load

        estimator = load(model)
        if not isinstance(estimator, GPSPoissonProcess):
            raise GPSError(f"{model} holds a {type(estimator).__name__}; only a Poisson process can be simulated")
        refuse_file(out, force=force)
        estimator.progress = watched()
        patterns = estimator.simulate(n, random_state=seed)
        tables = [pd.DataFrame(pattern, columns=["x", "y"]) for pattern in patterns]
        table = pd.concat(tables, keys=range(1, n + 1), names=["pattern", None]).reset_index("pattern")
    points = [len(pattern) for pattern in patterns]
    print_or_write(console, table, out, index=False, as_json=as_json, patterns=n, points=points)


def facts(estimator: Any, coverage: float = 0.95) -> dict[str, Any]:
    """Return what a program wants to know of a process."""
    return {
        "type": type(estimator).__name__,
        "points": sum(map(len, estimator.points_)),
        "expected": estimator.integral(),
        "frequency": estimator.frequency_,
        "resolution": estimator.resolution_ if estimator.frequency_ > 0 else None,
        "spread": estimator.fit_.spread.value,
        "findings": [finding.message for finding in estimator.findings_],
    }


def show(console: Console, estimator: Any, coverage: float = 0.95) -> None:
    """Print the number of points, and the shape of the intensity."""
    from gpsuq.spatial.units import shown_length

    points = sum(map(len, estimator.points_))
    shape = "constant, but for covariates" if estimator.fit_.locations.covariates else "constant"
    if estimator.frequency_ > 0:
        width = shown_length(estimator.window_, estimator.resolution_).text(estimator.resolution_)
        shape = f"changes over the window, shown down to features some {width} wide"
    console.print(f"{points} points, expected {estimator.integral():.1f}; intensity: {shape}.", markup=False)
