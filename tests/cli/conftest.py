"""The command line as a person meets it: `main()` with arguments, in this process, in an empty folder."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest


@dataclass(frozen=True)
class Outcome:
    """What a command left on the screen, and its exit code."""

    code: int
    out: str
    err: str

    @property
    def unwrapped(self) -> str:
        """What was printed, whatever the width of the screen."""
        return " ".join(self.out.split())


Cli = Callable[..., Outcome]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder to work in."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def cli(here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Cli]:
    """Run the command line as its entry point does."""
    from fedgsp.cli.main import main

    before = signal.getsignal(signal.SIGTERM)

    def run(*arguments: object) -> Outcome:
        monkeypatch.setattr(sys, "argv", ["fedgsp", *map(str, arguments)])
        with pytest.raises(SystemExit) as exit_:
            main()
        out, err = capsys.readouterr()
        return Outcome(int(exit_.value.code or 0), out, err)

    yield run
    signal.signal(signal.SIGTERM, before)


@pytest.fixture
def tiny(here: Path) -> str:
    """A federation of 12 clients with ten 8 x 8 images each, in three classes that differ by their brightness."""
    rng = np.random.default_rng(0)
    labels = np.arange(120) % 3
    images = (rng.integers(0, 60, (120, 8, 8)) + 90 * labels[:, None, None]).astype(np.uint8)
    np.savez(here / "tiny.npz", features=images, labels=labels, client_index=np.repeat(np.arange(12), 10))
    return "tiny.npz"
