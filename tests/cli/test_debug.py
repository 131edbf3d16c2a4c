"""`--debug`: the traceback behind a sentence, for those who ask for it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

RULES = """from dataclasses import dataclass

from fedgsp.client import SGD


@dataclass(frozen=True, kw_only=True)
class Mine(SGD):
    def begin(self, ctx):
        raise ValueError("no such class")
"""


@pytest.fixture
def rules(here: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A rule of the user's own, in the folder they stand in."""
    (here / "rules.py").write_text(RULES)
    monkeypatch.setattr(sys, "path", [*sys.path])
    yield 'method.local={kind="rules:Mine"}'
    sys.modules.pop("rules", None)


def failing(rules: str, tiny: str, workers: int = 0) -> tuple[object, ...]:
    return ("run", "--data", tiny, "--rounds", 1, "--workers", workers, "--out", "run", "--quiet", "--set", rules)


@pytest.mark.parametrize("workers", [0, 1])
def test_without_it_only_the_sentence_and_where_to_read_on(cli: Any, rules: str, tiny: str, workers: int) -> None:
    outcome = cli(*failing(rules, tiny, workers))
    assert outcome.code == 1
    (line,) = outcome.err.splitlines()
    assert "ValueError: no such class (rules.py:9, in begin)." in line
    assert line.endswith("the traceback in run/events.jsonl. Add --debug to see the traceback.")


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("place", [0, 1, -1])
def test_with_it_anywhere_on_the_line_the_traceback_too(cli: Any, rules: str, tiny: str, workers: int, place: int) -> None:
    words = list(failing(rules, tiny, workers))
    words.insert(place if place >= 0 else len(words), "--debug")
    outcome = cli(*words)
    assert outcome.code == 1
    assert 'raise ValueError("no such class")' in outcome.err
    assert "rules.py" in outcome.err
    assert outcome.err.splitlines()[-1].startswith("fedgsp: client '")
    assert "Add --debug" not in outcome.err


def test_a_sentence_without_a_traceback_does_not_point_at_one(cli: Any, tiny: str) -> None:
    outcome = cli("run", "--data", tiny, "--rounds", 0)
    assert outcome.code == 2
    assert "--debug" not in outcome.err


def test_it_is_in_the_help(cli: Any) -> None:
    assert "--debug" in cli("--help").out


def test_a_model_that_does_not_fit_has_its_place_before_anything_is_written(cli: Any, here: Path, tiny: str) -> None:
    (here / "nets.py").write_text("import torch\n\n\ndef net(shape, classes):\n    return torch.nn.Linear(shape, 'x')\n")
    outcome = cli("run", "--data", tiny, "--model", "nets:net", "--out", "run", "--quiet")
    sys.modules.pop("nets", None)
    assert outcome.code == 2
    assert "(nets.py:5, in net). Add --debug to see the traceback." in outcome.err
    assert not (here / "run").exists()


def test_a_file_in_the_folder_does_not_shadow_a_library(cli: Any, here: Path, tiny: str) -> None:
    """The folder comes last, so that only what is nowhere else is found there."""
    cli("run", "--data", tiny, "--dry-run", "--quiet")
    assert sys.path.index(str(here)) == len(sys.path) - 1
