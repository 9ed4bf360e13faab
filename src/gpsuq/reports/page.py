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

import numpy as np
import pandas as pd
from jinja2 import Environment, select_autoescape
from markupsafe import Markup

from gpsuq._version import __version__
from gpsuq.core.numbers import binomial_interval, shown_numbers
from gpsuq.errors import GPSError
from gpsuq.files import read_bytes, write_atomically

if TYPE_CHECKING:
    from matplotlib.figure import Figure


_NOTHING = "default-src 'none'; base-uri 'none'; form-action 'none'"  # a page may fetch and send nothing
_PNG = "image/png"
_DPI, _SHOWN = 150, 105  # pixels for each inch of a figure: of the file, and of the page
_SCRIPTS = ("threshold", "gallery")
_MOST_NARROW = 5  # columns of a table that stands beside another block
_LETTERS = re.compile(r"[^\W\d_]{2}")
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
    """A table with its index; numbers have the digits that their column needs. A browser sorts and searches long ones.

    >>> import pandas as pd
    >>> from gpsuq.reports.page import Table
    >>> table = Table(pd.DataFrame({"mean": [1.23456, -2.0]}, index=["age", "income"]), "Coefficients")
    >>> table.rows
    [['age', '1.235'], ['income', '-2.000']]
    """

    frame: pd.DataFrame
    caption: str = ""
    name = "table"

    @property
    def wide(self) -> bool:
        """Whether the table has a row of its own."""
        return self.frame.shape[1] > _MOST_NARROW

    @property
    def header(self) -> list[str]:
        """Names of the index and of the columns."""
        return [str(self.frame.index.name or ""), *map(str, self.frame.columns)]

    @property
    def is_text(self) -> list[bool]:
        """Whether each column holds words."""
        columns = (self.frame.iloc[:, place] for place in range(self.frame.shape[1]))
        return [any(_LETTERS.search(cell) for cell in column if isinstance(cell, str)) for column in columns]

    @property
    def rows(self) -> list[list[str]]:
        """Cells as people read them."""
        columns = [shown_numbers(self.frame.iloc[:, place]) for place in range(self.frame.shape[1])]
        return [[str(name), *cells] for name, *cells in zip(self.frame.index, *columns, strict=True)]


@dataclass(frozen=True)
class Hints:
    """Points of a figure's first axes, and what is said of each when it is pointed at.

    >>> from gpsuq.reports.page import Hints
    >>> Hints([1.0], [2.0], ["row 1"]).texts
    ['row 1']
    """

    x: Sequence[float]
    y: Sequence[float]
    texts: Sequence[str]


@dataclass(frozen=True)
class Embedded:
    """A picture as the page holds it: its address, its size in pixels of the page, and hints in percent of it."""

    source: str
    width: int
    height: int
    drawn: bool
    hints: Sequence[tuple[float, float, str]] = ()


@dataclass(frozen=True)
class Picture:
    """A figure or a PNG file; ``description`` is what a screen reader says, ``wide`` gives it a row of its own.

    Figures turn dark with the page; files stay as they are, for they may be photographs.

    >>> from matplotlib.figure import Figure
    >>> from gpsuq.reports.page import Picture
    >>> Picture(Figure(), "Error among the observations kept, against the share that is kept").embedded.source[:22]
    'data:image/png;base64,'
    """

    figure: Figure | Path = field(repr=False)
    description: str
    caption: str = ""
    wide: bool = False
    hints: Hints | None = field(default=None, repr=False)
    name = "picture"

    @property
    def embedded(self) -> Embedded:
        """The figure as the page holds it; the figure is closed."""
        if isinstance(self.figure, Path):
            content = read_bytes(self.figure, links=False)
            return Embedded(data_address(content, _PNG), *_png_size(content), drawn=False)
        import matplotlib.pyplot as plt

        buffer = io.BytesIO()
        self.figure.savefig(buffer, format="png", dpi=_DPI, metadata={"Software": None})
        hints = [] if self.hints is None else _placed(self.figure, self.hints)
        plt.close(self.figure)
        content = buffer.getvalue()
        return Embedded(data_address(content, _PNG), *_png_size(content), drawn=True, hints=hints)


@dataclass(frozen=True)
class Threshold:
    """A threshold to move, with the share that it leaves certain, and how often that is wrong, moving along.

    ``above`` are thresholds, ``certain`` how many of ``n`` observations exceed each, ``wrong`` how many of these are
    wrong (None where labels are not known), ``in_use`` the threshold in use, where it is one for all classes.

    >>> from gpsuq.reports.page import Threshold
    >>> block = Threshold(above=[0.4, 0.6], certain=[10, 8], wrong=[2, 0], n=10, in_use=0.55)
    >>> block.start
    1
    """

    above: Sequence[float]
    certain: Sequence[int]
    wrong: Sequence[int] | None
    n: int
    in_use: float | None
    name = "threshold"

    @property
    def start(self) -> int:
        """Place of the threshold that is nearest to the one in use."""
        used = self.above[0] if self.in_use is None else self.in_use
        return min(range(len(self.above)), key=lambda place: abs(self.above[place] - used))

    @property
    def data(self) -> Markup:
        """Everything that the script needs, safe inside a script element."""
        content: dict[str, Any] = {"above": list(self.above), "certain": list(self.certain), "n": self.n}
        content |= {"in_use": self.in_use, "start": self.start, "error": None}
        if self.wrong is not None:
            count, lost = np.asarray(self.certain), np.asarray(self.wrong)
            low, high = binomial_interval(lost, count)
            content |= {"error": (lost / np.maximum(count, 1)).tolist()}
            content |= {"error_low": low.tolist(), "error_high": high.tolist()}
        return _inside_script(content)


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
        return _inside_script(content)


Block = Text | Table | Picture | Threshold | Gallery


@dataclass(frozen=True)
class Section:
    """A titled part of a page, folded until somebody opens it; ``note`` says in a few words what is inside.

    >>> from gpsuq.reports.page import Section, Text
    >>> Section("How to read this", [Text("Every row has coefficients of its own.")]).anchor
    'how-to-read-this'
    """

    title: str
    blocks: Sequence[Block]
    note: str = ""
    folded: bool = True

    @property
    def anchor(self) -> str:
        """Name to link to."""
        return "".join(letter if letter.isalnum() else "-" for letter in self.title.lower())


@dataclass(frozen=True)
class Page:
    """A report: what is seen first, and sections that fold out.

    First come the title, what was found (``lead``), whether to trust it (``trust``, texts of the kinds "advice" and
    "good"), a few numbers (``facts``) and the one picture that matters.

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
    trust: Sequence[Text] = ()
    picture: Picture | Threshold | None = None


def render(page: Page) -> str:
    """Return the page as HTML that needs nothing else."""
    environment = Environment(autoescape=select_autoescape(default=True), trim_blocks=True, lstrip_blocks=True)
    template = environment.from_string(_asset("page.html"))
    first = [] if page.picture is None else [page.picture]
    kinds = {block.name for block in (*first, *(block for section in page.sections for block in section.blocks))}
    script = Markup("".join(_asset(f"{name}.js") for name in ("page", *(name for name in _SCRIPTS if name in kinds))))
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


def _placed(figure: Figure, hints: Hints) -> list[tuple[float, float, str]]:
    """Return hints in percent of the figure, from its upper left corner; those outside the axes are left out."""
    axes = figure.axes[0]
    points = axes.transData.transform(np.column_stack([hints.x, hints.y]).astype(float))
    inside = axes.get_window_extent().padded(2.0).contains
    places = 100.0 * figure.transFigure.inverted().transform(points)
    return [
        (round(float(x), 2), round(100.0 - float(y), 2), text)
        for (x, y), point, text in zip(places, points, hints.texts, strict=True)
        if inside(*point)
    ]


def _png_size(content: bytes) -> tuple[int, int]:
    """Return width and height of a PNG on a page, where it is shown at two thirds of its pixels."""
    return tuple(round(int.from_bytes(content[at : at + 4]) * _SHOWN / _DPI) for at in (16, 20))  # type: ignore[return-value]


def _inside_script(content: Any) -> Markup:
    """Return JSON that can stand inside a script element."""
    text = json.dumps(content, allow_nan=False, separators=(",", ":"))
    return Markup(text.replace("<", "\\u003c").replace("&", "\\u0026"))


def _source(text: str) -> str:
    """Return how a Content-Security-Policy names one text inside the page."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _picture_or_none(address: Any) -> str | None:
    """Return an address if it holds a PNG; one of anything else would be fetched from there."""
    return address if isinstance(address, str) and _PICTURE.fullmatch(address) else None
