# Howdah's loop. `make help` lists the targets; ARGS passes options on, as in
# `make test ARGS="-k outbox"` or `make run ARGS="--config howdah.yaml"`.
SHELL := /bin/sh
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
SETUP_STAMP := $(VENV)/.setup.stamp
DEV_STAMP := $(VENV)/.setup-dev.stamp
SOURCES := gateway protocols queue_core migrations spark_etl bench tests tools examples
PROFILE_SECONDS ?= 30
ARGS ?=

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

.PHONY: help
help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# --- installing

.PHONY: setup
setup: $(SETUP_STAMP)  ## the gateway in .venv; leaves .venv/bin/howdah

# pyvenv.cfg, not the interpreter: that is a link, as old as the system's Python.
$(VENV)/pyvenv.cfg:
	@PYTHON="$(PYTHON)" tools/preflight.sh
	$(PYTHON) -m venv --clear $(VENV)

$(SETUP_STAMP): requirements.lock pyproject.toml | $(VENV)/pyvenv.cfg
	@PYTHON="$(BIN)/python" tools/preflight.sh
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || $(BIN)/python -m ensurepip --default-pip
	$(PIP) install --quiet --require-hashes -r requirements.lock
	$(PIP) install --quiet --no-deps --no-build-isolation --editable .
	@touch $@

.PHONY: setup-dev
setup-dev: $(DEV_STAMP)  ## setup, and what tests, checks and Spark need (about 450 MB)

$(DEV_STAMP): requirements-dev.lock $(SETUP_STAMP)
	$(PIP) install --quiet --use-pep517 --require-hashes -r requirements-dev.lock
	@touch $@

.PHONY: setup-spark
setup-spark: $(DEV_STAMP)  ## the JDBC driver for the Spark jobs, into .cache unless the system has it
	@$(BIN)/python -m spark_etl.jdbc_driver

.PHONY: setup-peers
setup-peers:  ## Debian's brokers and clients that tests compare with, where root may install them
	@tools/peers.sh

LOCK := $(BIN)/uv pip compile --universal --python-version 3.11 --generate-hashes \
	--no-emit-index-url --no-header --quiet --upgrade

.PHONY: lock
lock: $(SETUP_STAMP)  ## maintainers: renew both locks from the .in files
	$(PIP) install --quiet uv
	$(LOCK) requirements.in -o requirements.lock
	$(LOCK) requirements-dev.in -c requirements.lock -o requirements-dev.lock

# --- running

.PHONY: run
run: setup  ## the gateway, with its own PostgreSQL unless database.url is set
	exec $(BIN)/howdah serve $(ARGS)

.PHONY: debug
debug: setup  ## the gateway with debug logs and asyncio's own checks
	HOWDAH_LOG__LEVEL=debug exec $(BIN)/python -X dev -m gateway.main serve $(ARGS)

.PHONY: profile
profile: setup-dev  ## the gateway under py-spy for PROFILE_SECONDS, into profile.svg
	$(BIN)/py-spy record --duration $(PROFILE_SECONDS) --output profile.svg -- \
		$(BIN)/python -m gateway.main serve $(ARGS)

# --- checking

.PHONY: test
test: setup-spark setup-peers  ## every test
	@tools/test.sh $(ARGS)

.PHONY: test-fast
test-fast: setup-dev  ## the unit tests: seconds, no database, no sockets
	$(BIN)/python -m pytest tests/unit $(ARGS)

.PHONY: lint
lint: setup-dev  ## formatting, ruff, types, import contracts
	$(BIN)/ruff format --check $(SOURCES)
	$(BIN)/ruff check $(SOURCES)
	$(BIN)/mypy
	$(BIN)/lint-imports

.PHONY: format
format: setup-dev  ## put the sources in shape
	$(BIN)/ruff format $(SOURCES)
	$(BIN)/ruff check --fix $(SOURCES)

.PHONY: check
check: lint test  ## lint and every test: what must be green before a commit

.PHONY: audit
audit: setup  ## known vulnerabilities of what the locks pin; 2 where nobody could be asked
	$(BIN)/python -m tools.audit

.PHONY: sbom
sbom: setup  ## what the gateway is made of, as CycloneDX, into build/howdah.cdx.json
	@mkdir -p build
	$(BIN)/python -m tools.sbom > build/howdah.cdx.json

.PHONY: bench
bench: setup-dev  ## load runs, beside other brokers where they are installed
	$(BIN)/python -m bench $(ARGS)

.PHONY: docs
docs: setup-dev  ## write the generated pages under docs/ anew
	$(BIN)/python -m tools.reference
	$(BIN)/python -m tools.schema
	$(BIN)/python -m tests.interop.mqtt.page
