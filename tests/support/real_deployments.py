"""Real deployments for tests: on loopback, tiny, every process known by number and gone at the end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fedgsp.deploy import guardian
from fedgsp.deploy.layout import Deployment
from fedgsp.deploy.options import Options, loopback, write_from


def deployment(root: Path, nodes: int, *, insecure: bool = False, **options: Any) -> Deployment:
    """A deployment whose parts are all on this machine."""
    place, ports = loopback(root, nodes, insecure)
    write_from(Options(nodes=nodes, **options), place, ports)
    return place


def children(pid: int) -> list[int]:
    """The numbers of a process's children and theirs."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and _parent(int(entry.name)) == pid:
            found += [int(entry.name), *children(int(entry.name))]
    return found


def command_line(pid: int) -> str:
    """What a process was started with."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""


def marked_with(mark: str, word: str) -> list[int]:
    """Processes of a deployment whose command has a word in it."""
    return [pid for pid in guardian.marked(mark) if word in command_line(pid)]


def _parent(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except (OSError, IndexError):
        return -1
