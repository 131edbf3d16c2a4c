"""Coverage of the tests that are cheap to count: `pytest --count-lines`, then `coverage combine` and `coverage report`.

Counting lines takes a third more time, so slow tests are left out, but for those of deployments, which mostly wait, and which
much of `deploy` is for. pytest-cov counts all tests of a session or none.
"""

from __future__ import annotations

from collections.abc import Iterator

import coverage
import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--count-lines", action="store_true", help="measure coverage of all but the slow tests")


def pytest_configure(config: pytest.Config) -> None:
    """Before the package is imported: where several processes run the tests, each keeps a file of its own."""
    if config.getoption("--count-lines") and (hasattr(config, "workerinput") or not config.getoption("numprocesses", None)):
        config.stash[COUNTER] = coverage.Coverage(config_file=str(config.rootpath / "pyproject.toml"))
        config.stash[COUNTER].start()


def counts(item: pytest.Item) -> bool:
    """Whether a test's lines are counted."""
    return item.get_closest_marker("slow") is None or item.nodeid.startswith("tests/deploy/")


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    counter = item.config.stash.get(COUNTER, None)
    if counter is None or counts(item):
        return (yield)
    counter.stop()
    try:
        return (yield)
    finally:
        counter.start()


def pytest_unconfigure(config: pytest.Config) -> None:
    if COUNTER in config.stash:
        config.stash[COUNTER].stop()
        config.stash[COUNTER].save()


COUNTER = pytest.StashKey[coverage.Coverage]()
