"""One run as a report sees it: what its directory says, read on as it grows. It writes nothing there and runs no code of it."""

from __future__ import annotations

import hashlib
import json
import secrets
import shlex
import tomllib
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedgsp.core.errors import InputError
from fedgsp.report.happenings import Happenings, held
from fedgsp.report.tail import LineTail
from fedgsp.run.clients import ClientFacts, read_client_facts
from fedgsp.run.metrics import WIDEST, evaluations, final, final_rounds


class RunView:
    """A run directory's content. `read` takes in what is new; `epoch` changes when what was told before is void."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.id = hashlib.sha256(str(path.resolve()).encode()).hexdigest()[:10]
        self.epoch = secrets.token_hex(4)
        self.facts: ClientFacts | None = None
        self._load()

    def _load(self) -> None:
        """(Re)begin from the configuration."""
        try:
            self.config_text = (self.path / "config.toml").read_text(encoding="utf-8", errors="replace")
            self.config: dict[str, Any] = tomllib.loads(self.config_text)
        except (OSError, tomllib.TOMLDecodeError) as error:
            raise InputError(f"{self.path / 'config.toml'} cannot be read: {error}.") from error
        self.facts = read_client_facts(self.path)
        self.entries: list[dict[str, Any]] = []
        self.plans: list[dict[str, Any]] = []
        self.scores: dict[int, list[float | None]] = {}
        self.names: list[str] = []
        self._tails = {name: LineTail(self.path / f"{name}.jsonl") for name in ("journal", "plans", "scores")}
        self.happened = Happenings(self.path, self.facts.flops_per_sample if self.facts else None, self.epochs)

    def read(self) -> None:
        """Take in what is new."""
        if not self._read_logs():
            return
        self.epoch = secrets.token_hex(4)  # cut back, or another run in the same place: begin again
        self._load()
        self._read_logs()

    def _read_logs(self) -> bool:
        if self.facts is None:
            self.facts = read_client_facts(self.path)
        fresh = {name: tail.read() for name, tail in self._tails.items()}
        if self.happened.read() or any(void for void, _ in fresh.values()):
            return True
        for plan in fresh["plans"][1]:
            if "clients" in plan:
                self.names = [str(name) for name in plan["clients"]]
            elif "round" in plan and "chains" in plan:
                self.plans.append(plan)
        self.entries += [entry for entry in fresh["journal"][1] if isinstance(entry.get("round"), int)]
        self.scores.update({line["round"]: line["values"] for line in fresh["scores"][1] if "values" in line})
        for round_ in sorted(self.scores)[:-WIDEST]:
            del self.scores[round_]  # only the last ones are shown
        return False

    @property
    def method(self) -> str:
        """The method's name."""
        return str(self._entry("method", "name", default="unnamed"))

    @property
    def seed(self) -> int:
        """The run's seed."""
        return self._whole("run", "seed", default=0)

    @property
    def rounds_planned(self) -> int:
        """How many rounds the run was told to train."""
        return self._whole("run", "rounds", default=0)

    @property
    def epochs(self) -> int:
        """Local epochs."""
        return self._whole("method", "local", "epochs", default=1)

    @property
    def model(self) -> str:
        """The model's name."""
        return str(self._entry("model", "name", default="a model"))

    @property
    def judged_on(self) -> str:
        """The part that figures are about."""
        return str(self._entry("run", "evaluate_on", default="test"))

    @property
    def score(self) -> str | None:
        """The metric that runs are judged by; None: the loss."""
        if self.facts is not None:
            return self.facts.score
        return "accuracy" if any("accuracy" in entry for entry in self.entries) else None

    def _entry(self, *path: str, default: Any) -> Any:
        at: Any = self.config
        for name in path:
            at = at.get(name) if isinstance(at, dict) else None
        return default if at is None else at

    def _whole(self, *path: str, default: int) -> int:
        """A whole number; a configuration of somebody else's may say anything."""
        found = self._entry(*path, default=default)
        return found if isinstance(found, int) else default

    @property
    def result(self) -> dict[str, Any]:
        """result.json, or nothing while there is none."""
        with suppress(OSError, ValueError):
            found = json.loads((self.path / "result.json").read_text())
            if isinstance(found, dict):
                return found
        return {}

    @property
    def status(self) -> str:
        """running, finished, target, paused, interrupted, failed, or stopped: killed without a word, so that resume goes on."""
        if held(self.path):
            return "running"
        last = self.happened.last
        return "stopped" if last in ("started", "resumed", "") else last

    @property
    def evaluated(self) -> list[dict[str, Any]]:
        """The journal lines of rounds that were evaluated."""
        return [entry for entry in self.entries if evaluations([entry])]

    def final(self, name: str) -> float | None:
        """The run's final figure; None while there is none."""
        return final(self.entries, name) if evaluations(self.entries, name) else None

    def client_scores(self) -> NDArray[np.float64] | None:
        """(K,) each client's mean over the evaluations of the final figure, NaN where it was not judged in them."""
        rounds = [r for r in final_rounds(self.entries) if r in self.scores] or sorted(self.scores)[-1:]
        rows = [[np.nan if v is None else float(v) for v in self.scores[r]] for r in rounds]
        rows = [row for row in rows if rows and len(row) == len(rows[-1])]
        if not rows:
            return None
        table = np.array(rows)
        seen = (~np.isnan(table)).sum(axis=0)
        return np.where(seen > 0, np.nansum(table, axis=0) / np.maximum(seen, 1), np.nan)

    @property
    def command(self) -> str:
        """What repeats the run."""
        return f"fedgsp run {shlex.quote(str(self.path / 'config.toml'))}"
