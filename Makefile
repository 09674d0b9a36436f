# Two commands do everything: `make run` and `make test`. Both set themselves up and can be repeated.
VENV ?= .venv
export VENV
ARGS ?=

.PHONY: help setup setup-dev run test test-fast lint docs audit lock clean

help:
	@echo 'make run        contrastive RL on this machine, end to end, about 14 minutes; ends with a table and a report'
	@echo 'make test       every test that this machine can run'
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
	@$(VENV)/bin/python -m pytest $(ARGS)

test-fast: setup-dev
	@$(VENV)/bin/python -m pytest -m 'not slow and not gpu' $(ARGS)

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
