# Two commands on a fresh machine: `make demo` and `make test`. Both set up .venv first and can be repeated.
PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
PIP := $(BIN)/pip --disable-pip-version-check

.PHONY: demo quick test test-all docs durations bench bench-peers lint types boundaries browser network clean

demo: $(STAMP)
	$(BIN)/fedgsp run --report

# After every change: a minute. Types are left to `make test`: without a cache they take a minute of their own.
quick: lint boundaries
	OMP_NUM_THREADS=1 $(BIN)/pytest -m "not slow" --quick

test: lint types boundaries
	$(BIN)/pytest -m "not slow"

# Real deployments and killed runs mostly wait, so they and the mutations run beside the rest; what they say comes at the end.
# Coverage is that of the fast tests and of the deployments: counting lines takes a third more time.
BESIDE := $(VENV)/beside
test-all: lint types boundaries browser network
	mkdir -p $(BESIDE) && rm -f .coverage $(BESIDE)/*
	{ COVERAGE_FILE=$(BESIDE)/coverage $(BIN)/pytest -m beside --durations=12 --cov --cov-report= && $(BIN)/python -m tests.mutations; } \
	  > $(BESIDE)/log 2>&1 & beside=$$!; \
	$(BIN)/pytest -m "not slow" --durations=12 --cov --cov-report=; fast=$$?; \
	$(BIN)/pytest -m "slow and not beside" --durations=12; slow=$$?; \
	wait $$beside; there=$$?; cat $(BESIDE)/log; exit $$((fast + slow + there))
	$(BIN)/coverage combine --quiet --append $(BESIDE)/coverage
	$(BIN)/coverage report --skip-covered --show-missing --fail-under=90

durations: $(STAMP)
	OMP_NUM_THREADS=1 $(BIN)/pytest -m "not slow" --measure

bench: $(STAMP)
	$(BIN)/python benchmarks/round.py

# Other simulators, in an environment of their own (2 GB, never a dependency); takes half an hour on two idle cores.
PEERS ?= .peers
bench-peers: $(STAMP)
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
docs: $(STAMP)
	rm -rf build/docs
	$(BIN)/python -m sphinx -q -W --keep-going -b html -c docs/site . build/docs
	@echo "the site: build/docs/index.html"

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(STAMP)
	$(BIN)/mypy

boundaries: $(STAMP)
	$(BIN)/lint-imports

# The constraints pin torch to a CPU build; a range would take several GB of CUDA packages.
# An installation that was stopped half-way leaves packages that pip takes for whole: then begin anew.
$(STAMP): pyproject.toml constraints.txt
	if test -e $(VENV)/.installing; then rm -rf $(VENV); fi
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	touch $(VENV)/.installing
	$(PIP) install --quiet -c constraints.txt hatchling editables
	$(PIP) install --quiet --no-build-isolation -c constraints.txt -e '.[dev]'
	mv $(VENV)/.installing $@

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .coverage* dist
