"""What it costs to install: a fresh clone, an environment of its own, pip's cache empty and then full.

    python benchmarks/install.py                 the core, as `make demo` installs it, and its run
    python benchmarks/install.py --part dev      what the tests need

Wall and CPU seconds of the installation and of the demo, the number of packages and the megabytes on disk. The first turn
downloads everything, the second finds it in the cache.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]


def measured(command: list[str], folder: Path, environment: dict[str, str]) -> tuple[float, float]:
    """(wall seconds, CPU seconds) of a command and all it started."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(command, cwd=folder, env=environment, check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.perf_counter() - began, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def size(folder: Path) -> float:
    """Megabytes of a folder, as `du` counts them."""
    return int(subprocess.run(["du", "-sk", folder], capture_output=True, text=True, check=True).stdout.split()[0]) / 1024


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", choices=["core", "dev"], default="core")
    parser.add_argument("--turns", type=int, default=2, help="the first finds an empty cache, the others a full one")
    parser.add_argument("--make", default="", help="variables for make, such as PYTHON=python3.12")
    told = parser.parse_args()
    print("| cache | install, s | CPU s | packages | MB | `fedgsp run --report`, s | CPU s |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    with tempfile.TemporaryDirectory() as made:
        top = Path(made)
        cleared = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
        own = {name: str(top / name) for name in ("PIP_CACHE_DIR", "UV_CACHE_DIR", "FEDGSP_CACHE", "FEDGSP_STATE")}
        environment = {**cleared, **own}
        for turn in range(told.turns):
            clone = top / f"clone-{turn}"
            subprocess.run(["git", "clone", "-q", str(ROOT), str(clone)], check=True)
            wall, cpu = measured(["make", *told.make.split(), told.part], clone, environment)
            listed = [str(clone / ".venv/bin/python"), "-m", "pip", "list", "--format=freeze"]
            packages = subprocess.run(listed, capture_output=True, text=True, check=True, env=environment).stdout.split()
            ran, used = measured([str(clone / ".venv/bin/fedgsp"), "run", "--report"], clone, environment)
            print(
                f"| {'full' if turn else 'empty'} | {wall:.0f} | {cpu:.0f} | {len(packages)} | {size(clone / '.venv'):.0f} "
                f"| {ran:.0f} | {used:.0f} |",
                flush=True,
            )
    print(f"\nload at the end {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
