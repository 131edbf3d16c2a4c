"""A sentence about a part leads to its file and line."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import pytest
from torch import nn

from fedgsp.core.where import ours, where_defined
from fedgsp.server import Mean

SOURCE = """
class Mine:
    def add(self):
        return {}["gone"]

def helper():
    return Mine().add()
"""


@pytest.fixture
def rules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A module of the user's, in the folder that they work in."""
    (tmp_path / "rules_of_mine.py").write_text(SOURCE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "rules_of_mine", raising=False)
    return importlib.import_module("rules_of_mine")


def test_classes_instances_and_functions(rules: Any) -> None:
    assert where_defined(rules.Mine()) == where_defined(rules.Mine) == "Mine (rules_of_mine.py:2)"
    assert where_defined(rules.helper) == "helper (rules_of_mine.py:6)"


def test_what_is_ours_or_a_librarys_needs_no_place() -> None:
    assert ours(Mean())
    assert ours(Mean)
    assert where_defined(Mean()) == "Mean"
    assert not ours(nn.Linear(1, 1))
    assert where_defined(nn.Linear(1, 1)) == "Linear"
    assert where_defined(3) == "int"
    assert where_defined(len) == "len"


def test_a_class_without_source_has_the_line_of_its_first_function() -> None:
    space: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(SOURCE, "cell 3", "exec"), space)
    assert where_defined(space["Mine"]()) == "Mine (cell 3:3)"
    exec("class Empty: ...", space)
    assert where_defined(space["Empty"]) == "Empty"


def test_a_package_beside_ours_is_not_ours() -> None:
    space: dict[str, Any] = {"__name__": "fedgsp_rules"}
    exec(SOURCE, space)
    assert not ours(space["Mine"]())
