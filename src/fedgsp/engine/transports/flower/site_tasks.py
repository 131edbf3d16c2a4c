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
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from flwr.app import RecordDict

from fedgsp.client.client_state import NAME, ClientStates, ClientStore
from fedgsp.client.kernel_check import KernelCheck
from fedgsp.client.rules import SGD, trained
from fedgsp.core.chain import Hop
from fedgsp.core.errors import FedgspError
from fedgsp.core.seeds import Seeds
from fedgsp.core.tensors import FULL, Tensors
from fedgsp.engine.base import WorkerSetup
from fedgsp.engine.chain_runner import ChainRunner
from fedgsp.engine.transports.flower.base_model import take_base
from fedgsp.engine.transports.flower.histogram import usable
from fedgsp.engine.transports.flower.noise_demand import check_sends
from fedgsp.engine.transports.flower.noise_key import noise_key
from fedgsp.engine.transports.flower.records import arrays, pack, say, squeeze, unpack, unpack_like
from fedgsp.engine.transports.flower.registration import carved, check_fits
from fedgsp.engine.transports.flower.run_spec import RunSpec
from fedgsp.engine.transports.flower.scoring_limits import check_part, check_validation, question_of, spend
from fedgsp.engine.transports.flower.shard import Shard, open_shard
from fedgsp.engine.transports.flower.wire import Refused
from fedgsp.engine.transports.inline import OneThread
from fedgsp.fast import PLAIN, Kernel
from fedgsp.models import resolve, usual_task
from fedgsp.parts import decode

if TYPE_CHECKING:
    from fedgsp.data.federated import FederatedData
    from fedgsp.engine.transports.flower.site import Site

PROVED = "fast-path-proved"
"""Beside a client's states: a digest of the run and the samples for which the fast path was tried out here."""
_KEPT: dict[tuple[Any, ...], ChainRunner] = {}
"""What the last message left, while nothing in it has gone wrong; in a local run one model serves all messages, too."""
OLDER_KEPT = 2
"""Versions of a client's state that are kept beside the newest: what the server's two checkpoints may name."""


@dataclass(frozen=True)
class Order:
    """Which client of which round is meant, and which versions of its data and of its own state."""

    round: int
    client: int
    version: str
    state: str | None

    @classmethod
    def of(cls, facts: dict[str, Any]) -> Order:
        """From what was sent, checked."""
        found = {name: facts.get(name) for name in ("round", "client")}
        if any(isinstance(n, bool) or not isinstance(n, int) or not 0 <= n < 10_000_000 for n in found.values()):
            raise Refused("the message does not say which client of which round is meant")
        state = facts.get("state")
        if state is not None and not (isinstance(state, str) and NAME.fullmatch(f"000000-{state}.safetensors")):
            raise Refused("the message names a state that cannot be")
        return cls(facts["round"], facts["client"], str(facts.get("version")), state)


def train(site: Site, facts: dict[str, Any], content: RecordDict) -> RecordDict:
    """The answer to a `train`: the model after this client's hop, and what is to be known of it."""
    worker = _SiteWorker(site, facts, content)
    order, rule, trainer = worker.order, worker.rule, worker.runner.trainer
    hop, repeat, first = facts.get("hop"), facts.get("repeat"), facts.get("first")
    if not (isinstance(hop, int) and isinstance(repeat, int) and isinstance(first, bool) and hop >= 0 and repeat >= 0):
        raise Refused("the message does not say which hop of its chain is meant")
    wire = worker.run_spec.wire if rule.hands_on else FULL
    own = trainer.tensors()
    handed = arrays(content, "model")
    shared = unpack(arrays(content, "shared"), "what is sent along")
    with OneThread():
        worker.prove(shared)
        if rule.hands_on or order.state is None:
            model = unpack_like(handed, own, wire, "the model", worker.finite)
            trainer.load(model)
        else:
            model = {}
        global_model: Tensors = model if first else _NotSent()
        if not first and rule.fetches():
            global_model = unpack_like(arrays(content, "global"), own, wire, "the round's model", worker.finite)
        client_states = worker.client_states()
        report = trainer.train(order.round, Hop(hop, order.client, repeat), global_model, shared, first, client_states)
        sends = rule.upload_spec(trainer.model)
    worker.retire(client_states.versions.get(order.client))
    sent = {name: value.to(sends[name].dtype) for name, value in client_states.sent.items()}
    told = {
        "samples": report.samples, "steps": report.steps, "down": report.bytes_down, "up": report.bytes_up,
        "seconds": report.seconds, "metrics": report.metrics, "state": client_states.versions.get(order.client),
        "version": worker.version,
    }  # fmt: skip
    result = pack(trainer.tensors() if rule.hands_on else {}, wire)
    if facts.get("squeeze") is True:
        result = squeeze(result, handed, wire)
    worker.keep()
    return say(told, model=result, sent=pack(sent))


def evaluate(site: Site, facts: dict[str, Any], content: RecordDict) -> RecordDict:
    """The answer to an `evaluate`: sums of the loss and of every metric over a part's samples; no single sample's is told."""
    worker = _SiteWorker(site, facts, content)
    order, rule, trainer = worker.order, worker.rule, worker.runner.trainer
    parts, personal = facts.get("parts"), bool(facts.get("personal"))
    if not isinstance(parts, list) or not all(part in ("test", "validation") for part in parts):
        raise Refused("the message does not say which samples the model is judged on")
    for part in parts:
        check_part(site, part, len(getattr(worker.data, part)[order.client]))
    spend(site, worker.version, worker.run_spec, order.round, question_of(content, parts, personal, order.state))
    with OneThread():
        if rule.hands_on or order.state is None:
            model = unpack_like(arrays(content, "model"), trainer.tensors(), FULL, "the model", worker.finite)
        else:
            model = dict(trainer.tensors())
        beside = unpack(arrays(content, "beside"), "what is kept beside the model")
        client_states = worker.runner.client_states({} if order.state is None else {order.client: order.state})
        found = {}
        for part in parts:
            rows = getattr(worker.data, part)[order.client]
            scores = worker.runner.evaluate(model, beside, rows, order.client if personal else None, order.round, client_states)
            columns = {"loss": scores.loss, **scores.metrics}
            found[part] = {"samples": len(rows), **{name: _summed(column) for name, column in columns.items()}}
            if not all(math.isfinite(value) for value in found[part].values()):
                raise Refused(f"the model's scores on its {part} samples are not finite")
    worker.keep()
    return say({"version": worker.version, "parts": found})


class _SiteWorker:
    """Model, rule and samples, ready; everything that was sent is checked on the way."""

    def __init__(self, site: Site, facts: dict[str, Any], content: RecordDict) -> None:
        self.run_spec = RunSpec.decode(facts.get("run"))
        self.run_spec.check_allowed(site)
        self.order = Order.of(facts)
        check_validation(self.run_spec, site)
        shard = usable(site, open_shard(site))
        check_fits(self.run_spec, shard, site)
        self.version = shard.version
        if self.order.version != shard.version:
            raise Refused("its data has changed since it was asked for its profile", changed=True)
        if site.number is not None and self.order.client != site.number:
            raise Refused(f"the site '{site.name}' is client {site.number} and not {self.order.client}")
        self.rule = _rule(self.run_spec)
        self._secret = noise_key(site.state) if self.rule.privacy is not None else ()
        self.store = ClientStore(site.state / f"run-{self.run_spec.run}")
        self._key = (site, json.dumps(self.run_spec.encode(), sort_keys=True), self.order.client, shard.version)
        kept = _KEPT.pop(self._key, None)
        _KEPT.clear()
        self.data: FederatedData = kept.trainer.data if kept else carved(self.run_spec, shard, self.order.client)
        self.runner = kept or self._runner(shard)
        if kept is None:
            take_base(self.runner.trainer.model, self.run_spec.base, site.state, arrays(content, "base"))
        check_sends(site, self.rule, self.runner.trainer.model)
        self._trained = frozenset(trained(self.runner.trainer.model))
        self._keeps = type(self.rule).initial_client_state is not SGD.initial_client_state

    def _runner(self, shard: Shard) -> ChainRunner:
        run_spec = self.run_spec
        kernel = Kernel(run_spec.kernel, "as the server said", run_spec.layers)
        task = usual_task(self.data.classes, self.data.target_shape)
        like = shard.data
        spec = resolve(
            run_spec.model, like.sample_shape, self.data.classes, like.target_shape, like.count_tokens, like.padding
        )  # fmt: skip
        setup = WorkerSetup(
            spec, self.rule, task, self.data, Seeds(run_spec.seed, self._secret), run_spec.device, self.store,
            kernel=kernel, wire=run_spec.wire,
        )  # fmt: skip
        try:
            with OneThread():
                return ChainRunner.of(setup)
        except RuntimeError as error:
            raise Refused(f"it cannot train as this run does: {error}", for_good=True) from error

    def keep(self) -> None:
        """Leave model and samples for the next message of the same run: a process that stays has them at hand then."""
        _KEPT[self._key] = self.runner

    def prove(self, shared: Tensors) -> None:
        """Refuse a kernel that does not make plain PyTorch's steps on this site's samples; found out once for a run."""
        trainer, run_spec = self.runner.trainer, self.run_spec
        if trainer.kernel.name == PLAIN.name or not len(self.data.train.rows):
            return
        file = self.store.folder / PROVED
        asked = hashlib.sha256(json.dumps([run_spec.encode(), self.version], sort_keys=True).encode()).hexdigest()
        with suppress(OSError):
            if file.read_text() == asked:
                return
        start = trainer.fresh(trainer.seeds.init())
        check = KernelCheck.of(trainer.model, self.rule, trainer.task, self.data, trainer.seeds, start, shared)
        outcome = check.check(trainer.kernel)
        if outcome.why_not is not None:
            raise Refused(
                f'the fast path is not for its samples: {outcome.why_not}; set [run] fast = "off"', for_good=True
            )  # fmt: skip
        with suppress(OSError):  # then it is found out again
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(asked)

    def finite(self, name: str) -> bool:
        """Whether a tensor of the model must be finite: all that are trained (a mask that is not may have -inf)."""
        return name in self._trained

    def client_states(self) -> ClientStates:
        """The client's own state, from this site's disk."""
        state, client = self.order.state, self.order.client
        return ClientStates(self.store if self._keeps else None, {} if state is None else {client: state})

    def retire(self, written: str | None) -> None:
        """Drop the versions of the client's state that no checkpoint of the server's can name any more."""
        if written is None:
            return
        found = [match[2] for path in self.store.folder.iterdir() if (match := NAME.fullmatch(path.name))]
        before = sorted({state for state in found if int(state.split("-")[0]) < self.order.round}, reverse=True)
        keep = {written, self.order.state, *before[:OLDER_KEPT]}
        for state in set(found) - keep:
            self.store.drop(self.order.client, state)


class _NotSent(dict[str, torch.Tensor]):
    """The round's model where the server was not told that the rule needs it."""

    def items(self) -> Any:
        raise Refused("the local rule fetches the round's model without saying so: let its `fetches` be true", for_good=True)


def _rule(run_spec: RunSpec) -> SGD:
    try:
        rule = decode("local", run_spec.rule, "the local rule")
    except FedgspError as error:
        raise Refused(str(error), for_good=True) from error
    if not isinstance(rule, SGD):
        raise Refused(f"'{run_spec.rule.get('kind')}' is not a local rule", for_good=True)
    return rule


def _summed(column: np.ndarray[Any, Any]) -> float:
    """The sum over a client's samples, in the order in which a local run adds them."""
    return float(np.bincount(np.zeros(len(column), dtype=np.int64), weights=column, minlength=1)[0])
