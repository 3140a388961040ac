# `make demo` and `make test` are all one needs; both set up the environment first.
# Needs GNU make and a Python 3.10+ with its venv module, nothing else.

PYTHON ?= python3
VENV ?= .venv
EXTRAS ?= dev,solvers,graph,gymnasium,serve,tune,launchers
# Parallel test processes, each with one thread: more threads than cores only slow torch down.
WORKERS ?= 2
PYTEST_ARGS ?=
STABILITY_ARGS ?=
# Index of the PyTorch wheels, if they should come from another place than everything else
# (for example an index of CPU-only builds).
TORCH_INDEX ?=

BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
STAMP := $(VENV)/.installed
DOCS_STAMP := $(VENV)/.installed-docs
# The exact pin, e.g. torch==2.13.0.
TORCH := $(shell sed -n 's/^\(torch==[^ ;]*\).*/\1/p' constraints.txt)

.DEFAULT_GOAL := help
.PHONY: help .venv demo test lint format typecheck pytest pytest-plain stability coverage docs clean

help:  ## list the targets
	@sed -n 's/^\([a-z.-]*\):.*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 20

# torch goes first and alone: with the pinned build in place, no other package's range on torch
# makes pip look for (and download) another one.
$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(PIP) install $(if $(TORCH_INDEX),--extra-index-url $(TORCH_INDEX)) -c constraints.txt "$(TORCH)"
	$(PIP) install -c constraints.txt -e ".[$(EXTRAS)]"
	@touch $@

$(DOCS_STAMP): $(STAMP)
	$(PIP) install -c constraints.txt -e ".[$(EXTRAS),docs]"
	@touch $@

.venv: $(STAMP)  ## create the environment with the tested versions

demo: $(STAMP)  ## train a small model, evaluate it, draw its solutions
	$(BIN)/python examples/demo.py

test: lint typecheck pytest  ## everything that must pass: lint, format, types, tests

lint: $(STAMP)  ## style and format, without changing anything
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

format: $(STAMP)  ## repair style and format in place
	$(BIN)/python tools/type_imports.py
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

typecheck: $(STAMP)  ## static types
	$(BIN)/mypy rl4co

pytest coverage: export OMP_NUM_THREADS = 1
pytest coverage: export MKL_NUM_THREADS = 1
pytest coverage: export NUMBA_NUM_THREADS = 1
pytest: $(STAMP)  ## tests only
	$(BIN)/python -m pytest -n $(WORKERS) $(PYTEST_ARGS)

coverage: $(STAMP)  ## tests, and which lines of the package they reach (htmlcov/index.html)
	$(BIN)/python -m pytest -n $(WORKERS) --cov --cov-report=term --cov-report=html $(PYTEST_ARGS)

pytest-plain: export OMP_NUM_THREADS = 1
pytest-plain: export MKL_NUM_THREADS = 1
pytest-plain: export RL4CO_KERNELS = 0
pytest-plain: $(STAMP)  ## contract, decoding and model tests without compiled code
	$(BIN)/python -m pytest -n $(WORKERS) -m "not slow and not learning" tests/contract tests/unit/decoding tests/unit/models $(PYTEST_ARGS)

stability: $(STAMP)  ## learning and numerical tests as on other processors (about an hour)
	$(BIN)/python -m tests.stability $(STABILITY_ARGS)

# A tutorial is run again when its source is newer than its page; `make -j 2 docs` runs two at a time.
TUTORIALS := $(patsubst docs/tutorials/%.py,build/tutorials/%.md,$(wildcard docs/tutorials/*.py))
build/tutorials/%.md: export OMP_NUM_THREADS = 1
build/tutorials/%.md: docs/tutorials/%.py tools/tutorials.py | $(DOCS_STAMP)
	$(BIN)/python tools/tutorials.py $<

docs: $(DOCS_STAMP) $(TUTORIALS)  ## run the tutorials and build the documentation into site/
	$(BIN)/mkdocs build --strict

clean:  ## remove the environment, caches and build results
	rm -rf $(VENV) build dist site .mypy_cache .pytest_cache .ruff_cache .hypothesis *.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
