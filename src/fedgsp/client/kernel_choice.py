"""Which kernel a run's steps are made by: the fastest that proves itself, or the one that the run was begun with."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from fedgsp.client.rules import SGD
from fedgsp.core.errors import InputError
from fedgsp.core.machine import one_math_thread
from fedgsp.core.native import NO_COMPILER
from fedgsp.data.batches import gather
from fedgsp.fast import PLAIN, Kernel, Mode, Obstacles, candidates
from fedgsp.models.task import Task, classification

if TYPE_CHECKING:
    from fedgsp.client.kernel_check import KernelCheck
    from fedgsp.data.federated import FederatedData


def choose(
    mode: Mode, check: KernelCheck, *, largest_batch: int, workers: int = 1, device: str = "cpu", recorded: str | None = None
) -> Kernel:  # fmt: skip
    """The kernel of a run, chosen once for all its processes.

    Args:
        mode: "auto" takes the fastest that proves itself, "on" refuses to go on without one, "off" takes none.
        check: What kernels are tried on.
        largest_batch: The most samples of one step that will occur.
        workers: How many processes will have buffers of their own.
        device: What the run trains on.
        recorded: The name of the kernel that the run was begun with, if it was: then that one and no other.

    Returns:
        The kernel; if it is plain, with the reason.

    Raises:
        InputError: With "on" where there is no fast path, and where a recorded kernel cannot be had here.
    """
    if recorded == PLAIN.name or (recorded is None and mode == "off"):
        return PLAIN
    example, _ = gather(check.data, check.data.train.rows[:2])
    known = obstacles(check.rule, check.task)
    reasons = []
    with one_math_thread():
        for kernel in candidates(check.model, example, known, largest_batch=largest_batch, workers=workers, device=device):
            if isinstance(kernel, str):
                reasons.append(kernel)
            elif recorded not in (None, kernel.name):
                reasons.append(f"here there is '{kernel.name}'")
            else:
                found = check.check(kernel)
                if found.why_not is None:
                    why = ", since ".join([kernel.why, *(one for one in reasons if one == NO_COMPILER)])
                    return replace(kernel, why=why, checked=found.said())
                reasons.append(found.why_not)
    why = ", and ".join(reasons)
    if recorded is not None:
        raise InputError(
            f"this run was made with the kernel '{recorded}', which cannot be had here: {why}; go on where it can, or with "
            f"other rounding (`other_numerics=True`)."
        )
    if mode == "on":
        raise InputError(f"`fast='on'`: there is no fast path for this run, because {why}; `fast='auto'` does without.")
    return Kernel(PLAIN.name, why)


def odd_labels(data: FederatedData) -> str | None:
    """Why a loss over classes cannot be had of these labels, or None."""
    if not data.classes or not len(data.train.rows):
        return None
    labels = np.asarray(data.labels[data.train.rows])
    if labels.ndim == 1 and (labels.min() < 0 or labels.max() >= data.classes):
        return f"there are training labels from {labels.min()} to {labels.max()}, and classes from 0 to {data.classes - 1}"
    return None


def obstacles(rule: SGD, task: Task) -> Obstacles:
    """What keeps the fast path from making this rule's steps.

    It knows w <- w - lr (grad + decay w + mu (w - reference) + drift), for the gradient of the loss and of a `loss_term`.
    """
    kind, level = type(rule), rule.looks_at()
    changed = [hook for hook in ("objective", "adjust", "optimizer") if getattr(kind, hook) is not getattr(SGD, hook)]
    if changed:
        return Obstacles(f"the local rule {kind.__name__} has a step of its own ('{changed[0]}')")
    if rule.momentum:
        return Obstacles("clients train with momentum")
    beyond = rule.beyond_plain()
    if beyond is not None:
        return Obstacles(beyond)
    lazy = "every step changes every weight" if rule.weight_decay or kind.gradient_term is not SGD.gradient_term else None
    return Obstacles(
        None,
        None if task.loss is classification().loss else f"the task '{task.name}' has another loss than cross-entropy",
        f"the local rule {kind.__name__} looks at the model's {level}" if level != "loss" else lazy,
        level == "features",
    )
