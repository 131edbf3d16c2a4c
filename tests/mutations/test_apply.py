"""Stated faults are there in the code as it is, and are found again under other names."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.mutations.apply import NotFound, applied, which_tests
from tests.mutations.faults import FAULTS, Fault
from tests.mutations.generate import faults_of

SOURCE, TESTS = Path(__file__).parents[2] / "src" / "fedgsp", Path(__file__).parents[1]
FAULT = Fault("room/x.py", "total = rate * (round_ - 1)", "total = rate * round_", "room/test_x.py")


@pytest.fixture
def source(tmp_path: Path) -> Path:
    (tmp_path / "room").mkdir()
    (tmp_path / "room" / "x.py").write_text("def f(rate, round_):\n    total = rate * (round_ - 1)\n    return total\n")
    return tmp_path


def test_every_fault_applies_to_the_code_and_has_its_tests() -> None:
    gone = []
    for fault in FAULTS:
        try:
            path, text = applied(fault, SOURCE)
            which_tests(fault, path, SOURCE, TESTS)
            if path.suffix == ".py":
                compile(text, str(path), "exec")
        except (NotFound, SyntaxError) as error:
            gone.append(str(error))
    assert gone == [], "state these faults anew in tests/mutations/faults.py"


def test_as_stated(source: Path) -> None:
    path, text = applied(FAULT, source)
    assert (path.name, "total = rate * round_\n" in text) == ("x.py", True)


def test_renamed_moved_and_laid_out_anew(source: Path) -> None:
    (source / "room" / "x.py").unlink()
    (source / "room" / "y.py").write_text("def g(rate, number):\n    total = rate * (\n        number - 1\n    )\n")
    path, text = applied(FAULT, source)
    assert (path.name, text) == ("y.py", "def g(rate, number):\n    total = rate * number\n")


@pytest.mark.parametrize("other", ["total = rate * (round_ - 2)", "one = two * (three - 1)", "total = rate + (round_ - 1)"])
def test_other_code_is_not_taken_for_it(source: Path, other: str) -> None:
    (source / "room" / "x.py").write_text(f"{other}\n")
    with pytest.raises(NotFound, match="no such code"):
        applied(FAULT, source)


def test_two_places_alike(source: Path) -> None:
    (source / "room" / "x.py").write_text("total = pace * (round_ - 1)\ntotal = speed * (round_ - 1)\n")
    with pytest.raises(NotFound, match="several"):
        applied(FAULT, source)


def test_generated_faults_are_code(tmp_path: Path) -> None:
    path = tmp_path / "x.py"
    path.write_text('"""é"""\ndef f(a: int = 3) -> int:\n    note(a)\n    return a + 1 if a < 2 and not a else 0\n')
    found = {(fault.old, fault.new) for fault in faults_of(path, Path("room/x.py"), Path("room/test_x.py"))}
    assert {("note(a)", "pass"), ("a < 2", "(a <= 2)"), ("a + 1", "(a - 1)"), ("not a", "(a)"), ("1", "2")} <= found
