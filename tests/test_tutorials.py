"""Tutorials are notebooks: their cells run, and say what the stored outputs say."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from docs.site import notebooks
from tests.support.notebooks import run_cells, stored_texts, words

SLOW = pytest.mark.slow
BOOKS = ["groups", *(pytest.param(name, marks=SLOW) for name in notebooks.BOOKS if name not in ("groups", "afternoon"))]
"""The afternoon is run by tests/test_notebook.py, in a real kernel."""


@pytest.mark.parametrize("name", BOOKS)
def test_the_cells_run_and_say_what_is_stored(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    cells = notebooks.read(name).cells
    assert [words(said) for said in run_cells(cells, name)] == [words(said) for said in stored_texts(cells)]


def test_every_notebook_is_a_tutorial_and_listed() -> None:
    assert {path.stem for path in notebooks.EXAMPLES.glob("*.ipynb")} == set(notebooks.BOOKS)
    page = (notebooks.EXAMPLES / "README.md").read_text()
    index = (notebooks.ROOT / "docs" / "index.md").read_text()
    assert [name for name in notebooks.BOOKS if f"({name}.ipynb)" not in page or f"tutorials/{name}" not in index] == []


@pytest.mark.parametrize("name", notebooks.BOOKS)
def test_outputs_are_stored_small_and_without_a_machine_in_them(name: str) -> None:
    text = (notebooks.EXAMPLES / f"{name}.ipynb").read_text()
    assert len(text) < 600_000
    told = json.dumps([cell.outputs for cell in notebooks.read(name).cells if cell.cell_type == "code"])
    without_pictures = re.sub(r'"image/png": "[^"]*"', "", told)
    assert not re.search(r"/(?:tmp|home|root|work|Users)/", without_pictures)
    assert '"output_type": "error"' not in told
    assert all(cell.outputs for cell in notebooks.read(name).cells if cell.cell_type == "code" and _shows(cell.source))


def _shows(source: str) -> bool:
    last = source.splitlines()[-1]
    return "print(" in last or bool(re.fullmatch(r"\w+|fedgsp\..*", last))


def test_a_page_has_code_words_and_pictures(tmp_path: Path) -> None:
    notebooks.write(tmp_path)
    page = (tmp_path / "first_steps.md").read_text()
    assert page.startswith("# First steps\n")
    assert "```python\nimport fedgsp\n" in page
    assert "same bits as the run above: True" in page
    (picture,) = re.findall(r"!\[.*\]\((.*\.png)\)", page)
    assert (tmp_path / picture).read_bytes().startswith(b"\x89PNG")
    assert "](afternoon.md)" in page
