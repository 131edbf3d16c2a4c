"""What a client does when a model arrives: check it, train or score it on the site's own samples, hand it on.

The training is `fedgsp.client`'s own, with the number that the client has in the run, so that its seeds, batches and steps are
those of a local run, to the bit.
"""

from __future__ import annotations

import hashlib
import json
import math
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from flwr.app import RecordDict

from fedgsp.client.keep import NAME, Bag, ClientStore
from fedgsp.client.proof import Trial
from fedgsp.client.rules import SGD
from fedgsp.core.chain import Stop
from fedgsp.core.errors import FedgspError
from fedgsp.core.seeds import Seeds
from fedgsp.core.tensors import Tensors, clone
from fedgsp.core.wire import FULL
from fedgsp.data.federated import FederatedData
from fedgsp.engine.flower.hello import carved, check_fits
from fedgsp.engine.flower.records import Refused, arrays, pack, say, unpack, unpack_like
from fedgsp.engine.flower.shard import Shard, open_shard
from fedgsp.engine.flower.sheet import Sheet
from fedgsp.engine.flower.site import Site
from fedgsp.engine.inline import OneThread
from fedgsp.engine.job import Job
from fedgsp.engine.walk import Walker
from fedgsp.fast import PLAIN, Kernel
from fedgsp.models import classification, regression, resolve
from fedgsp.parts import decode

PROVED = "fast-path-proved"
"""Beside a client's states: a digest of the run and the samples for which the fast path was tried out here."""
OLDER_KEPT = 2
"""Versions of a client's state that are kept beside the newest: what the server's two checkpoints may name."""


@dataclass(frozen=True)
class Order:
    """Which client of which round is meant, and which versions of its data and of its own state."""

    round: int
    client: int
    version: str
    mark: str | None

    @classmethod
    def of(cls, facts: dict[str, Any]) -> Order:
        """From what was sent, checked."""
        found = {name: facts.get(name) for name in ("round", "client")}
        if any(isinstance(n, bool) or not isinstance(n, int) or not 0 <= n < 10_000_000 for n in found.values()):
            raise Refused("the message does not say which client of which round is meant")
        mark = facts.get("mark")
        if mark is not None and not (isinstance(mark, str) and NAME.fullmatch(f"000000-{mark}.safetensors")):
            raise Refused("the message names a state that cannot be")
        return cls(facts["round"], facts["client"], str(facts.get("version")), mark)


def train(site: Site, facts: dict[str, Any], content: RecordDict) -> RecordDict:
    """The answer to a `train`: the model after this client's visit, and what is to be known of it."""
    bench = _Bench(site, facts)
    order, rule, trainer = bench.order, bench.rule, bench.walker.trainer
    hop, visit, first = facts.get("hop"), facts.get("visit"), facts.get("first")
    if not (isinstance(hop, int) and isinstance(visit, int) and isinstance(first, bool) and hop >= 0 and visit >= 0):
        raise Refused("the message does not say which stop of its chain is meant")
    wire = bench.sheet.wire if rule.hands_on else FULL
    own = trainer.tensors()
    handed = arrays(content, "model")
    shared = unpack(arrays(content, "shared"), "what is sent along")
    with OneThread():
        bench.prove(shared)
        if rule.hands_on or order.mark is None:
            model = unpack_like(handed, own, wire, "the model")
            trainer.load(model)
        else:
            model = {}
        global_model: Tensors = model if first else _NotSent()
        if not first and rule.fetches():
            global_model = unpack_like(arrays(content, "global"), own, wire, "the round's model")
        bag = bench.bag()
        report = trainer.visit(order.round, Stop(hop, order.client, visit), global_model, shared, first, bag)
        sends = rule.sends(trainer.model)
    bench.retire(bag.marks.get(order.client))
    sent = {name: value.to(sends[name].dtype) for name, value in bag.sent.items()}
    told = {
        "samples": report.samples, "steps": report.steps, "down": report.bytes_down, "up": report.bytes_up,
        "seconds": report.seconds, "metrics": report.metrics, "mark": bag.marks.get(order.client), "version": bench.version,
    }  # fmt: skip
    result = pack(trainer.tensors() if rule.hands_on else {}, wire)
    return say(told, model=result, sent=pack(sent))


def evaluate(site: Site, facts: dict[str, Any], content: RecordDict) -> RecordDict:
    """The answer to an `evaluate`: sums of the loss and of every metric over a part's samples; no single sample's is told."""
    bench = _Bench(site, facts)
    order, rule, trainer = bench.order, bench.rule, bench.walker.trainer
    parts, personal = facts.get("parts"), bool(facts.get("personal"))
    if not isinstance(parts, list) or not set(parts) <= {"test", "validation"}:
        raise Refused("the message does not say which samples the model is judged on")
    with OneThread():
        if rule.hands_on or order.mark is None:
            model = unpack_like(arrays(content, "model"), trainer.tensors(), FULL, "the model")
        else:
            model = dict(trainer.tensors())
        beside = unpack(arrays(content, "beside"), "what is kept beside the model")
        bag = bench.walker.bag({} if order.mark is None else {order.client: order.mark})
        found = {}
        for part in parts:
            rows = getattr(bench.data, part)[order.client]
            scores = bench.walker.score(model, beside, rows, order.client if personal else None, order.round, bag)
            columns = {"loss": scores.loss, **scores.metrics}
            found[part] = {"samples": len(rows), **{name: _summed(column) for name, column in columns.items()}}
            if not all(math.isfinite(value) for value in found[part].values()):
                raise Refused(f"the model's scores on its {part} samples are not finite")
    return say({"version": bench.version, "parts": found})


class _Bench:
    """Model, rule and samples, ready; everything that was sent is checked on the way."""

    def __init__(self, site: Site, facts: dict[str, Any]) -> None:
        self.sheet = Sheet.decode(facts.get("sheet"))
        self.sheet.check_allowed(site)
        self.order = Order.of(facts)
        shard = open_shard(site)
        check_fits(self.sheet, shard, site)
        self.version = shard.version
        if self.order.version != shard.version:
            raise Refused("its data has changed since it was asked for its profile", changed=True)
        if site.number is not None and self.order.client != site.number:
            raise Refused(f"the site '{site.name}' is client {site.number} and not {self.order.client}")
        self.data: FederatedData = carved(self.sheet, shard, self.order.client)
        self.rule = _rule(self.sheet)
        self.store = ClientStore(site.state / f"run-{self.sheet.run}")
        self.walker = self._walker(shard)
        self._keeps = type(self.rule).keeps is not SGD.keeps

    def _walker(self, shard: Shard) -> Walker:
        sheet = self.sheet
        kernel = Kernel(sheet.kernel, "as the server said", sheet.layers)
        task = classification() if self.data.classes else regression()
        spec = resolve(sheet.model, shard.data.sample_shape, self.data.classes)
        job = Job(
            spec, self.rule, task, self.data, Seeds(sheet.seed), sheet.device, store=self.store, kernel=kernel, wire=sheet.wire
        )  # fmt: skip
        try:
            with OneThread():
                return Walker.of(job)
        except RuntimeError as error:
            raise Refused(f"it cannot train as this run does: {error}", for_good=True) from error

    def prove(self, shared: Tensors) -> None:
        """Refuse a kernel that does not make plain PyTorch's steps on this site's samples; found out once for a run."""
        trainer, sheet = self.walker.trainer, self.sheet
        if trainer.kernel.name == PLAIN.name or not len(self.data.train.rows):
            return
        file = self.store.folder / PROVED
        asked = hashlib.sha256(json.dumps([sheet.encode(), self.version], sort_keys=True).encode()).hexdigest()
        with suppress(OSError):
            if file.read_text() == asked:
                return
        start = clone(trainer.tensors())
        trial = Trial.of(trainer.model, self.rule, trainer.task, self.data, trainer.seeds, start, shared)
        outcome = trial.judge(trainer.kernel)
        if outcome.why_not is not None:
            raise Refused(
                f'the fast path is not for its samples: {outcome.why_not}; set [run] fast = "off"', for_good=True
            )  # fmt: skip
        with suppress(OSError):  # then it is found out again
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(asked)

    def bag(self) -> Bag:
        """The client's own state, from this site's disk."""
        mark, client = self.order.mark, self.order.client
        return Bag(self.store if self._keeps else None, {} if mark is None else {client: mark})

    def retire(self, written: str | None) -> None:
        """Drop the versions of the client's state that no checkpoint of the server's can name any more."""
        if written is None:
            return
        found = [match[2] for path in self.store.folder.iterdir() if (match := NAME.fullmatch(path.name))]
        before = sorted({mark for mark in found if int(mark.split("-")[0]) < self.order.round}, reverse=True)
        keep = {written, self.order.mark, *before[:OLDER_KEPT]}
        for mark in set(found) - keep:
            self.store.drop(self.order.client, mark)


class _NotSent(dict[str, torch.Tensor]):
    """The round's model where the server was not told that the rule needs it."""

    def items(self) -> Any:
        raise Refused("the local rule fetches the round's model without saying so: let its `fetches` be true", for_good=True)


def _rule(sheet: Sheet) -> SGD:
    try:
        rule = decode("local", sheet.rule, "the local rule")
    except FedgspError as error:
        raise Refused(str(error), for_good=True) from error
    if not isinstance(rule, SGD):
        raise Refused(f"'{sheet.rule.get('kind')}' is not a local rule", for_good=True)
    return rule


def _summed(column: np.ndarray[Any, Any]) -> float:
    """The sum over a client's samples, in the order in which a local run adds them."""
    return float(np.bincount(np.zeros(len(column), dtype=np.int64), weights=column, minlength=1)[0])
