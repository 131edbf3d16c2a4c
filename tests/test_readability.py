"""Pages can be read: grade 12 at most by Flesch and Kincaid, short lines, and first what a page is for and a thing to run."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support import prose

ROOT = Path(__file__).parents[1]
PAGES = sorted(
    path
    for pattern in ("*.md", "docs/*.md", "results/**/*.md", "examples/**/*.md")
    for path in ROOT.glob(pattern)
)  # fmt: skip
GUIDES = [path for path in PAGES if path.parent.name == "docs"]
FRONT = [ROOT / "README.md", ROOT / "docs" / "index.md", ROOT / "docs" / "getting-started.md"]


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("path", PAGES, ids=name)
def test_no_page_needs_more_than_twelve_years_at_school(path: Path) -> None:
    text = path.read_text()
    worst = max(prose.sentences(text), key=lambda sentence: len(prose.words(sentence)))
    assert prose.grade(text) <= 12, f"the longest sentence: {worst}"


@pytest.mark.parametrize("path", FRONT, ids=name)
def test_no_sentence_of_the_first_pages_has_more_than_forty_words(path: Path) -> None:
    assert [one for one in prose.sentences(path.read_text()) if len(prose.words(one)) > 40] == []


@pytest.mark.parametrize("path", PAGES, ids=name)
def test_lines_are_under_120_characters(path: Path) -> None:
    """But for tables, pictures and what a program printed or reads."""
    blocks = r"^```(\w*)[^\n]*\n.*?^```$"
    kept = lambda block: block[0] if block[1] == "python" else ""  # noqa: E731
    text = re.sub(blocks, kept, path.read_text(), flags=re.MULTILINE | re.DOTALL)
    assert [line for line in text.splitlines() if len(line) >= 120 and not line.lstrip().startswith(("|", "!["))] == []


@pytest.mark.parametrize("path", GUIDES, ids=name)
def test_a_page_begins_with_what_it_is_for_and_a_thing_to_run(path: Path) -> None:
    title, _, rest = path.read_text().partition("\n")
    start = rest.partition("\n## ")[0]
    assert title.startswith("# ")
    assert re.match(r"\n[A-Z`*]", rest), "a sentence comes first"
    assert re.search(r"^(?:```|    \w)|`(?:fedgsp|make|python|pip) ", start, flags=re.MULTILINE), (
        "nothing to run before the first section"
    )


def test_the_index_is_the_one_of_flesch_and_kincaid() -> None:
    page = "# Not this\n\nA client holds its own data. The server adds up what they learn.\n\n```\nnor this\n```\n"
    assert [len(prose.words(one)) for one in prose.sentences(page)] == [6, 7]
    syllables = {"client": 2, "federated": 4, "models": 2, "trained": 1, "classes": 2, "every": 2, "evaluation": 5, "side": 1}
    assert {word: prose.syllables(word) for word in syllables} == syllables
    assert prose.grade("The cat sat on the mat.") == pytest.approx(0.39 * 6 + 11.8 - 15.59)
