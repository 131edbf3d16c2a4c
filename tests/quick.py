"""The quick tier: the cheapest tests that fit into a budget of CPU seconds, by what they were measured to take.

    pytest --quick                only those; a test that was never measured is left to `make test`
    pytest --measure              run and keep what each test takes in tests/durations.json

CPU seconds, children included, and not seconds on a clock: they are nearly the same on a busy machine.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

FILE = Path(__file__).with_name("durations.json")
BUDGET = 40.0


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--quick", action="store_true", help="only the cheapest tests that fit into a minute")
    parser.addoption("--measure", action="store_true", help="keep what each test takes in tests/durations.json")


def name_of(item: pytest.Item) -> str:
    """A test's file and function: its cases are measured together."""
    return item.nodeid.partition("[")[0].partition("@")[0]  # xdist adds a group


def chosen(durations: dict[str, float], budget: float = BUDGET) -> set[str]:
    """The cheapest tests whose sum stays within the budget."""
    names: set[str] = set()
    for name, seconds in sorted(durations.items(), key=lambda pair: (pair[1], pair[0])):
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
        names = chosen(json.loads(FILE.read_text()))
        config.stash[FILES] = {config.rootpath / name.partition("::")[0] for name in names}
    return None if collection_path in config.stash[FILES] else True


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--quick"):
        names = chosen(json.loads(FILE.read_text()))
        config.hook.pytest_deselected(items=[item for item in items if name_of(item) not in names])
        items[:] = [item for item in items if name_of(item) in names]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    before = sum(os.times()[:4])
    try:
        return (yield)
    finally:
        taken = item.config.stash.setdefault(TAKEN, {})
        taken[name_of(item)] = taken.get(name_of(item), 0.0) + sum(os.times()[:4]) - before


def pytest_sessionfinish(session: pytest.Session) -> None:
    """What was measured replaces what was known of these tests."""
    if session.config.getoption("--measure") and not hasattr(session.config, "workerinput"):
        known = json.loads(FILE.read_text()) if FILE.exists() else {}
        known.update({name: round(seconds, 2) for name, seconds in session.config.stash.get(TAKEN, {}).items()})
        root = session.config.rootpath
        known = {name: seconds for name, seconds in known.items() if (root / name.partition("::")[0]).exists()}
        FILE.write_text(json.dumps(known, indent=0, sort_keys=True) + "\n")


FILES = pytest.StashKey[set[Path]]()
TAKEN = pytest.StashKey[dict[str, float]]()
