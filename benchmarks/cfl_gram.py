"""What a split of `cfl` takes: the Gram matrix of K updates of LEAF's CNN, read from a spool in blocks of columns.

    python benchmarks/cfl_gram.py --clients 368

It needs K x 26 MB of free disk where temporary files are (TMPDIR), and prints the seconds and the memory of its own that the
process took (pages of the spool are the system's to keep or drop).
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import torch

from fedgsp.core.spool import Spool
from fedgsp.server.clustered import gram

PARAMETERS = 6_603_710


def main() -> None:
    """Fill a spool with made-up updates and time the matrix."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=368)
    clients = parser.parse_args().clients
    torch.set_num_threads(1)
    noise = torch.Generator().manual_seed(0)
    before = torch.randn(PARAMETERS, generator=noise)
    spool = Spool({"w": before}, clients)
    for row in range(clients):
        spool.put(row, {"w": before + 0.01 * torch.randn(PARAMETERS, generator=noise)})
    began = time.perf_counter()
    gram([[spool.get(row)["w"]] for row in range(clients)], [before])
    seconds = time.perf_counter() - began
    own = next(line.split()[1] for line in Path("/proc/self/smaps_rollup").read_text().splitlines() if "Anonymous" in line)
    print(f"{clients} updates of {PARAMETERS} parameters: {seconds:.0f} s on one core, {int(own) / 1e3:.0f} MB of memory")


if __name__ == "__main__":
    main()
