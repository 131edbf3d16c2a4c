"""Golden digests: no bit moves by accident.

The final state of every named method, and of three combinations, after three rounds on a tiny federation. `digests.json` has
them by what decides bits on a machine (torch, processor, kernel). On a machine that is not in the file a few figures of each
final model are compared instead, to the rounding that another processor brings.

    python tests/golden/test_digests.py        writes the digests of this machine; a commit that moves one says so
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import fedgsp
from fedgsp.data import FederatedData
from fedgsp.data.build import from_arrays
from fedgsp.fast.build import _processor
from fedgsp.method import Method
from fedgsp.methods import METHODS
from fedgsp.prepare import FAugGAN
from fedgsp.run.result import RunResult

FILE = Path(__file__).with_name("digests.json")
NAMES = [*METHODS, "fedgsp+yogi", "fedgsp+prox+adam", "fedgsp+scaffold"]
UNLIKE = [
    "fedavg", "fedfusion", "ida", "fedadam", "scaffold", "moon", "astraea", "fedgsp", "fedseq-inter", "feddc", "fd", "cfl",
]  # fmt: skip
"""Methods that go through the engine in ways of their own."""
STORED: dict[str, Any] = json.loads(FILE.read_text()) if FILE.exists() else {"figures": {}, "machines": {}}


def federation() -> FederatedData:
    """Eight clients with 10 to 17 pictures of 8 x 8 pixels, skewed."""
    rng = np.random.default_rng(7)
    owner = np.repeat(np.arange(8), 10 + np.arange(8))
    labels = (rng.integers(0, 3, len(owner)) + owner) % 4
    pictures = rng.integers(0, 120, (len(owner), 8, 8))
    pictures[np.arange(len(owner)), labels * 2] += 120
    data = from_arrays(pictures.astype(np.uint8), labels, owner, [f"c{k}" for k in range(8)], classes=4, test_fraction=0.2)
    return replace(data, divisor=255.0)


def method(name: str) -> Method:
    """A named one, with enough clients to be itself; the GAN of `faug` is trained for one epoch."""
    found = fedgsp.named(name)
    local = replace(found.local, lr=0.05)
    prepared = replace(found.preparation, epochs=1) if isinstance(found.preparation, FAugGAN) else found.preparation
    return replace(found, local=local, preparation=prepared)


def run(name: str, fast: Any, **options: Any) -> RunResult:
    return fedgsp.train(method(name), federation(), "small_cnn", rounds=3, fast=fast, **{"workers": 0, **options})


def machine(fast: str, kernel: str) -> str:
    """What decides bits here: plain steps depend on torch and the processor, compiled ones on the kernel as well."""
    facts = [torch.__version__, hashlib.sha256(_processor().encode()).hexdigest()[:12], fast]
    return " ".join([*facts, kernel] if fast == "auto" else facts)


def figures(result: RunResult) -> list[float]:
    """A few numbers that tell one final model from another."""
    flat = torch.cat([t.double().flatten() for t in next(iter(result.state.models.values())).values()])
    return [float(f"{value:.4g}") for value in (flat.mean(), flat.abs().mean(), flat.norm(), flat[len(flat) // 2])]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("fast", ["auto", "off"])
def test_the_final_state_is_the_golden_one(name: str, fast: str) -> None:
    result = run(name, fast)
    golden = STORED["machines"].get(machine(fast, result.setup.job.kernel.name), {}).get(name)
    if golden is not None:
        assert result.state.digest() == golden, "a bit moved: if it was meant to, write the digests anew and say so"
    assert figures(result) == pytest.approx(STORED["figures"][name], rel=2e-2, abs=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_resume_and_a_replay_end_in_the_same_bits(name: str, tmp_path: Path) -> None:
    told: dict[str, Any] = {"data": federation(), "method": method(name), "workers": 0}
    fedgsp.train(method(name), federation(), "small_cnn", rounds=2, workers=0, out=tmp_path / "run")
    resumed = fedgsp.resume(tmp_path / "run", rounds=3, **told)
    assert resumed.state.digest() == run(name, "auto").state.digest()
    assert fedgsp.replay(tmp_path / "run", **told).differs is None


@pytest.mark.slow
@pytest.mark.parametrize("name", UNLIKE)
def test_two_processes_end_in_the_same_bits(name: str) -> None:
    assert run(name, "auto", workers=2).state.digest() == run(name, "auto").state.digest()


def write() -> None:
    """The digests of this machine, and figures for others."""
    for fast in ("off", "auto"):
        found: dict[str, str] = {}
        for name in NAMES:
            result = run(name, fast)
            found[name] = result.state.digest()
            STORED["figures"][name] = figures(result)
            key = machine(fast, result.setup.job.kernel.name if fast == "auto" else "")
            STORED["machines"].setdefault(key, {})[name] = found[name]
            print(fast, name, flush=True)
    FILE.write_text(json.dumps(STORED, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    write()
