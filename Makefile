# The front door. `make setup` leaves .venv/bin/cotenant; everything else builds on it.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
PACKAGES := libs/common services/gateway services/scheduler services/quota services/descheduler services/profiler services/agent apps/simulator apps/cotenant
SOURCES := libs/common/src services/*/src apps/*/src

.PHONY: setup demo test lint fmt type unit lock docs wheels compose-up compose-down compose-test clean

setup: $(STAMP)

# One line that names the missing package beats ensurepip's traceback.
$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	  echo "cotenant needs Python 3.11 or newer (found: $$($(PYTHON) --version 2>&1)); set PYTHON=/path/to/python3.11" >&2; exit 1; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || { \
	  echo "this Python lacks venv or pip: install the package python3-venv (Debian, Ubuntu: apt install python3-venv)" >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV)

$(BIN)/uv: $(BIN)/python requirements/bootstrap.txt
	@$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes -r requirements/bootstrap.txt
	@touch $@

$(STAMP): $(BIN)/uv requirements/dev.txt $(PACKAGES:%=%/pyproject.toml)
	@echo "installing the locked dependencies into $(VENV)"
	@$(BIN)/uv pip install --quiet --python $(BIN)/python --require-hashes -r requirements/dev.txt
	@$(BIN)/uv pip install --quiet --python $(BIN)/python --no-deps --no-build-isolation $(PACKAGES:%=-e %)
	@touch $@

demo: setup
	@$(BIN)/cotenant demo

test: lint unit

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy $(SOURCES)
	$(BIN)/lint-imports --config .importlinter
	$(BIN)/cotenant contracts check

unit: setup
	$(BIN)/pytest

fmt: setup
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: setup
	$(BIN)/cotenant contracts write
	$(BIN)/python -m cotenant_gateway.docs docs
	$(BIN)/python -m cotenant_simulator.documents docs/scenarios.md

lock: $(BIN)/uv
	$(BIN)/uv pip compile --quiet --universal --generate-hashes --python-version 3.11 --no-emit-index-url --no-header --upgrade requirements/runtime.in -o requirements/runtime.txt
	$(BIN)/uv pip compile --quiet --universal --generate-hashes --python-version 3.11 --no-emit-index-url --no-header --upgrade requirements/dev.in -o requirements/dev.txt
	$(BIN)/uv pip compile --quiet --universal --generate-hashes --python-version 3.11 --no-emit-index-url --no-header --upgrade requirements/bootstrap.in -o requirements/bootstrap.txt

wheels: setup
	@rm -rf dist
	@for member in $(PACKAGES); do $(BIN)/uv build --quiet --wheel --no-build-isolation --python $(BIN)/python -o dist $$member || exit 1; done
	@ls dist

# These need a Docker engine with compose, and nothing that `make setup` installs.
compose-up:
	@$(PYTHON) deploy/compose/stack.py up

compose-down:
	@$(PYTHON) deploy/compose/stack.py down

compose-test:
	@$(PYTHON) deploy/compose/stack.py check

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
