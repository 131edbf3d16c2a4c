"""Figures of a deployment for Prometheus, read off the newest run's journal and event log whenever somebody asks.

Nothing is counted in memory, so the figures are right after any restart, of this process or of the run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from threading import Lock
from types import TracebackType
from typing import TYPE_CHECKING, Any

from fedgsp.core.errors import InputError
from fedgsp.core.imports import need
from fedgsp.deploy.status import status_from
from fedgsp.run.reader import RunReader

if TYPE_CHECKING:
    from fedgsp.deploy.layout import Deployment

STATES = ("running", "finished", "target", "interrupted", "failed", "stopped", "paused", "damaged")


class RunMetrics:
    """A collector of `prometheus_client`: every scrape reads what was added to the logs since the last."""

    def __init__(self, place: Deployment) -> None:
        self._core = need("prometheus_client.core", "metrics", "Prometheus metrics")
        self._place = place
        self._run: RunReader | None = None
        self._lock = Lock()

    def collect(self) -> Iterator[Any]:
        """The figures of the newest run; none before there is one."""
        newest = self._place.newest_run()
        if newest is None:
            return
        if self._run is None or self._run.path != newest:
            self._run = RunReader(newest)
        run = self._run
        with self._lock:  # scrapes may overlap
            run.read()
        last, counts = run.history[-1] if run.history else {}, run.events.kinds
        gauge, counter = self._core.GaugeMetricFamily, self._core.CounterMetricFamily
        status = status_from(run)
        labels, values = ["run", "method"], [newest.name, status.method]

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
            if name in last:
                yield one(gauge, f"last_{name}", f"The last finished round's {name.replace('_', ' ')}.", last[name])
        if last:
            spent = gauge("fedgsp_last_round_seconds", "Where the last round's time went.", labels=[*labels, "stage"])
            for stage in ("plan", "train", "evaluate", "aggregate"):
                spent.add_metric([*values, stage], last["timings"].get(stage, 0.0))
            yield spent
            text = "Where the seconds of the last round's hops went, added over all of them."
            hops = gauge("fedgsp_last_hop_seconds", text, labels=[*labels, "part"])
            for part in ("training", "transfer", "waiting"):
                hops.add_metric([*values, part], last["timings"].get(part, 0.0))
            yield hops
            yield one(gauge, "last_round_begun_timestamp_seconds", "When the last round began.", last["timings"].get("at", 0.0))
        yield one(counter, "hops", "Visits to clients that were answered.", counts["hop"])
        yield one(counter, "rounds_begun", "Attempts at a round, repeated ones included.", counts["round"])
        yield one(counter, "rounds_below_quorum", "Attempts at a round that did not count.", counts["below_quorum"])
        yield one(gauge, "sites", "Sites that were there when the last round was planned.", len(run.events.present))
        yield one(counter, "resumes", "How often the run was taken up again.", counts["resumed"])
        handed = counter("fedgsp_bytes", "Bytes of models handed to clients and on.", labels=[*labels, "direction"])
        for direction in ("down", "up"):
            handed.add_metric([*values, direction], run.events.bytes[direction])
        yield handed
        faults = counter("fedgsp_faults", "Clients left out or refused, by cause.", labels=[*labels, "kind", "cause"])
        by_cause: Counter[tuple[str, str]] = Counter()
        for (kind, _, cause), count in run.events.faults.items():
            by_cause[kind, _kind_of(cause)] += count
        for (kind, cause), count in sorted(by_cause.items()):
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


def _kind_of(cause: str) -> str:
    """The stable part of a cause: what stands before the first colon or bracket, so that labels stay few."""
    words = cause.split(":")[0].split("(")[0].split(";")[0].strip()
    return "".join(" " if letter.isdigit() else letter for letter in words)[:60].strip() or "unknown"
