"""What a tree of processes uses: CPU time and memory, read off /proc (Linux)."""

from __future__ import annotations

import os
from pathlib import Path

TICKS = os.sysconf("SC_CLK_TCK")


def _fields(pid: int) -> list[str] | None:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except (OSError, IndexError):
        return None


def tree(root: int) -> list[int]:
    """A process and all its descendants that are there now, parents first."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and (fields := _fields(int(entry.name))) is not None:
            children.setdefault(int(fields[1]), []).append(int(entry.name))
    found = [root]
    for pid in found:
        found += children.get(pid, [])
    return found


def tree_cpu_seconds(root: int) -> float:
    """CPU time of a tree so far, that of its dead and buried children included (in steps of 10 ms)."""
    whole = 0
    for pid in tree(root):
        if (fields := _fields(pid)) is not None:
            whole += sum(int(fields[i]) for i in (11, 12, 13, 14))
    return whole / TICKS


def proportional_memory(root: int) -> int:
    """Bytes in memory of a tree, each shared page counted once (PSS); resident memory where that cannot be read."""
    whole = 0
    for pid in tree(root):
        try:
            text = Path(f"/proc/{pid}/smaps_rollup").read_text()
            whole += 1024 * int(next(line.split()[1] for line in text.splitlines() if line.startswith("Pss:")))
        except (OSError, StopIteration):
            fields = _fields(pid)
            whole += int(fields[21]) * os.sysconf("SC_PAGE_SIZE") if fields else 0
    return whole
