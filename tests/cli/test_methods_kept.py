"""`fedgsp methods` keeps its table, so that the second time nobody waits for torch."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from fedgsp.cli import methods


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of its own."""
    monkeypatch.setenv("FEDGSP_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


PROBE = """
import sys
from fedgsp.cli.main import main
sys.argv = ["fedgsp", "methods"]
try:
    main()
except SystemExit:
    pass
assert not {"torch", "numpy", "scipy"} & sys.modules.keys()
"""


def test_once_it_is_kept_torch_is_not_imported(cache: Path) -> None:
    made = methods.kept()
    assert made == {"text": methods.as_text(), "json": methods.as_data()}
    done = subprocess.run([sys.executable, "-c", PROBE], capture_output=True, text=True, check=False, env=dict(os.environ))
    assert (done.stdout, done.returncode) == (made["text"] + "\n", 0), done.stderr


def test_other_sources_make_another_table(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    methods.kept()
    monkeypatch.setattr(methods, "sources_digest", lambda _: "other")
    monkeypatch.setattr(methods, "as_text", lambda: "new")
    assert methods.kept()["text"] == "new"
    assert [file.name for file in cache.iterdir()] == ["methods-other.json"]


def test_a_change_of_any_source_is_seen(tmp_path: Path) -> None:
    (tmp_path / "rooms").mkdir()
    (tmp_path / "rooms" / "a.py").write_text("x = 1\n")
    before = methods.sources_digest(tmp_path)
    assert methods.sources_digest(tmp_path) == before
    (tmp_path / "rooms" / "a.py").write_text("x = 10\n")
    changed = methods.sources_digest(tmp_path)
    (tmp_path / "b.py").touch()
    assert len({before, changed, methods.sources_digest(tmp_path)}) == 3


@pytest.mark.parametrize("content", ["", "[]", '{"text": "cut"}'])
def test_what_was_damaged_is_made_again(cache: Path, content: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(methods, "as_text", lambda: "text")
    monkeypatch.setattr(methods, "as_data", lambda: "{}")
    methods.kept()
    (file,) = cache.iterdir()
    file.write_text(content)
    assert methods.kept() == {"text": "text", "json": "{}"}
    assert file.read_text() != content


def test_a_cache_that_cannot_be_written_only_costs_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("FEDGSP_CACHE", str(tmp_path / "file" / "cache"))
    monkeypatch.setattr(methods, "as_text", lambda: "text")
    monkeypatch.setattr(methods, "as_data", lambda: "{}")
    methods.methods()
    assert capsys.readouterr().out == "text\n"
