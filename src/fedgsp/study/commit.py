"""Which commit of this package makes figures, where that can be known."""

from __future__ import annotations

import subprocess
from functools import cache
from pathlib import Path


@cache
def source_commit() -> str | None:
    """The commit of the checkout that this package is imported from, with a + if files were changed since.

    Returns:
        None where it is not a checkout (an installed wheel), or there is no git.
    """
    package = Path(__file__).parents[1]
    try:
        _git(package, "ls-files", "--error-unmatch", "__init__.py")
        head = _git(package, "rev-parse", "HEAD").strip()
        return head + ("+" if _git(package, "status", "--porcelain", "--", ".") else "")
    except (OSError, subprocess.CalledProcessError):
        return None


def _git(folder: Path, *words: str) -> str:
    return subprocess.run(["git", *words], cwd=folder, check=True, capture_output=True, text=True, timeout=30).stdout
