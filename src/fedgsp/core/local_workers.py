"""Worker processes on this machine: what their server imports, and what they find in their environment.

All of it is known without torch. So the server can be started before torch is imported here, and both imports, which take
about as long, go on side by side.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from fedgsp.core import forked
from fedgsp.core.files import read_regular
from fedgsp.core.machine import cores

MODULE = "fedgsp.engine.transports.process_worker"


def worker_environment() -> dict[str, str]:
    """This process's environment, with one math thread a worker."""
    return {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}


def start_ahead(config: Path | None, options: Mapping[str, Any], sets: Sequence[str] = ()) -> bool:
    """Start the server of worker processes if a run will want workers; a guess, which decides nothing but when it starts.

    Args:
        config: The run's configuration file, if it has one.
        options: What was told beside it: `workers` and `engine`, None where nothing was.
        sets: PATH=VALUE texts that change the configuration.

    Returns:
        Whether it was started, or was there already.
    """
    workers, engine = options.get("workers"), options.get("engine")
    if config is not None:
        with suppress(OSError, ValueError, AttributeError, RecursionError):  # who reads it in earnest says what is wrong
            told = tomllib.loads(read_regular(config).decode())
            workers = told.get("run", {}).get("workers") if workers is None else workers
            engine = told.get("engine", {}).get("name") if engine is None else engine
    asked = (entry.partition("=")[0].strip() for entry in sets)
    changed = any(name.startswith(("run.workers", "engine")) for name in asked)
    if workers == 0 or engine not in (None, "local") or changed or cores() < 2:
        return False
    return forked.prepare(MODULE, worker_environment())
