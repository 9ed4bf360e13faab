"""The command line: the only part of gpsuq that speaks."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from typer.core import TyperGroup

from gpsuq._version import __version__
from gpsuq.cli.data import data
from gpsuq.cli.experiments import experiment
from gpsuq.cli.fits import fit
from gpsuq.cli.models import predict, report, simulate, summary
from gpsuq.cli.speaking import JsonOption, OutOption, list_files, speaking, tell, watched

COMMANDS = ("demo", "fit", "predict", "summary", "simulate", "report", "experiment", "data")
"""The commands in the order in which somebody new needs them."""


class _InOrder(TyperGroup):
    def list_commands(self, ctx: Any) -> list[str]:
        return list(COMMANDS)


app = typer.Typer(
    name="gpsuq",
    cls=_InOrder,
    help=(
        "Uncertainty quantification by generative parameter samplers.\n\n"
        "Example: gpsuq fit linear data.csv --target y --out model"
    ),
    epilog="Exit codes: 0 done, 1 an error that is told on standard error, 2 wrong usage, 130 interrupted.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
app.add_typer(experiment, name="experiment")
app.add_typer(fit, name="fit")
app.add_typer(data, name="data")


@app.callback(invoke_without_command=True)
def _root(
    version: Annotated[bool, typer.Option("--version", help="Show the version and exit.", is_eager=True)] = False,
) -> None:
    if version:
        typer.echo(__version__)
        raise typer.Exit


@app.command()
def demo(out: OutOption = Path("demo"), as_json: JsonOption = False) -> None:
    """Run the main job offline: scissors, and a table and digits that ship with scikit-learn.

    Example: gpsuq demo --out demo
    """
    console = Console()
    with speaking(console):
        from gpsuq import demo as demo_module
        from gpsuq.resuming import UNFINISHED, resumable

        if not as_json:
            console.print("Fitting scissors, irises and digits, about a minute ...")
        with resumable(out / UNFINISHED):
            files, sentences = demo_module.run(out, progress=watched())
    if as_json:
        tell(console, files, as_json=True, findings=sentences)
        return
    for sentence in sentences:
        console.print(sentence)
    list_files(console, files)
    console.print(f"Open {files[-1]} in a browser: it shows all of this.", markup=False, soft_wrap=True)


for command in (simulate, summary, report, predict):
    app.command()(command)


def main() -> None:
    """Entry point of the ``gpsuq`` command."""
    app()
