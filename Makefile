# Two commands do everything: `make run` and `make test`. Both set themselves up and can be repeated.
VENV ?= .venv
export VENV
ARGS ?=
# Groups of tests that run side by side (tests/conftest.py), 4 GB each; 0: one after the other.
WORKERS ?= 2
PYTEST = $(VENV)/bin/python -m pytest
SPREAD = -n $(WORKERS) --dist loadscope --no-loadscope-reorder --durations=40 --durations-min=10

# Their processes are hundreds, and each would compile the sources again.
test test-all test-fast: export PYTHONDONTWRITEBYTECODE =

.PHONY: help setup setup-dev run test test-all test-fast lint docs audit lock clean

help:
	@echo 'make run        contrastive RL on this machine, end to end, 20 to 23 minutes; ends with a table and a report'
	@echo 'make test       every test that CI runs, as far as this machine can run them, some 20 minutes on 2 cores'
	@echo 'make test-all   those marked nightly too: endurance, and variants whose siblings CI runs'
	@echo 'make test-fast  the tests that take seconds'
	@echo 'make lint       ruff and mypy'
	@echo 'make docs       the documentation site, strictly, into site-docs/'
	@echo 'make setup      only the virtual environment, $(VENV)'

setup:
	@./setup.sh

setup-dev:
	@./setup.sh dev

run:
	@./setup.sh run
	@$(VENV)/bin/warpsmith train configs/cpu.toml $(ARGS)

test: setup-dev
	@$(PYTEST) $(SPREAD) -m 'not nightly' $(ARGS)

test-all: setup-dev
	@$(PYTEST) $(SPREAD) $(ARGS)

test-fast: setup-dev
	@$(PYTEST) -m 'not slow and not gpu and not nightly' $(ARGS)

lint: setup-dev
	@$(VENV)/bin/ruff check .
	@$(VENV)/bin/ruff format --check .
	@$(VENV)/bin/mypy

docs: setup-dev
	@NO_MKDOCS_2_WARNING=1 $(VENV)/bin/mkdocs build -q
	@echo 'site-docs/index.html'

audit: setup-dev
	@requirements/audit.sh

lock:
	@requirements/hash.sh

clean:
	rm -rf $(VENV) .cache runs .pytest_cache .mypy_cache .ruff_cache
