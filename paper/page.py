"""The report of an experiment: its command, numbers, tables and figures, from what it left in its directory."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd

from gpsuq.errors import GPSError
from gpsuq.reports.page import Block, Page, Picture, Section, Table, Text

METRICS_FILE, ROWS_FILE = "metrics.json", "rows.jsonl"
_MOST_ROWS = 200


def experiment_page(directory: str | Path) -> Page:
    """Return the report of a directory that ``python -m paper`` wrote.

    >>> import json, tempfile
    >>> from pathlib import Path
    >>> from paper.page import experiment_page
    >>> record = {"command": "python -m paper mine", "results": {"error": 0.02}, "settings": {"epochs": 10}}
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     mine = Path(folder, "mine")
    ...     mine.mkdir()
    ...     _ = (mine / "metrics.json").write_text(json.dumps(record))
    ...     page = experiment_page(mine)
    >>> page.title, [section.title for section in page.sections]
    ('Experiment: mine', ['Numbers', 'Settings and environment'])
    """
    directory = Path(directory)
    path = directory / METRICS_FILE
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
        command, results = record["command"], record["results"]
    except FileNotFoundError as error:
        raise GPSError(f"{directory} holds neither a saved model nor an experiment's {METRICS_FILE}") from error
    except (ValueError, KeyError, TypeError, OSError) as error:
        raise GPSError(f"{path} is damaged: {error}") from error
    tables = [_markdown_table(file) for file in sorted(directory.glob("table*.md"))]
    figures = [Picture(file, file.stem.replace("_", " "), file.stem.replace("_", " "), wide=True)
               for file in sorted(directory.glob("*.png")) if not file.is_symlink()]  # fmt: skip
    numbers = flattened(results)
    shown: list[Block] = [Table(pd.DataFrame({"value": numbers[:_MOST_ROWS]}).rename_axis("number"))]
    if len(numbers) > _MOST_ROWS:
        shown.append(Text(f"{len(numbers) - _MOST_ROWS} more are in {METRICS_FILE}."))
    settings = pd.concat([flattened(record.get(part, {})) for part in ("settings", "environment")])
    sections = [
        *([Section("Tables", tables)] if tables else []),
        *([Section("Figures", figures)] if figures else []),
        Section("Numbers", shown),
        Section("Settings and environment", [Table(pd.DataFrame({"value": settings}).rename_axis("setting"))]),
    ]
    lead = f"Everything here was measured by: {command}"
    facts = [("seconds", f"{record['seconds']:,}")] if "seconds" in record else []
    return Page(f"Experiment: {directory.resolve().name.replace('_', ' ')}", lead, sections, facts)


def flattened(value: Any, name: str = "") -> pd.Series:
    """Return nested numbers as one series, named by their path; lists are written out."""
    if not isinstance(value, dict):
        shown = ", ".join(_short(item) for item in value) if isinstance(value, list) else _short(value)
        return pd.Series({name: shown}, dtype=object)
    parts = [flattened(item, f"{name} / {key}" if name else str(key)) for key, item in value.items()]
    return pd.concat(parts) if parts else pd.Series(dtype=object)


def _short(value: Any) -> str:
    return f"{value:.5g}" if isinstance(value, float) else str(value)


def _markdown_table(path: Path) -> Table:
    text = path.read_text(encoding="utf-8")
    lines = [[cell.strip() for cell in line.strip().strip("|").split("|")] for line in text.splitlines()]
    header, *rows = [cells for cells in lines if not all(set(cell) <= {"-", ":"} for cell in cells)]
    frame = pd.DataFrame([row[1:] for row in rows], index=[row[0] for row in rows], columns=header[1:])
    return Table(frame.rename_axis(header[0]), path.stem)
