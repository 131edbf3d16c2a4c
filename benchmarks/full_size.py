"""Memory at FEMNIST's full size: 3,550 clients with 800,000 images, two workers.

    python benchmarks/full_size.py --folder DIR      (needs 1.3 GB there; the file is removed afterwards)

The images are random bytes: memory does not depend on what is in them. Printed is the peak of the whole tree of processes, with
shared pages counted once (PSS).
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
from usage import proportional_memory

CLIENTS, IMAGES = 3_550, 800_000
RUNS = {
    "fedgsp, small_cnn, 2 rounds": ("--method", "fedgsp", "--model", "small_cnn", "--rounds", "2"),
    "fedavg, leaf_cnn, 1 % of the clients, 1 round": (
        "--method", "fedavg", "--model", "leaf_cnn", "--kappa", "0.01", "--rounds", "1",
    ),
}  # fmt: skip


def write(path: Path) -> None:
    """An archive of that size, block by block."""
    rng = np.random.default_rng(0)
    sizes = rng.multinomial(IMAGES - CLIENTS * 20, rng.dirichlet(np.full(CLIENTS, 4.0))) + 20
    np.savez(
        path,
        features=rng.integers(0, 256, (IMAGES, 28, 28), dtype=np.uint8),
        labels=rng.integers(0, 62, IMAGES),
        client_index=np.repeat(np.arange(CLIENTS), sizes),
        clients=np.array([f"writer-{k:04d}" for k in range(CLIENTS)]),
    )


def peak(command: list[str]) -> int:
    """The most memory that a command's processes had together."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    most = 0
    while process.poll() is None:
        most = max(most, proportional_memory(process.pid))
        time.sleep(0.3)
    if process.returncode:
        raise SystemExit(f"{' '.join(command)} ended with code {process.returncode}")
    return most


def main() -> None:
    """Write the data, run, measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, required=True)
    folder: Path = parser.parse_args().folder
    data = folder / "full-size.npz"
    write(data)
    try:
        for number, (name, options) in enumerate(RUNS.items()):
            begin = [sys.executable, "-c", "from fedgsp.cli.main import main; main()", "run", "--data", f"npz:{data}"]
            most = peak([*begin, "--workers", "2", "--quiet", "--out", str(folder / f"run-{number}"), *options])
            print(f"{name}: {most / 2**30:.2f} GiB", flush=True)
    finally:
        data.unlink()


if __name__ == "__main__":
    main()
