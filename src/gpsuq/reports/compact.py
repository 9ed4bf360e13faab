"""A fit in a few lines, as notebooks show it."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

import pandas as pd
from markupsafe import Markup
from sklearn.exceptions import NotFittedError
from sklearn.utils import estimator_html_repr
from sklearn.utils.validation import check_is_fitted

from gpsuq.engine.diagnostics import Finding
from gpsuq.reports.blocks import finding_texts
from gpsuq.reports.page import Table

_MOST = 12  # rows


def compact(title: str, lead: str, findings: Sequence[Finding], frame: pd.DataFrame | None = None) -> str:
    """Return HTML with what was found, what to be careful about, and the first rows of a table.

    >>> import pandas as pd
    >>> from gpsuq.reports.compact import compact
    >>> html = compact("A fit", "Prices <differ>.", [], pd.DataFrame({"mean": [1.0, 2.5]}, index=["age", "size"]))
    >>> "Prices &lt;differ&gt;." in html, "<td>2.500</td>" in html
    (True, True)
    """
    parts = [Markup("<p><strong>{}</strong><br>{}</p>").format(title, lead)]
    careful = [Markup("<li>{}</li>").format(text.text) for text in finding_texts(findings)]
    if careful:
        parts.append(Markup("<p>Careful:</p><ul>{}</ul>").format(Markup("").join(careful)))
    if frame is not None:
        table = Table(frame.head(_MOST))
        rows = Markup("").join(_row("td", row) for row in table.rows)
        parts.append(Markup("<table><thead>{}</thead><tbody>{}</tbody></table>").format(_row("th", table.header), rows))
        if len(frame) > _MOST:
            parts.append(Markup("<p>{} more rows.</p>").format(f"{len(frame) - _MOST:,}"))
    return str(Markup("<div>{}</div>").format(Markup("").join(parts)))


def _row(kind: str, cells: Sequence[str]) -> Markup:
    name, *others = cells
    return Markup("<tr><th>{}</th>{}</tr>").format(
        name, Markup("").join(Markup("<{0}>{1}</{0}>").format(kind, cell) for cell in others)
    )


class InNotebooks:
    """Lets notebooks show a fitted estimator by what was found, and one that is not fitted as scikit-learn does."""

    @abstractmethod
    def _compact(self) -> str:
        """Return the HTML of a fitted estimator."""

    def _repr_html_(self) -> str:
        try:
            check_is_fitted(self)
        except NotFittedError:
            return str(estimator_html_repr(self))
        return self._compact()

    def _repr_mimebundle_(self, **_: Any) -> dict[str, str]:
        return {"text/plain": repr(self), "text/html": self._repr_html_()}
