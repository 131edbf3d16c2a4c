"""What an engine says while it works, as lines of the event log."""

from __future__ import annotations

from typing import Any

from fedgsp.engine.messages import EngineEvent, HopDone, HopSkipped, WorkerSlow


def event_line(event: EngineEvent) -> tuple[str, dict[str, Any]]:
    """(the kind of event, its facts)."""
    if isinstance(event, HopDone):
        report = event.report
        facts: dict[str, Any] = {
            "round": event.round, "chain": event.chain, "client": report.client, "hop": report.hop,
            "samples": report.samples, "down": report.bytes_down, "up": report.bytes_up,
        }  # fmt: skip
        if event.waited is not None:
            facts |= {"waited": round(event.waited, 3), "trained": round(report.seconds, 3)}
        if event.moving is not None:
            facts["moving"] = round(event.moving, 3)
        if event.lengths:
            facts["lengths"] = dict(event.lengths)
        return "hop", facts
    if isinstance(event, HopSkipped):
        return "skipped", {
            "round": event.round, "chain": event.chain, "hop": event.hop, "client": event.client, "cause": event.cause,
            "bytes": event.lost_bytes, "seconds": round(event.seconds, 3),
        }  # fmt: skip
    if isinstance(event, WorkerSlow):
        chain = {} if event.chain is None else {"chain": event.chain}
        return "slow", {
            "round": event.round, "client": event.client, "worker": event.worker, "cause": str(event),
            "seconds": round(event.seconds, 3), **chain,
        }  # fmt: skip
    return "lost", {
        "round": event.round, "chain": event.chain, "client": event.client, "cause": event.cause, "trace": event.trace
    }  # fmt: skip
