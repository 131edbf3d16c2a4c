"""Only what is trained travels; the frozen rest is known by its digest, and sent once to a site that has another one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from flwr.app import ArrayRecord

from fedgsp.core.tensors import digest
from fedgsp.engine.transports.flower import client_app
from fedgsp.engine.transports.flower.base_model import MOST_BASES, take_base
from fedgsp.engine.transports.flower.records import FLAT, SQUEEZED, pack, payload
from fedgsp.engine.transports.flower.wire import Refused
from fedgsp.models.state import frozen_tensors
from tests.support import flower_grid, grid_deployments, tiny

ADAPTER_BYTES = 4 * (32 * 2 + 2)  # four clients have two classes


def adapted(folder: Path, **changes: Any) -> grid_deployments.Deployment:
    return grid_deployments.deployment(
        folder, grid_deployments.chains(2), clients=4, rounds=2, model=tiny.ADAPTED, models=[tiny.ADAPTED], **changes
    )


def sent(there: grid_deployments.Deployment, name: str) -> list[ArrayRecord]:
    found = [message.content.get(name) for message in there.grid.sent]
    return [record for record in found if isinstance(record, ArrayRecord)]


def states(history: list[dict[str, Any]]) -> list[str]:
    return [entry["state"] for entry in history]


def test_an_adapter_travels_and_is_charged_as_its_own_bytes(tmp_path: Path) -> None:
    there = adapted(tmp_path)
    result, local = there.serve(), there.local()
    assert states(result.history) == states(local.history)
    assert [entry["bytes"] for entry in result.history] == [entry["bytes"] for entry in local.history]
    assert {payload(record) for record in sent(there, "model")} == {ADAPTER_BYTES}
    assert not sent(there, "base")
    assert local.history[0]["bytes"] == 4 * 2 * ADAPTER_BYTES  # four clients, down and up


def test_sites_with_another_base_are_sent_the_runs_once_and_train_the_same_bits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    there, honest = adapted(tmp_path), client_app.app

    def elsewhere(*arguments: Any) -> Any:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(tiny._Adapted, "shift", 1.0)
            return honest(*arguments)

    monkeypatch.setattr(flower_grid, "app", elsewhere)
    result = there.serve()
    assert states(result.history) == states(there.local().history)
    assert len(sent(there, "base")) == 4  # once a site
    assert not there.events("skipped")
    kept = list(there.sites[0].parent.rglob("base-*.safetensors"))
    assert len(kept) == 1
    assert there.replay().differs is None


def test_a_site_that_never_has_enough_is_skipped_and_not_sent_it_for_ever(tmp_path: Path) -> None:
    def greedy(node: Any, message: Any, content: Any) -> Any:
        if node.number != min(there.grid.nodes) or message.metadata.message_type == "query.hello":
            return content
        from fedgsp.engine.transports.flower.records import say

        return say({"refused": "I lack it", "for_good": False, "wants": "base"})

    there = adapted(tmp_path)
    there.grid.tamper = greedy
    assert there.serve(quorum=0.1).status == "finished"
    assert 1 <= len(sent(there, "base")) <= MOST_BASES
    assert {event["cause"] for event in there.events("skipped")} <= {"it says it lacks what it was sent", "I lack it"}


def test_a_base_is_taken_only_if_it_is_the_one_that_was_named(tmp_path: Path) -> None:
    ours, theirs = tiny.adapted(), tiny.adapted()
    wanted = digest(frozen_tensors(ours))
    with pytest.raises(Refused, match="others than the run's") as found:
        take_base(theirs, wanted, tmp_path, ArrayRecord())
    assert found.value.wants == "base"
    lie = {name: tensor + 1 for name, tensor in frozen_tensors(ours).items()}
    with pytest.raises(Refused, match="not those that the run names"):
        take_base(theirs, wanted, tmp_path, pack(lie))
    with pytest.raises(Refused, match="not what the run's has frozen"):
        take_base(tiny.linear(), wanted, tmp_path, ArrayRecord())
    with pytest.raises(Refused, match="not what the run's has frozen"):
        take_base(theirs, "", tmp_path, ArrayRecord())
    assert not list(tmp_path.iterdir())
    take_base(theirs, wanted, tmp_path, pack(frozen_tensors(ours)))
    assert digest(frozen_tensors(theirs)) == wanted
    other = tiny.adapted()
    take_base(other, wanted, tmp_path, ArrayRecord())  # from its own disk now
    assert digest(frozen_tensors(other)) == wanted
    [file] = tmp_path.iterdir()
    file.write_bytes(b"damaged")
    with pytest.raises(Refused, match="others than the run's"):
        take_base(tiny.adapted(), wanted, tmp_path, ArrayRecord())


@pytest.mark.parametrize("wire", ["float32", "bfloat16"])
def test_squeezed_answers_have_the_same_bits_and_fewer_bytes(tmp_path: Path, wire: str) -> None:
    def changes(node: Any, message: Any, content: Any) -> Any:
        if isinstance(record := content.get("model"), ArrayRecord):
            kinds.append((record[FLAT].stype, len(record[FLAT].data)))
        return content

    kinds: list[tuple[str, int]] = []
    (tmp_path / "plain").mkdir()
    (tmp_path / "squeezed").mkdir()
    plain, there = adapted(tmp_path / "plain"), adapted(tmp_path / "squeezed")
    there.grid.tamper = changes
    result = there.serve(squeeze=True, wire=wire)
    assert states(result.history) == states(plain.serve(wire=wire).history)
    assert {kind for kind, _ in kinds} == {SQUEEZED}
    assert there.replay().differs is None


def test_a_silent_node_is_skipped_within_ten_seconds_and_left_alone_until_its_heart_beats(tmp_path: Path) -> None:
    there = grid_deployments.deployment(tmp_path, grid_deployments.chains(1), clients=4, rounds=4)
    victim = sorted(there.grid.nodes)[2]
    taken: list[float] = []

    def fault(node: Any, message: Any) -> Any:
        if node.number == victim and message.metadata.message_type == "train" and not taken:
            taken.append(there.grid.time)
            return "silent"
        if node.number == victim and node.heart_stopped is not None:
            raise AssertionError("nobody asks a node that is silent")
        return "ok"

    there.grid.fault = fault
    assert there.serve(wait_seconds=100.0).status == "finished"
    [skipped] = there.events("skipped")
    assert "its heartbeat has stopped" in skipped["cause"]
    assert 7 <= skipped["seconds"] < 10
    assert there.replay().differs is None


def test_what_a_message_leaves_is_not_used_after_something_went_wrong(tmp_path: Path) -> None:
    """A site's process keeps model and samples between messages; bits are those of fresh ones."""
    there = grid_deployments.deployment(tmp_path, "scaffold", clients=2, rounds=3, settings={"quorum": 0.1})
    faults: Iterator[flower_grid.Fault] = iter(["ok", "ok", "ok", "nan", "ok"])
    there.grid.fault = lambda node, message: next(faults, "ok") if message.metadata.message_type == "train" else "ok"
    assert there.serve().status == "finished"
    assert there.replay().differs is None
