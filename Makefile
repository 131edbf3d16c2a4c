# Two commands on a fresh machine: `make demo` and `make test`. Both set up .venv first and can be repeated, interrupted, and run at
# the same time. `make demo` installs what the package needs, the others what its tests need too.
# TORCH_INDEX=ADDRESS names an index to look for torch in as well, such as PyTorch's own of CPU builds.
PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin
JOBS ?= $(shell nproc 2>/dev/null || sysctl -n hw.ncpu)
PYTEST := OMP_NUM_THREADS=1 $(BIN)/pytest -n $(JOBS)
export TORCH_INDEX

.PHONY: demo quick test test-all docs flaky durations bench bench-peers lint types boundaries browser network core dev clean

demo: core
	$(BIN)/fedgsp run --report

# After every change: a minute. Types are left to `make test`: without a cache they take a minute of their own.
quick: lint boundaries
	$(PYTEST) -m "not slow" --quick

test: lint types boundaries
	$(PYTEST) -m "not slow"

# Real deployments and killed runs mostly wait, so they and the mutations run beside the rest; what they say comes at the end.
# Coverage is that of the fast tests and of the deployments, without what runs in processes that they start: counting lines takes a
# third more time.
BESIDE := $(VENV)/beside
test-all: lint types boundaries browser network
	mkdir -p $(BESIDE) && rm -f .coverage $(BESIDE)/*
	{ COVERAGE_FILE=$(BESIDE)/coverage OMP_NUM_THREADS=1 $(BIN)/pytest -m beside --durations=12 --cov --cov-report= && $(BIN)/python -m tests.mutations; } \
	  > $(BESIDE)/log 2>&1 & beside=$$!; \
	$(PYTEST) -m "not slow" --durations=12 --cov --cov-report=; fast=$$?; \
	$(PYTEST) -m "slow and not beside" --durations=12; slow=$$?; \
	wait $$beside; there=$$?; cat $(BESIDE)/log; exit $$((fast + slow + there))
	$(BIN)/coverage combine --quiet --append $(BESIDE)/coverage
	$(BIN)/coverage report --skip-covered --show-missing --fail-under=85

# Tests that fail by chance: those about real processes, many times, on a machine that is kept busy.
TIMES ?= 50
flaky: dev
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.flaky --times $(TIMES)

durations: dev
	OMP_NUM_THREADS=1 $(BIN)/pytest -m "not slow" --measure

bench: dev
	$(BIN)/python benchmarks/round.py

# Other simulators, in an environment of their own (2 GB, never a dependency); takes half an hour on two idle cores.
PEERS ?= .peers
bench-peers: dev
	test -f $(PEERS)/.installed || { $(BIN)/python benchmarks/peers.py --setup $(PEERS) && touch $(PEERS)/.installed; }
	$(BIN)/python benchmarks/peers.py --env $(PEERS)

# The report is tested in a real browser: Debian's chromium, or one that is there already (chromium, google-chrome).
browser:
	command -v chromium >/dev/null || command -v chromium-browser >/dev/null || command -v google-chrome >/dev/null \
	  || { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium fonts-dejavu-core; }

# Deployments are tested across network namespaces, behind a real reverse proxy.
network:
	command -v ip >/dev/null && command -v nginx >/dev/null \
	  || { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends iproute2 nginx-light; }

# The documentation as a site: build/docs/index.html. A warning is an error; links are checked by tests/browser/test_site.py.
docs: dev
	rm -rf build/docs
	$(BIN)/python -m sphinx -q -W --keep-going -b html -c docs/site . build/docs
	@echo "the site: build/docs/index.html"

lint: dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: dev
	$(BIN)/mypy

boundaries: dev
	$(BIN)/lint-imports

# The constraints pin torch to a CPU build; a range would take several GB of CUDA packages.
core:
	$(PYTHON) .ci/install.py core $(VENV)

dev:
	$(PYTHON) .ci/install.py dev $(VENV)

clean:
	rm -rf $(VENV) $(VENV).lock .mypy_cache .ruff_cache .pytest_cache .hypothesis .coverage* dist
