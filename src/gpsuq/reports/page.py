"""A report as data, and the one HTML file that it becomes: style, script, figures and numbers all inside."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
from jinja2 import Environment, select_autoescape
from markupsafe import Markup

from gpsuq._version import __version__
from gpsuq.errors import GPSError
from gpsuq.files import read_bytes, write_atomically

if TYPE_CHECKING:
    from matplotlib.figure import Figure


_NOTHING = "default-src 'none'; base-uri 'none'; form-action 'none'"  # a page may fetch and send nothing
_PNG = "image/png"
_PICTURE = re.compile(rf"data:{_PNG};base64,[A-Za-z0-9+/=]*")


@dataclass(frozen=True)
class Text:
    """A paragraph; ``kind="advice"`` marks something to be careful about, ``"good"`` something that is well.

    >>> from gpsuq.reports.page import Text
    >>> Text("Intervals are too narrow: look for a missing covariate.", "advice").kind
    'advice'
    """

    text: str
    kind: str = "plain"
    name = "text"


@dataclass(frozen=True)
class Table:
    """A table with its index, numbers to four digits.

    >>> import pandas as pd
    >>> from gpsuq.reports.page import Table
    >>> table = Table(pd.DataFrame({"mean": [1.23456, -2.0]}, index=["age", "income"]), "Coefficients")
    >>> table.rows
    [['age', '1.235'], ['income', '-2']]
    """

    frame: pd.DataFrame
    caption: str = ""
    name = "table"

    @property
    def header(self) -> list[str]:
        """Names of the index and of the columns."""
        return [str(self.frame.index.name or ""), *map(str, self.frame.columns)]

    @property
    def rows(self) -> list[list[str]]:
        """Cells as people read them."""
        values = zip(self.frame.index, self.frame.itertuples(index=False), strict=True)
        return [[_shown(index), *(_shown(cell) for cell in row)] for index, row in values]


@dataclass(frozen=True)
class Picture:
    """A figure or a PNG file; ``description`` is what a screen reader says, ``wide`` gives it a row of its own.

    >>> from matplotlib.figure import Figure
    >>> from gpsuq.reports.page import Picture
    >>> Picture(Figure(), "Error among the observations kept, against the share that is kept").source[:22]
    'data:image/png;base64,'
    """

    figure: Figure | Path = field(repr=False)
    description: str
    caption: str = ""
    wide: bool = False
    name = "picture"

    @property
    def source(self) -> str:
        """The figure as an address that holds it; the figure is closed."""
        if isinstance(self.figure, Path):
            return data_address(read_bytes(self.figure, links=False), _PNG)
        import matplotlib.pyplot as plt

        buffer = io.BytesIO()
        self.figure.savefig(buffer, format="png", dpi=150, metadata={"Software": None})
        plt.close(self.figure)
        return data_address(buffer.getvalue(), _PNG)


@dataclass(frozen=True)
class Gallery:
    """Classified observations to sort, filter and look at one by one.

    ``items`` have ``title``, ``image`` (an address that holds a PNG, or None), ``label`` (or None), ``prediction``,
    ``uncertain``, ``wrong``, ``scores`` by name, and ``boxes``: for every class the quantiles that a boxplot shows and
    ``t_h``; ``certain_above`` has the threshold of every class.
    :func:`gpsuq.classify.report.classifier_page` makes one of a classifier's verdicts.

    >>> from gpsuq.reports.page import Gallery
    >>> boxes = [[0.4, 0.6, 0.8, 0.9, 1.0, 0.4], [0.0, 0.1, 0.2, 0.4, 0.6, 0.0]]  # five quantiles and t_h of each class
    >>> item = {"title": "observation 1", "image": None, "label": "cat", "prediction": "cat", "uncertain": True}
    >>> item |= {"wrong": False, "scores": {"uqc shortfall": 0.6}, "boxes": boxes}
    >>> gallery = Gallery(["cat", "dog"], [item], levels=["5%", "25%", "50%", "75%", "95%"], certain_above=[0.5, 0.5])
    >>> len(gallery.items)
    1
    """

    classes: Sequence[str]
    items: Sequence[dict[str, Any]]
    levels: Sequence[str]
    certain_above: Sequence[float]
    name = "gallery"

    def __post_init__(self) -> None:
        if not all(isinstance(item, dict) and "image" in item for item in self.items):
            raise GPSError("the items of a gallery must be records with an image each, or None in its place")

    @property
    def data(self) -> Markup:
        """Everything that the script needs, safe inside a script element."""
        names = {"classes": "classes", "items": "items", "levels": "levels", "certainAbove": "certain_above"}
        content = {name: list(getattr(self, held)) for name, held in names.items()}
        content["items"] = [item | {"image": _picture_or_none(item["image"])} for item in self.items]
        text = json.dumps(content, allow_nan=False, separators=(",", ":"))
        return Markup(text.replace("<", "\\u003c").replace("&", "\\u0026"))


Block = Text | Table | Picture | Gallery


@dataclass(frozen=True)
class Section:
    """A titled part of a page.

    >>> from gpsuq.reports.page import Section, Text
    >>> Section("How to read this", [Text("Every row has coefficients of its own.")]).anchor
    'how-to-read-this'
    """

    title: str
    blocks: Sequence[Block]

    @property
    def anchor(self) -> str:
        """Name to link to."""
        return "".join(letter if letter.isalnum() else "-" for letter in self.title.lower())


@dataclass(frozen=True)
class Page:
    """A report: title, what it says in one sentence, a few numbers to see first, sections.

    >>> from gpsuq.reports.page import Page, Section, Text
    >>> sections = [Section("Data", [Text("Nothing was left out.")])]
    >>> page = Page("My report", "Prices differ between districts.", sections, facts=[("rows", "506")])
    >>> [section.title for section in page.sections]
    ['Data']
    """

    title: str
    lead: str
    sections: Sequence[Section]
    facts: Sequence[tuple[str, str]] = ()


def render(page: Page) -> str:
    """Return the page as HTML that needs nothing else."""
    environment = Environment(autoescape=select_autoescape(default=True), trim_blocks=True, lstrip_blocks=True)
    template = environment.from_string(_asset("page.html"))
    interactive = any(isinstance(block, Gallery) for section in page.sections for block in section.blocks)
    script = Markup(_asset("gallery.js")) if interactive else None
    style, may_break = Markup(_asset("style.css")), Markup("<wbr>")
    allowed = f"{_NOTHING}; img-src data:; style-src {_source(style)}; script-src {_source(script)}"
    return template.render(
        page=page, style=style, script=script, may_break=may_break, allowed=allowed, version=__version__
    )


def write_page(page: Page, path: str | Path) -> Path:
    """Write the page, whole or not at all.

    >>> import tempfile
    >>> from gpsuq.reports.page import Page, Section, Text, write_page
    >>> page = Page("My report", "Prices differ between districts.", [Section("Data", [Text("506 rows.")])])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     "506 rows." in write_page(page, f"{folder}/report.html").read_text(encoding="utf-8")
    True
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    return write_atomically(path, render(page).encode())


def data_address(content: bytes, kind: str) -> str:
    """Return an address that holds its content."""
    return f"data:{kind};base64,{base64.b64encode(content).decode()}"


def settings_table(params: Mapping[str, Any], **more: Any) -> pd.DataFrame:
    """Return settings as people read them; what does not change a result is left out."""
    kept = {name: value for name, value in params.items() if name not in ("progress", "fabric", "random_state")}
    return pd.DataFrame({"value": {name.replace("_", " "): str(value) for name, value in (kept | more).items()}})


def _asset(name: str) -> str:
    return files("gpsuq.reports").joinpath("assets", name).read_text(encoding="utf-8")


def _source(text: str | None) -> str:
    """Return how a Content-Security-Policy names one text inside the page, or none."""
    if text is None:
        return "'none'"
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _picture_or_none(address: Any) -> str | None:
    """Return an address if it holds a PNG; one of anything else would be fetched from there."""
    return address if isinstance(address, str) and _PICTURE.fullmatch(address) else None


def _shown(value: Any) -> str:
    if value is None or value != value:
        return ""
    return f"{value:.4g}" if isinstance(value, float) else str(value)
