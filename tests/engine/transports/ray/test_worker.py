"""The worker of a cluster, called by hand: segments of a chain in several workers amount to the chain in one."""

from __future__ import annotations

import pickle
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from fedgsp.client import SGD
from fedgsp.client.client_state import ClientStore
from fedgsp.client.context import LocalContext
from fedgsp.core.chain import Chain, ChainResult, HopReport
from fedgsp.core.errors import Diverged
from fedgsp.core.seeds import Seeds
from fedgsp.core.tensors import Tensors, digest
from fedgsp.engine.base import WorkerSetup
from fedgsp.engine.chain_runner import ChainRunner
from fedgsp.engine.messages import EvaluateDone, EvaluateTask, Segment, TaskFailed, TrainDone, TrainTask
from fedgsp.engine.transports.inline import InlineEngine
from fedgsp.engine.transports.ray.data_placement import bare, piece_of
from fedgsp.engine.transports.ray.messages import PackedModels, PackedOutput
from fedgsp.engine.transports.ray.tensor_buffer import pack, unpack
from fedgsp.engine.transports.ray.worker import RayWorker
from fedgsp.methods import named
from fedgsp.models import classification, initial_tensors, resolve
from fedgsp.server.mean import Weighing
from tests.support import tiny

CHAIN = Chain((0, 3, 1, 2), passes=2)


def job_of(method: str = "fedgsp", **changed: Any) -> WorkerSetup:
    data = tiny.federation(4)
    rule = replace(named(method).local, batch_size=3, lr=0.1, **changed)
    return WorkerSetup(
        resolve("tests.support.tiny:linear", data.sample_shape, data.classes), rule, classification(), data, Seeds(5)
    )


def same(reference: Any) -> Any:
    """References are the things themselves here."""
    return reference


def worker_of(job: WorkerSetup, clients: list[int] | None = None, sign: tuple[Path, str] | None = None) -> RayWorker:
    worker = RayWorker(replace(job, data=bare(job.data)), same, "node", None, sign)
    if clients is None:
        worker.take(job.data.features, job.data.labels)
    else:
        worker.hold(frozenset(), {0: piece_of(job.data, clients)})
    return worker


def models_of(start: Tensors, shared: Tensors | None = None) -> PackedModels:
    return PackedModels({"global": pack(start)}, pack(shared or {}))


def trained(
    worker: RayWorker, task: TrainTask, outputs: list[PackedOutput] | None = None
) -> tuple[list[Any], TrainDone, list[PackedOutput]]:
    *hops, done, handed = list(worker.train(task, outputs))
    return hops, done, handed


@pytest.mark.parametrize(("method", "least"), [("fedgsp", 1), ("scaffold", 1), ("feddyn", 1), ("fedgsp", 3), ("scaffold", 6)])
def test_a_chain_in_three_segments_is_the_chain_in_one(method: str, least: int, tmp_path: Path) -> None:
    job, chain = job_of(method), replace(CHAIN, least=least)
    start = initial_tensors(job.model, 1)
    shared = {f"control.{name}": torch.randn_like(t) for name, t in start.items()} if method == "scaffold" else {}
    store = ClientStore(tmp_path)
    walker = ChainRunner.of(replace(job, store=store))
    client_states = walker.client_states({})
    expected, reports = walker.run(1, chain, start, shared, frozenset(), client_states=client_states)
    near, far = worker_of(job, [0, 3]), worker_of(job, [1, 2])
    models, told = models_of(start, shared), []
    outputs: list[PackedOutput] | None = None
    before: tuple[HopReport, ...] = ()
    for worker, hops in ((near, (0, 1)), (far, (2, 3)), (near, (4, 5)), (far, (6, 7))):
        segment = Segment(0, chain, frozenset(range(8)) - frozenset(hops), before=before, last=hops[-1] == 7)
        one_by_one, done, outputs = trained(worker, TrainTask((segment,), 1, models), outputs)
        assert [hop.report.hop for hop in one_by_one] == list(hops)
        told += [hop.report for hop in one_by_one]
        before = (*before, *done.hops[0])
    assert outputs is not None
    assert outputs[0].tensors is not None
    assert digest(unpack(outputs[0].tensors)) == digest(expected)
    strip = [(report.client, report.hop, report.repeat, report.samples, report.steps, report.metrics) for report in reports]
    assert [(r.client, r.hop, r.repeat, r.samples, r.steps, r.metrics) for r in told] == strip
    assert {name: t.tolist() for name, t in unpack(outputs[0].sent).items()} == {
        n: t.tolist() for n, t in client_states.sent.items()
    }
    written = {client: store.write(client, 1, unpack(state)) for client, state in outputs[0].states.items()}
    assert written == client_states.versions


@dataclass(frozen=True, kw_only=True)
class SaysFirst(SGD):
    """Reports whether it was handed the model that the round started from."""

    def finish(self, ctx: LocalContext) -> dict[str, float]:
        """Say so."""
        return {**super().finish(ctx), "first": float(ctx.first)}


def test_only_the_first_hop_of_a_chain_is_handed_the_start_and_the_sum_weighs_all_of_them() -> None:
    job = replace(job_of(), rule=SaysFirst(lr=0.1, batch_size=3))
    models, weighing, chain = models_of(initial_tensors(job.model, 1)), Weighing(1, "samples", 1000), Chain((0, 1, 2, 3))
    near, far = worker_of(job, [0, 1]), worker_of(job, [2, 3])
    segment = Segment(0, chain, frozenset({2, 3}), last=False)
    _, done, outputs = trained(near, TrainTask((segment,), 1, models, None, weighing))
    last = Segment(0, chain, frozenset({0, 1}), before=done.hops[0])
    _, rest, _ = trained(far, TrainTask((last,), 1, models, None, weighing), outputs)
    assert [report.metrics["first"] for report in (*done.hops[0], *rest.hops[0])] == [1, 0, 0, 0]
    assert near.sums(1).partial is None
    partial = far.sums(1).partial
    assert partial is not None
    assert partial.weight == int(job.data.train.sizes.sum())


def test_states_are_read_and_written_where_the_folder_is_seen(tmp_path: Path) -> None:
    store, sign = ClientStore(tmp_path), tmp_path / "sign"
    job = replace(job_of("scaffold"), store=store)
    start = initial_tensors(job.model, 1)
    sign.write_text("yes")
    assert not worker_of(job, None, (sign, "no")).facts().sees_states
    worker = worker_of(job, None, (sign, "yes"))
    assert worker.facts().sees_states
    shared = {f"control.{name}": torch.zeros_like(t) for name, t in start.items()}
    _, _, (output,) = trained(worker, TrainTask((Segment(0, CHAIN),), 1, models_of(start, shared)))
    assert output.states == {}
    assert sorted(output.client_versions) == [0, 1, 2, 3]
    assert not store.missing(output.client_versions)


def test_results_are_added_up_where_they_are() -> None:
    job = job_of()
    start = initial_tensors(job.model, 1)
    weighing = Weighing(1, "samples", 1000)
    chains = [Chain((k,)) for k in range(4)]
    walker, expected = ChainRunner.of(job), weighing.sum_like(start)
    for index, chain in enumerate(chains):
        tensors, hops = walker.run(1, chain, start, {})
        weighing.add(ChainResult(index, chain, tensors, hops), expected)
    models, total = models_of(start), weighing.sum_like(start)
    for part in ((0, 2), (1, 3)):
        worker = worker_of(job)
        segments = tuple(Segment(index, chains[index]) for index in part)
        told, done, outputs = trained(worker, TrainTask(segments, 1, models, None, weighing))
        assert told == []
        assert [len(hops) for hops in done.hops] == [1, 1]
        assert all(output.tensors is None for output in outputs)
        partial = worker.sums(1).partial
        assert partial is not None
        assert worker.sums(1).partial is None
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
    walker, expected = ChainRunner.of(job), weighing.sum_like(start)
    for index, chain in enumerate(chains):
        tensors, hops = walker.run(1, chain, start, {})
        weighing.add(ChainResult(index, chain, tensors, hops), expected)
    total = weighing.sum_like(start)
    for part in ((3, 0), (2, 1)):
        worker = worker_of(job)
        trained(worker, TrainTask(tuple(Segment(i, chains[i]) for i in part), 1, models_of(start), None, weighing))
        partial = pickle.loads(pickle.dumps(worker.sums(1).partial))
        total.merge(partial)
    mean = total.mean()
    assert digest(mean) == digest(expected.mean())
    assert float(mean["1.running_var"].max()) > 2.0**16
    assert mean["mask"].tolist() == [0.0, -torch.inf]


def test_a_sum_of_a_round_that_failed_counts_no_more() -> None:
    job = job_of()
    worker, models = worker_of(job), models_of(initial_tensors(job.model, 1))
    for round_ in (1, 2):
        segment = Segment(0, Chain((0,)))
        trained(worker, TrainTask((segment,), round_, models, None, Weighing(round_, "samples", 100)))
    partial = worker.sums(2).partial
    assert partial is not None
    assert partial.count == 1


def test_scores_are_those_of_the_whole_federation(tmp_path: Path) -> None:
    job = job_of()
    start = initial_tensors(job.model, 1)
    rows = job.data.test[2]
    state = named("fedavg").server.init(start)
    expected = InlineEngine(job).evaluate(state, [("global", rows)]).result()[0]
    for worker in (worker_of(job), worker_of(job, [2, 0])):
        found = worker.evaluate(EvaluateTask(7, models_of(start), "global", rows))
        assert isinstance(found, EvaluateDone)
        assert found.number == 7
        assert found.scores.loss.tolist() == expected.loss.tolist()


def test_what_goes_wrong_is_told_with_the_client() -> None:
    job = job_of()
    worker, models = worker_of(job), models_of({n: t + float("nan") for n, t in initial_tensors(job.model, 1).items()})
    (failed,) = list(worker.train(TrainTask((Segment(4, Chain((3, 1))),), 1, models)))
    assert isinstance(failed, TaskFailed)
    assert (failed.index, failed.client) == (4, 3)
    assert isinstance(failed.expected, Diverged)
    empty = RayWorker(replace(job, data=bare(job.data)), same, "node", None, None)
    (failed,) = list(empty.train(TrainTask((Segment(0, CHAIN),), 1, models)))
    assert isinstance(failed, TaskFailed)
    assert "no samples" in failed.cause
