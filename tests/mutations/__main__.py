"""The command; see the package."""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from tests.mutations import __doc__ as described
from tests.mutations.apply import NotFound, applied, which_tests
from tests.mutations.faults import FAULTS, Fault
from tests.mutations.generate import sample
from tests.quick import Durations, durations

ROOT = Path(__file__).parents[2]
ACCEPTED = Path(__file__).with_name("accepted.txt")
LEAST_PATIENCE = 30.0
TIMES_LONGER = 10.0
"""Tests that take so many times as long as they do without a fault, and no less than that, hang: a fault that was noticed."""


class Workshop:
    """A copy of src/ with one fault at a time."""

    def __init__(self, folder: Path) -> None:
        self.source = folder / "src"
        shutil.copytree(ROOT / "src", self.source, ignore=shutil.ignore_patterns("__pycache__"))
        self._changes = 0

    def caught(self, file: Path, text: str, tests: str, patience: float) -> bool:
        """Whether tests fail while a file of the copy has another text."""
        before = file.read_text()
        self._write(file, text)
        try:
            return not self._passes(tests, patience)
        finally:
            self._write(file, before)

    def _write(self, file: Path, text: str) -> None:
        """With a time of its own: compiled files are told apart by whole seconds."""
        self._changes += 1
        file.write_text(text)
        os.utime(file, (1e9 + self._changes, 1e9 + self._changes))

    def _passes(self, tests: str, patience: float) -> bool:
        """Run tests in a forked process, where torch is there already: starting one takes longer than most tests do."""
        process = os.fork()
        if process == 0:
            code = 9
            try:
                os.setsid()
                code = self._test(tests)
            finally:
                os._exit(code)
        deadline = time.monotonic() + patience
        while time.monotonic() < deadline:
            ended, status = os.waitpid(process, os.WNOHANG)
            if ended:
                code = os.waitstatus_to_exitcode(status)
                if code not in (0, 1, 2):  # passed, failed, could not be imported; all else is no verdict
                    raise SystemExit(f"pytest tests/{tests} ended with {code}: the fault was not tried")
                return code == 0
            time.sleep(0.02)
        os.killpg(process, signal.SIGKILL)
        os.waitpid(process, 0)
        return False

    def _test(self, tests: str) -> int:
        import pytest

        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 1)
        os.dup2(nowhere, 2)
        os.chdir(ROOT)
        sys.path.insert(0, str(self.source))
        os.environ["PYTHONPATH"] = str(self.source)
        return int(pytest.main(["-x", "-q", "-m", "not slow", "--exhaustive", "-p", "no:cacheprovider", f"tests/{tests}"]))


def patience(tests: str, known: Durations) -> float:
    """Seconds after which these tests count as hanging, by what those of their file take (tests/durations.json)."""
    name = f"tests/{tests}"
    usual = sum(max(took) for test, took in known.items() if test == name or test.startswith((f"{name}::", f"{name}/")))
    return max(LEAST_PATIENCE, TIMES_LONGER * usual)


def changed_since(revision: str) -> set[str]:
    """Files that differ from a revision, committed or not; none where the revision is not there (a shallow clone)."""
    asked = ["git", "diff", "--name-only", revision]
    return set(subprocess.run(asked, cwd=ROOT, capture_output=True, text=True, check=False).stdout.splitlines())


def sampled(number: int, seed: int, changed: set[str]) -> list[Fault]:
    """All faults whose file or tests have changed, and so many of the others by the seed."""
    near = [fault for fault in FAULTS if {f"src/fedgsp/{fault.file}", f"tests/{fault.tests.partition('::')[0]}"} & changed]
    others = [fault for fault in FAULTS if fault not in near]
    return near + random.Random(seed).sample(others, min(number, len(others)))


def stated(chosen: Sequence[Fault]) -> int:
    """Try stated faults; the exit code is 1 if one survives or is not there."""
    missed = 0
    with tempfile.TemporaryDirectory() as folder:
        shop = Workshop(Path(folder))
        package = shop.source / "fedgsp"
        for fault in chosen:
            began = time.monotonic()
            try:
                file, text = applied(fault, package)
                tests = which_tests(fault, file, package, ROOT / "tests")
                word = "caught" if shop.caught(file, text, tests, patience(tests, durations())) else "SURVIVES"
            except NotFound:
                word = "NOT FOUND"
            missed += word != "caught"
            print(f"{word:<10} {time.monotonic() - began:5.1f} s  {fault}", flush=True)
    print(f"{len(chosen) - missed} of {len(chosen)} faults caught")
    return 1 if missed else 0


def generated(seconds: float, seed: int) -> int:
    """Try generated faults while there is time, and list those that no test notices."""
    accepted = set(ACCEPTED.read_text().splitlines())
    survivors, tried, deadline = [], 0, time.monotonic() + seconds
    with tempfile.TemporaryDirectory() as folder:
        shop = Workshop(Path(folder))
        for fault in sample(shop.source / "fedgsp", ROOT / "tests", seed):
            left = deadline - time.monotonic()
            if left <= 0:
                break
            if fault.name in accepted:
                continue
            file = shop.source / "fedgsp" / fault.file
            content = file.read_bytes()
            text = (content[: fault.begin] + fault.new.encode() + content[fault.end :]).decode()
            tried += 1
            if not shop.caught(file, text, fault.tests, min(left + 20.0, 60.0)):
                survivors.append(fault)
                print(f"SURVIVES   {fault}", flush=True)
    print(f"seed {seed}: {tried - len(survivors)} of {tried} generated faults caught in {seconds:g} s")
    return 0


def main() -> int:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.mutations", description=described, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("words", nargs="*")
    parser.add_argument("--generated", type=float, metavar="SECONDS")
    parser.add_argument("--sample", type=int, metavar="NUMBER")
    parser.add_argument("--since", default="HEAD~1", metavar="REVISION")
    parser.add_argument("--seed", type=int)
    told = parser.parse_args()
    import hypothesis  # noqa: F401  for all forked processes
    import numpy  # noqa: F401
    import pytest  # noqa: F401
    import scipy.optimize  # noqa: F401
    import torch

    torch.set_num_threads(1)
    commit = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False).stdout
    seed = int(commit[:8] or "0", 16) if told.seed is None else told.seed
    if told.generated is not None:
        return generated(told.generated, seed)
    if told.sample is None:
        return stated([fault for fault in FAULTS if not told.words or any(word in str(fault) for word in told.words)])
    print(f"seed {seed}: the faults of what has changed since {told.since}, and {told.sample} of the others", flush=True)
    return stated(sampled(told.sample, seed, changed_since(told.since)))


if __name__ == "__main__":
    sys.exit(main())
