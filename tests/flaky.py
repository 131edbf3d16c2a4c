"""Find tests that fail by chance: those about real processes, many times, on a machine that is kept busy.

    python -m tests.flaky --times 50 --load 4          the fast ones
    python -m tests.flaky --times 5 --slow tests/run   the slow ones too, of one folder

Prints the end of the output when a test fails for the first time, at last how often each failed, and ends with 1 if any did.
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

BUSY = """
import os, random, sys, time
parent, chance = os.getppid(), random.Random(int(sys.argv[1]))
while os.getppid() == parent:  # in bursts: what happens in which order differs more than under an even load
    end = time.monotonic() + chance.random()
    while time.monotonic() < end:
        pass
    time.sleep(chance.random() / 4)
"""


@contextmanager
def busy(processes: int, seed: int) -> Iterator[None]:
    """Keep the machine busy; these processes end when this one does."""
    started = [subprocess.Popen([sys.executable, "-c", BUSY, str(seed + k)]) for k in range(processes)]
    try:
        yield
    finally:
        for process in started:
            process.kill()
            process.wait()


def failed_in(output: str) -> list[str]:
    """The tests that a short summary of pytest names."""
    words = [line.split() for line in output.splitlines() if line.startswith(("FAILED ", "ERROR "))]
    return [line[1] for line in words if len(line) > 1]


def marked() -> list[str]:
    """The files with tests about real processes: to collect all others takes as long as some of these tests."""
    return sorted(str(file) for file in Path("tests").rglob("test_*.py") if "mark.timing" in file.read_text())


def main(arguments: list[str] | None = None) -> int:
    """Run them; the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=int, default=50)
    parser.add_argument("--load", type=int, default=2 * (os.cpu_count() or 1), help="processes that keep the machine busy")
    parser.add_argument("--seed", type=int, default=random.randrange(10**6), help="of the bursts of load")
    parser.add_argument("--slow", action="store_true", help="slow tests too")
    parser.add_argument("paths", nargs="*", help="default: the files that have such tests")
    told = parser.parse_args(arguments)
    paths = told.paths or marked()
    marks = "timing" if told.slow else "timing and not slow"
    print(f"{told.times} times under a load of {told.load}, seed {told.seed}", flush=True)
    counts: Counter[str] = Counter()
    seen: set[str] = set()
    with busy(told.load, told.seed):
        for turn in range(told.times):
            command = [sys.executable, "-m", "pytest", "-m", marks, "-rfE", "--tb=short", *paths]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode not in (0, 1):  # nothing was run: a wrong path, an error of collection
                print(done.stdout[-3000:], done.stderr[-3000:])
                return done.returncode
            names = failed_in(done.stdout)
            counts.update(names)
            print(f"{turn + 1}: {', '.join(names) or 'all passed'}", flush=True)
            if set(names) - seen:  # at once: it may be interrupted
                print(done.stdout[-8000:], flush=True)
            seen |= set(names)
    for name, count in counts.most_common():
        print(f"{name} failed {count} times of {told.times}")
    return int(bool(counts))


if __name__ == "__main__":
    sys.exit(main())
