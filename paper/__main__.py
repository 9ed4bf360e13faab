"""`python -m paper`: the paper's figures and tables."""

from __future__ import annotations

import importlib
import json
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from joblib import parallel_config
from rich.console import Console

from gpsuq.speaking import (
    ForceOption,
    JsonOption,
    OutOption,
    StepsOption,
    refuse_file,
    speaking,
    tell,
    watched,
)

app = typer.Typer(
    help="Reproduce the paper's figures and check its claims.\n\nExample: python -m paper scissors --out scissors",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)

SeedOption = Annotated[int, typer.Option("--seed", help="First seed.")]
ReplicatesOption = Annotated[int, typer.Option("--replicates", min=1, help="Number of seeds, counted from --seed.")]
TableOption = Annotated[int, typer.Option("--table", help="1: all classes; 2: trained without one.")]
MethodsOption = Annotated[
    str,
    typer.Option(
        "--methods",
        help=(
            "Any of plain, dropout, ensemble, gps-0.5, gps-0.25, with commas; GPS also with -alert (finds more "
            "strangers), -joint (the whole network is trained) or -on-data (the paper's loss) behind the ratio; on "
            "CIFAR-10 also plain-head, the plain network with a head trained on as long as the others'."
        ),
    ),
]
SeedsOption = Annotated[str, typer.Option("--seeds", help="Seeds, with commas.")]
EpochsOption = Annotated[int | None, typer.Option("--epochs", min=1, help="Passes over the training images.")]
FolderOption = Annotated[Path | None, typer.Option("--out", help="Directory for numbers and figures.")]
ALL_METHODS = "plain,dropout,ensemble,gps-0.5,gps-0.25"


def _run(
    name: str,
    module: str,
    idle: tuple[str, ...],
    seed: int,
    replicates: int | None,
    out: Path,
    steps: int | None,
    *,
    as_json: bool,
    force: bool,
) -> None:
    """Call ``run`` of a module, and write the page of what it gave."""
    options = {"seed": seed, "replicates": replicates, "steps": steps}
    with speaking() as console:
        from gpsuq.engine.checkpoints import UNFINISHED, resumable
        from gpsuq.reports.page import write_page
        from gpsuq.reports.saved import REPORT_FILE
        from paper.page import experiment_page
        from paper.record import Asked, going_on

        run = importlib.import_module(module).run
        seeds = range(seed, seed + (replicates or 1))
        given = {option: value for option, value in options.items() if option not in idle}
        asked = Asked(name, out, seeds, given, steps, force, watched())
        with asked.alone() as mine, going_on(out, force=force), resumable(out / UNFINISHED):
            mine.prepare()
            files = run(mine)
            files.append(write_page(experiment_page(mine.out), mine.out / REPORT_FILE))
            _tell(console, files, as_json=as_json)


def _tell(console: Console, files: list[Path], *, as_json: bool) -> None:
    """Name the files of an experiment, for machines with the numbers that it wrote down."""
    numbers = {}
    if as_json:
        from paper.page import METRICS_FILE

        record = json.loads(next(file for file in files if file.name == METRICS_FILE).read_text(encoding="utf-8"))
        numbers = {name: record[name] for name in ("command", "seconds", "results")}
    tell(console, files, as_json=as_json, **numbers)


def _add_experiment(
    name: str, text: str, *, module: str | None = None, replicates: int | None = 1, idle: tuple[str, ...] = ()
) -> None:
    """Register ``python -m paper NAME``, which calls ``run`` of a module; without replicates it takes a seed only.

    Options that are ``idle`` change nothing, and are left out of the command that the experiment writes down.
    """
    default = Path("results") / name.replace("-", "_")
    example = f"python -m paper {name} {'' if replicates is None else f'--replicates {replicates} '}--out {default}"

    run = partial(_run, name, f"paper.{module or name.replace('-', '_')}", idle)

    def repeated(
        seed: SeedOption = 0,
        replicates: ReplicatesOption = replicates or 1,
        out: OutOption = default,
        steps: StepsOption = None,
        as_json: JsonOption = False,
        force: ForceOption = False,
    ) -> None:
        run(seed, replicates, out, steps, as_json=as_json, force=force)

    def once(
        seed: SeedOption = 0,
        out: OutOption = default,
        steps: StepsOption = None,
        as_json: JsonOption = False,
        force: ForceOption = False,
    ) -> None:
        run(seed, None, out, steps, as_json=as_json, force=force)

    app.command(name, help=f"{text}\n\nExample: {example}")(once if replicates is None else repeated)


_add_experiment(
    "scissors", "Show that two opposite slopes are found where the Bayesian posterior sees zero (section 3.1)."
)
_add_experiment("draws", "Tabulate how many draws M and outcomes J are enough.", replicates=3)
_add_experiment("noise-dim", "Check whether the dimension of Z matters.", replicates=3)
_add_experiment("collapse", "Show why outcomes of different draws are paired.", replicates=None)
_add_experiment(
    "outliers",
    "Compare with the Bayesian posterior where 5% of the responses are outliers (section 3.1).",
    module="linear",
)
_add_experiment(
    "classical",
    "Compare with the Bayesian posterior where the classical assumptions hold (section 3.1).",
    module="linear",
)
_add_experiment(
    "contamination",
    "Compare with other robust regressions under growing contamination and heavy tails.",
    replicates=10,
)
_add_experiment(
    "designs",
    "Compare with other regressions on twenty-four designs that ordinary tables may follow.",
    replicates=20,
    idle=("steps",),
)
_add_experiment(
    "mean-coverage",
    "Count how often 95% intervals of mean coefficients hold, on the same designs.",
    replicates=200,
    idle=("steps",),
)
_add_experiment(
    "uci",
    "Compare with other regressions on nine tables (in the directory that GPSUQ_DATA names), published splits.",
    replicates=None,
    idle=("seed", "steps"),
)
_add_experiment(
    "published",
    "Compare with estimates and outliers that others published (tables in the directory that GPSUQ_DATA names).",
    replicates=None,
    idle=("steps",),
)
_add_experiment("influence", "Move one observation to infinity and watch the coefficients.", replicates=3)
_add_experiment(
    "tables", "Fit four real tables (in the directory that GPSUQ_DATA names) with default settings.", replicates=None
)

_add_experiment(
    "poisson", "Find known intensities of a Poisson process again, beside a kernel density estimate (section 3.2)."
)
_add_experiment(
    "patterns",
    "Fit real point patterns (in the directory that GPSUQ_DATA names) with default settings.",
    replicates=None,
)
_add_experiment("block-counts", "Check that intervals for counts in blocks cover new counts.", replicates=10)


@app.command()
def mnist(
    table: TableOption = 1,
    methods: MethodsOption = ALL_METHODS,
    seeds: SeedsOption = "0,1,2",
    epochs: EpochsOption = None,
    data: Annotated[str, typer.Option("--data", help="mnist, or digits for a quick try.")] = "mnist",
    out: FolderOption = None,
    as_json: JsonOption = False,
    force: ForceOption = False,
) -> None:
    """Train image classifiers and see when they say "Uncertain" (section 4, Tables 1 and 2).

    A run that was stopped goes on where it was when the same command is given again, without --force.

    Example: python -m paper mnist --table 2 --methods dropout,gps-0.5 --seeds 0,1,2,3,4
    """
    folder = Path("results") / f"{data}_{table}" if out is None else out
    common: dict[str, Any] = {"as_json": as_json, "force": force, "table": table, "methods": methods}
    _run_networks("mnist", folder, seeds, epochs, **common, data=data)


@app.command()
def cifar10(
    table: TableOption = 1,
    network: Annotated[str, typer.Option("--network", help="paper or modern.")] = "modern",
    methods: MethodsOption = ALL_METHODS,
    seeds: SeedsOption = "0",
    epochs: EpochsOption = None,
    out: FolderOption = None,
    as_json: JsonOption = False,
    force: ForceOption = False,
) -> None:
    """Train classifiers of natural images and see when they say "Uncertain" (section 4, Tables 1 and 2).

    A run that was stopped goes on where it was when the same command is given again, without --force.

    Example: python -m paper cifar10 --table 1 --network paper --methods plain,gps-0.5
    """
    folder = Path("results") / f"cifar10_{network}_{table}" if out is None else out
    common: dict[str, Any] = {"as_json": as_json, "force": force, "table": table, "methods": methods}
    _run_networks("cifar10", folder, seeds, epochs, **common, network=network)


@app.command()
def heads(
    network: Annotated[str, typer.Option("--network", help="Whose trunk: paper or modern.")] = "modern",
    seeds: SeedsOption = "0,1,2",
    epochs: EpochsOption = None,
    out: OutOption = Path("results/heads"),
    as_json: JsonOption = False,
    force: ForceOption = False,
) -> None:
    """Vary the noise of a classifier of CIFAR-10: how much, where, how many draws, how long.

    Heads are trained on the features of one trunk and judged by training images that were set aside.

    Example: python -m paper heads --seeds 0,1,2 --out results/heads
    """
    _run_networks("heads", out, seeds, epochs, as_json=as_json, force=force, network=network)


def _run_networks(
    name: str,
    out: Path,
    seeds: str,
    epochs: int | None,
    *,
    as_json: bool,
    force: bool,
    table: int | None = None,
    methods: str | None = None,
    **own: str,
) -> None:
    """Call ``run`` of an experiment that trains networks and keeps its rows; say how to go on after Ctrl-C."""
    from gpsuq.errors import GPSError
    from paper.memory import keep_freed_memory
    from paper.record import Asked, going_on

    keep_freed_memory()

    with speaking() as console:
        try:
            numbers = [int(seed) for seed in seeds.split(",")]
        except ValueError:
            raise GPSError(f"--seeds takes whole numbers with commas between them, got {seeds!r}") from None
        chosen = None if methods is None else [method.strip() for method in methods.split(",")]
        options = {
            "table": table,
            "methods": None if chosen is None else ",".join(chosen),
            "seeds": ",".join(map(str, numbers)),
            **{option: None if value == name else value for option, value in own.items()},  # mnist has data mnist
            "epochs": epochs,
        }
        run = importlib.import_module(f"paper.{name}").run
        asked = Asked(name, out, numbers, options, force=force, progress=watched())
        with asked.alone() as mine, going_on(out, force=force):
            files = run(mine, *(() if chosen is None else (table, chosen)), epochs, **own)
            _tell(console, files, as_json=as_json)


@app.command()
def report(
    directory: Annotated[Path, typer.Argument(help="Directory that an experiment wrote.")],
    out: Annotated[Path | None, typer.Option("--out", help="HTML file; report.html there otherwise.")] = None,
    as_json: JsonOption = False,
    force: ForceOption = False,
) -> None:
    """Write the page of an experiment again, from what it left in its directory.

    Example: python -m paper report results/scissors
    """
    with speaking() as console:
        from gpsuq.reports.page import write_page
        from gpsuq.reports.saved import REPORT_FILE
        from paper.page import ROWS_FILE, experiment_page

        path = directory / REPORT_FILE if out is None else out
        if out is not None or (directory / ROWS_FILE).exists():  # that of networks shows what is not kept
            refuse_file(path, force=force)
        write_page(experiment_page(directory), path)
    tell(console, [path], as_json=as_json)


if __name__ == "__main__":
    with parallel_config(n_jobs=-1):  # who calls ``app`` from Python has a say of their own
        app()
