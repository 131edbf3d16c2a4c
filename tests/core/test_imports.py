"""Processes that we start find modules as this one does, and the standard library always."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from fedgsp.core.imports import STANDARD, python, search_path, shadowed, standard_first

LIBRARY = str(STANDARD)


@pytest.fixture(autouse=True)
def own_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])


def test_the_order_stays_but_for_the_standard_library() -> None:
    assert standard_first(["/a", "", LIBRARY, f"{LIBRARY}/lib-dynload", "/b"]) == [
        LIBRARY, f"{LIBRARY}/lib-dynload", "/a", "", "/b",
    ]  # fmt: skip


def test_the_working_folder_comes_last_unless_it_is_in_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert search_path() == [*sys.path, str(tmp_path)]
    sys.path.insert(0, str(tmp_path))
    assert search_path() == sys.path
    sys.path[0] = ""
    assert search_path() == sys.path
    sys.path.pop(0)
    tmp_path.rmdir()
    assert search_path() == sys.path


def test_files_that_would_stand_in_for_the_standard_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("grp.py", "mine.py", "random.py", "this.py", "notes.txt"):
        (tmp_path / name).write_text("")
    (tmp_path / "json").mkdir()
    (tmp_path / "code.py").write_text("mine = True\n")
    assert shadowed([str(tmp_path), LIBRARY]) == ["code", "grp", "json", "random"]
    assert shadowed([LIBRARY, str(tmp_path)]) == []
    assert shadowed(["/nowhere", str(tmp_path / "mine.py"), LIBRARY]) == []
    monkeypatch.delitem(sys.modules, "code", raising=False)
    sys.path.insert(0, str(tmp_path))
    import code

    assert code.__file__ == str(tmp_path / "code.py")
    assert shadowed([str(tmp_path), LIBRARY]) == ["grp", "json", "random"]  # this process itself has the user's code.py
    monkeypatch.delitem(sys.modules, "code")


def child(*commands: str) -> str:
    """What a Python that is started by us prints."""
    command = python("fedgsp.core.imports", "standard_first([])")
    command[-1] += "; " + "; ".join(commands)
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_a_child_has_our_path_and_the_librarys_modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wherever the folder stands: not at all (this process's own way), before the library, or as the empty entry."""
    for name in ("grp", "random", "types", "socket"):
        (tmp_path / f"{name}.py").write_text(f"raise SystemExit('{name} was shadowed')\n")
    (tmp_path / "mine.py").write_text("answer = 42\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", "")
    for first in ([], [str(tmp_path)], [""]):
        sys.path[:0] = first
        assert child("import grp, random, types, socket, mine", "print(mine.answer)") == "42"
        assert child("print(sys.path == " + repr(search_path()) + ")") == "True"
        del sys.path[: len(first)]


def test_a_users_module_by_a_name_of_the_library_is_what_this_process_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "code.py").write_text("mine = True\n")
    monkeypatch.delitem(sys.modules, "code", raising=False)
    sys.path.insert(0, str(tmp_path))
    import code

    assert code.mine  # type: ignore[attr-defined]
    assert child("import code", "print(code.mine)") == "True"
    monkeypatch.delitem(sys.modules, "code")
