"""Every object of the public reference has an example, and every method that people call, which the tests run."""

import inspect
import re
from pathlib import Path
from pkgutil import resolve_name

import gpsuq

DOCS = Path(__file__).parents[1] / "docs"
PAGES = [DOCS / "reference" / name for name in ("api.rst", "laboratory.rst")]
DIRECTIVE = re.compile(r"^\.\. auto(class|function|module):: (\S+)\n((?: +:.*\n)*)", flags=re.MULTILINE)

# What is declared or passed there is called by the training, not by people.
CALLED_BY_TRAINING = {
    *(
        f"gpsuq.core.{name}"
        for name in (
            *("observations", "distances", "generators", "kernels", "likelihood", "parameters"),
            *("bounded", "censored", "truncated", "zero_inflated", "ordinal"),
        )
    ),
    *("gpsuq.engine.settings", "gpsuq.classify.networks", "gpsuq.tables.streaming", "paper.networks"),
}
CALLED_BY_REPORTS = {"gpsuq.reports.page"}
CALLED_AS_THE_OBJECT = {"forward"}  # network(x) is network.forward(x)


def shown(page):
    """Give the classes and functions that a page shows, each with its name."""
    for kind, name, options in DIRECTIVE.findall(page):
        target = resolve_name(name)
        if kind != "module":
            yield name, target
            continue
        wanted, excluded = listed(options, "members"), listed(options, "exclude-members")
        for member, value in vars(target).items():
            own = (inspect.isclass(value) or inspect.isfunction(value)) and value.__module__ == name
            if own and not member.startswith("_") and member not in excluded and (not wanted or member in wanted):
                yield f"{name}.{member}", value


def listed(options, name):
    found = re.search(rf":{name}: (.+)", options)
    return re.split(r",\s*", found[1]) if found else []


def without_example(objects):
    return [name for name, value in objects if ">>>" not in (value.__doc__ or "")]


def test_every_object_of_the_reference_has_an_example():
    objects = [found for page in PAGES for found in shown(page.read_text())]
    assert len(objects) > 100
    missing = without_example(objects)
    assert not missing, f"no example: {', '.join(missing)}"


def test_every_name_of_the_package_has_an_example():
    objects = [(name, getattr(gpsuq, name)) for name in gpsuq.__all__]
    missing = without_example((name, value) for name, value in objects if callable(value))
    assert not missing, f"no example: {', '.join(missing)}"


def public_methods(kind):
    """Give the methods and properties of a class that gpsuq defines, each with its name; an override hides the rest."""
    found = {}
    for owner in kind.__mro__:
        if not owner.__module__.startswith("gpsuq"):
            continue
        for name, value in vars(owner).items():
            function = next(
                (getattr(value, inner) for inner in ("__func__", "fget", "func") if hasattr(value, inner)), value
            )
            if inspect.isfunction(function) and not name.startswith("_"):
                found.setdefault(name, function)
    return found


def example_lines(docstring):
    return "\n".join(re.findall(r"^ *(?:>>>|\.\.\.)(.*)$", docstring or "", flags=re.MULTILINE))


def documentation_code():
    """Give the code of the documentation's pages and of the gallery."""
    pages = [path.read_text() for path in sorted(DOCS.rglob("*.md"))]
    blocks = [block for page in pages for block in re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)]
    return "\n".join(blocks + [path.read_text() for path in sorted((DOCS / "examples").glob("*.py"))])


def methods_without_example(classes, elsewhere=""):
    """Name the methods that no example uses: theirs, that of a class that has them, or code elsewhere."""
    classes_of = {}
    for kind in classes:
        for name, function in public_methods(kind).items():
            classes_of.setdefault((name, function), []).append(kind)
    missing = []
    for (name, function), kinds in classes_of.items():
        examples = [example_lines(item.__doc__) for item in (function, *kinds)]
        used = re.search(rf"\.{name}\b", "\n".join([*examples, elsewhere]))
        if not used and name not in CALLED_AS_THE_OBJECT:
            missing.append(f"{kinds[0].__name__}.{name}")
    return missing


def test_every_method_that_people_call_has_an_example():
    objects = [value for page in PAGES for _, value in shown(page.read_text())]
    objects += [getattr(gpsuq, name) for name in gpsuq.__all__]
    classes = dict.fromkeys(value for value in objects if inspect.isclass(value))
    asked = [kind for kind in classes if kind.__module__ not in CALLED_BY_TRAINING | CALLED_BY_REPORTS]
    assert {gpsuq.UQDistribution, gpsuq.GPSLinearRegression, gpsuq.GPSPoissonProcess, gpsuq.GPSClassifier} <= set(asked)
    missing = methods_without_example(asked, documentation_code())
    assert not missing, f"no example: {', '.join(missing)}"


def test_methods_without_an_example_are_named():
    class Base:
        """Base.

        >>> base.shown()
        >>> other.hidden_too
        """

        def shown(self): ...

        def hidden(self): ...

        @property
        def own(self):
            """Give it.

            >>> base.own
            """

    class Child(Base):
        """Child: hidden() is named in words only."""

        def shown(self): ...

    for kind in (Base, Child):
        kind.__module__ = "gpsuq.tests"
    assert methods_without_example([Base, Child]) == ["Base.hidden", "Child.shown"]
    assert methods_without_example([Base, Child], "base.hidden(); child.shown()") == []


def test_a_page_shows_what_its_options_say():
    page = ".. automodule:: gpsuq.errors\n   :members: GPSError, GPSWarning\n   :exclude-members: GPSWarning\n"
    assert list(shown(page)) == [("gpsuq.errors.GPSError", gpsuq.GPSError)]
    assert without_example([("nothing", test_every_name_of_the_package_has_an_example)]) == ["nothing"]
