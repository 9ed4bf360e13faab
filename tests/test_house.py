"""The house: data goes one way, a family is one folder, and heavy modules are loaded when they are needed."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import gpsuq

ROOT = Path(gpsuq.__file__).parent

FLOORS = [
    ["errors", "_version"],
    ["files"],
    ["core"],
    ["engine"],
    ["storage"],
    ["tables"],
    ["plots"],
    ["reports"],
    ["uq"],
    ["gps"],
    ["spatial"],
    ["datasets"],
    ["speaking"],
    ["linear", "poisson", "classify", "regress"],
    ["adapters"],
    ["cli"],
    ["__main__"],
]
"""A module imports from floors above its own, and from its own folder; families do not know each other."""

FLOOR = {name: number for number, floor in enumerate(FLOORS) for name in floor}


def modules():
    found = {}
    for path in ROOT.rglob("*.py"):
        parts = path.relative_to(ROOT).with_suffix("").parts
        found[".".join(parts).removesuffix("__init__").rstrip(".")] = path
    return found


MODULES = modules()


def imports(path):
    """All modules of gpsuq that a file imports anywhere: on top, in functions, for types only."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            if node.module == "gpsuq" or (node.module or "").startswith("gpsuq."):
                base = node.module.removeprefix("gpsuq").lstrip(".")
                for alias in node.names:
                    inner = f"{base}.{alias.name}".lstrip(".")
                    yield inner if inner in MODULES else base
        elif isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.startswith("gpsuq."):
                    yield alias.name.removeprefix("gpsuq.")


GRAPH = {name: sorted(set(imports(path)) - {name}) for name, path in MODULES.items()}


def test_few_modules_stand_in_the_root():
    assert len([path for path in ROOT.glob("*.py") if path.name != "__main__.py"]) <= 7


def test_every_folder_has_its_floor():
    assert {name.split(".")[0] for name in MODULES if name} == set(FLOOR)


@pytest.mark.parametrize("name", sorted(name for name in MODULES if name))
def test_imports_point_down_the_list(name):
    own = name.split(".")[0]
    for other in GRAPH[name]:
        assert other, f"{name} imports the package itself: name the module"
        folder = other.split(".")[0]
        assert folder == own or FLOOR[folder] < FLOOR[own], f"{name} must not import {other}"


def test_there_is_no_cycle():
    done, path = set(), []

    def visit(name):
        assert name not in path, " -> ".join([*path[path.index(name) :], name])
        if name in done:
            return
        path.append(name)
        for other in GRAPH[name]:
            visit(other)
        path.pop()
        done.add(name)

    for name in MODULES:
        visit(name)


def test_gradients_are_taken_in_one_place():
    assert [name for name, path in MODULES.items() if ".backward(" in path.read_text()] == ["engine.loop"]


def test_one_module_knows_safetensors():
    assert [name for name, path in MODULES.items() if "safetensors import" in path.read_text()] == ["files"]


HEAVY = {"torch", "sklearn", "pandas", "scipy", "lightning_fabric", "matplotlib", "numpy", "shapely", "jinja2"}


@pytest.mark.parametrize(
    "code",
    [
        "import gpsuq",
        "import sys; sys.argv = ['gpsuq', '--help']; from gpsuq.cli import app; app(standalone_mode=False)",
    ],
)
def test_heavy_modules_wait_until_they_are_needed(code):
    listed = subprocess.run(
        [sys.executable, "-c", f"{code}\nimport sys; print('\\n' + ' '.join(sys.modules))"],
        check=True,
        capture_output=True,
        text=True,
    )
    assert HEAVY & set(listed.stdout.splitlines()[-1].split()) == set()
