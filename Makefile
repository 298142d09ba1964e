# Needs Python 3.11 or newer, with pip, and make. Everything is installed below $(VENV); nothing outside it is touched.
#
#   make train     install, then train the default run        make lint types unit docs    the parts of `make test`
#   make test      install, then lint, types and all tests     make clean                   remove .venv and build files
#
# Variables: PYTHON, VENV, CONFIG (a YAML), ARGS (more arguments for the command that runs), TORCH (a requirement).

PYTHON ?= $(firstword $(foreach python,python3.11 python3.12 python3.13 python3.14 python3 python,$(if $(shell \
	$(python) -c 'import sys; print(int(sys.version_info >= (3, 11)))' 2>/dev/null | grep -x 1),$(python))))
VENV ?= .venv
CONFIG ?= tooluse.yaml
ARGS ?=
TORCH ?= torch==2.13.0
# The plain CPU build of torch on Linux. Where this index is out of reach, the configured one is used alone.
TORCH_INDEX ?= https://download.pytorch.org/whl/cpu

bin := $(VENV)/bin
pip := $(bin)/python -m pip --disable-pip-version-check
sources := spade_agentic plugins tool_sims configs tests benchmarks setup.py

.DEFAULT_GOAL := help
.PHONY: help train test lint types unit docs install install-dev config-page clean

help:
	@sed -n '3,4s/^# *//p' Makefile

train: $(VENV)/.stamp-install
	$(bin)/spade-agentic train $(CONFIG) $(ARGS)

test: lint types unit

lint: $(VENV)/.stamp-dev
	$(bin)/ruff check $(sources)

# mypy knows packages by their folders' names; these links give plugins/ and tool_sims/ the names they install under.
types: $(VENV)/.stamp-dev
	mkdir -p build/names
	ln -sfn ../../spade_agentic build/names/spade_agentic
	ln -sfn ../../plugins build/names/spade_agentic_plugins
	ln -sfn ../../tool_sims build/names/spade_agentic_sims
	cd build/names && $(abspath $(bin))/mypy --config-file ../../pyproject.toml

unit: $(VENV)/.stamp-dev
	$(bin)/python -m pytest --cov --cov-report=term:skip-covered $(ARGS)

docs: $(VENV)/.stamp-dev
	$(bin)/python -m pytest tests/docs $(ARGS)

install: $(VENV)/.stamp-install

install-dev: $(VENV)/.stamp-dev

# Write docs/config.md anew from the schema.
config-page: $(VENV)/.stamp-install
	$(bin)/python -c 'from spade_agentic.config.reference import reference_page; print(reference_page(), end="")' > docs/config.md

clean:
	rm -rf .venv build *.egg-info .coverage .pytest_cache .mypy_cache .ruff_cache .hypothesis

# An environment that is there already is used as it is, never emptied. Where the system's Python cannot equip a new one with
# pip (Debian without python3-venv), its own pip does it.
$(VENV)/.stamp-venv:
	@test -n "$(PYTHON)" || { echo "no Python 3.11 or newer was found; name one: make PYTHON=/path/to/python3.11" >&2; exit 1; }
	@test ! -e $(VENV) || test -x $(bin)/python || { echo "$(VENV) is no virtual environment; name another: make VENV=DIR" >&2; exit 1; }
	test -x $(bin)/python || $(PYTHON) -m venv $(VENV) || { \
		rm -rf $(VENV) && $(PYTHON) -m venv --without-pip $(VENV) && \
		$(PYTHON) -m pip --python $(bin)/python install pip; }
	touch $@

# torch alone first, without its dependencies: so the CPU index is asked for nothing else.
$(VENV)/.stamp-torch: $(VENV)/.stamp-venv
	$(pip) install --no-deps --retries 1 --extra-index-url $(TORCH_INDEX) "$(TORCH)"
	touch $@

$(VENV)/.stamp-install: $(VENV)/.stamp-torch pyproject.toml setup.py
	$(pip) install --editable .
	touch $@

$(VENV)/.stamp-dev: $(VENV)/.stamp-install
	$(pip) install --editable ".[dev]"
	touch $@
