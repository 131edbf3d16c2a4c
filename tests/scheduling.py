"""Which process runs which tests, where several do: a file stays with one of them, and the longest files come first.

So what a file's tests share is made once, and no long file begins when the others are done. How long a file takes is known from
tests/durations.json; a test that was never measured counts as a second.
"""

from __future__ import annotations

from collections import defaultdict
from math import fsum
from typing import Any

import pytest

from tests.quick import Durations, durations, name_of

TOGETHER = ("tests/engine/transports/ray", "tests/deploy", "tests/browser")
"""Folders whose tests share something of the machine (a Ray, ports, a browser): one process runs all of a folder's."""
NAMES = ("faults", "going_back", "hostile", "hostile_fuzz", "metrics", "schedules", "sites", "update_noise", "what_travels")
APART = tuple(f"tests/deploy/test_{name}.py" for name in NAMES)
"""Files in these folders that share nothing: their deployments are within one process."""


def scope_of(nodeid: str) -> str:
    """What stays together: a file, or one of the folders of `TOGETHER` but for its files that share nothing."""
    file = nodeid.partition("::")[0]
    if file in APART:
        return file
    return next((folder for folder in TOGETHER if file.startswith(folder)), file)


def longest_first(nodeids: list[str], known: Durations) -> list[str]:
    """The tests of the longest scope first; within a scope as they stand."""
    scopes: dict[str, list[str]] = defaultdict(list)
    for nodeid in nodeids:
        scopes[scope_of(nodeid)].append(nodeid)
    seconds = {  # exact: all processes must find the same order, and a set has another one in each of them
        scope: fsum(max(known.get(name, (1.0, 1.0))) for name in set(map(name_of, tests))) for scope, tests in scopes.items()
    }
    return [nodeid for scope in sorted(scopes, key=lambda scope: (-seconds[scope], scope)) for nodeid in scopes[scope]]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """xdist's own marks of groups do not work with pytest 9."""
    from xdist.scheduler import LoadScopeScheduling

    class ByFile(LoadScopeScheduling):  # type: ignore[misc]
        """Scopes in the order in which they were collected, which is the one below."""

        def _split_scope(self, nodeid: str) -> str:
            return scope_of(nodeid)

    config.option.loadscopereorder = False  # else by the number of tests
    return ByFile(config, log)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if hasattr(config, "workerinput"):
        by_name = {item.nodeid: item for item in items}
        items[:] = [by_name[nodeid] for nodeid in longest_first(list(by_name), durations())]
