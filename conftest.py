"""Leaves out the doctests of adapters whose package is not installed; `make adapters` runs them all."""

from importlib.util import find_spec

PACKAGES = {"skpro": "skpro", "mlflow": "mlflow", "huggingface": "huggingface_hub"}

collect_ignore = [f"src/gpsuq/adapters/{name}.py" for name, package in PACKAGES.items() if find_spec(package) is None]
