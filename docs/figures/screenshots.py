"""Pictures of a report as it opens: light, dark, and the first page of paper.

    python docs/figures/screenshots.py model/report.html docs/screenshots/linear

writes docs/screenshots/linear-light.png and so on. It needs Chromium and playwright, as the tests of reports do.
"""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path
from typing import Any

from playwright.sync_api import sync_playwright

LOOKS: dict[str, dict[str, Any]] = {
    "light": {"color_scheme": "light", "viewport": {"width": 1440, "height": 900}},
    "dark": {"color_scheme": "dark", "viewport": {"width": 1440, "height": 900}},
    "print": {"color_scheme": "light", "viewport": {"width": 794, "height": 1123}},  # A4
}
QUIET = ("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking")


def screenshots(page: Path, name: Path) -> None:
    """Write a picture of the page in every look."""
    name.parent.mkdir(parents=True, exist_ok=True)
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=list(QUIET))
        for look, options in LOOKS.items():
            tab = browser.new_page(**options)
            tab.emulate_media(media="print" if look == "print" else "screen")
            tab.goto(page.resolve().as_uri())
            tab.screenshot(path=f"{name}-{look}.png")
        browser.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("page", type=Path)
    parser.add_argument("name", type=Path)
    arguments = parser.parse_args()
    screenshots(arguments.page, arguments.name)
