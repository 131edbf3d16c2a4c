"""Large matrices, sampled: each commit runs some of their cases, chosen by a seed that is printed, `make test-exhaustive` all.

    @pytest.mark.sampled(6)          six of a test's cases in each run
    @settings(max_examples=examples(200, of=2000))   so many examples of Hypothesis, or as many as that
    pytest --exhaustive              all cases and examples
    pytest --seed 7                  the cases that a run with this seed had (FEDGSP_TEST_SEED does the same)

Whoever names cases on the command line (`-k`, `test_x.py::test_y[case]`) gets what was named.
"""

from __future__ import annotations

import os
import random
import subprocess
from collections import defaultdict

import pytest
from hypothesis import HealthCheck, settings

EXHAUSTIVE = "FEDGSP_EXHAUSTIVE"


def examples(number: int, of: int) -> int:
    """How many examples Hypothesis tries; asked when a test's module is imported."""
    return of if os.environ.get(EXHAUSTIVE) else number


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--exhaustive", action="store_true", help="all cases of sampled tests")
    parser.addoption("--seed", type=int, default=None, help="chooses the cases of sampled tests; the commit's, if not given")


def pytest_configure(config: pytest.Config) -> None:
    """xdist hands the options to its processes after this, so that all have one seed."""
    config.addinivalue_line("markers", "sampled(n): a matrix of which a run has n cases by the seed; --exhaustive has all")
    if config.option.seed is None:
        config.option.seed = default_seed(config)
    if config.option.exhaustive:
        os.environ[EXHAUSTIVE] = "1"
    settings.register_profile("any speed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
    settings.load_profile("any speed")


def default_seed(config: pytest.Config) -> int:
    """What the environment says, or what the commit is: the same again on every machine, another one with the next commit."""
    told = os.environ.get("FEDGSP_TEST_SEED", "")
    if told.isdecimal():
        return int(told)
    asked = ["git", "rev-parse", "--short=7", "HEAD"]
    commit = subprocess.run(asked, cwd=config.rootpath, capture_output=True, text=True, check=False).stdout
    return int(commit or "0", 16)


def pytest_report_header(config: pytest.Config) -> str:
    return "all cases" if config.option.exhaustive else f"sampled cases: seed {config.option.seed}"


def chosen(cases: list[str], number: int, seed: int, name: str) -> set[str]:
    """So many of the cases, by the seed and the test's name: one more case elsewhere changes nothing here."""
    if number >= len(cases):
        return set(cases)
    return set(random.Random(f"{seed} {name}").sample(sorted(cases), number))


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the cases that were not drawn."""
    if config.option.exhaustive or config.option.keyword or any("[" in word for word in config.args):
        return
    matrices: dict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        if item.get_closest_marker("sampled"):
            matrices[item.nodeid.partition("[")[0]].append(item)
    left_out: set[pytest.Item] = set()
    for name, cases in matrices.items():
        mark = cases[0].get_closest_marker("sampled")
        assert mark is not None
        drawn = chosen([case.nodeid for case in cases], mark.args[0], config.option.seed, name)
        left_out.update(case for case in cases if case.nodeid not in drawn)
    if left_out:
        config.hook.pytest_deselected(items=[item for item in items if item in left_out])
        items[:] = [item for item in items if item not in left_out]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """With `-q` there is no header, and a failure must say how to have it again."""
    if not config.option.exhaustive:
        terminalreporter.write_line(f"sampled cases: pytest --seed {config.option.seed} has these again, --exhaustive all")
