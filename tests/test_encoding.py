"""UTF-8 everywhere: nothing depends on the encoding of the system."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import gpsuq
from gpsuq.storage import read_config

ROOT = Path(gpsuq.__file__).parents[2]
RUN = """
import locale, sys
from gpsuq.cli import app
assert locale.getpreferredencoding(False).lower() in ("ascii", "ansi_x3.4-1968", "us-ascii")
app(["fit", "linear", "data.csv", "--target", "L\\u00e4nge", "--out", "model", "--steps", "2"], standalone_mode=False)
app(["report", "model", "--out", "page.html"], standalone_mode=False)
"""


def test_a_fit_and_its_report_need_no_locale(tmp_path):
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"Höhe": rng.normal(size=60), "Ort": rng.choice(["Köln", "東京"], 60)})
    table["Länge"] = table["Höhe"] + rng.normal(size=60)
    table.to_csv(tmp_path / "data.csv", index=False)
    kept = {name: value for name, value in os.environ.items() if name not in ("PYTHONIOENCODING", "LANG", "LC_CTYPE")}
    done = subprocess.run(
        [sys.executable, "-c", RUN],
        check=False,
        capture_output=True,
        cwd=tmp_path,
        env=kept | {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
    )
    assert done.returncode == 0, done.stderr.decode("utf-8", "replace")
    for page in (tmp_path / "model" / "report.html", tmp_path / "page.html"):
        text = page.read_text(encoding="utf-8")
        assert "Länge" in text
        assert "Höhe" in text
    assert "Ort=東京" in (tmp_path / "model" / "rows.csv").read_text(encoding="utf-8")
    assert "Höhe" in done.stdout.decode("utf-8")
    covered = read_config(tmp_path / "model")["digests"]
    assert set(covered) == {"config.json", "model.safetensors", "columns.json", "checks.json"}


OPEN_BYTES = ("os", "tarfile", "gzip", "Image", "zipfile", "rasterio", "memory")  # the last: rasterio's file in memory


@pytest.mark.parametrize("folder", ["src", "paper"])
def test_every_text_file_names_its_encoding(folder):
    """ruff's PLW1514 sees few methods of paths: 2 of the 15 that were here."""
    for path in (ROOT / folder).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Call):
                continue
            name = getattr(node.func, "attr", getattr(node.func, "id", ""))
            owner = getattr(getattr(node.func, "value", None), "id", "")
            if name not in ("read_text", "write_text", "open") or owner in OPEN_BYTES:
                continue
            words = [argument.value for argument in node.args if isinstance(argument, ast.Constant)]
            binary = any(isinstance(word, str) and set(word) <= set("rwaxb") and "b" in word for word in words)
            assert binary or any(word.arg == "encoding" for word in node.keywords), f"{path}:{node.lineno}"
