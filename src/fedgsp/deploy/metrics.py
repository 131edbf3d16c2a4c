"""Figures of a deployment for Prometheus, read off the newest run's journal and event log whenever somebody asks.

Nothing is counted in memory, so the figures are right after any restart, of this process or of the run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

from fedgsp.core.errors import InputError
from fedgsp.data.extras import need
from fedgsp.deploy.layout import Deployment
from fedgsp.deploy.status import FAULTS, run_status
from fedgsp.report.tail import LineTail

STATES = ("running", "finished", "target", "interrupted", "failed", "stopped", "paused")


class RunMetrics:
    """A collector of `prometheus_client`: every scrape reads what was added to the logs since the last."""

    def __init__(self, place: Deployment) -> None:
        self._core = need("prometheus_client.core", "metrics", "Prometheus metrics")
        self._place = place
        self._run: Path | None = None
        self._tails: dict[str, LineTail] = {}
        self._forget(None)

    def _forget(self, run: Path | None) -> None:
        self._run = run
        self._tails = {} if run is None else {name: LineTail(run / f"{name}.jsonl") for name in ("journal", "events")}
        self._last: dict[str, Any] = {}
        self._hops = self._resumes = self._rounds_begun = self._below_quorum = 0
        self._sites: set[int] = set()
        self._bytes: Counter[str] = Counter()
        self._faults: Counter[tuple[str, str]] = Counter()

    def _read(self) -> None:
        run = self._place.newest_run()
        if run != self._run:
            self._forget(run)
        if run is None:
            return
        fresh = {name: tail.read() for name, tail in self._tails.items()}
        if any(void for void, _ in fresh.values()):
            self._forget(run)
            fresh = {name: tail.read() for name, tail in self._tails.items()}
        for entry in fresh["journal"][1]:
            self._last = entry
        for event in fresh["events"][1]:
            self._take(event)

    def _take(self, event: dict[str, Any]) -> None:
        kind = str(event.get("event"))
        self._hops += kind == "hop"
        self._resumes += kind == "resumed"
        self._rounds_begun += kind == "round"
        if kind == "hop":
            self._bytes["down"] += int(event.get("down", 0))
            self._bytes["up"] += int(event.get("up", 0))
        self._below_quorum += kind == "below_quorum"
        if kind == "sites":
            self._sites |= {int(member["number"]) for member in event.get("members", [])}
            self._sites -= {int(number) for number in event.get("left", [])}
        if kind in FAULTS:
            self._faults[kind, _kind_of(event.get("cause"))] += 1

    def collect(self) -> Iterator[Any]:
        """The figures of the newest run; none before there is one."""
        self._read()
        if self._run is None:
            return
        gauge, counter = self._core.GaugeMetricFamily, self._core.CounterMetricFamily
        status = run_status(self._run)
        labels, values = ["run", "method"], [self._run.name, status.method]

        def one(family: Any, name: str, text: str, value: float) -> Any:
            made = family(f"fedgsp_{name}", text, labels=labels)
            made.add_metric(values, value)
            return made

        state = gauge("fedgsp_run_status", "How the newest run stands: 1 for the state it is in.", labels=[*labels, "status"])
        for name in STATES:
            state.add_metric([*values, name], float(status.status == name))
        yield state
        yield one(gauge, "round", "Rounds that are finished.", status.round)
        yield one(gauge, "rounds_planned", "Rounds that the run is to have.", status.rounds)
        for name in ("train_loss", "loss", "accuracy", "groups", "chains", "clients", "left_out", "samples"):
            if isinstance(self._last.get(name), (int, float)):
                yield one(gauge, f"last_{name}", f"The last finished round's {name.replace('_', ' ')}.", self._last[name])
        if "timings" in self._last:
            spent = gauge("fedgsp_last_round_seconds", "Where the last round's time went.", labels=[*labels, "stage"])
            for stage in ("plan", "train", "evaluate", "aggregate"):
                spent.add_metric([*values, stage], float(self._last["timings"].get(stage, 0.0)))
            yield spent
            yield one(gauge, "last_round_begun_timestamp_seconds", "When the last round began.", self._last["timings"]["at"])
        yield one(counter, "hops", "Visits to clients that were answered.", self._hops)
        yield one(counter, "rounds_begun", "Attempts at a round, repeated ones included.", self._rounds_begun)
        yield one(counter, "rounds_below_quorum", "Attempts at a round that did not count.", self._below_quorum)
        yield one(gauge, "sites", "Sites that were there when the last round was planned.", len(self._sites))
        yield one(counter, "resumes", "How often the run was taken up again.", self._resumes)
        handed = counter("fedgsp_bytes", "Bytes of models handed to clients and on.", labels=[*labels, "direction"])
        for direction in ("down", "up"):
            handed.add_metric([*values, direction], self._bytes[direction])
        yield handed
        faults = counter("fedgsp_faults", "Clients left out or refused, by cause.", labels=[*labels, "kind", "cause"])
        for (kind, cause), count in sorted(self._faults.items()):
            faults.add_metric([*values, kind, cause], count)
        yield faults


class MetricsServer:
    """Serves /metrics on an address until it is left."""

    def __init__(self, place: Deployment, host: str, port: int) -> None:
        client = need("prometheus_client", "metrics", "Prometheus metrics")
        registry = client.CollectorRegistry()
        registry.register(RunMetrics(place))
        try:
            self._server, self._thread = client.start_http_server(port, addr=host, registry=registry)
        except OSError as error:
            raise InputError(f"cannot serve metrics on {host}:{port}: {error.strerror}.") from error
        self.url = f"http://{host}:{self._server.server_address[1]}/metrics"

    def __enter__(self) -> MetricsServer:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def _kind_of(cause: object) -> str:
    """The stable part of a cause: what stands before the first colon or bracket, so that labels stay few."""
    words = str(cause or "unknown").split(":")[0].split("(")[0].split(";")[0].strip()
    return "".join(" " if letter.isdigit() else letter for letter in words)[:60].strip() or "unknown"
