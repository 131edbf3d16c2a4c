"""How much computing a sample takes: counted by torch on the run's own model."""

from __future__ import annotations

import torch
from torch.utils.flop_counter import FlopCounterMode

from fedgsp.data.batches import gather
from fedgsp.run.setup import Setup


def flops_per_sample(setup: Setup) -> float:
    """Forward and backward of one sample, taken as three forwards (SPECS 12.4: within two percent for LEAF's CNN)."""
    job = setup.job
    x, _ = gather(job.data, job.data.train[int(setup.roster[0])][:1])
    with torch.random.fork_rng(devices=[]), torch.inference_mode():
        model = job.fresh_model().eval()
        with FlopCounterMode(display=False) as counter:
            model(x)
    return 3.0 * float(counter.get_total_flops())
