"""Sites come, go, change their data and keep to themselves what they want; plans follow, and the log knows."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest
from flwr.app import Message

import fedgsp
from fedgsp.core.errors import InputError, RunFailed
from fedgsp.deploy.server_app import main
from fedgsp.deploy.site_log import SiteLog
from tests.support import flower_grid, grid_deployments, tiny
from tests.support.flower_grid import Fault, Node


def plans(there: grid_deployments.Deployment) -> list[list[list[int]]]:
    lines = (there.run / "plans.jsonl").read_text().splitlines()[1:]
    return [[chain["clients"] for chain in json.loads(line)["chains"]] for line in lines]


def at_round(there: grid_deployments.Deployment, round_: int, do: object) -> flower_grid.Chooser:
    """Do something once when the first model of a round is evaluated."""
    done: list[int] = []

    def choose(node: Node, message: Message) -> Fault:
        kind, group = message.metadata.message_type, message.metadata.group_id
        if kind == "evaluate" and group == str(round_) and not done:
            done.append(1)
            do()  # type: ignore[operator]
        return "ok"

    return choose


def test_a_site_that_joins_takes_part_from_the_next_round(tmp_path: Path) -> None:
    there = grid_deployments.deployment(tmp_path, grid_deployments.chains(2), settings={"sites": 6})
    for number in (106, 107):
        there.grid.nodes[number].up = False

    def join() -> None:
        for number in (106, 107):
            there.grid.nodes[number].up = True

    there.grid.fault = at_round(there, 1, join)
    result = there.serve()
    assert [entry["present"] for entry in result.history] == [6, 8, 8]
    trained = [{client for chain in chains for client in chain} for chains in plans(there)]
    assert trained == [set(range(6)), set(range(8)), set(range(8))]
    assert there.replay().differs is None
    assert len(json.loads((there.run / "scores.jsonl").read_text().splitlines()[-1])["values"]) == 8
    assert "fedgsp" in fedgsp.make_report(there.run, out=tmp_path / "report.html").read_text()


def test_a_site_that_leaves_is_planned_for_no_more_and_keeps_its_number(tmp_path: Path) -> None:
    there = grid_deployments.deployment(tmp_path, "scaffold", rounds=4, sites={"numbered": False})
    node = there.grid.nodes[102]
    first = at_round(there, 1, lambda: setattr(node, "up", False))
    back = at_round(there, 2, lambda: setattr(node, "up", True))

    def choose(at: Node, message: Message) -> Fault:
        first(at, message)
        return back(at, message)

    there.grid.fault = choose
    result = there.serve()
    assert [entry["present"] for entry in result.history] == [8, 7, 8, 8]
    events = there.events("sites")
    assert [event["left"] for event in events] == [[], [2], []]
    assert [member["number"] for member in events[2]["members"]] == [2]
    assert there.replay().differs is None


def test_sites_without_numbers_are_numbered_by_their_names(tmp_path: Path) -> None:
    there = grid_deployments.deployment(tmp_path, grid_deployments.chains(2), sites={"numbered": False}, rounds=1)
    there.serve()
    (event,) = there.events("sites")
    assert [(m["number"], m["name"]) for m in event["members"]] == [(k, f"site-{k:02d}") for k in range(8)]


@pytest.mark.parametrize(("every", "asked"), [(2, 8 * 3), (0, 8), (10, 8)])
def test_profiles_are_asked_for_anew_every_so_often(every: int, asked: int, tmp_path: Path) -> None:
    there = grid_deployments.deployment(tmp_path, grid_deployments.chains(2), rounds=5, settings={"profile_every": every})
    there.serve()
    assert sum(message.metadata.message_type == "query.hello" for message in there.grid.sent) == asked


def change(there: grid_deployments.Deployment, number: int, more: int = 5) -> None:
    """Give one site data of its own, with more samples than before."""
    arrays = tiny.arrays(8)
    mine = arrays["client_index"] == number
    again = np.resize(np.flatnonzero(mine), int(mine.sum()) + more)
    path = there.folder / "new.npz"
    np.savez(
        path, features=arrays["features"][again] + 0.5, labels=arrays["labels"][again],
        client_index=np.zeros(len(again), dtype=np.int64), clients=np.array([f"site-{number:02d}"]), classes=np.array(3),
    )  # fmt: skip
    site = there.sites[number]
    text = site.read_text().replace(f"npz:{there.source}", f"npz:{path}")
    site.write_text(text)


def test_new_data_is_noticed_skipped_once_and_planned_with_from_then_on(tmp_path: Path) -> None:
    there = grid_deployments.deployment(tmp_path, grid_deployments.chains(2), rounds=4)
    there.grid.fault = at_round(there, 1, lambda: change(there, 5))
    result = there.serve()
    told = [entry["samples"] for entry in result.history]
    assert told[2] == told[3] > told[0]
    assert "its data has changed" in str(result.history[0].get("not_judged")) + str(result.history[1].get("skipped"))
    versions = [m["version"] for event in there.events("sites") for m in event["members"] if m["number"] == 5]
    assert len(set(versions)) == 2
    verdict = there.replay()
    assert verdict.differs is None
    assert verdict.rounds in (1, 2)
    assert "'site-05' had new data" in str(verdict.why_no_further)


def test_histograms_that_are_off_leave_no_counts_and_spread_sites_at_random(tmp_path: Path) -> None:
    there = grid_deployments.deployment(tmp_path, grid_deployments.chains(4), sites={"histogram": "off"}, rounds=2)
    result = there.serve()
    assert all(member["counts"] is None for event in there.events("sites") for member in event["members"])
    for chains in plans(there):
        assert sorted(map(len, chains)) == [2, 2, 2, 2]
    assert result.status == "finished"
    assert there.replay().differs is None


def test_noised_histograms_are_what_plans_are_made_of_and_replayed_from(tmp_path: Path) -> None:
    pytest.importorskip("opendp")
    there = grid_deployments.deployment(
        tmp_path, grid_deployments.chains(2), sites={"histogram": "noised"}, rounds=3, settings={"profile_every": 1}
    )
    for site in there.sites:
        site.write_text(site.read_text().replace('"noised"', '"noised"\nepsilon = 60.0\nepsilon_limit = 60.0'))
    there.serve()
    (event,) = there.events("sites")  # asked three times, and the answer was the same: one draw for one set of samples
    exact = fedgsp.load(there.source)
    assert [member["counts"] for member in event["members"]] != exact.profiles().counts.tolist()
    told = [member["train"] for member in event["members"]]
    assert told != exact.train.sizes.tolist()
    assert all(0 < few <= size for few, size in zip(told, exact.train.sizes, strict=True))
    assert there.replay().differs is None


def test_a_site_that_does_not_allow_the_method_or_the_model_is_not_asked_again(tmp_path: Path) -> None:
    there = grid_deployments.deployment(tmp_path, grid_deployments.chains(2), settings={"sites": 7})
    there.sites[3].write_text(there.sites[3].read_text() + 'methods = ["prox"]\n')
    result = there.serve()
    assert [entry["present"] for entry in result.history] == [7, 7, 7]
    assert sum(node == 103 for node, _, _ in there.grid.handled) == 1


def test_a_run_that_too_few_sites_come_to_is_not_begun_and_says_why(tmp_path: Path) -> None:
    there = grid_deployments.deployment(
        tmp_path, grid_deployments.chains(2), settings={"wait_seconds": 20.0}, models=["small_cnn"]
    )
    with pytest.raises(RunFailed, match=r"0 of the 8 sites came within 20 s.*does not allow the model '.*tiny:linear'"):
        there.serve()
    assert not there.run.exists()


def test_two_sites_of_one_name_or_number_are_not_mixed_up(tmp_path: Path) -> None:
    there = grid_deployments.deployment(tmp_path, grid_deployments.chains(2), clients=4, rounds=1, settings={"sites": 3})
    there.sites[3].write_text(
        there.sites[3].read_text().replace('name = "site-03"', 'name = "other"').replace("number = 3", "number = 1")
    )
    result = there.serve()
    assert result.history[0]["present"] == 3


def test_a_site_that_cannot_use_the_runs_kernel_says_so_and_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from fedgsp.fast import Kernel

    there = grid_deployments.deployment(
        tmp_path, grid_deployments.chains(2), rounds=2, settings={"quorum": 0.1, "wait_seconds": 5.0}
    )
    kernel = Kernel("c-000000000000", "of another machine")
    monkeypatch.setattr("fedgsp.run.build.choose", lambda *arguments, **options: kernel)
    result = there.serve()
    assert result.status == "paused"
    assert any("kernel" in event["cause"] for event in there.events("skipped"))


def test_a_site_tries_the_kernel_on_its_own_samples_once_and_refuses_one_that_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from fedgsp.client.kernel_check import KernelCheck, KernelComparison

    tried: list[str] = []
    real = KernelCheck.check

    def judge(check: KernelCheck, kernel: Any) -> KernelComparison:
        if check.data.clients[0].startswith("made up"):  # the server has no samples
            return real(check, kernel)
        tried.append(next(name for name, rows in zip(check.data.clients, check.data.train, strict=True) if len(rows)))
        return KernelComparison("its steps are others") if tried[-1] == "site-01" else real(check, kernel)

    monkeypatch.setattr(KernelCheck, "check", judge)
    settings = {"quorum": 0.1, "wait_seconds": 5.0}
    there = grid_deployments.deployment(
        tmp_path, grid_deployments.chains(2), clients=4, rounds=3, fast="auto", settings=settings
    )
    result = there.serve()
    assert result.status == "finished"
    assert {event["client"] for event in there.events("skipped")} == {1}
    assert all("its steps are others" in event["cause"] for event in there.events("skipped"))
    assert sorted(name for name in tried if name != "site-01") == ["site-00", "site-02", "site-03"]


def test_the_server_judges_on_its_own_samples_too(tmp_path: Path) -> None:
    from dataclasses import replace

    there = grid_deployments.deployment(tmp_path, grid_deployments.chains(2), rounds=2)
    own = str(tiny.write_npz(tmp_path / "own.npz", 5, seed=3))
    there.config = replace(there.config, data=replace(there.config.data, source=own))
    result = there.serve()
    assert [entry["central"]["clients"] for entry in result.history] == [5, 5]
    data, model = fedgsp.load(own), result.state.model
    logits = data.features[data.test.rows] @ model["weight"].numpy().T + model["bias"].numpy()
    right = (logits.argmax(axis=1) == data.labels[data.test.rows]).mean()
    assert result.history[-1]["central"]["accuracy_plain"] == pytest.approx(right, abs=1e-12)
    assert there.replay().differs is None


def test_two_bytes_on_the_wire_are_replayed_to_the_bit(tmp_path: Path) -> None:
    whole = grid_deployments.deployment(tmp_path / "whole", grid_deployments.chains(2))
    before = whole.serve()
    for wire in ("float16", "bfloat16"):
        there = grid_deployments.deployment(tmp_path / wire, grid_deployments.chains(2), settings={"wire": wire})
        result = there.serve()
        assert result.history[-1]["bytes"] == before.history[-1]["bytes"] / 2
        assert result.history[-1]["state"] != before.history[-1]["state"]
        assert there.replay().differs is None


def test_the_files_of_a_deployment_fit_their_schemas(tmp_path: Path) -> None:
    import re

    there = grid_deployments.deployment(tmp_path, grid_deployments.chains(2), settings={"quorum": 0.95})
    faults: Iterator[Fault] = iter(("raises", "nan"))

    def choose(node: Node, message: Message) -> Fault:
        if message.metadata.message_type == "evaluate" and node.number == 101:
            return "raises"
        return next(faults, "ok") if message.metadata.message_type == "train" and node.number == 104 else "ok"

    there.grid.fault = choose
    there.serve()
    assert there.events("below_quorum")
    text = (Path(__file__).parents[2] / "docs" / "formats.md").read_text()
    schemas = {s["title"]: s for s in map(json.loads, re.findall(r"```json\n(.*?)```", text, flags=re.DOTALL))}
    for file, title in (("journal.jsonl", "journal line"), ("events.jsonl", "event"), ("plans.jsonl", "plans line")):
        for line in (there.run / file).read_text().splitlines():
            jsonschema.validate(json.loads(line), schemas[title])
    jsonschema.validate(json.loads((there.run / "result.json").read_text()), schemas["result"])


def test_a_replay_without_the_data_says_what_it_needs(tmp_path: Path) -> None:
    there = grid_deployments.deployment(tmp_path, grid_deployments.chains(2), rounds=1)
    there.serve()
    with pytest.raises(InputError, match="name a source that has all of them: --data"):
        fedgsp.replay(there.run)
    done = tiny.cli("replay", str(there.run), "--data", there.source, "--workers", "0")
    assert (done.returncode, "1 rounds replayed, every bit the same" in done.stdout) == (0, True), done.stderr


def test_a_run_resumed_after_any_round_ends_in_the_same_bits(tmp_path: Path) -> None:
    """The ServerApp is killed in mid-round: states at the sites are ahead of the checkpoint, and are not used."""

    class Killed(BaseException):
        pass

    whole = grid_deployments.deployment(tmp_path / "whole", "scaffold", rounds=4)
    expected = [entry["state"] for entry in whole.serve().history]
    there = grid_deployments.deployment(tmp_path / "cut", "scaffold", rounds=4)
    left = [5]

    def kill(node: Node, message: Message) -> Fault:
        if message.metadata.message_type == "train":
            left[0] -= 1
            if left[0] == 0:
                raise Killed
        return "ok"

    there.grid.fault = kill
    for again in range(20):
        try:
            result = there.serve(resume=again > 0)
            break
        except Killed:
            there.grid.on_the_way.clear()
            left[0] = 3
    assert again > 1
    assert [entry["state"] for entry in result.history] == expected
    assert there.replay().differs is None
    kept = list((there.sites[0].parent / "state").glob("run-*/*.safetensors"))
    assert len(kept) <= 3


def test_a_run_is_not_resumed_with_another_wire(tmp_path: Path) -> None:
    there = grid_deployments.deployment(tmp_path, grid_deployments.chains(2), rounds=1)
    there.serve()
    with pytest.raises(InputError, match="was begun with models sent as float32"):
        there.serve(resume=True, wire="float16")


def test_the_server_app_reads_its_run_configuration(tmp_path: Path) -> None:
    from flwr.app import Context, RecordDict

    there = grid_deployments.deployment(tmp_path, grid_deployments.chains(2))
    (tmp_path / "fedgsp.toml").write_text(
        f'[run]\nrounds = 1\nfast = "off"\n[model]\nname = "{tiny.LINEAR}"\n[method]\nname = "fedgsp"\n[deploy]\nsites = 8\n'
        "poll_seconds = 0.01\n"
    )
    there.grid.seconds = lambda node, message: 0.0
    main(there.grid, Context(1, 1, {}, RecordDict(), {"config": str(tmp_path / "fedgsp.toml"), "run-dir": str(there.run)}))
    assert (there.run / "result.json").exists()
    log = SiteLog()
    log.read(there.run)
    assert log.samples is not None
