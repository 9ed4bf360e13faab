"""The page kit: numbers as people read them, and pages as they behave in a real browser."""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from browsing import folded, opened

from gpsuq.core.numbers import binomial_interval, shown_number, shown_numbers
from gpsuq.plots.diagnostics import observed_and_predicted
from gpsuq.reports.blocks import prediction_picture, trust
from gpsuq.reports.compact import compact
from gpsuq.reports.page import Gallery, Hints, Page, Picture, Section, Table, Text, Threshold

DARK, LIGHT = "rgb(18, 18, 18)", "rgb(255, 255, 255)"


@pytest.fixture(scope="module")
def page():
    rows = pd.DataFrame(
        {"mean": np.arange(20.0) ** 2 - 7, "kind": ["odd", "even"] * 10}, index=[*"abcdefghijklmnopqrst"]
    )
    sections = [Section("Table", [Table(rows, "Many rows")]), Section("Text", [Text("Said.", "advice")], "a note")]
    slider = Threshold([0.2, 0.5, 0.8], [100, 80, 10], [10, 2, 0], n=100, in_use=0.5)
    return Page("A page", "What was found.", sections, [("rows", "20")], trust([]), slider)


def test_columns_have_the_digits_that_they_need():
    assert shown_numbers(pd.Series([1.23456, 22.0, np.nan])) == ["1.23", "22.00", ""]
    assert shown_numbers(pd.Series([1234.5678, 0.00123456])) == ["1,235", "0.001235"]
    assert shown_numbers(pd.Series([3.0, 1200.0])) == ["3", "1,200"]
    assert shown_numbers(pd.Series([2_000_000, 5])) == ["2,000,000", "5"]
    assert shown_numbers(pd.Series([True, "text", None], dtype=object)) == ["True", "text", ""]
    assert [shown_number(value) for value in (0.0, -12345.67, 1e9, np.inf)] == ["0", "-12,346", "1e+09", "inf"]


def test_shares_of_few_are_not_sure():
    low, high = binomial_interval(np.array([0, 5, 0]), np.array([10, 10, 0]))
    assert np.allclose(low, [0.0, 0.2366, 0.0], atol=1e-3)
    assert np.allclose(high, [0.2775, 0.7634, 1.0], atol=1e-3)


def test_what_to_be_careful_about_is_never_beside_its_contrary():
    good, bad = Text("Intervals hold.", "good"), Text("Intervals miss.", "advice")
    assert [text.text for text in trust([], good)] == ["Intervals hold."]
    assert [text.text for text in trust([], good, bad)] == ["Intervals miss.", "Intervals hold."]
    assert not any("Nothing" in text.text for text in trust([], bad))


def test_sections_fold_out_by_keyboard_and_by_address(page, browser, tmp_path):
    tab, problems = folded(browser, page, tmp_path / "page.html")
    table = tab.get_by_role("table")
    assert not table.is_visible()
    tab.locator("summary").first.focus()
    tab.keyboard.press("Enter")
    assert table.is_visible()
    unfold = tab.locator("button[name=unfold]")
    unfold.click()
    assert tab.get_by_text("Said.").is_visible()
    tab.get_by_role("button", name="Fold all", exact=True).wait_for()  # sections tell a moment later that they are open
    tab.goto(f"{tab.url}#text")
    tab.reload()
    assert tab.get_by_text("Said.").is_visible()
    assert problems == []


def test_folded_sections_are_printed(page, browser, tmp_path):
    tab, _ = folded(browser, page, tmp_path / "page.html")
    tab.emulate_media(media="print")
    assert tab.get_by_text("Said.").is_visible()
    assert not tab.locator("button[name=theme]").is_visible()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_pages_are_light_and_dark_as_the_system_says_until_somebody_switches(page, browser, tmp_path, scheme):
    tab, _ = folded(browser, page, tmp_path / "page.html", color_scheme=scheme)
    background = "getComputedStyle(document.body).backgroundColor"
    first, other = (LIGHT, DARK) if scheme == "light" else (DARK, LIGHT)
    assert tab.evaluate(background) == first
    tab.locator("button[name=theme]").click()
    assert tab.evaluate(background) == other
    tab.emulate_media(media="print")
    assert tab.evaluate(background) == LIGHT


def test_tables_are_sorted_and_searched(page, browser, tmp_path):
    tab, problems = opened(browser, page, tmp_path / "page.html")
    names = tab.locator("tbody tr:visible th")
    head = tab.get_by_role("button", name="mean")
    head.click()
    assert names.all_inner_texts()[:2] == ["t", "s"]  # by number, not by letters
    head.click()
    assert names.all_inner_texts()[:2] == ["a", "b"]
    assert tab.locator("th[aria-sort]").get_attribute("aria-sort") == "ascending"
    tab.get_by_role("searchbox").fill("odd")
    assert names.count() == 10
    assert problems == []


def test_error_and_coverage_move_with_the_threshold(page, browser, tmp_path):
    tab, problems = folded(browser, page, tmp_path / "page.html")
    said, slider = tab.locator(".threshold output"), tab.locator(".threshold input")
    assert "80.0% are certain (80 of 100), and 2.5% of them are wrong" in said.inner_text()
    dot = tab.locator(".threshold circle").first
    before = float(dot.get_attribute("cx"))
    slider.fill("0.8")
    assert "10.0% are certain (10 of 100), and 0.0% of them are wrong" in said.inner_text()
    assert float(dot.get_attribute("cx")) > before
    slider.press("Home")
    assert "100.0% are certain" in said.inner_text()
    assert problems == []


def test_points_say_their_names_where_they_are(browser, tmp_path):
    shown = pd.DataFrame(
        {"y": [0.0, 5.0, 9.0], "predicted": [1.0, 5.0, 8.0], "5%": -1.0, "95%": 9.5}, index=["a", "<b>", "c"]
    )
    picture = prediction_picture(shown, "price")
    tab, problems = folded(browser, Page("", "", [], picture=picture), tmp_path / "page.html")
    hints = tab.locator(".hints circle")
    assert hints.count() == 3
    middle = next(k for k in range(3) if "<b>" in hints.nth(k).get_attribute("data-says"))
    hints.nth(middle).hover()
    assert tab.locator(".tip").inner_text().startswith("row <b>: observed 5, predicted 5")
    image, circle = tab.locator(".plot img").bounding_box(), hints.nth(middle).bounding_box()
    across = (circle["x"] + circle["width"] / 2 - image["x"]) / image["width"]
    figure = observed_and_predicted(*(shown[name] for name in ("y", "predicted", "5%", "95%")))
    figure.draw_without_rendering()
    expected = figure.transFigure.inverted().transform(figure.axes[0].transData.transform((5.0, 5.0)))[0]
    assert across == pytest.approx(expected, abs=0.01)
    assert problems == []


def test_hints_outside_the_axes_are_left_out():
    figure, ax = plt.subplots()
    ax.set(xlim=(0, 1), ylim=(0, 1))
    held = Picture(figure, "", hints=Hints([0.5, 3.0], [0.5, 0.5], ["in", "out"])).embedded
    assert [text for _, _, text in held.hints] == ["in"]


def test_observations_without_pictures_are_a_table(browser, tmp_path):
    items = [
        {"title": f"row {k}", "image": None, "label": "cat", "prediction": "cat" if k else "dog", "uncertain": k == 1}
        | {"wrong": not k, "probability": 0.5 + k / 10, "reason": "strange input" if k == 1 else ""}
        | {"scores": {"uqc shortfall": k / 10}, "boxes": [[0.1, 0.2, 0.3, 0.4, 0.5, 0.1]] * 2}
        for k in range(4)
    ]
    gallery = Gallery(["cat", "dog"], items, ["5%"], [0.5, 0.5])
    tab, problems = opened(browser, Page("", "", [Section("Rows", [gallery])]), tmp_path / "page.html")
    names = tab.locator("tbody th")
    assert names.all_inner_texts() == ["row 3", "row 2", "row 1", "row 0"]
    tab.get_by_role("button", name="probability").click()
    tab.get_by_role("button", name="probability").click()
    assert names.all_inner_texts()[0] == "row 0"
    tab.get_by_role("searchbox").fill("strange")
    assert names.all_inner_texts() == ["row 1"]
    names.first.locator("button").press("Enter")
    assert "strange input" in tab.locator("dialog").inner_text()
    assert problems == []


def test_notebooks_show_a_fit_in_a_few_lines():
    table = pd.DataFrame({"mean": np.arange(30.0)}, index=[f"<{k}>" for k in range(30)])
    html = compact("A fit", "Found.", [], table)
    assert html.count("<tr>") == 13
    assert "18 more rows" in html
    assert "&lt;3&gt;" in html
