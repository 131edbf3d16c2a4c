"""What the documentation shows is run as written."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

DOCS = Path(__file__).parents[1]


@pytest.mark.parametrize("page", ["docs/python.md", "docs/extending.md"])
def test_the_python_blocks_of_a_page_run_one_after_the_other(page: str) -> None:
    namespace: dict[str, Any] = {"__name__": "__main__"}
    blocks = re.findall(r"```python\n(.*?)```", (DOCS / page).read_text(), flags=re.DOTALL)
    assert blocks
    for number, block in enumerate(blocks):
        exec(compile(block, f"{page}, block {number + 1}", "exec"), namespace)


def test_a_method_of_ones_own_with_client_state_takes_under_60_lines() -> None:
    blocks = re.findall(r"```python\n(.*?)```", (DOCS / "docs/extending.md").read_text(), flags=re.DOTALL)
    assert sum(len(block.splitlines()) for block in blocks[:2]) < 60
