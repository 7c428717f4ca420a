# The one door. `make` alone prints what there is; CI calls the same targets.

PYTHON ?= python3
BIN    := .venv/bin
CODE   := $(wildcard src tests tools bench chaos examples)
READY  := .venv/.ready
DEMO   := .venv/.demo

JOBS   ?= $(shell n=$$(getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2); [ $$n -gt 4 ] && n=4; echo $$n)
PYTEST := $(BIN)/pytest -n $(JOBS) --dist loadscope
ARGS   ?=
SEEDS  ?= 200
SEED   ?=
ONLY   ?=
MINUTES ?= 3
QUEUE  ?= redis
PROFILE ?= no-loss

MAKEFLAGS += --no-print-directory
.DEFAULT_GOAL := help
.PHONY: help setup check fix test test-celery sim mutants chaos bench docs demo lock ci clean

help:  ## this list
	@awk -F ':.*##' '/^[a-z-]+:.*##/ { printf "  make %-11s%s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(READY)  ## virtual environment in .venv, from hashed requirements (once)

$(READY): requirements/dev.txt pyproject.toml tools/setup.py
	@$(PYTHON) tools/setup.py dev

$(DEMO): requirements/demo.txt pyproject.toml tools/setup.py
	@$(PYTHON) tools/setup.py demo

check: $(READY)  ## format, lint, types, layers, spelling, sizes, Lua
	@$(BIN)/python tools/steps.py \
	  "$(BIN)/ruff format --check --quiet $(CODE)" \
	  "$(BIN)/ruff check --quiet --output-format=concise $(CODE)" \
	  "$(BIN)/mypy --no-error-summary $(CODE)" \
	  "$(BIN)/basedpyright --level error" \
	  "$(BIN)/lint-imports --no-cache --no-logo" \
	  "$(BIN)/codespell" \
	  "$(BIN)/python tools/file_sizes.py" \
	  "$(BIN)/python tools/no_hosts.py" \
	  "$(BIN)/python tools/lua_lint.py"

fix: $(READY)  ## format, sort imports, repair what can be repaired
	@$(BIN)/ruff format --quiet $(CODE)
	@$(BIN)/ruff check --quiet --fix $(CODE)
	@$(BIN)/ruff format --quiet $(CODE)

test: $(READY)  ## all tests, in random order (ARGS="-k name", JOBS=1, SEED=an order to replay)
	@$(PYTEST) $(if $(SEED),--randomly-seed=$(SEED)) $(ARGS)

test-celery: $(READY)  ## Celery on every broker, pool and kind of ack there is; prints the table
	@MATRIX=all CI=true $(PYTEST) tests/adapters/celery/matrix $(ARGS)

sim: $(READY)  ## the simulated world: SEEDS=how many, or SEED=one to replay and shrink
	@$(BIN)/python -m tests.sim --jobs $(JOBS) $(if $(SEED),--seed $(SEED),--seeds $(SEEDS)) $(ARGS)

mutants: $(READY)  ## break the code on purpose: the simulated world must notice each
	@$(BIN)/python -m tests.sim --mutants --jobs $(JOBS) $(ARGS)

chaos: $(READY)  ## real processes under faults, judged: MINUTES=3 QUEUE=redis|celery PROFILE=no-loss|loss
	@$(BIN)/python -m chaos --minutes $(MINUTES) --queue $(QUEUE) --profile $(PROFILE) $(ARGS)

bench: $(READY)  ## the numbers in the docs: ONLY=one of them
	@$(BIN)/python -m bench $(ONLY)

docs: $(READY)  ## run every example of the README and the docs
	@$(PYTEST) tests/docs $(ARGS)

demo: $(DEMO)  ## see it work, on a server of its own (needs no make setup)
	@$(BIN)/giliran demo $(ARGS)

lock: $(READY)  ## requirements/*.txt anew from pyproject.toml (UPGRADE=1)
	@UPGRADE=$(UPGRADE) $(BIN)/python tools/lock.py

ci: $(READY)  ## what CI runs, in its order
	@$(BIN)/python tools/steps.py --first "make check" "make sim SEEDS=200" "make mutants" "make docs" \
	  "make demo ARGS=--json" "make chaos MINUTES=1" "make test"

clean:  ## remove what was built and cached, .venv too
	@rm -rf .venv build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis htmlcov .coverage
	@find . -name __pycache__ -prune -exec rm -rf {} +
