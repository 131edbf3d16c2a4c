"""The golden runs: every named method and three combinations, three rounds on a tiny federation; where their digests are."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch

import fedgsp
from fedgsp.core.native import processor
from fedgsp.data import FederatedData
from fedgsp.data.arrays import from_arrays
from fedgsp.method import Method
from fedgsp.methods import METHODS
from fedgsp.prepare import FAugGAN
from fedgsp.run.result import RunResult

FILE = Path(__file__).parents[1] / "golden" / "digests.json"
NAMES = [*METHODS, "fedgsp+yogi", "fedgsp+prox+adam", "fedgsp+scaffold", "fedadam+warm", "fedyogi+warm+averaged"]
MODEL, ROUNDS = "small_cnn", 3
CLIENTS = [f"c{k}" for k in range(8)]
STORED: dict[str, Any] = json.loads(FILE.read_text()) if FILE.exists() else {"figures": {}, "machines": {}}


@cache
def federation() -> FederatedData:
    """Eight clients with 10 to 17 pictures of 8 x 8 pixels, skewed."""
    rng = np.random.default_rng(7)
    owner = np.repeat(np.arange(8), 10 + np.arange(8))
    labels = (rng.integers(0, 3, len(owner)) + owner) % 4
    pictures = rng.integers(0, 120, (len(owner), 8, 8))
    pictures[np.arange(len(owner)), labels * 2] += 120
    data = from_arrays(pictures.astype(np.uint8), labels, owner, CLIENTS, classes=4, test_fraction=0.2)
    return replace(data, divisor=255.0)


def method(name: str) -> Method:
    """A named one, with enough clients to be itself; the GAN of `faug` is trained for one epoch."""
    found = fedgsp.named(name)
    local = replace(found.local, lr=0.05)
    prepared = replace(found.preparation, epochs=1) if isinstance(found.preparation, FAugGAN) else found.preparation
    return replace(found, local=local, preparation=prepared)


def run(name: str, **options: Any) -> RunResult:
    """Three rounds in this process, or where `options` say."""
    return fedgsp.train(method(name), federation(), MODEL, rounds=ROUNDS, **{"workers": 0, **options})


@cache
def digest(name: str) -> str:
    """The final state of a run in this process: what all engines and all resumed runs must end in."""
    return run(name).state.digest()


def machine(fast: str, kernel: str) -> str:
    """What decides bits here: plain steps depend on torch and the processor, compiled ones on the kernel as well."""
    facts = [torch.__version__, hashlib.sha256(processor().encode()).hexdigest()[:12], fast]
    return " ".join([*facts, kernel] if fast == "auto" else facts)


def figures(result: RunResult) -> list[float]:
    """A few numbers that tell one final model from another."""
    flat = torch.cat([t.double().flatten() for t in next(iter(result.state.models.values())).values()])
    return [float(f"{value:.4g}") for value in (flat.mean(), flat.abs().mean(), flat.norm(), flat[len(flat) // 2])]


def write() -> None:
    """The digests of this machine, and figures for others."""
    for fast in ("off", "auto"):
        for name in NAMES:
            result = run(name, fast=fast)
            STORED["figures"][name] = figures(result)
            key = machine(fast, result.run.worker_setup.kernel.name if fast == "auto" else "")
            STORED["machines"].setdefault(key, {})[name] = result.state.digest()
            print(fast, name, flush=True)
    FILE.write_text(json.dumps(STORED, indent=1, sort_keys=True) + "\n")
