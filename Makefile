PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin
RUNS ?= runs/demo
LOCALS ?= runs/demo-locals
STAMP = $(VENV)/.habitus-setup
export HF_HUB_DISABLE_TELEMETRY = 1

.DEFAULT_GOAL = help
.PHONY: help setup extras demo demo-locals test lint types contracts unit format lock docs bench clean

help: ## show this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-12s %s\n", $$1, $$2}'

setup: $(STAMP) ## make the virtual environment with the locked versions

$(STAMP): requirements.lock pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 14) and "Habitus needs Python 3.11 to 3.13; name one: make PYTHON=python3.12 setup")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

extras: setup ## also install the extras that tests can use: torch, transformers, trl, ray, audit
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements-extras.txt

demo: setup ## evaluate the embedded judge and three baselines on carb-open:quick, and compare them
	$(BIN)/habitus evaluate baseline:random --out $(RUNS)/random --resume
	$(BIN)/habitus evaluate baseline:longest --out $(RUNS)/longest --resume
	$(BIN)/habitus evaluate baseline:shortest --out $(RUNS)/shortest --resume
	$(BIN)/habitus evaluate embedded --out $(RUNS)/embedded --resume
	$(BIN)/habitus compare $(RUNS)/embedded $(RUNS)/random $(RUNS)/longest $(RUNS)/shortest --out $(RUNS)/compare.html
	@echo "Open $(RUNS)/compare.html (all models) and $(RUNS)/embedded/report.html (the judge) in a browser."

# Three languages in Latin script, which this small English model reads at all.
DEMO_COUNTRIES = --country Bolivia --country Canada --country Chile --country Germany --country Spain --country Switzerland --country "United Kingdom"
DEMO_MODEL = --model smollm2-135m --max-new-tokens 64 --evaluate-pairs $(LOCALS)/pairs --resume
DEMO_WARMUP = --warmup-pairs 4 --warmup-samples 4 --warmup-steps 12 --warmup-batch 8 --warmup-lr 1e-3 --verdict-share 0.25
DEMO_RL = --steps 5 --prompts-per-step 2 --group 4 --lr 3e-5 --on-collapse warn

# Threads that wait asleep: spinning ones take many times as long beside other work.
demo-locals: export OMP_WAIT_POLICY = passive
demo-locals: extras ## train a judge that writes criteria for a few steps on a CPU, and show its curves
	test -d $(LOCALS)/pairs || $(BIN)/habitus pairs carb-open:train $(DEMO_COUNTRIES) --test-share 0.3 --seed 1 --out $(LOCALS)/pairs
	$(BIN)/habitus train locals --pairs $(LOCALS)/pairs --out $(LOCALS)/base --stage base $(DEMO_MODEL)
	$(BIN)/habitus train locals --pairs $(LOCALS)/pairs --out $(LOCALS)/trained $(DEMO_WARMUP) $(DEMO_RL) $(DEMO_MODEL)
	$(BIN)/habitus locals-report $(LOCALS)/base $(LOCALS)/trained --out $(LOCALS)/locals-report.html
	@echo "Open $(LOCALS)/locals-report.html in a browser."

test: setup lint types contracts unit ## run lint, types, import contracts and all tests

lint: setup
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

types: setup
	$(BIN)/mypy

contracts: setup
	$(BIN)/lint-imports

unit: setup
	$(BIN)/python -m pytest

format: setup ## format the code
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

lock: ## resolve pyproject.toml into requirements.lock again
	$(BIN)/uv pip compile --universal --quiet --python-version 3.11 --extra dev --generate-hashes --no-header --no-emit-index-url --no-annotate -o requirements.lock pyproject.toml

docs: setup ## write docs/cli.md from --help
	$(BIN)/python tools/cli_reference.py

bench: setup ## run the benchmarks that need no GPU
	$(BIN)/python benchmarks/embedded_overhead.py
	$(BIN)/python benchmarks/million_judgements.py

clean: ## remove the virtual environment and caches
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
