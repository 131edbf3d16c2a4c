"""Set up an environment, by one process at a time and repeatably: `python .ci/install.py core|dev [FOLDER]`.

`core` has what the package needs to run, `dev` adds what its tests need. Whoever comes second waits for the first. The kernel
gives the lock back when its holder ends, however it ends. An installation that was stopped half-way leaves packages that pip
takes for whole: those whose files are not all there are installed again, and nothing else is touched.

TORCH_INDEX names an index to look for torch in as well, such as PyTorch's own of builds without CUDA.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).parents[1]
PARTS = {"core": ".", "dev": ".[dev]"}
BROKEN = """
import csv
import importlib.metadata as metadata
for dist in metadata.distributions():
    name = dist.metadata["Name"] if dist.metadata else None
    record = dist.read_text("RECORD")  # `dist.files` leaves out what is gone, from Python 3.12 on
    rows = [(dist.locate_file(row[0]), row[2]) for row in csv.reader((record or "").splitlines()) if len(row) > 2]
    if name and (not rows or any(not path.exists() or (size and path.stat().st_size != int(size))
                                 for path, size in rows if not str(path).endswith((".pyc", "RECORD", "direct_url.json")))):
        print(name)
"""


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Hold the lock beside the folder."""
    with folder.with_name(folder.name + ".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            print(f"another process is installing into {folder}; waiting for it", flush=True)
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def wanted(root: Path = ROOT) -> str:
    """What an installation depends on, in short."""
    content = b"".join((root / name).read_bytes() for name in ("pyproject.toml", "constraints.txt"))
    return hashlib.sha256(content + os.environ.get("TORCH_INDEX", "").encode()).hexdigest()


def works(python: Path) -> bool:
    """Whether there is a Python that has pip."""
    return python.exists() and subprocess.run([python, "-c", "import pip"], capture_output=True, check=False).returncode == 0


class Installer:
    """uv where it is to be had, pip else. uv reads nothing of pip's configuration, so pip it is where there is one."""

    def __init__(self, python: Path) -> None:
        self._python = python
        self._uv = shutil.which("uv")
        asked = subprocess.run([python, "-m", "pip", "config", "list"], capture_output=True, text=True, check=False).stdout
        if any(word in asked for word in ("index", "find-links")) or any(name.startswith("PIP_") for name in os.environ):
            self._uv = None

    def install(self, *arguments: str) -> None:
        """Install, within the constraints."""
        index = os.environ.get("TORCH_INDEX")
        if self._uv:
            more = ["--index", index, "--index-strategy", "unsafe-best-match"] if index else []
            command = [self._uv, "pip", "install", "--quiet", "--python", str(self._python), *more]
        else:
            more = ["--extra-index-url", index] if index else []
            command = [str(self._python), "-m", "pip", "--disable-pip-version-check", "install", "--quiet", *more]
        subprocess.run([*command, "-c", "constraints.txt", *arguments], cwd=ROOT, check=True)

    def mend(self) -> None:
        """Install again what an interrupted installation has left without all of its files."""
        found = subprocess.run([self._python, "-c", BROKEN], capture_output=True, text=True, check=True).stdout.split()
        broken = sorted(set(found) - {"fedgsp"})
        if broken:
            print(f"an installation was interrupted; once more: {', '.join(broken)}", flush=True)
            self.install("--reinstall" if self._uv else "--force-reinstall", "--no-deps", *broken)


def main(part: str, folder: Path) -> None:
    """Bring the environment to what the files ask for."""
    stamp, begun, python = folder / f".{part}", folder / ".installing", folder / "bin" / "python"
    target = wanted()
    with alone(folder):
        done = [name for name in (("core", "dev") if part == "core" else ("dev",)) if _has(folder / f".{name}", target)]
        if done and not begun.exists():
            return
        if not works(python):
            subprocess.run([sys.executable, "-m", "venv", "--clear", folder], check=True)
        installer = Installer(python)
        if begun.exists():
            installer.mend()
        begun.touch()
        installer.install("hatchling", "editables")
        installer.install("--no-build-isolation", "-e", PARTS[part])
        stamp.write_text(target)
        begun.unlink()


def _has(stamp: Path, target: str) -> bool:
    return stamp.exists() and stamp.read_text() == target


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3) or sys.argv[1] not in PARTS:
        sys.exit(__doc__)
    main(sys.argv[1], Path(sys.argv[2] if len(sys.argv) == 3 else ".venv").absolute())
