"""The code in the how-to guides runs, top to bottom."""

import re
from pathlib import Path

import pytest

PAGES = sorted((Path(__file__).parents[1] / "docs" / "howto").glob("*.md"))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
@pytest.mark.filterwarnings("ignore::gpsuq.GPSWarning")
def test_the_code_of_a_guide_runs(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"^```python\n(.*?)^```", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    assert blocks or page.stem == "tables"
    exec(compile("\n".join(blocks), str(page), "exec"), {"__name__": "__main__"})


def test_there_are_guides():
    assert len(PAGES) >= 5
