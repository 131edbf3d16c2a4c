"""Run directories written by hand, in the real formats: as many runs, clients and rounds as a page must bear, in no time."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save

from fedgsp.plan import Linear
from fedgsp.run.config import RunConfig

CLASSES = 10


def write_run(
    path: Path, *, clients: int = 10, rounds: int = 5, seed: int = 0, method: str = "fedgsp", names: list[str] | None = None,
    classes: int = CLASSES, kappa: float = 0.3, alpha: float = 0.5, toml: str | None = None, status: str | None = "finished",
) -> Path:  # fmt: skip
    """A run whose chains multiply, whose accuracy rises, and whose clients differ."""
    rng = np.random.default_rng([seed, clients])
    path.mkdir(parents=True)
    table = RunConfig().as_dict()
    table["run"].update({"rounds": rounds, "seed": seed})
    table["method"]["name"] = method
    (path / "config.toml").write_text(toml if toml is not None else _toml(table))
    counts = np.stack([rng.multinomial(40 + k % 30, rng.dirichlet(np.full(classes, 0.5))) for k in range(clients)]).astype(
        np.uint8
    )
    write_clients(path, counts)
    _lines(path / "plans.jsonl", [{"schema": 1, "clients": names or [f"client-{k}" for k in range(clients)]}])
    _lines(path / "events.jsonl", [{"event": "started", "at": 1.0, "fingerprint": "0" * 64, "versions": {"fedgsp": "0.1.0"}}])
    for name in ("journal", "scores"):
        _lines(path / f"{name}.jsonl", [])
    for r in range(1, rounds + 1):
        add_round(path, r, rng, clients, kappa=kappa, alpha=alpha)
    if status is not None:
        _lines(path / "events.jsonl", [{"event": status, "at": 2.0, "round": rounds, "cause": None}])
    return path


def write_clients(path: Path, counts: np.ndarray[Any, Any]) -> None:
    clients = len(counts)
    sizes = counts.sum(axis=1).astype(np.int64)
    arrays = {
        "counts": counts, "train": sizes, "validation": np.zeros(clients, np.int64), "test": np.maximum(1, sizes // 5),
        "trains": np.ones(clients, np.uint8), "held_out": np.zeros(clients, np.uint8),
    }  # fmt: skip
    facts = {
        "schema": 1, "classes": counts.shape[1], "score": "accuracy", "shape": [28, 28], "source": "glyphs", "parameters": 1000,
        "flops_per_sample": 1e6, "fingerprint": "0" * 64,
    }  # fmt: skip
    (path / "clients.safetensors").write_bytes(save(arrays, {"fedgsp": json.dumps(facts)}))


def add_round(
    path: Path, r: int, rng: np.random.Generator, clients: int, kappa: float = 0.3, alpha: float = 0.5, history: bool = True
) -> None:  # fmt: skip
    """One more round in every log; without `journal` only its events, as while it is under way."""
    groups = Linear(alpha=alpha, beta=2).groups(r, clients)
    order = rng.permutation(clients)
    chains = [order[k::groups].tolist() for k in range(max(1, int(kappa * groups)))]
    hops = [
        {"event": "hop", "round": r, "chain": c, "hop": h, "client": client, "samples": 40, "down": 4000, "up": 4000}
        for c, chain in enumerate(chains)
        for h, client in enumerate(chain)
    ]
    _lines(path / "events.jsonl", [{"event": "round", "round": r, "chains": len(chains)}, *hops])
    if not history:
        return
    trained = len(hops)
    accuracy = float(0.9 - 0.8 / np.sqrt(r + 1) + rng.normal() * 0.01)
    before = [json.loads(line) for line in (path / "journal.jsonl").read_text().splitlines()[-1:]]
    total = {name: before[0][name] if before else 0 for name in ("serial_steps_total", "bytes_total")}
    steps = 8 * max(len(chain) for chain in chains)
    shifts = {"0": -0.5, "0.1": -0.2, "0.25": -0.1, "0.5": 0.0, "0.75": 0.1, "0.9": 0.15, "1": 0.2}
    spread = {q: min(1.0, max(0.0, accuracy + shift)) for q, shift in shifts.items()}
    loss = float(3.0 / np.sqrt(r))
    entry = {
        "round": r, "groups": groups, "chains": len(chains), "clients": trained, "left_out": 0, "samples": 40 * trained,
        "steps": 8 * trained, "serial_steps": steps, "serial_steps_total": total["serial_steps_total"] + steps,
        "bytes": 8000 * trained, "bytes_total": total["bytes_total"] + 8000 * trained, "train_loss": 2.0 / r,
        "accuracy": accuracy, "accuracy_plain": accuracy, "loss": loss, "loss_plain": loss,
        "quantiles": {"accuracy": spread, "loss": spread}, "test_clients": clients, "test_samples": 10 * clients,
        "state": "0" * 64, "timings": {"at": float(r), "plan": 0.01, "train": 0.5, "evaluate": 0.1},
    }  # fmt: skip
    _lines(path / "journal.jsonl", [entry])
    _lines(path / "plans.jsonl", [{"round": r, "groups": groups, "left_out": 0, "chains": [{"clients": c} for c in chains]}])
    values = np.clip(accuracy + rng.normal(size=clients) * 0.1, 0, 1).round(4).tolist()
    _lines(path / "scores.jsonl", [{"round": r, "values": values}])


def _toml(table: dict[str, Any]) -> str:
    import tomli_w

    return tomli_w.dumps(table)


def _lines(path: Path, records: list[dict[str, Any]]) -> None:
    with path.open("a") as file:
        file.writelines(json.dumps(record, separators=(",", ":")) + "\n" for record in records)
