"""Randomness that a user's code draws from wherever it likes, on a leash."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch


@contextmanager
def own_randomness(seed: int = 0) -> Iterator[None]:
    """Torch, NumPy and Python draw from `seed` inside, and go on outside as if nothing had been drawn."""
    of_numpy, of_python = np.random.get_state(), random.getstate()  # noqa: NPY002 - a user's model may draw from it
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        np.random.seed(seed)  # noqa: NPY002
        random.seed(seed)
        try:
            yield
        finally:
            np.random.set_state(of_numpy)  # noqa: NPY002
            random.setstate(of_python)
