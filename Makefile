# Bare `make` lists the targets. Set-up happens inside them and repeats cheaply.
.DEFAULT_GOAL := help
SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.ready

.PHONY: help demo test check format bench crash lock clean setup gvisor bench-sandbox

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  make %-14s %s\n", $$1, $$2}'

$(STAMP): requirements-dev.lock pyproject.toml scripts/setup.sh
	@PYTHON="$(PYTHON)" VENV="$(VENV)" bash scripts/setup.sh
	@touch $@

setup: $(STAMP) ## make the virtual environment (the other targets do it themselves)

demo: $(STAMP) ## run the demo: a workflow killed with -9 that goes on by itself
	@$(BIN)/python examples/demo.py

test: $(STAMP) ## the whole test suite
	@$(BIN)/python -m pytest -n 2 --dist worksteal -q

check: $(STAMP) ## format, lint, types, import layers
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/basedpyright
	@$(BIN)/lint-imports

format: $(STAMP) ## let ruff format and fix what it can
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

gvisor: ## install gVisor's runsc, for the stronger sandbox backend (Debian, as root)
	@bash scripts/gvisor.sh

bench-sandbox: $(STAMP) ## measure the sandbox against subprocess, bubblewrap and runsc
	@$(BIN)/python bench/sandbox.py

lock: $(STAMP) ## lock the dependencies anew
	@$(BIN)/uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-annotate --no-header -o requirements.lock pyproject.toml
	@$(BIN)/uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-annotate --no-header --extra dev -o requirements-dev.lock pyproject.toml

clean: ## remove what the targets made
	rm -rf $(VENV) .bench-venv .holdfast .pytest_cache .ruff_cache .import_linter_cache
