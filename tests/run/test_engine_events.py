"""What engines say, as lines of the event log."""

from fedgsp.core.chain import HopReport
from fedgsp.engine.messages import HopDone, HopSkipped, WorkerLost, WorkerSlow
from fedgsp.run.engine_events import event_line

REPORT = HopReport(4, 1, 30, 6, 0, 100, 200, 1.23456, {"loss": 0.5})


def test_a_hop() -> None:
    kind, facts = event_line(HopDone(2, 3, REPORT))
    assert (kind, facts["round"], facts["chain"], facts["client"]) == ("hop", 2, 3, 4)
    assert "waited" not in facts


def test_a_hop_over_a_network_says_how_long_it_was_waited_for() -> None:
    _, facts = event_line(HopDone(2, 3, REPORT, waited=2.34567))
    assert (facts["waited"], facts["trained"]) == (2.346, 1.235)


def test_a_skipped_hop() -> None:
    assert event_line(HopSkipped(2, 3, 1, 4, "late", 100, 0.98765)) == (
        "skipped",
        {"round": 2, "chain": 3, "hop": 1, "client": 4, "cause": "late", "bytes": 100, "seconds": 0.988},
    )


def test_a_slow_worker_may_be_at_no_chain() -> None:
    kind, facts = event_line(WorkerSlow(2, None, None, "its start", "0", 9.0, 1.0))
    assert kind == "slow"
    assert "chain" not in facts
    assert event_line(WorkerSlow(2, 5, 4, "client 4", "0", 9.0, 1.0))[1]["chain"] == 5


def test_a_lost_worker() -> None:
    assert event_line(WorkerLost(2, 3, None, "killed")) == (
        "lost",
        {"round": 2, "chain": 3, "client": None, "cause": "killed", "trace": None},
    )
