"""The command line: the only part of gpsuq that speaks. What a command needs is loaded when it runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from gpsuq._version import __version__
from gpsuq.classify import commands as classify
from gpsuq.cli.commands import data, demo, doctor, predict, report, summary
from gpsuq.linear import commands as linear
from gpsuq.poisson import commands as poisson
from gpsuq.regress import commands as regress

FITS: dict[str, Callable[..., None]] = {
    "linear": linear.fit,
    "regression": regress.fit,
    "classifier": classify.fit,
    "poisson": poisson.fit,
}
"""``gpsuq fit NAME``, one line for each family."""

COMMANDS = ("demo", "fit", "predict", "summary", "simulate", "report", "data", "doctor")
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
    epilog="Exit codes: 0 done, 1 an error that is told on standard error, 2 wrong usage, 130 interrupted, 143 "
    "terminated.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
fits = typer.Typer(
    help="Fit a model to your own data.\n\nExample: gpsuq fit linear data.csv --target y --out model",
    no_args_is_help=True,
)
for name, fit in FITS.items():
    fits.command(name)(fit)
app.add_typer(fits, name="fit")
app.add_typer(data, name="data")
for command in (demo, poisson.simulate, summary, report, predict, doctor):
    app.command()(command)


@app.callback(invoke_without_command=True)
def _root(
    version: Annotated[bool, typer.Option("--version", help="Show the version and exit.", is_eager=True)] = False,
) -> None:
    if version:
        typer.echo(__version__)
        raise typer.Exit


def main() -> None:
    """Entry point of the ``gpsuq`` command."""
    app()
