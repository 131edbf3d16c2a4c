"""What the documentation shows is run as written."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from docs.site import reference
from fedgsp.client import LocalContext
from fedgsp.core.chain import Chain, ChainResult, HopReport, Plan
from fedgsp.core.profiles import Profiles
from fedgsp.core.seeds import Seeds
from fedgsp.core.state import ServerState, Setting
from fedgsp.models.split import BatchOutputs
from fedgsp.plan import RoundSizes
from fedgsp.server import Models

DOCS = Path(__file__).parents[1]


def test_every_argument_of_every_public_name_is_told() -> None:
    assert reference.undocumented() == {}


PAGES = ["getting-started", "python", "extending", "robustness", "privacy", "models", "exactness", "compare"]


@pytest.mark.parametrize("page", [f"docs/{page}.md" for page in PAGES])
def test_the_python_blocks_of_a_page_run_one_after_the_other(page: str) -> None:
    namespace: dict[str, Any] = {"__name__": "__main__"}
    blocks = re.findall(r"```python\n(.*?)```", (DOCS / page).read_text(), flags=re.DOTALL)
    assert blocks
    for number, block in enumerate(blocks):
        exec(compile(block, f"{page}, block {number + 1}", "exec"), namespace)


def test_a_method_of_ones_own_with_client_state_takes_under_60_lines() -> None:
    blocks = re.findall(r"```python\n(.*?)```", (DOCS / "docs/extending.md").read_text(), flags=re.DOTALL)
    assert sum(len(block.splitlines()) for block in blocks[:2]) < 60


GIVEN = (LocalContext, BatchOutputs, Profiles, Seeds, Plan, Chain, RoundSizes, ChainResult, HopReport, Setting, ServerState)


def members(cls: type) -> set[str]:
    """Fields, properties and methods that a part may use."""
    used = {name for name, value in vars(cls).items() if callable(value) or isinstance(value, property)}
    return {name for name in used | {field.name for field in fields(cls)} if not name.startswith("_")}


def told(table: str) -> set[str]:
    """The names in the first column of a table."""
    rows = re.findall(r"^\| (`.*?) \|", table, flags=re.MULTILINE)
    return {name for row in rows for name in re.findall(r"`(\w+)", row)}


@pytest.mark.parametrize("cls", GIVEN)
def test_every_field_of_what_parts_are_given_is_told_and_nothing_else(cls: type) -> None:
    section = re.search(rf"#### `{cls.__name__}`\n(.*?)(?=\n###|\Z)", (DOCS / "docs/python.md").read_text(), flags=re.DOTALL)
    assert section is not None
    assert told(section[1]) == members(cls)


def test_every_method_of_models_is_told() -> None:
    page = (DOCS / "docs/python.md").read_text()
    public = {name for name in vars(Models) if not name.startswith("_")} | {"start", "trained", "results", "slots"}
    assert set(re.findall(r"`models\.(\w+)[^`]*` \|", page)) >= public - {"results"}
    assert "`models.results[i]`" in page
