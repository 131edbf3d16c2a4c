"""Processes that a server forks: they find what their asker has, inherit nothing else, and nothing outlives the asker."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from fedgsp.core import fork_server, forked
from fedgsp.core.fork_server import serve
from tests.support.waiting import until

__all__ = ["serve"]  # the server imports this module
HERE = "tests.core.test_forked"

pytestmark = [pytest.mark.timing, pytest.mark.skipif(sys.platform != "linux", reason="elsewhere nothing is forked")]


def tell(descriptor: int) -> None:
    """In the child: what it has."""
    found = {
        "folder": str(Path.cwd()), "name": os.environ.get("NAME"), "path": sys.path, "umask": os.umask(0),
        "files": resource.getrlimit(resource.RLIMIT_NOFILE)[0], "threads": threading.active_count(),
        "descriptors": sorted(int(file.name) for file in Path("/proc/self/fd").iterdir() if file.exists()),
        "session": os.getsid(0) == os.getpid(), "parent": os.getppid(), "me": os.getpid(),
    }  # fmt: skip
    with os.fdopen(descriptor, "w") as file:
        json.dump(found, file)


def end(code: int) -> None:
    """In the child: end by a code, or by a signal."""
    if code < 0:
        os.kill(os.getpid(), -code)
    sys.exit(code)


def last(descriptor: int) -> None:
    """In the child: say that it is there, then wait for ever."""
    os.write(descriptor, b"here")
    signal.pause()


def environment(**more: str) -> dict[str, str]:
    return {**os.environ, **more}


def told(**more: str) -> dict[str, Any]:
    read, write = os.pipe()
    process = forked.start(HERE, "tell", (write,), [write], environment(**more))
    os.close(write)
    with os.fdopen(read) as file:
        found: dict[str, Any] = json.load(file)
    assert process.wait(600) == 0
    return {**found, "write": write}


def test_a_child_finds_what_its_asker_has_at_that_moment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = told(NAME="one")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path / "modules"))
    before = os.umask(0o027)
    files, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (files - 1, most))
        second = told(NAME="two")
    finally:
        os.umask(before)
        resource.setrlimit(resource.RLIMIT_NOFILE, (files, most))
    assert (first["name"], second["name"]) == ("one", "two")
    assert first["parent"] == second["parent"] != os.getpid()  # one server for both
    assert second["folder"] == str(tmp_path)
    assert second["path"][0] == str(tmp_path / "modules")
    assert (second["umask"], second["files"]) == (0o027, files - 1)


def test_it_inherits_no_thread_no_session_and_no_descriptor_but_those_named() -> None:
    stop, other = threading.Event(), os.open("/dev/null", os.O_RDONLY)
    thread = threading.Thread(target=stop.wait)
    thread.start()
    try:
        found = told()
    finally:
        stop.set()
        thread.join()
        os.close(other)
    assert found["threads"] == 1
    assert found["session"]
    assert set(found["descriptors"]) <= {0, 1, 2, found["write"]}


@pytest.mark.parametrize("code", [0, 3, -signal.SIGKILL])
def test_how_it_ended_is_known(code: int) -> None:
    process = forked.start(HERE, "end", (int(code),), [], environment())
    assert process.wait(600) == code
    assert process.returncode == code


def test_one_that_is_killed_before_it_is_born_is_gone_and_the_server_stays() -> None:
    parent = told()["parent"]
    read, write = os.pipe()
    process = forked.start(HERE, "last", (write,), [write], environment())
    process.kill()
    assert process.wait(600) == -signal.SIGKILL
    os.close(write)
    assert os.read(read, 10) in (b"", b"here")
    assert os.read(read, 10) == b""
    os.close(read)
    assert told()["parent"] == parent


def test_a_server_that_was_killed_is_replaced_and_its_children_live_on() -> None:
    read, write = os.pipe()
    process = forked.start(HERE, "last", (write,), [write], environment())
    assert os.read(read, 10) == b"here"
    parent = int(Path(f"/proc/{process.pid}/stat").read_text().rsplit(")", 1)[1].split()[1])
    os.kill(parent, signal.SIGKILL)
    until(lambda: not alive(parent))
    assert told()["parent"] != parent
    assert alive(process.pid)
    process.kill()
    assert process.wait(600) is None  # nobody knows
    os.close(write)
    os.close(read)


def test_hundreds_may_be_asked_for_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before the server is there: each order has descriptors, of which the kernel holds only so many under way."""
    monkeypatch.setattr(forked, "_SERVERS", forked._Servers())
    read, write = os.pipe()
    more = [os.dup(write) for _ in range(9)]
    many = [forked.start(HERE, "end", (0,), [write, *more], environment()) for _ in range(200)]
    assert [process.wait(600) for process in many] == [0] * 200
    for descriptor in (read, write, *more):
        os.close(descriptor)
    forked._SERVERS.end()


def test_without_forking_it_is_a_program_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forked, "FORK", False)
    found = told()
    assert found["parent"] == os.getpid()
    assert found["session"]
    assert found["descriptors"] == [0, 1, 2, found["write"]]


ASKS = """
import os, sys, time
from fedgsp.core import forked
read, write = os.pipe()
process = forked.start("tests.core.test_forked", "last", (write,), [write], dict(os.environ))
os.read(read, 10)
parent = open(f"/proc/{process.pid}/stat").read().rsplit(")", 1)[1].split()[1]
print(process.pid, parent, flush=True)
time.sleep(600)
"""


def test_a_server_ends_with_its_asker() -> None:
    path = os.pathsep.join(folder for folder in sys.path if folder)
    asker = subprocess.Popen([sys.executable, "-c", ASKS], stdout=subprocess.PIPE, text=True, env=environment(PYTHONPATH=path))
    assert asker.stdout is not None
    child, server = map(int, asker.stdout.readline().split())
    asker.kill()
    asker.wait()
    asker.stdout.close()
    try:
        until(lambda: not alive(server))
    finally:
        os.kill(child, signal.SIGKILL)  # a worker has a lifeline of its own; this one has none


def test_one_that_has_a_thread_does_not_fork_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forked, "_SERVERS", forked._Servers())
    process = forked.start("tests.support.threaded", "nothing", (), [], environment())
    assert process.wait(600) == fork_server.NO_FORK
    assert told()["parent"] != os.getpid()  # found out with the next
    monkeypatch.setattr(forked._SERVERS, "forking", False)
    assert told()["parent"] == os.getpid()


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False
