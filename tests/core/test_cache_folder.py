"""Where what can be made again is kept, also without a home that can be written."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from fedgsp.core.cache_folder import cache_root

NOWHERE = "/proc/self/nowhere"


@pytest.fixture(autouse=True)
def no_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A home that not even root can write, and a folder of temporary files."""
    monkeypatch.delenv("FEDGSP_CACHE", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", NOWHERE)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


def test_what_is_chosen_is_taken_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDGSP_CACHE", NOWHERE)
    assert cache_root() == Path(NOWHERE)


def test_the_users_own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert tmp_path / "home" in cache_root().parents
    assert cache_root().is_dir()


def test_without_a_home_a_private_folder_among_temporary_files(tmp_path: Path) -> None:
    found = cache_root()
    assert found.parent == tmp_path
    assert found.stat().st_mode & 0o777 == 0o700
    assert cache_root() == found


@pytest.mark.parametrize("how", ["open to others", "a link", "a file"])
def test_a_folder_that_others_may_have_made_is_not_taken(tmp_path: Path, how: str) -> None:
    found = cache_root()
    found.rmdir()
    if how == "open to others":
        found.mkdir()
        found.chmod(0o777)
    elif how == "a link":
        (tmp_path / "theirs").mkdir(mode=0o700)
        found.symlink_to(tmp_path / "theirs")
    else:
        found.touch()
    assert NOWHERE in str(cache_root())
