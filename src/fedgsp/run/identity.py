"""What a checkpoint must have been made of to belong to a run, and what must be the same for its bits to repeat."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from fedgsp.core.errors import InputError
from fedgsp.core.tensors import digest
from fedgsp.run.reader import RunReader

if TYPE_CHECKING:
    from fedgsp.run.run import Run

CHECKED = "kernel_check"
"""The entry of a checkpoint's numerics that says how its kernel proved itself; nothing that must be the same elsewhere."""


def identity_of(run: Run) -> str:
    """A digest of what decides the bits of a run: its configuration, data, initial weights and task."""
    return run.config.identity(f"{run.data.fingerprint} {digest(run.initial_model)} {run.worker_setup.task.name}")


def numerics_of(run: Run) -> dict[str, Any]:
    """What may change bits and is therefore fixed for the run, and how the kernel proved itself."""
    kernel = run.worker_setup.kernel
    facts = {"kernel": kernel.name, "threads": 1, "device": run.config.run.device, "torch": torch.__version__}
    return {**facts, CHECKED: kernel.checked or kernel.why}


def check_same_run(path: Path, theirs: str, ours: str) -> None:
    """Refuse a checkpoint that was made of other data or another configuration."""
    if theirs == ours:
        return
    recorded: dict[str, Any] = next((event for event in RunReader(path).read() if event["event"] == "started"), {})
    raise InputError(
        f"{path} cannot go on: its data or its configuration is not what it was when the checkpoint was made "
        f"(the data then had the fingerprint {str(recorded.get('fingerprint'))[:16]}...); restore them, or start a new run."
    )


def check_numerics(theirs: dict[str, Any], ours: dict[str, Any]) -> None:
    """Refuse to go on, or to compare, where bits may differ for a reason that is no fault of the run."""
    fixed = {key: value for key, value in ours.items() if key != CHECKED}
    odd = [f"{key} {theirs.get(key)} (now {value})" for key, value in fixed.items() if theirs.get(key) != value]
    if odd:
        raise InputError(
            f"the run was made with {', '.join(odd)}, so its bits could be others here; --other-numerics does it all the same."
        )
