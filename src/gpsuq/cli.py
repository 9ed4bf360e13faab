"""The command line: the only part of gpsuq that speaks."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from gpsuq._version import __version__

app = typer.Typer(
    name="gpsuq",
    help="Uncertainty quantification by generative parameter samplers.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
experiment = typer.Typer(help="Reproduce the paper's figures and check its claims.", no_args_is_help=True)
app.add_typer(experiment, name="experiment")

SeedOption = Annotated[int, typer.Option("--seed", help="First seed.")]
ReplicatesOption = Annotated[int, typer.Option("--replicates", min=1, help="Number of seeds, counted from --seed.")]
OutOption = Annotated[Path, typer.Option("--out", help="Directory for metrics.json and figures.")]
StepsOption = Annotated[
    int | None, typer.Option("--steps", min=1, help="Training steps, for a quick try; results use the default.")
]
ForceOption = Annotated[bool, typer.Option("--force", help="Overwrite results that are there already.")]


@app.callback(invoke_without_command=True)
def _root(
    version: Annotated[bool, typer.Option("--version", help="Show the version and exit.", is_eager=True)] = False,
) -> None:
    if version:
        typer.echo(__version__)
        raise typer.Exit


@app.command()
def demo(out: OutOption = Path("demo")) -> None:
    """Run the main job offline: scissors, and a table that ships with scikit-learn.

    Example: gpsuq demo --out demo
    """
    console = Console()
    with _speaking(console):
        from gpsuq import demo as demo_module

        console.print("Scissors: 2,000 observations, half with slope 1, half with -1 ...")
        files, pieces = demo_module.run(out, progress=sys.stderr.isatty())
    region = " and ".join(f"{lower:.1f} to {upper:.1f}" for lower, upper in pieces)
    console.print(f"Irises: {demo_module.COVERAGE:.0%} of the flowers have a typical petal length of {region} cm.")
    _list_files(console, files)


@experiment.command("scissors")
def experiment_scissors(
    seed: SeedOption = 0,
    replicates: ReplicatesOption = 1,
    out: OutOption = Path("results/scissors"),
    steps: StepsOption = None,
    force: ForceOption = False,
) -> None:
    """Show that two opposite slopes are found where the Bayesian posterior sees zero (section 3.1).

    Example: gpsuq experiment scissors --seed 0 --replicates 5 --out results/scissors
    """
    from gpsuq.experiments import scissors

    _run(scissors.run, seed, replicates, out, n_steps=steps, force=force)


@experiment.command("draws")
def experiment_draws(
    seed: SeedOption = 0,
    replicates: ReplicatesOption = 3,
    out: OutOption = Path("results/draws"),
    steps: StepsOption = None,
    force: ForceOption = False,
) -> None:
    """Tabulate how many draws M and outcomes J are enough.

    Example: gpsuq experiment draws --replicates 3 --out results/draws
    """
    from gpsuq.experiments import draws

    _run(draws.run, seed, replicates, out, n_steps=steps, force=force)


@experiment.command("noise-dim")
def experiment_noise_dim(
    seed: SeedOption = 0,
    replicates: ReplicatesOption = 3,
    out: OutOption = Path("results/noise_dim"),
    steps: StepsOption = None,
    force: ForceOption = False,
) -> None:
    """Check whether the dimension of Z matters.

    Example: gpsuq experiment noise-dim --replicates 3 --out results/noise_dim
    """
    from gpsuq.experiments import noise_dim

    _run(noise_dim.run, seed, replicates, out, n_steps=steps, force=force)


@experiment.command("collapse")
def experiment_collapse(
    seed: SeedOption = 0,
    out: OutOption = Path("results/collapse"),
    steps: StepsOption = None,
    force: ForceOption = False,
) -> None:
    """Show why outcomes of different draws are paired.

    Example: gpsuq experiment collapse --out results/collapse
    """
    from gpsuq.experiments import collapse

    _run(collapse.run, seed, out, n_steps=steps, force=force)


@experiment.command("outliers")
def experiment_outliers(
    seed: SeedOption = 0,
    replicates: ReplicatesOption = 1,
    out: OutOption = Path("results/outliers"),
    steps: StepsOption = None,
    force: ForceOption = False,
) -> None:
    """Compare with the Bayesian posterior where 5% of the responses are outliers (section 3.1).

    Example: gpsuq experiment outliers --seed 0 --replicates 200 --out results/outliers
    """
    from gpsuq.experiments import linear

    _run(linear.run, "outliers", seed, replicates, out, n_steps=steps, force=force)


@experiment.command("classical")
def experiment_classical(
    seed: SeedOption = 0,
    replicates: ReplicatesOption = 1,
    out: OutOption = Path("results/classical"),
    steps: StepsOption = None,
    force: ForceOption = False,
) -> None:
    """Compare with the Bayesian posterior where the classical assumptions hold (section 3.1).

    Example: gpsuq experiment classical --seed 0 --replicates 200 --out results/classical
    """
    from gpsuq.experiments import linear

    _run(linear.run, "classical", seed, replicates, out, n_steps=steps, force=force)


def _run(function: Callable[..., list[Path]], *arguments: Any, **options: Any) -> None:
    console = Console()
    with _speaking(console):
        files = function(*arguments, **options)
    _list_files(console, files)


@contextmanager
def _speaking(console: Console) -> Iterator[None]:
    """Print warnings as one line each, and errors as one line with exit code 1."""
    from gpsuq.errors import GPSError, GPSWarning

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", GPSWarning)
        try:
            yield
        except GPSError as error:
            Console(stderr=True).print(f"error: {error}", style="red", markup=False)
            raise typer.Exit(1) from None
        except KeyboardInterrupt as interruption:
            Console(stderr=True).print(str(interruption) or "interrupted", markup=False)
            raise typer.Exit(130) from None
    for message in dict.fromkeys(str(w.message) for w in caught if issubclass(w.category, GPSWarning)):
        console.print(f"note: {message}", style="yellow", markup=False)


def _list_files(console: Console, files: list[Path]) -> None:
    console.print("Wrote")
    for path in files:
        console.print(f"  {path}", markup=False, highlight=False)


def main() -> None:
    """Entry point of the ``gpsuq`` command."""
    app()
