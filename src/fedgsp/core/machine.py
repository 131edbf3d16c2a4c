"""The machine: how many cores and how much memory there are for us, and how many threads we compute with."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")
"""Torch asks for large pages then (it looks at its first large tensor): fresh memory of a large model takes half the time."""


def cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def memory_bytes() -> int:
    """The machine's memory."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


@contextmanager
def one_math_thread() -> Iterator[None]:
    """Compute with one thread, so that the order of additions does not depend on the cores; then with as many as before."""
    import torch  # only here: how many cores there are is asked before torch is imported

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
