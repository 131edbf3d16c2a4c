"""A federation withstands its worst member: every row of what one admitted site could do to a run.

Each goes through the real server and ClientApp over an in-process Grid. A replay recomputes a run from the honest samples, so
where it agrees nothing of what the hostile site sent is in the result.
"""

from __future__ import annotations

import itertools
import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, Message, RecordDict

import fedgsp
from fedgsp.client import SGD
from fedgsp.method import Method
from fedgsp.plan import ICG, Constant, Grouped
from tests.support import flower_grid, grid_deployments, hostile, tiny
from tests.support.flower_grid import Node
from tests.support.hostile import MEMORY_MB, check_withstood


def scaffold() -> Method:
    """All sites, one a chain, with control variates."""
    return replace(grid_deployments.method("scaffold"), planner=Grouped(Constant(4), ICG(), kappa=1.0))


def on(kind: str, change: hostile.Change, node: int = 103) -> flower_grid.Tamper:
    """One site lies in every message of a kind."""

    def tamper(at: Node, message: Message, content: RecordDict) -> RecordDict:
        lies = at.number == node and message.metadata.message_type == kind and "refused" not in hostile.facts_of(content)
        return change(content) if lies else content

    return tamper


def small(folder: Path, chosen: Any = None, clients: int = 4, **options: Any) -> grid_deployments.Deployment:
    return grid_deployments.deployment(folder, chosen or grid_deployments.chains(clients), clients=clients, **options)


class TestIntroductions:
    @pytest.mark.parametrize(
        ("change", "cause"),
        [
            (hostile.says(["train"], 10**9), "the number of its train samples is 1000000000"),
            (hostile.says(["classes"], 10**8), "the number of its classes is 100000000"),
            (hostile.says(["counts"], [1] * 40), "its histogram adds up to 40"),
            (hostile.says(["counts"], [10**6, 0, 0]), "its histogram adds up to 1,000,000"),
            (hostile.says(["number"], 999_999), "the number it asks for is 999999"),
        ],
    )
    def test_what_no_site_can_have_is_turned_away_with_its_reason(
        self, change: hostile.Change, cause: str, tmp_path: Path
    ) -> None:
        there = small(tmp_path, settings={"sites": 3}, rounds=1)
        there.grid.tamper, before = on("query.hello", change), hostile.peak_mb()
        result = there.serve()
        check_withstood(there, result)
        assert result.history[0]["present"] == 3
        assert any(cause in event["cause"] for event in there.events("turned_away"))
        assert hostile.peak_mb() - before < MEMORY_MB

    def test_a_billion_samples_take_no_memory_where_they_are_allowed(self, tmp_path: Path) -> None:
        there = small(tmp_path, settings={"most_samples": 10**10}, sites={"histogram": "off"}, rounds=2)

        def boasts(content: RecordDict) -> RecordDict:
            facts = {**hostile.facts_of(content), "train": 10**9, "test": 10**9, "validation": 10**9}
            return hostile.with_facts(content, facts)

        there.grid.tamper, before = on("query.hello", boasts), hostile.peak_mb()
        result = there.serve()
        check_withstood(there, result)
        assert hostile.peak_mb() - before < MEMORY_MB

    def test_one_site_does_not_say_what_all_samples_are_like(self, tmp_path: Path) -> None:
        there = small(tmp_path, settings={"sites": 3}, rounds=1)
        there.grid.tamper = on("query.hello", hostile.says(["shape"], [5]), node=100)
        result = there.serve()
        assert (result.status, result.history[0]["present"]) == ("finished", 3)
        assert "has samples of shape (5,)" in there.events("turned_away")[0]["cause"]

    def test_what_the_server_states_holds_against_a_majority(self, tmp_path: Path) -> None:
        there = small(tmp_path, settings={"sites": 4, "shape": (4,), "dtype": "float32", "classes": 3}, rounds=1)

        def tamper(at: Node, message: Message, content: RecordDict) -> RecordDict:
            lies = at.number != 100 and message.metadata.message_type == "query.hello"
            return hostile.says(["shape"], [5])(content) if lies else content

        there.grid.tamper = tamper
        with pytest.raises(fedgsp.RunFailed, match=r"1 of the 4 sites came.*has samples of shape \(5,\)"):
            there.serve(wait_seconds=5.0)

    def test_one_node_is_one_site_whatever_it_calls_itself(self, tmp_path: Path) -> None:
        """Else it would count once for every name."""
        there = small(tmp_path, settings={"sites": 4, "profile_every": 1}, rounds=3)
        names = itertools.count()

        def renamed(content: RecordDict) -> RecordDict:
            facts = {**hostile.facts_of(content), "number": None}
            number = next(names)
            return hostile.with_facts(content, {**facts, "name": f"another-{number}"} if number else facts)

        there.grid.tamper = on("query.hello", renamed)
        result = there.serve()
        assert result.status == "finished"
        assert all(entry["present"] <= 4 for entry in result.history)
        assert any("has another name on the same node" in event["cause"] for event in there.events("turned_away"))

    def test_what_no_site_trained_on_needs_no_samples_in_a_replay(self, tmp_path: Path) -> None:
        """A site that says it has new data, or a name that nobody knows, and then does not answer, ends no replay."""
        there = small(tmp_path, settings={"sites": 4, "profile_every": 1}, rounds=3)

        def tamper(at: Node, message: Message, content: RecordDict) -> RecordDict:
            if at.number != 103:
                return content
            if message.metadata.message_type != "query.hello":
                return RecordDict()
            version = f"version-{next(asked)}"
            return hostile.with_facts(content, {**hostile.facts_of(content), "version": version, "name": "nobody"})

        asked = itertools.count()
        there.grid.tamper = tamper
        check_withstood(there, there.serve())

    def test_who_comes_after_the_run_was_made_is_not_among_those_it_was_made_for(self, tmp_path: Path) -> None:
        """SCAFFOLD divides by the number of clients: that of the beginning, in a replay too."""
        there = small(tmp_path, scaffold(), settings={"sites": 3}, rounds=2)
        first = {"query.hello": iter([lambda content: RecordDict()])}
        there.grid.tamper = hostile.in_turn(first, [103], [])
        result = there.serve()
        assert result.history[0]["present"] == 4
        check_withstood(there, result, ())


class TestAnswers:
    @pytest.mark.parametrize("loss", [1.7e308, -1e7])
    def test_a_training_loss_that_cannot_be(self, loss: float, tmp_path: Path) -> None:
        there = small(tmp_path, rounds=2)
        there.grid.tamper = on("train", hostile.says(["metrics", "loss"], loss))
        result = there.serve()
        check_withstood(there, result)
        assert (
            "beyond the bound" in there.events("skipped")[0]["cause"] or "not a finite" in there.events("skipped")[0]["cause"]
        )

    @pytest.mark.parametrize(("name", "value"), [("loss", 1e308), ("accuracy", 1e9), ("accuracy", -1.0)])
    def test_scores_that_cannot_be(self, name: str, value: float, tmp_path: Path) -> None:
        there = small(tmp_path, rounds=2)
        there.grid.tamper = on("evaluate", hostile.says(["parts", "test", name], value))
        check_withstood(there, there.serve())
        assert [event["client"] for event in there.events("not_judged")] == [3, 3]

    def test_nobody_ends_a_run_by_saying_that_it_is_good_enough(self, tmp_path: Path) -> None:
        untrained = grid_deployments.chains(8, SGD(lr=1e-9, batch_size=3))
        there = small(tmp_path, untrained, clients=8, rounds=2, run={"target_accuracy": 1.0, "stop_at_target": True})
        there.grid.tamper = on("evaluate", hostile.says(["parts", "test", "accuracy"], 1e9))
        check_withstood(there, there.serve())

    def test_control_variates_are_guarded_as_the_model_is(self, tmp_path: Path) -> None:
        there = small(tmp_path, scaffold(), rounds=3)
        there.grid.tamper = on("train", _times("sent", 1000.0))
        check_withstood(there, there.serve())
        assert {"sent beside the model" in event["cause"] for event in there.events("skipped")} == {True}

    @pytest.mark.parametrize("count", [-(2**63), 2**40])
    def test_counters_that_no_step_can_have_moved(self, count: int, tmp_path: Path) -> None:
        there = small(tmp_path, model=tiny.NORMED, rounds=2)

        def change(content: RecordDict) -> RecordDict:
            held = hostile.opened(content["model"])
            for name, array in held.items():
                if array.dtype == "int64":
                    held[name] = Array("int64", array.shape, array.stype, np.array(count).tobytes())
            content["model"] = hostile.closed(held)
            return content

        there.grid.tamper = on("train", change)
        check_withstood(there, there.serve())
        assert "counters" in there.events("skipped")[0]["cause"]

    def test_long_names_of_tensors_do_not_fill_the_event_log(self, tmp_path: Path) -> None:
        there = small(tmp_path, rounds=1)

        def change(content: RecordDict) -> RecordDict:
            content["model"] = hostile.closed({"\n\x1b[2J" * 100_000: Array("float32", (1,), "", b"\0" * 4)})
            return content

        there.grid.tamper = on("train", change)
        check_withstood(there, there.serve())
        (event,) = there.events("skipped")
        assert "other tensors than expected" in event["cause"]
        assert len(event["cause"]) <= 300
        assert event["cause"].isprintable()


class TestHonest:
    """What a guard must not take for an attack."""

    def test_running_means_of_raw_features_and_masks_that_nobody_trains(self, tmp_path: Path) -> None:
        there = small(tmp_path, model=tiny.RAW, models=(tiny.RAW,), rounds=3)
        result = there.serve()
        check_withstood(there, result, ())
        assert [entry["state"] for entry in result.history] == [entry["state"] for entry in there.local().history]

    def test_a_mask_that_a_site_moves_is_refused(self, tmp_path: Path) -> None:
        there = small(tmp_path, model=tiny.RAW, models=(tiny.RAW,), rounds=1)

        def change(content: RecordDict) -> RecordDict:
            held = hostile.opened(content["model"])
            array = held["mask"]
            held["mask"] = Array(array.dtype, array.shape, array.stype, np.full(array.shape, np.nan, np.float32).tobytes())
            content["model"] = hostile.closed(held)
            return content

        there.grid.tamper = on("train", change)
        check_withstood(there, there.serve())
        assert "'mask' has values that are not finite" in there.events("skipped")[0]["cause"]

    def test_a_resumed_run_keeps_sites_with_fewer_classes(self, tmp_path: Path) -> None:
        there = small(tmp_path, clients=3, rounds=4)
        arrays = tiny.arrays(3)
        mine = (arrays["client_index"] == 2) & (arrays["labels"] < 2)
        path = tmp_path / "few.npz"
        np.savez(
            path, features=arrays["features"][mine], labels=arrays["labels"][mine] % 2, classes=np.array(2),
            client_index=np.zeros(int(mine.sum()), dtype=np.int64), clients=np.array(["site-02"]),
        )  # fmt: skip
        there.sites[2].write_text(there.sites[2].read_text().replace(f"npz:{there.source}", f"npz:{path}"))
        there.config = replace(there.config, run=replace(there.config.run, rounds=2))
        assert [entry["present"] for entry in there.serve().history] == [3, 3]
        there.config = replace(there.config, run=replace(there.config.run, rounds=4))
        again = there.serve(resume=True)
        assert [entry["clients"] for entry in again.history] == [3, 3, 3, 3]
        assert not there.events("turned_away")


def _times(record: str, factor: float) -> hostile.Change:
    """A record's real numbers, all times a factor."""

    def change(content: RecordDict) -> RecordDict:
        made = {}
        for name, array in hostile.opened(content[record]).items():
            values = np.frombuffer(array.data, dtype=array.dtype)
            scaled = (values * factor).astype(array.dtype) if array.dtype.startswith("float") else values
            made[name] = Array(array.dtype, array.shape, array.stype, scaled.tobytes())
        content[record] = hostile.closed(made)
        return content

    return change


def liar(samples: int, flipped: float | None) -> flower_grid.Tamper:
    """Site 3 announces so many samples, and sends its update the other way round, so many times as long."""

    def tamper(at: Node, message: Message, content: RecordDict) -> RecordDict:
        facts, kind = hostile.facts_of(content), message.metadata.message_type
        if at.number != 103 or "refused" in facts:
            return content
        if kind == "query.hello":
            counts = [samples] + [0] * (len(facts["counts"]) - 1)
            return hostile.with_facts(content, {**facts, "train": samples, "counts": counts})
        if kind != "train":
            return content
        if flipped is None:
            return RecordDict()
        handed = hostile.opened(message.content["model"])
        made = {}
        for name, array in hostile.opened(content["model"]).items():
            before, after = (np.frombuffer(one.data, dtype=one.dtype) for one in (handed[name], array))
            turned = (before - np.float32(flipped) * (after - before)).astype(array.dtype)
            made[name] = Array(array.dtype, array.shape, array.stype, turned.tobytes())
        content["model"] = hostile.closed(made)
        return hostile.with_facts(content, {**facts, "samples": samples, "steps": math.ceil(samples / 3)})

    return tamper


class TestInfluence:
    @pytest.mark.parametrize("groups", [8, 2])  # FedAvg's chains of one, and chains
    def test_announced_samples_buy_no_more_than_the_bound(self, groups: int, tmp_path: Path) -> None:
        there = grid_deployments.deployment(tmp_path, grid_deployments.chains(groups), rounds=6)
        there.grid.tamper = liar(2_000_000, flipped=1.0)
        result = there.serve()
        assert result.status == "finished"
        assert {event["client"] for event in there.events("skipped")} <= {3}, "nobody honest is locked out"
        sizes = sorted(member["train"] for member in there.events("sites")[0]["members"])
        assert result.history[0]["samples"] == sum(sizes[:-1]) + 5 * sizes[3]
        assert result.history[-1]["loss"] < 2.5  # of an untrained model it is about 1.5; it was 2,630 and worse

    def test_who_announces_millions_and_never_answers_does_not_hold_the_quorum_up(self, tmp_path: Path) -> None:
        there = grid_deployments.deployment(tmp_path, grid_deployments.chains(3), clients=4, rounds=3)
        there.grid.tamper = liar(2_000_000, flipped=None)
        result = there.serve()
        assert (result.status, result.rounds) == ("finished", 3)
        assert all("attempts" not in entry for entry in result.history)

    def test_a_large_honest_site_counts_for_the_bound_in_replays_and_after_a_resume_too(self, tmp_path: Path) -> None:
        there = small(tmp_path, settings={"weight_bound": 1.0}, rounds=4)
        there.serve(out=tmp_path / "whole")
        whole = (tmp_path / "whole" / "journal.jsonl").read_text()
        assert there.replay(tmp_path / "whole").differs is None
        first = there.events("sites", tmp_path / "whole")[0]["members"]
        sizes = sorted(member["train"] for member in first)
        counted = sum(min(size, sizes[1]) for size in sizes)
        assert [json.loads(line)["samples"] for line in whole.splitlines()] == [counted] * 4
        there.config = replace(there.config, run=replace(there.config.run, rounds=2))
        there.serve()
        there.config = replace(there.config, run=replace(there.config.run, rounds=4))
        again = there.serve(resume=True)
        assert again.history[-1]["state"] in whole.splitlines()[-1]
        with pytest.raises(fedgsp.InputError, match="begun with weight_bound = 1"):
            there.serve(resume=True, weight_bound=2.0)
