"""One math thread, so that the order in which numbers are added does not depend on the machine's cores."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def one_math_thread() -> Iterator[None]:
    """Compute with one thread; the caller's number is put back afterwards."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
