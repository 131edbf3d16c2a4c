"""Which commit made a run: told where this is a checkout, and nothing elsewhere."""

from __future__ import annotations

import re
import subprocess
from typing import Any

import pytest

from fedgsp.study import commit
from fedgsp.study.commit import source_commit


@pytest.fixture(autouse=True)
def asked_anew() -> None:
    source_commit.cache_clear()


def test_a_checkout_has_a_commit() -> None:
    told = source_commit()
    assert told is None or re.fullmatch(r"[0-9a-f]{40}\+?", told)


def test_without_git_or_a_checkout_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    for error in (FileNotFoundError("git"), subprocess.CalledProcessError(128, "git")):

        def fail(*_: Any, error: Exception = error) -> str:
            raise error

        monkeypatch.setattr(commit, "_git", fail)
        source_commit.cache_clear()
        assert source_commit() is None
