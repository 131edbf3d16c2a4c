"""How much computing a sample takes: counted by torch on the run's own model."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch.utils.flop_counter import FlopCounterMode

from fedgsp.data.batches import gather

if TYPE_CHECKING:
    from fedgsp.run.run import Run


def flops_per_sample(run: Run) -> float:
    """Forward and backward of one sample, taken as three forwards (docs/methods-reference.md)."""
    job = run.worker_setup
    x, _ = gather(job.data, job.data.train[int(run.participants[0])][:1])
    with torch.random.fork_rng(devices=[]), torch.inference_mode():
        model = job.fresh_model().eval()
        with FlopCounterMode(display=False) as counter:
            model(x)
    return 3.0 * float(counter.get_total_flops())
