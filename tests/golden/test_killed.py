"""Every method, killed in the middle of a round: resumed and replayed, it ends in the bits of an undisturbed run."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

import fedgsp
from fedgsp import Callback
from fedgsp.core import forked
from fedgsp.core.fork_server import serve
from fedgsp.engine.messages import HopDone
from tests.support import golden, tiny

__all__ = ["serve", "train_until_killed"]


class KillIn(Callback):
    """Ends this process, for good, after the first hop of a round: some of its events are on disk, its result is not."""

    def __init__(self, round_: int) -> None:
        self.round = round_

    def on_hop_end(self, hop: HopDone) -> None:
        if hop.round == self.round:
            os.kill(os.getpid(), signal.SIGKILL)


def train_until_killed(name: str, out: str) -> None:
    golden.run(name, out=out, callbacks=[KillIn(2)])


def killed(name: str, out: Path) -> int | None:
    """How a process ended that trains this method: forked by a server, since Ray's threads may be in this one."""
    environment = {**tiny.environment(), "OMP_NUM_THREADS": "1"}
    process = forked.start("tests.golden.test_killed", "train_until_killed", (name, str(out)), [], environment)
    return process.wait(300)


@pytest.mark.sampled(12)
@pytest.mark.slow
@pytest.mark.parametrize("name", golden.NAMES)
def test_a_killed_run_resumes_and_replays_to_the_same_bits(name: str, tmp_path: Path) -> None:
    out = tmp_path / "run"
    assert killed(name, out) == -signal.SIGKILL
    assert (out / "journal.jsonl").read_bytes().count(b"\n") == 1
    resumed = fedgsp.resume(out, data=golden.federation(), method=golden.method(name), workers=0)
    assert resumed.state.digest() == golden.digest(name)
    replayed = fedgsp.replay(out, data=golden.federation(), method=golden.method(name), workers=0)
    assert (replayed.rounds, replayed.differs) == (golden.ROUNDS, None)
