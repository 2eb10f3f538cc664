# Each target is one or two lines that a person could type. `make` alone lists them.
.DEFAULT_GOAL := help
.PHONY: help install fmt check test test-rest test-all deploy-check live doctor engine serve docs docs-check release views bench conformance cost fuzz faults gaps rollout aiperf page demo-train demo-eval clean

# A build without a profile, such as pyenv's, takes more CPU than most systems' own Python (docs/decisions/serve.md): that one is taken, then.
FAST = from sysconfig import get_config_var as built; import ensurepip, sys; sys.exit(sys.version_info < (3, 11) or "" != (built("PGO_PROF_USE_FLAG") or "") and "--enable-optimizations" not in built("CONFIG_ARGS"))
PYTHONS := python3 /usr/bin/python3
PYTHON ?= $(shell for each in $(PYTHONS); do $$each -c '$(FAST)' 2>/dev/null && echo $$each && exit; done; echo python3)
BIN := .venv/bin
ENV := .venv/.serves
DEV := .venv/.develops
GRAPHS := .venv/.compiles
PIP := $(BIN)/python -m pip --quiet --disable-pip-version-check install --constraint constraints.txt
ENOUGH = import sys; sys.version_info >= (3, 11) or sys.exit("Python 3.11 or later is needed, and %s is %d.%d.%d: run make with PYTHON=python3.11" % ((sys.executable,) + tuple(sys.version_info[:3])))
unexport PIP_CONSTRAINT  # NVIDIA's images pin the packages of their own Python with it
unexport PYTHONDONTWRITEBYTECODE  # containers set it, and each of a thousand processes would compile all anew
WORKERS ?= 2
PYTEST = $(BIN)/python -m pytest -q -n $(WORKERS) --dist loadgroup
JUDGED := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/responses-conformance/engines
ENGINES := tests/unit/engines tests/unit/prepare tests/unit/tools
SPEECH := $(addprefix tests/unit/,dialects harmony log run schema tokens wire)
GRAPHS_E2E := tests/e2e/test_steering.py tests/e2e/test_prepare_numeric.py

help: ## List the targets
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 14

install: $(DEV) ## Make the environment in .venv

# An environment that was not finished is made anew. A system may have pip and not venv's own copy of it.
$(ENV): FRESH = $(if $(wildcard $(ENV)),,--clear)
$(ENV): pyproject.toml constraints.txt
	@$(PYTHON) -c '$(ENOUGH)'
	@if $(PYTHON) -c 'import ensurepip' 2>/dev/null; then $(PYTHON) -m venv $(FRESH) .venv; \
	  else $(PYTHON) -m venv $(FRESH) --without-pip .venv && $(PYTHON) -m pip --quiet --python $(BIN)/python install 'pip==26.3'; fi
	$(BIN)/python -m pip --quiet --disable-pip-version-check install 'pip==26.3'
	$(PIP) --editable '.[client,redis]'
	@touch $@

$(GRAPHS): $(ENV)
	$(PIP) --editable '.[client,redis,tensorrt]'
	@touch $@

$(DEV): $(ENV)
	$(PIP) --editable '.[client,postgres,redis,tensorrt]' --group dev
	@touch $@

fmt: $(DEV) ## Rewrite the code in the project's format
	$(BIN)/ruff check --fix . && $(BIN)/ruff format .

check: $(DEV) ## ruff, mypy, hadolint and the direction of imports
	$(BIN)/ruff check . && $(BIN)/ruff format --check . && $(BIN)/mypy
	$(BIN)/hadolint --failure-threshold warning deploy/Dockerfile*
	$(BIN)/python -m pytest -q -p no:randomly tests/unit/test_layers.py

test: $(DEV) ## The tests to run between two commits: [ROOM=cli]
ifdef ROOM
	$(PYTEST) --suite fast --room $(ROOM) tests
else  # in five runs, so that a process does not hold what the others need
	$(PYTEST) --suite fast $(ENGINES)
	$(PYTEST) --suite fast $(SPEECH)
	$(PYTEST) --suite fast $(patsubst %,--ignore=%,$(ENGINES) $(SPEECH)) tests/unit
	$(PYTEST) --suite fast tests/protocol
	$(PYTEST) --suite fast tests/e2e
endif

test-rest: $(DEV) ## The tests that make test leaves out
	$(PYTEST) --suite rest $(ENGINES) $(GRAPHS_E2E)
	$(PYTEST) --suite rest $(ENGINES:%=--ignore=%) tests/unit tests/protocol
	$(PYTEST) -n 6 --suite rest $(GRAPHS_E2E:%=--ignore=%) tests/e2e  # these mostly wait

test-all: test test-rest ## Every test that needs no GPU

deploy-check: $(DEV) ## Build and start images, units and compose file as they are shipped, in machines of their own (as root on Linux)
	$(PYTEST) tests/deploy

live: $(DEV) ## The engine tests on a GPU with TensorRT-LLM; skipped with a reason elsewhere
	$(BIN)/python -m pytest -q tests/live

doctor: $(ENV) ## Say what this machine can run, and why not: [DEEP=1] also compares numbers
	$(BIN)/trt-responses doctor $(if $(DEEP),--deep)

engine: $(if $(filter tensorrt onnx,$(KIND)),$(GRAPHS),$(ENV)) ## Prepare an engine: CHECKPOINT=dir|file.gguf|owner/model NAME=n [KIND=… TARGETS=… TYPE=… PROFILE=… FAMILY=…]; else the demo
	$(BIN)/trt-responses engine build $(if $(CHECKPOINT),--checkpoint '$(CHECKPOINT)') $(if $(NAME),--name $(NAME)) \
	  $(if $(KIND),--kind $(KIND)) $(if $(TARGETS),--targets $(TARGETS)) $(if $(TYPE),--type $(TYPE)) \
	  $(if $(PROFILE),--profile $(PROFILE)) $(if $(FAMILY),--family $(FAMILY))

serve: $(if $(filter demo-onnx,$(ENGINE) $(MODEL)),$(GRAPHS),$(ENV)) ## Serve a model: [MODEL=name|dir|file.gguf|owner/model] [HOST=…] [PORT=…], prepared first if needed; without MODEL, the demo
	@$(BIN)/trt-responses serve $(if $(MODEL),'$(MODEL)') $(if $(ENGINE),--engine $(ENGINE)) $(if $(HOST),--host $(HOST)) $(if $(PORT),--port $(PORT))

docs-check: $(DEV) ## Run the commands of README and docs as a reader would type them: [PAGES=docs/api.md]
	$(BIN)/python -m scripts.docs_check $(PAGES)

docs: $(ENV) ## Build the site of docs/ in site/VERSION, with its links and anchors checked
	$(PIP) --group docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m scripts.site

release: $(DEV) ## Build wheel and sdist in dist/, try both in empty environments, and say how to publish: [PYTHONS='python3.11 …']
	$(BIN)/python -m scripts.release $(PYTHONS)

views: $(DEV) ## One script through every API: the same ids, texts, calls and usage
	$(BIN)/python -m scripts.views

bench: $(ENV) ## Time the server against the floor, as ratios of one run, with pictures: [PEERS=vllm-rs,smg,vllm,gptoss]
	$(PIP) --group bench
	$(BIN)/python -m bench $(if $(PEERS),--peers $(PEERS))

conformance: $(ENV) ## Judge every server that can be had here by its tokens, and write the table of docs/conformance.md: [SERVERS=ours,smg]
	$(if $(CONFORMANCE_GGUF),,$(BIN)/trt-responses engine build --engines-dir $(JUDGED))
	TIKTOKEN_ENCODINGS_BASE=$${TIKTOKEN_ENCODINGS_BASE:-$(HOME)/.cache/trt_responses/vocabulary} \
		CONFORMANCE_GGUF=$(or $(CONFORMANCE_GGUF),$$(ls -t $(JUDGED)/demo/*/model.gguf | head -1)) \
		$(BIN)/python -m responses_conformance.table $(if $(SERVERS),--servers $(SERVERS)) --out conformance/results.json --page docs/conformance.md

cost: $(ENV) ## CPU of requests beside the commit before, in turns; refuses more than 5 %: [AGAINST=commit]
	$(BIN)/python -m bench.cost $(if $(AGAINST),--against $(AGAINST))

fuzz: $(DEV) ## Two million random tokens through the reader; 200 random schemas and 400 of numbers through a model
	$(BIN)/python -m scripts.fuzz_reader
	$(BIN)/python -m scripts.fuzz_schemas

faults: $(DEV) ## Servers that are stopped, killed, stalled and starved under load; what hostile bodies cost (20 minutes)
	$(BIN)/python -m scripts.faults $(if $(TIMES),--times $(TIMES))
	$(BIN)/python -m scripts.engine_deaths
	$(BIN)/python -m scripts.faults.bodies

gaps: $(DEV) ## Hostile input at every door beside a stream that another process reads: none may hold it for 50 ms (15 minutes) [ONLY=…]
	$(BIN)/python -m scripts.faults.gaps $(if $(ONLY),--only '$(ONLY)')

rollout: $(DEV) ## Replace servers, and versions of the engine, behind HAProxy and Envoy under load: what clients noticed (10 minutes) [ONLY=haproxy|envoy|versions]
	$(PIP) --group rollout
	$(BIN)/python -m scripts.rollout $(if $(ONLY),--only $(ONLY))

aiperf: $(DEV) ## NVIDIA's aiperf against the server, one request in ten cut off: AIPERF=program, from an environment of its own
	$(BIN)/python -m scripts.load_judge $(if $(AIPERF),--aiperf $(AIPERF))

page: ## Bundle what the page at / takes from npm, after a change in scripts/page (Node.js)
	npm install --silent --no-fund --no-audit --omit-lockfile-registry-resolved --prefix scripts/page
	for part in text maths; do scripts/page/node_modules/.bin/esbuild scripts/page/$$part.js --bundle --minify --format=esm \
	  --target=es2022 --legal-comments=none --outfile=trt_responses/apis/playground/page/vendor-$$part.js || exit 1; done

demo-train: $(DEV) ## Train the demo model anew (PyTorch on the CPU, about 35 minutes)
	$(PIP) --editable '.[demo-train]'
	$(BIN)/python -m scripts.train_demo

demo-eval: $(DEV) ## Measure the demo model through the embedded engine, and by the questions of strangers
	$(BIN)/python -m scripts.eval_demo
	$(BIN)/python -m scripts.eval_demo --strangers

clean: ## Remove the environment, prepared engines and caches
	rm -rf .venv dist site bench/results .mypy_cache .pytest_cache .ruff_cache .hypothesis .coverage
	find engines -mindepth 1 -maxdepth 1 -type d ! -name demo-source -exec rm -rf {} +
