"""What a sample takes is counted as torch counts it, and without torch's compiler."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from fedgsp.run.flops import FlopCounter
from tests.support import tiny

MODELS: dict[str, tuple[nn.Module, tuple[int, ...]]] = {
    "linear": (nn.Linear(4, 3), (2, 5, 4)),
    "pictures": (nn.Sequential(nn.Conv2d(1, 3, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(27, 2)), (1, 1, 8, 8)),
    "grouped": (nn.Conv1d(4, 8, 3, groups=2, bias=False), (1, 4, 9)),
    "recurrent": (nn.GRU(4, 6), (5, 1, 4)),
    "attention": (nn.Sequential(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)), (1, 5, 8)),
}


@pytest.mark.parametrize("name", MODELS)
def test_as_torch_counts(name: str) -> None:
    model, shape = MODELS[name]
    x: Any = torch.zeros(shape)
    with torch.no_grad(), FlopCounter() as ours:
        model(x)
    with torch.inference_mode(), FlopCounterMode(display=False) as theirs:
        model(x)
    assert ours.total == theirs.get_total_flops()


PROBE = """
import sys, fedgsp
from tests.support import tiny
assert fedgsp.train(tiny.chains(), tiny.federation(), tiny.linear, rounds=1, workers=0).rounds == 1
assert not {"torch._dynamo", "sympy"} & sys.modules.keys()
"""


def test_a_run_does_not_wait_for_torchs_compiler() -> None:
    done = subprocess.run([sys.executable, "-c", PROBE], capture_output=True, text=True, check=False, env=tiny.environment())
    assert done.returncode == 0, done.stderr
