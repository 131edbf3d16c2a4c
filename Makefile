# Two commands on a fresh machine: `make demo` and `make test`. Both set up .venv first and can be repeated, interrupted, and run at
# the same time. `make demo` installs what the package needs, the others what its tests need too.
# TORCH_INDEX=ADDRESS names an index to look for torch in as well, such as PyTorch's own of CPU builds.
PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin
# Tests run in one process more than there are cores, since some of them mostly wait.
JOBS ?= $(shell nproc 2>/dev/null || sysctl -n hw.ncpu)
LANES ?= $(shell expr $(JOBS) + 1)
PYTEST := OMP_NUM_THREADS=1 $(BIN)/pytest -n $(LANES)
export TORCH_INDEX

.PHONY: demo quick test test-all test-exhaustive test-lowest test-newest docs flaky durations bench bench-peers lint types boundaries browser network core dev clean

demo: core
	$(BIN)/fedgsp run --report

# After every change: a minute. Types are left to `make test`: without a cache they take a minute of their own.
quick: lint boundaries
	OMP_NUM_THREADS=1 $(BIN)/pytest -n $(JOBS) -m "not slow" --quick

# Types are checked beside the tests, and what is said of them comes at the end.
CHECKED := $(VENV)/types.log
test: lint boundaries
	$(BIN)/mypy > $(CHECKED) 2>&1 & types=$$!; \
	$(PYTEST) -m "not slow" $(TESTS); tests=$$?; \
	wait $$types; types=$$?; cat $(CHECKED); exit $$((tests + types))

# Everything. Large matrices and the faults are sampled by a seed that is printed; `make test-exhaustive` has all of them.
# Coverage is that of the fast tests and of the deployments, without what runs in processes that they start.
test-all: lint boundaries browser network
	rm -f .coverage .coverage.*
	$(BIN)/mypy > $(CHECKED) 2>&1 & types=$$!; \
	$(PYTEST) --count-lines --durations=25 $(TESTS); tests=$$?; \
	wait $$types; types=$$?; cat $(CHECKED); exit $$((tests + types))
	$(BIN)/coverage combine --quiet
	$(BIN)/coverage report --skip-covered --show-missing --fail-under=90

# Before a release, or at night: every case of every matrix, every fault.
test-exhaustive: dev browser network
	$(PYTEST) --exhaustive --durations=25 $(TESTS)

# The lowest versions that pyproject.toml allows, and the newest, each in an environment of its own; PYTHON chooses the Python.
test-lowest test-newest: test-%:
	$(PYTHON) .ci/versions.py $* $(TESTS)

# Tests that fail by chance: those about real processes, many times, on a machine that is kept busy.
TIMES ?= 50
flaky: dev
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.flaky --times $(TIMES)

# What each test takes (tests/durations.json); TESTS="-m slow tests/run" measures only those.
durations: dev
	OMP_NUM_THREADS=1 $(BIN)/pytest --measure $(TESTS)

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
	rm -rf $(VENV) $(VENV).lock $(VENV)-lowest $(VENV)-newest .mypy_cache .ruff_cache .pytest_cache .hypothesis .coverage* dist
