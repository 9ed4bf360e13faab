# Every target sets up .venv when it must; nothing but Python >= 3.11, make and pip is needed.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check install --quiet --constraint constraints.txt
INSTALLED := $(VENV)/.installed
DOCS_INSTALLED := $(VENV)/.installed-docs

.PHONY: install demo browser test adapters lint docs bench wheel release clean

install: $(INSTALLED)

# torch comes first and by its pinned version: a looser request would pull gigabytes of CUDA libraries.
$(INSTALLED): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) $$(grep '^torch==' constraints.txt)
	$(PIP) --editable '.[dev]'
	touch $@

$(DOCS_INSTALLED): $(INSTALLED)
	$(PIP) --editable '.[docs]'
	touch $@

demo: $(INSTALLED)
	$(BIN)/gpsuq demo --out demo

# The report's tests open it in Chromium and are skipped where there is none; installing one may need to be root.
browser:
	@command -v chromium >/dev/null || command -v chromium-browser >/dev/null || command -v google-chrome >/dev/null || \
	  (apt-get update -qq && apt-get install -qq -y --no-install-recommends chromium) >/dev/null 2>&1 || \
	  echo "Chromium is not here and could not be installed: the report's browser tests will be skipped"

test: $(INSTALLED) browser
	$(BIN)/python -m pytest --numprocesses 2 --dist worksteal

# skpro and MLflow hold pandas below the version that is pinned for all else.
adapters:
	test -x .venv-adapters/bin/python || $(PYTHON) -m venv .venv-adapters
	sed '/^pandas==/d; /^pandas-stubs==/d' constraints.txt > .venv-adapters/constraints.txt
	.venv-adapters/bin/pip --disable-pip-version-check install --quiet -c .venv-adapters/constraints.txt $$(grep '^torch==' constraints.txt)
	.venv-adapters/bin/pip --disable-pip-version-check install --quiet -c .venv-adapters/constraints.txt --editable '.[skpro,mlflow,huggingface]' pytest
	.venv-adapters/bin/python -m pytest tests/adapters src/gpsuq/adapters

lint: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

docs: $(DOCS_INSTALLED)
	$(BIN)/python -m sphinx -W --keep-going -b html docs docs/_build/html

bench: $(INSTALLED)
	$(BIN)/python benchmarks/loss.py --out benchmarks/results
	$(BIN)/python benchmarks/profile_fit.py --out benchmarks/results

wheel: $(INSTALLED)
	$(BIN)/python -m build --wheel

# Wheel and sdist, checked, and installed into an empty environment of every Python that is here.
release:
	.ci/release

clean:
	rm -rf $(VENV) .venv-adapters build dist demo docs/_build docs/auto_examples docs/sg_execution_times.rst src/*.egg-info
