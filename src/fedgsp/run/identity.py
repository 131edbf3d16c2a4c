"""What a checkpoint must have been made of to belong to a run, and what must be the same for its bits to repeat."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from fedgsp.core.errors import InputError
from fedgsp.core.tables import flat
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


def decisive(run: Run) -> dict[str, Any]:
    """What `identity_of` is a digest of, entry by entry, for the event log: so that it can be said what was changed."""
    table = run.config.as_dict()
    held_out = run.config.run.holdout_clients
    told = {
        "run": {"seed": table["run"]["seed"], "device": table["run"]["device"], "holdout_clients": held_out},
        "model": table["model"],
        "method": {key: value for key, value in table["method"].items() if key != "name"},
    }
    facts = {"the data's fingerprint": run.data.fingerprint, "the task": run.worker_setup.task.name}
    plain: dict[str, Any] = json.loads(json.dumps({**flat(told), **facts, "the initial weights": digest(run.initial_model)}))
    return plain


def check_same_run(path: Path, theirs: str, run: Run) -> None:
    """Refuse a checkpoint that was made of other data or another configuration, and say which entry is another."""
    if theirs == identity_of(run):
        return
    recorded: dict[str, Any] = next((event for event in RunReader(path).read() if event["event"] == "started"), {})
    before, now = recorded.get("decides"), decisive(run)
    odd = [] if not isinstance(before, dict) else [k for k in dict.fromkeys([*now, *before]) if now.get(k) != before.get(k)]
    odd = [key for key in odd if key != "the initial weights"] or odd  # another model has other weights, too
    if not isinstance(before, dict) or not odd:
        changed = f"the data then had the fingerprint {str(recorded.get('fingerprint'))[:16]}..."
    else:
        changed = "; ".join(f"{key} is {_short(now.get(key))} and was {_short(before.get(key))}" for key in odd[:3])
        changed += f"; and {len(odd) - 3} more" if len(odd) > 3 else ""
    raise InputError(
        f"{path} cannot go on: its data or its configuration is not what it was when the checkpoint was made ({changed}); "
        f"restore them, or start a new run."
    )


def _short(value: Any) -> str:
    text = "not there" if value is None else str(value)
    return text if len(text) <= 40 else f"{text[:16]}..."


def check_numerics(theirs: dict[str, Any], ours: dict[str, Any]) -> None:
    """Refuse to go on, or to compare, where bits may differ for a reason that is no fault of the run."""
    fixed = {key: value for key, value in ours.items() if key != CHECKED}
    odd = [f"{key} {theirs.get(key)} (now {value})" for key, value in fixed.items() if theirs.get(key) != value]
    if odd:
        raise InputError(
            f"the run was made with {', '.join(odd)}, so its bits could be others here; `other_numerics=True` does it anyhow."
        )
