"""The worker of a cluster, called by hand: legs of a chain in several workers amount to the chain in one."""

from __future__ import annotations

import pickle
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny
import torch
from torch import nn

from fedgsp.client import SGD
from fedgsp.client.keep import ClientStore
from fedgsp.client.rules import Visit
from fedgsp.core.chain import Chain, ChainResult, HopReport
from fedgsp.core.errors import Diverged
from fedgsp.core.seeds import Seeds
from fedgsp.core.tensors import Tensors, digest
from fedgsp.engine.inline import InlineEngine
from fedgsp.engine.job import Job
from fedgsp.engine.ray.holdings import bare, piece_of
from fedgsp.engine.ray.parcel import pack, unpack
from fedgsp.engine.ray.tasks import Baton, Board, Kept, Leg, ScoreTask, Walked, WalkTask
from fedgsp.engine.ray.worker import RayWorker
from fedgsp.engine.walk import Walker
from fedgsp.engine.worker import Broke, Scored
from fedgsp.methods import named
from fedgsp.models import classification, initial_tensors, resolve
from fedgsp.server.mean import Weighing

CHAIN = Chain((0, 3, 1, 2), passes=2)


def job_of(method: str = "fedgsp", **changed: Any) -> Job:
    data = tiny.federation(4)
    rule = replace(named(method).local, batch_size=3, lr=0.1, **changed)
    return Job(resolve("tiny:linear", data.sample_shape, data.classes), rule, classification(), data, Seeds(5))


def same(reference: Any) -> Any:
    """References are the things themselves here."""
    return reference


def worker_of(job: Job, clients: list[int] | None = None, sign: tuple[Path, str] | None = None) -> RayWorker:
    worker = RayWorker(replace(job, data=bare(job.data)), same, "node", None, sign)
    if clients is None:
        worker.take(job.data.features, job.data.labels)
    else:
        worker.hold(frozenset(), {0: piece_of(job.data, clients)})
    return worker


def board_of(start: Tensors, shared: Tensors | None = None) -> Board:
    return Board({"global": pack(start)}, pack(shared or {}))


def walked(worker: RayWorker, task: WalkTask, batons: list[Baton] | None = None) -> tuple[list[Any], Walked, list[Baton]]:
    *hops, done, handed = list(worker.walk(task, batons))
    return hops, done, handed


@pytest.mark.parametrize("method", ["fedgsp", "scaffold", "feddyn"])
def test_a_chain_in_three_legs_is_the_chain_in_one(method: str, tmp_path: Path) -> None:
    job = job_of(method)
    start = initial_tensors(job.model, 1)
    shared = {f"control.{name}": torch.randn_like(t) for name, t in start.items()} if method == "scaffold" else {}
    store = ClientStore(tmp_path)
    walker = Walker.of(replace(job, store=store))
    bag = walker.bag({})
    expected, reports = walker.walk(1, CHAIN, start, shared, frozenset(), lambda report: None, bag=bag)
    near, far = worker_of(job, [0, 3]), worker_of(job, [1, 2])
    board, told = board_of(start, shared), []
    batons: list[Baton] | None = None
    before: tuple[HopReport, ...] = ()
    for worker, hops in ((near, (0, 1)), (far, (2, 3)), (near, (4, 5)), (far, (6, 7))):
        leg = Leg(0, CHAIN, frozenset(range(8)) - frozenset(hops), Kept(), before, last=hops[-1] == 7)
        one_by_one, done, batons = walked(worker, WalkTask((leg,), 1, board), batons)
        assert [hop.report.hop for hop in one_by_one] == list(hops)
        told += [hop.report for hop in one_by_one]
        before = (*before, *done.hops[0])
    assert batons is not None
    assert batons[0].model is not None
    assert digest(unpack(batons[0].model)) == digest(expected)
    strip = [(report.client, report.hop, report.visit, report.samples, report.steps, report.metrics) for report in reports]
    assert [(r.client, r.hop, r.visit, r.samples, r.steps, r.metrics) for r in told] == strip
    assert {name: t.tolist() for name, t in unpack(batons[0].sent).items()} == {n: t.tolist() for n, t in bag.sent.items()}
    written = {client: store.write(client, 1, unpack(state)) for client, state in batons[0].states.items()}
    assert written == bag.marks


@dataclass(frozen=True, kw_only=True)
class SaysFirst(SGD):
    """Reports whether it was handed the model that the round started from."""

    def finish(self, visit: Visit) -> dict[str, float]:
        """Say so."""
        return {**super().finish(visit), "first": float(visit.first)}


def test_only_the_first_hop_of_a_chain_is_handed_the_start_and_the_sum_weighs_all_of_them() -> None:
    job = replace(job_of(), rule=SaysFirst(lr=0.1, batch_size=3))
    board, weighing, chain = board_of(initial_tensors(job.model, 1)), Weighing(1, "samples", 1000), Chain((0, 1, 2, 3))
    near, far = worker_of(job, [0, 1]), worker_of(job, [2, 3])
    leg = Leg(0, chain, frozenset({2, 3}), Kept(), last=False)
    _, done, batons = walked(near, WalkTask((leg,), 1, board, weighing))
    last = Leg(0, chain, frozenset({0, 1}), Kept(), done.hops[0])
    _, rest, _ = walked(far, WalkTask((last,), 1, board, weighing), batons)
    assert [report.metrics["first"] for report in (*done.hops[0], *rest.hops[0])] == [1, 0, 0, 0]
    assert near.gather(1) is None
    partial = far.gather(1)
    assert partial is not None
    assert partial.weight == int(job.data.train.sizes.sum())


def test_states_are_read_and_written_where_the_folder_is_seen(tmp_path: Path) -> None:
    store, sign = ClientStore(tmp_path), tmp_path / "sign"
    job = replace(job_of("scaffold"), store=store)
    start = initial_tensors(job.model, 1)
    sign.write_text("yes")
    assert not worker_of(job, None, (sign, "no")).hello().sees_states
    worker = worker_of(job, None, (sign, "yes"))
    assert worker.hello().sees_states
    shared = {f"control.{name}": torch.zeros_like(t) for name, t in start.items()}
    _, _, (baton,) = walked(worker, WalkTask((Leg(0, CHAIN, frozenset(), Kept()),), 1, board_of(start, shared)))
    assert baton.states == {}
    assert sorted(baton.marks) == [0, 1, 2, 3]
    assert not store.missing(baton.marks)


def test_results_are_added_up_where_they_are() -> None:
    job = job_of()
    start = initial_tensors(job.model, 1)
    weighing = Weighing(1, "samples", 1000)
    chains = [Chain((k,)) for k in range(4)]
    walker, expected = Walker.of(job), weighing.sum_like(start)
    for index, chain in enumerate(chains):
        tensors, hops = walker.walk(1, chain, start, {}, frozenset(), lambda report: None)
        weighing.add(ChainResult(index, chain, tensors, hops), expected)
    board, total = board_of(start), weighing.sum_like(start)
    for part in ((0, 2), (1, 3)):
        worker = worker_of(job)
        legs = tuple(Leg(index, chains[index], frozenset(), Kept()) for index in part)
        told, done, batons = walked(worker, WalkTask(legs, 1, board, weighing))
        assert told == []
        assert [len(hops) for hops in done.hops] == [1, 1]
        assert all(baton.model is None for baton in batons)
        partial = worker.gather(1)
        assert partial is not None
        assert worker.gather(1) is None
        total.merge(partial)
    assert digest(total.mean()) == digest(expected.mean())
    assert total.weight == expected.weight
    assert total.count == 4


def test_buffers_of_any_size_are_added_up_where_they_are_to_the_same_bits() -> None:
    """BatchNorm on samples in the millions, and a mask of -inf: partial sums of two workers, and one sum of all."""
    data = tiny.federation(4)
    data = replace(data, features=np.asarray(data.features, dtype=np.float32) * 1e6)

    def normed() -> nn.Module:
        width = int(np.prod(data.sample_shape))
        net = nn.Sequential(nn.Flatten(), nn.BatchNorm1d(width), nn.Linear(width, data.classes))
        net.register_buffer("mask", torch.tensor([0.0, -torch.inf]))
        return net

    rule = SGD(lr=0.1, batch_size=100)
    job = replace(job_of(), model=resolve(normed, data.sample_shape, data.classes), data=data, rule=rule)
    start = initial_tensors(job.model, 1)
    weighing = Weighing(1, "samples", 1000, frozenset({"2.weight", "2.bias", "1.weight", "1.bias"}))
    chains = [Chain((k,)) for k in range(4)]
    walker, expected = Walker.of(job), weighing.sum_like(start)
    for index, chain in enumerate(chains):
        tensors, hops = walker.walk(1, chain, start, {}, frozenset(), lambda report: None)
        weighing.add(ChainResult(index, chain, tensors, hops), expected)
    total = weighing.sum_like(start)
    for part in ((3, 0), (2, 1)):
        worker = worker_of(job)
        walked(worker, WalkTask(tuple(Leg(i, chains[i], frozenset(), Kept()) for i in part), 1, board_of(start), weighing))
        partial = pickle.loads(pickle.dumps(worker.gather(1)))
        total.merge(partial)
    mean = total.mean()
    assert digest(mean) == digest(expected.mean())
    assert float(mean["1.running_var"].max()) > 2.0**16
    assert mean["mask"].tolist() == [0.0, -torch.inf]


def test_a_sum_of_a_round_that_failed_counts_no_more() -> None:
    job = job_of()
    worker, board = worker_of(job), board_of(initial_tensors(job.model, 1))
    for round_ in (1, 2):
        leg = Leg(0, Chain((0,)), frozenset(), Kept())
        walked(worker, WalkTask((leg,), round_, board, Weighing(round_, "samples", 100)))
    partial = worker.gather(2)
    assert partial is not None
    assert partial.count == 1


def test_scores_are_those_of_the_whole_federation(tmp_path: Path) -> None:
    job = job_of()
    start = initial_tensors(job.model, 1)
    rows = job.data.test[2]
    state = named("fedavg").server.init(start)
    expected = InlineEngine(job).ask(state, [("global", rows)]).result()[0]
    for worker in (worker_of(job), worker_of(job, [2, 0])):
        found = worker.score(ScoreTask(7, board_of(start), "global", rows))
        assert isinstance(found, Scored)
        assert found.index == 7
        assert found.scores.loss.tolist() == expected.loss.tolist()


def test_what_goes_wrong_is_told_with_the_client() -> None:
    job = job_of()
    worker, board = worker_of(job), board_of({n: t + float("nan") for n, t in initial_tensors(job.model, 1).items()})
    (broke,) = list(worker.walk(WalkTask((Leg(4, Chain((3, 1)), frozenset(), Kept()),), 1, board)))
    assert isinstance(broke, Broke)
    assert (broke.index, broke.client) == (4, 3)
    assert isinstance(broke.expected, Diverged)
    empty = RayWorker(replace(job, data=bare(job.data)), same, "node", None, None)
    (broke,) = list(empty.walk(WalkTask((Leg(0, CHAIN, frozenset(), Kept()),), 1, board)))
    assert isinstance(broke, Broke)
    assert "no samples" in broke.error
