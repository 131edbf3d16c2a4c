"""How much computing a sample takes: counted by torch's formulas on the run's own model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from fedgsp.data.batches import gather

if TYPE_CHECKING:
    from fedgsp.run.run import Run


class FlopCounter(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Adds up the operations of each call. Torch's own `FlopCounterMode` imports its compiler, which takes seconds."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Else torch wraps what is below, and imports its compiler for that."""
        return False

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.total = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Call it, and count it if there is a formula for it."""
        found = func(*args, **(kwargs or {}))
        formula = flop_registry.get(func._overloadpacket)
        if formula is not None:
            self.total += formula(*args, **(kwargs or {}), out_val=found)
        return found


def flops_per_sample(run: Run) -> float:
    """Forward and backward of one sample, taken as three forwards (docs/methods-reference.md)."""
    job = run.worker_setup
    x, _ = gather(job.data, job.data.train[int(run.participants[0])][:1])
    with torch.random.fork_rng(devices=[]), torch.no_grad():  # in inference mode calls would not be taken apart
        model = job.fresh_model().eval()
        with FlopCounter() as counter:
            model(x)
    return 3.0 * float(counter.total)
