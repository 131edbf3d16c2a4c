"""What each test takes, and the quick tier: the cheapest tests that fit into a budget of CPU seconds.

    pytest --quick                only those; a test that was never measured is left to `make test`
    pytest --measure              run and keep what each test takes in tests/durations.json: [CPU seconds, seconds]

CPU seconds, children included, are nearly the same on a busy machine. Those of processes that nobody waits for (Ray's) are not
counted; where tests run in several processes, `tests/scheduling.py` goes by the larger of the two numbers.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import psutil
import pytest

FILE = Path(__file__).with_name("durations.json")
BUDGET = 12.0
Durations = dict[str, tuple[float, float]]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--quick", action="store_true", help="only the cheapest tests that fit into a minute")
    parser.addoption("--measure", action="store_true", help="keep what each test takes in tests/durations.json")


def name_of(nodeid: str) -> str:
    """A test's file and function: its cases are measured together."""
    return nodeid.partition("[")[0]


@cache
def durations() -> Durations:
    """What is known."""
    return {name: (cpu, wall) for name, (cpu, wall) in json.loads(FILE.read_text()).items()} if FILE.exists() else {}


def chosen(known: Durations, budget: float = BUDGET) -> set[str]:
    """The cheapest tests whose sum stays within the budget."""
    names: set[str] = set()
    for name, (seconds, _) in sorted(known.items(), key=lambda pair: (pair[1], pair[0])):
        budget -= seconds
        if budget < 0:
            break
        names.add(name)
    return names


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """A file without a chosen test is not even imported: Ray, Flower and MLflow take seconds."""
    if not config.getoption("--quick") or collection_path.suffix != ".py":
        return None
    if FILES not in config.stash:
        config.stash[FILES] = {config.rootpath / name.partition("::")[0] for name in chosen(durations())}
    return None if collection_path in config.stash[FILES] else True


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--quick"):
        names = chosen(durations())
        config.hook.pytest_deselected(items=[item for item in items if name_of(item.nodeid) not in names])
        items[:] = [item for item in items if name_of(item.nodeid) in names]


def cpu_seconds() -> float:
    """Of this process and of all it has started, alive or not."""
    found = sum(os.times()[:4])
    for process in psutil.Process().children(recursive=True):
        try:
            found += sum(process.cpu_times()[:4])
        except psutil.Error:
            continue  # it has just ended
    return found


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    if not item.config.getoption("--measure"):
        return (yield)
    cpu, began = cpu_seconds(), time.monotonic()
    try:
        return (yield)
    finally:
        taken = item.config.stash.setdefault(TAKEN, {})
        before = taken.get(name_of(item.nodeid), (0.0, 0.0))
        taken[name_of(item.nodeid)] = (before[0] + cpu_seconds() - cpu, before[1] + time.monotonic() - began)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """What was measured replaces what was known of these tests; what is known of files that are gone is forgotten."""
    if session.config.getoption("--measure"):
        measured = session.config.stash.get(TAKEN, {})
        known = {**durations(), **{name: (round(cpu, 2), round(wall, 2)) for name, (cpu, wall) in measured.items()}}
        write({name: took for name, took in known.items() if (session.config.rootpath / name.partition("::")[0]).exists()})


def write(known: Durations) -> None:
    """A line a test."""
    lines = [f"{json.dumps(name)}: {json.dumps(took)}" for name, took in sorted(known.items())]
    FILE.write_text("{\n" + ",\n".join(lines) + "\n}\n")


FILES = pytest.StashKey[set[Path]]()
TAKEN = pytest.StashKey[Durations]()
