"""Every object of the public reference has an example, which the doctests run."""

import inspect
import re
from pathlib import Path
from pkgutil import resolve_name

import gpsuq

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "api.rst"
DIRECTIVE = re.compile(r"^\.\. auto(class|function|module):: (\S+)\n((?: +:.*\n)*)", flags=re.MULTILINE)


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
    objects = list(shown(PAGE.read_text()))
    assert len(objects) > 100
    missing = without_example(objects)
    assert not missing, f"no example: {', '.join(missing)}"


def test_every_name_of_the_package_has_an_example():
    objects = [(name, getattr(gpsuq, name)) for name in gpsuq.__all__]
    missing = without_example((name, value) for name, value in objects if callable(value))
    assert not missing, f"no example: {', '.join(missing)}"


def test_a_page_shows_what_its_options_say():
    page = ".. automodule:: gpsuq.errors\n   :members: GPSError, GPSWarning\n   :exclude-members: GPSWarning\n"
    assert list(shown(page)) == [("gpsuq.errors.GPSError", gpsuq.GPSError)]
    assert without_example([("nothing", test_every_name_of_the_package_has_an_example)]) == ["nothing"]
