# Each target is one or two lines that a person could type. `make` alone lists them.
.DEFAULT_GOAL := help
.PHONY: help install fmt check test engine serve bench fuzz clean

PYTHON ?= python3
BIN := .venv/bin
ENV := .venv/.installed
WORKERS ?= 2

help: ## List the targets
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 14

install: $(ENV) ## Make the environment in .venv

$(ENV): pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check 'pip==26.3'
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[client]' --group dev
	@touch $@

fmt: $(ENV) ## Rewrite the code in the project's format
	$(BIN)/ruff check --fix . && $(BIN)/ruff format .

check: $(ENV) ## ruff, mypy and the direction of imports
	$(BIN)/ruff check . && $(BIN)/ruff format --check . && $(BIN)/mypy
	$(BIN)/python -m pytest -q -p no:randomly tests/unit/test_layers.py

test: $(ENV) ## Every test that needs no GPU
	$(BIN)/python -m pytest -q -n $(WORKERS) --dist loadgroup tests

engine: $(ENV) ## Prepare an engine: CHECKPOINT=dir NAME=n [TYPE=bf16]; without any, the demo
	$(BIN)/trt-responses engine build $(if $(CHECKPOINT),--checkpoint $(CHECKPOINT)) $(if $(NAME),--name $(NAME)) $(if $(TYPE),--type $(TYPE))

serve: $(ENV) ## Serve an engine: [ENGINE=name] [HOST=…] [PORT=…]; without any, the demo
	@$(BIN)/trt-responses serve $(if $(ENGINE),--engine $(ENGINE)) $(if $(HOST),--host $(HOST)) $(if $(PORT),--port $(PORT))

bench: $(ENV) ## Time the server against the floor, as ratios of one run
	$(BIN)/python -m bench

fuzz: $(ENV) ## Two million random tokens through the reader and its oracle
	$(BIN)/python -m scripts.fuzz_reader

clean: ## Remove the environment, prepared engines and caches
	rm -rf .venv dist bench/results .mypy_cache .pytest_cache .ruff_cache .hypothesis .coverage
	find engines -mindepth 1 -maxdepth 1 -type d ! -name demo-source -exec rm -rf {} +
