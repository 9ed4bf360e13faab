"""`gpsuq demo`: the main job, offline, ending with a page to look at."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console

from gpsuq.speaking import JsonOption, OutOption, list_files, speaking, tell, watched


def demo(out: OutOption = Path("demo"), as_json: JsonOption = False) -> None:
    """Run the main job offline: scissors, and a table and digits that ship with scikit-learn.

    Example: gpsuq demo --out demo
    """
    console = Console()
    with speaking(console):
        from gpsuq.cli import demonstration
        from gpsuq.engine.checkpoints import UNFINISHED, resumable

        if not as_json:
            console.print("Fitting scissors, irises and digits, about a minute ...")
        with resumable(out / UNFINISHED):
            files, sentences = demonstration.run(out, progress=watched())
    if as_json:
        tell(console, files, as_json=True, findings=sentences)
        return
    for sentence in sentences:
        console.print(sentence)
    list_files(console, files)
    console.print(f"Open {files[-1]} in a browser: it shows all of this.", markup=False, soft_wrap=True)
