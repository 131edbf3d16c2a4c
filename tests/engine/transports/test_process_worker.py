"""Workers that cannot start, and what is in a user's working folder."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import nn

import fedgsp
from fedgsp.core.errors import RunFailed
from fedgsp.engine.time_limits import TimeLimits
from tests.support import tiny

pytestmark = pytest.mark.timing


def open_ones() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def children() -> list[int]:
    me = os.getpid()
    return [int(pid) for pid in Path(f"/proc/self/task/{me}/children").read_text().split()]


@pytest.mark.parametrize(
    ("program", "told"),
    [
        ("/bin/false", r"^worker processes cannot start, 3 in a row: its worker process ended with code 1; what they printed"),
        ("/nowhere/python", r"^worker processes cannot start: No such file or directory\."),
    ],
)
def test_workers_that_cannot_start_end_in_a_sentence_and_leave_nothing(
    program: str, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fedgsp.train(tiny.static(2), tiny.federation(), tiny.linear, rounds=1, workers=0)  # what is opened once is open now
    before, family = open_ones(), children()
    monkeypatch.setattr(sys, "executable", program)
    with pytest.raises(RunFailed, match=told):
        fedgsp.train(tiny.static(2), tiny.federation(), tiny.linear, rounds=1, workers=2, out=tmp_path / "run")
    assert open_ones() <= before  # an idle fork server of earlier tests may have gone meanwhile
    assert set(children()) <= set(family)
    events = [json.loads(line) for line in (tmp_path / "run" / "events.jsonl").read_text().splitlines()]
    assert events[-1]["event"] == "failed"
    assert "cannot start" in events[-1]["cause"]


def test_a_run_that_is_over_has_given_everything_back() -> None:
    def run() -> None:
        fedgsp.train(tiny.static(2), tiny.federation(), tiny.linear, rounds=1, workers=2)

    run()
    before, family = open_ones(), children()
    run()
    assert open_ones() <= before  # an idle fork server of earlier tests may have gone meanwhile
    assert set(children()) <= set(family)


def stopped(folder: Path) -> str:
    """A program that is stopped as soon as it is started, and reads nothing."""
    program = folder / "stopped"
    program.write_text("#!/bin/sh\nkill -STOP $$\n")
    program.chmod(0o755)
    return str(program)


def test_workers_that_hang_when_they_start_are_noticed_however_much_they_are_to_be_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    large = nn.Linear(tiny.FEATURES, tiny.CLASSES)
    large.register_buffer("ballast", torch.zeros(1_000_000))  # more than a pipe holds
    monkeypatch.setattr(sys, "executable", stopped(tmp_path))
    monkeypatch.setattr("fedgsp.run.run.TimeLimits", partial(TimeLimits, start=1.0))
    before, family = open_ones(), children()
    told = r"cannot start, 3 in a row: its worker \(process \d+\) was not ready after 1 s, and was replaced; "
    with pytest.raises(RunFailed, match=told):
        fedgsp.train(tiny.static(2), tiny.federation(), large, rounds=1, workers=1, hop_seconds=0.5)
    assert open_ones() <= before
    assert set(children()) <= set(family)


SHADOWS = ("grp", "random", "types", "socket", "signal", "statistics")
MINE = """from dataclasses import dataclass

from torch import nn

from fedgsp.client import SGD


@dataclass(frozen=True, kw_only=True)
class Rule(SGD):
    def begin(self, ctx):
        import statistics

        statistics.mean([1.0, 2.0])


def net(shape, classes):
    return nn.Linear(shape[0], classes)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A working folder with files that have the names of modules of the standard library, and a module of the user's own."""
    for name in SHADOWS:
        (tmp_path / f"{name}.py").write_text(f"raise SystemExit('the standard {name} was shadowed')\n")
    (tmp_path / "mine.py").write_text(MINE)
    tiny.write_npz(tmp_path / "data.npz")
    return tmp_path


def test_the_working_folder_of_a_command_shadows_nothing_and_its_modules_are_found(folder: Path) -> None:
    command = [
        str(Path(sys.executable).with_name("fedgsp")), "run", "--data", "data.npz", "--model", "mine:net", "--rounds", "1",
        "--workers", "2", "--set", 'method.local={kind="mine:Rule"}', "--out", "run", "--quiet",
    ]  # fmt: skip
    done = subprocess.run(command, cwd=folder, env=tiny.environment(), capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads((folder / "run" / "result.json").read_text())["status"] == "finished"


SCRIPT = """
import os, sys
import fedgsp
os.chdir({folder!r})
sys.path.append({folder!r})
import mine
result = fedgsp.train(fedgsp.named("fedavg"), "data.npz", mine.net, rounds=1, workers=2)
print(result.status)
"""


def test_nor_does_that_of_a_script(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    script = tmp_path_factory.mktemp("elsewhere") / "script.py"
    script.write_text(SCRIPT.format(folder=str(folder)))
    done = subprocess.run(
        [sys.executable, str(script)],
        cwd=folder,
        env=tiny.environment(),
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert (done.stdout, done.returncode) == ("finished\n", 0), done.stderr
