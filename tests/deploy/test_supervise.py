"""Everything that was started is stopped: after leaving, after an exception, and after the supervisor itself is killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from fedgsp.core.errors import RunFailed
from fedgsp.deploy import guardian
from fedgsp.deploy.supervise import Supervisor, recorded
from tests.support.waiting import until

SLEEPER = "import time; time.sleep(600)"
PARENT = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {SLEEPER!r}], start_new_session=True).wait()"
STUBBORN = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(600)"


def python(code: str) -> list[str]:
    return [sys.executable, "-c", code]


def test_leaving_stops_children_and_their_children(tmp_path: Path) -> None:
    with Supervisor(tmp_path, os.environ) as supervisor:
        started = supervisor.start("family", python(PARENT))
        until(lambda: len(guardian.marked(supervisor.mark)) == 2)
        assert started.alive
        assert recorded(tmp_path) == (True, [started])
    assert guardian.marked(supervisor.mark) == {}
    assert recorded(tmp_path) == (False, [])


def test_an_exception_stops_them_too(tmp_path: Path) -> None:
    supervisor = Supervisor(tmp_path, os.environ)

    def interrupted() -> None:
        with supervisor:
            supervisor.start("one", python(SLEEPER))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert guardian.marked(supervisor.mark) == {}
    assert supervisor.running() == []


def test_who_does_not_listen_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Supervisor(tmp_path, os.environ) as supervisor:
        started = supervisor.start("stubborn", python(STUBBORN))
        until(lambda: "up" in (tmp_path / "logs" / "stubborn.log").read_text())
        assert guardian.stop_all([(started.pid, started.began)], supervisor.mark, grace=0.3) == [started.pid]
        assert not started.alive


def test_a_number_that_is_used_again_is_left_alone() -> None:
    bystander = subprocess.Popen(python(SLEEPER))
    try:
        guardian.stop_all([(bystander.pid, 1.0)], "no such mark", grace=0.2)
        assert bystander.poll() is None
    finally:
        bystander.kill()
        bystander.wait()


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_the_supervisor_is_killed_and_nothing_is_left(tmp_path: Path, how: signal.Signals) -> None:
    """The guardian notices, whatever ended its parent."""
    program = (
        "import os, sys, time; from pathlib import Path; from fedgsp.deploy.supervise import Supervisor\n"
        f"with Supervisor(Path({str(tmp_path)!r}), os.environ) as s:\n"
        f"    s.start('family', [sys.executable, '-c', {PARENT!r}]); time.sleep(600)\n"
    )
    with subprocess.Popen(python(program), stderr=subprocess.DEVNULL) as victim:
        until(lambda: (tmp_path / "processes.json").exists() and len(recorded(tmp_path)[1]) == 1)
        mark = json.loads((tmp_path / "processes.json").read_text())["mark"]
        until(lambda: len(guardian.marked(mark)) == 2)
        victim.send_signal(how)
        victim.wait(60)
    until(lambda: not guardian.marked(mark))
    assert recorded(tmp_path)[0] is False


def test_a_process_that_ended_is_named_with_its_last_words(tmp_path: Path) -> None:
    with Supervisor(tmp_path, os.environ) as supervisor:
        supervisor.start("short", python("print('no such port'); raise SystemExit(3)"))
        until(lambda: not supervisor.running())
        with pytest.raises(RunFailed, match=r"short ended with code 3 \(no such port\)"):
            supervisor.check("short")


def test_a_command_is_run_to_its_end(tmp_path: Path) -> None:
    with Supervisor(tmp_path, os.environ) as supervisor:
        assert supervisor.run("said", python("print('hello')"), 30) == "hello\n"
        with pytest.raises(RunFailed, match=r"said failed \(oh\)"):
            supervisor.run("said", python("raise SystemExit('oh')"), 30)
