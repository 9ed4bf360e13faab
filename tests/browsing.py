"""How tests open pages in a real browser."""

from gpsuq.reports.page import write_page


def opened(browser, page, path, **options):
    """Open a page with all sections unfolded, and return it with the list of what goes wrong on it."""
    tab, problems = folded(browser, page, path, **options)
    tab.evaluate("document.querySelectorAll('details').forEach(fold => (fold.open = true))")
    return tab, problems


def folded(browser, page, path, **options):
    """Open a page as readers meet it."""
    tab, problems = browser.new_page(**options), []
    tab.on("console", lambda message: problems.append(message.text) if message.type == "error" else None)
    tab.on("pageerror", lambda error: problems.append(str(error)))
    tab.goto(write_page(page, path).as_uri())
    return tab, problems
