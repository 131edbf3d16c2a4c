"""A contestant of `peers.py`: a process that trains when it is told to, watched from outside."""

from __future__ import annotations

import json
import os
import re
import select
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from usage import proportional_memory, tree, tree_cpu_seconds

HERE = Path(__file__).resolve().parent
SOURCE = HERE.parent / "src"
PATIENCE = 1200.0
"""Seconds that a contestant may take to answer."""


@dataclass(frozen=True)
class Entry:
    """A contestant: its script below peers/, what it is told, and whether it needs the peers' environment."""

    script: str
    told: tuple[str, ...] = ()
    peer: bool = True
    package: str = "torch"


class Lost(Exception):
    """A contestant that could not go on; the text says why."""


@dataclass
class Contestant:
    """A running process, and what was measured of it."""

    name: str
    process: subprocess.Popen[bytes]
    told: Any
    says: int
    errors: Path
    began: float
    rounds: int = 0
    first: float = float("nan")
    cpu: list[float] = field(default_factory=list)
    wall: list[float] = field(default_factory=list)
    memory: int = 0
    steps: int = 0
    loss: float = float("nan")
    threads: int = 0
    note: str = ""
    bunch: int = 1

    def answer(self) -> dict[str, Any]:
        line, until = b"", time.monotonic() + PATIENCE
        while not line.endswith(b"\n"):
            if not select.select([self.says], [], [], max(0.0, until - time.monotonic()))[0]:
                raise Lost(f"no answer in {PATIENCE:.0f} s")
            part = os.read(self.says, 4096)
            if not part:
                raise Lost(self.reason())
            line += part
        found: dict[str, Any] = json.loads(line)
        return found

    def reason(self) -> str:
        """The first line of the exception that ended it."""
        text = self.errors.read_text(errors="replace")
        found = re.findall(r"^(?:[\w.]*\.)?\w*(?:Error|Exception|Exit|Interrupt)\b.*$", text, re.MULTILINE)
        last = text.strip().splitlines()
        return (found[-1] if found else last[-1] if last else f"exit {self.process.wait()}")[:200]

    def ask(self, order: str) -> dict[str, Any]:
        try:
            self.told.write(order + "\n")
            self.told.flush()
        except OSError as error:
            raise Lost(self.reason()) from error
        return self.answer()

    def train(self, rounds: int) -> tuple[float, float]:
        """CPU and wall seconds of so many rounds; the tree's memory is watched meanwhile."""
        over = threading.Event()
        watch = threading.Thread(target=self._watch, args=(over,))
        watch.start()
        try:
            used, began = tree_cpu_seconds(self.process.pid), time.perf_counter()
            found = self.ask(f"run {rounds}")
            wall, cpu = time.perf_counter() - began, tree_cpu_seconds(self.process.pid) - used
        finally:
            over.set()
            watch.join()
        self.rounds, self.steps = found["rounds"], found["steps"]
        return cpu, wall

    def _watch(self, over: threading.Event) -> None:
        while True:
            self.memory = max(self.memory, proportional_memory(self.process.pid))
            if over.wait(0.4):
                self.memory = max(self.memory, proportional_memory(self.process.pid))
                return

    def end(self) -> None:
        """Its whole tree, by number."""
        everybody = tree(self.process.pid)
        for pid in reversed(everybody):
            try:
                os.kill(pid, 9)
            except ProcessLookupError:
                continue
        self.process.wait()
        os.close(self.says)


def start(name: str, entry: Entry, folder: Path, interpreter: Path | None) -> Contestant:
    if entry.peer and interpreter is None:
        raise Lost("no environment for the peers (--setup DIR makes one, --env DIR names it)")
    python = str(interpreter) if entry.peer else sys.executable
    theirs_in, ours_out = os.pipe()
    ours_in, theirs_out = os.pipe()
    environment = {
        **os.environ, "BENCH_WORK": str(folder), "BENCH_IN": str(theirs_in), "BENCH_OUT": str(theirs_out),
        "PYTHONPATH": os.pathsep.join([str(SOURCE), str(HERE / "peers")]), "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1", "JAX_PLATFORMS": "cpu", "RAY_DEDUP_LOGS": "0", "FLWR_TELEMETRY_ENABLED": "0",
        "RAY_USAGE_STATS_ENABLED": "0", "CUDA_VISIBLE_DEVICES": "",
    }  # fmt: skip
    errors = folder / f"{re.sub(r'[^a-z0-9]+', '-', name.lower())}.err"
    began = time.perf_counter()
    with errors.open("wb") as sink:
        process = subprocess.Popen(
            [python, str(HERE / "peers" / entry.script), *entry.told],
            stdin=subprocess.DEVNULL, stdout=sink, stderr=sink, env=environment, pass_fds=[theirs_in, theirs_out], cwd=folder,
        )  # fmt: skip
    os.close(theirs_in)
    os.close(theirs_out)
    return Contestant(name, process, os.fdopen(ours_out, "w"), ours_in, errors, began)
