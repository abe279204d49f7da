# `make demo` and `make test` work on a fresh checkout: the virtual environment builds itself.

PYTHON ?= python3
VENV ?= .venv
WORKERS ?= 2
PYTEST_ARGS ?=

BIN := $(VENV)/bin
READY := $(VENV)/.ready

.DEFAULT_GOAL := help
.PHONY: help demo live backends test check format bench bench-peers bench-more bench-figures soak fuzz interpreters sbom vulnerabilities clean

help: ## show this list
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 16

$(READY): pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	$(BIN)/python -m pip install --quiet --no-deps 'aioboto3>=15.5'
	@touch $@

demo: $(READY) ## run an agent through the real clients and show its trace
	$(BIN)/clew demo

live: $(READY) ## the demo with a real model, offline (builds llama.cpp once, about 20 minutes)
	$(BIN)/python tests/live/live.py --no-serve

backends: $(READY) ## run a real Collector, Jaeger and Prometheus (builds them once, 10 minutes)
	$(BIN)/python tests/backends/build_peers.py >/dev/null
	@$(BIN)/python tests/backends/serve.py

test: $(READY) ## run the tests
	$(BIN)/python -m pytest -q -m 'not soak' -n $(WORKERS) --dist loadfile --reruns 2 $(PYTEST_ARGS)

check: $(READY) ## lint, format, types, floors
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright
	$(BIN)/lint-imports --no-cache

format: $(READY) ## mend what the linter can mend
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(READY) ## measure what Clew adds to a call (four minutes)
	$(BIN)/python tests/bench/compare.py --quick
	$(BIN)/python tests/bench/table.py --write

bench-peers: $(READY) ## the same beside other instrumentations, every cell (half an hour)
	$(BIN)/python tests/bench/compare.py --peers
	$(BIN)/python tests/bench/table.py --write

bench-more: $(READY) ## below the SDKs, known prompts, memory, import, the store
	-$(BIN)/python tests/bench/bench.py
	$(BIN)/python tests/bench/prompts.py
	$(BIN)/python tests/bench/memory.py
	$(BIN)/python tests/bench/imports.py
	$(BIN)/python tests/bench/reading.py

bench-figures: $(READY) ## store today's instruction counts as the guard's figures
	$(BIN)/python tests/bench/instructions.py --store

soak: $(READY) ## run the long tests
	$(BIN)/python -m pytest -q -m soak $(PYTEST_ARGS)

fuzz: $(READY) ## fuzz what comes from outside, a minute for each target
	FUZZ_SECONDS=60 $(BIN)/python -m pytest -q tests/reliability/test_fuzzing.py $(PYTEST_ARGS)

interpreters: $(READY) ## run a part of the tests on every other Python of this machine
	$(BIN)/python .ci/interpreters.py test

sbom: $(READY) ## write the bill of materials (CycloneDX) to build/sbom.json
	mkdir -p build
	$(BIN)/cyclonedx-py environment --pyproject pyproject.toml --of JSON -o build/sbom.json $(BIN)/python
	$(BIN)/python .ci/supply_chain.py sbom build/sbom.json

vulnerabilities: $(READY) ## ask a service on the network for known vulnerabilities of what is installed
	$(BIN)/python .ci/supply_chain.py vulnerabilities

clean: ## remove what was built
	rm -rf $(VENV) .pytest_cache .ruff_cache .hypothesis .import_linter_cache build dist
