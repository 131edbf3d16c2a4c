"""What server and sites say to each other about training and evaluation, and what the server believes of it.

Everything that comes back is checked against what must come (`site_checks`): the samples and steps that the announced size
makes, the shapes, types and finiteness of every tensor, metrics that can be, the length of the update and of all that is sent
beside it. What does not fit is refused with a sentence; the hop is skipped and nothing of it is used.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from flwr.app import ArrayRecord, RecordDict

from fedgsp.client.rules import SGD
from fedgsp.client.train import METRIC_BYTES
from fedgsp.core.blend import blended
from fedgsp.core.chain import Hop, HopReport, Plan
from fedgsp.core.tensors import FULL, Tensors, rounded, total_bytes, wire_bytes
from fedgsp.engine.messages import ChainOutput
from fedgsp.engine.transports.flower import site_checks
from fedgsp.engine.transports.flower.base_model import BaseSupply
from fedgsp.engine.transports.flower.conversation import CheckedAnswer, OutgoingMessage, Questions, SendAgain
from fedgsp.engine.transports.flower.records import arrays, pack, payload, restore, say, unpack_like
from fedgsp.engine.transports.flower.site_checks import SiteLimits
from fedgsp.engine.transports.flower.update_guard import (
    BESIDE,
    BUFFERS,
    UPDATE,
    UpdateGuard,
    buffers_moved,
    check_size,
    is_trained,
    moved,
    sent_norm,
)
from fedgsp.engine.transports.flower.wire import Refused

if TYPE_CHECKING:
    from fedgsp.core.state import ServerState
    from fedgsp.engine.base import WorkerSetup
    from fedgsp.engine.transports.flower.engine import Sites
    from fedgsp.engine.transports.flower.run_spec import RunSpec

STATE_VERSION = re.compile(r"(\d{6,20})-[0-9a-f]{32}")
POLLS_A_SECOND = 30
"""What all nodes together may ask a SuperLink, which takes about 4 ms for each."""


@dataclass(frozen=True)
class SiteAddress:
    """Where a client is: its node, what it is called, and the version of its data."""

    node: int
    name: str
    version: str


@dataclass(frozen=True)
class ChainModel:
    """What a chain hands on: the model, the sum of what was sent beside it, its clients' states by their versions.

    `trained` are the clients that trained, in their order.
    """

    tensors: Tensors
    record: ArrayRecord
    sent: Tensors = field(default_factory=dict)
    client_versions: dict[int, str] = field(default_factory=dict)
    trained: tuple[int, ...] = ()


def poll_hint(sites: int) -> float:
    """How often nodes should ask for work while a run is on: the more there are, the less often each."""
    return sites / POLLS_A_SECOND


class _Talk:
    """What both have in common."""

    def __init__(
        self,
        state: ServerState,
        setup: WorkerSetup,
        run_spec: RunSpec,
        sites: Sites,
        limits: SiteLimits,
        base: BaseSupply | None,
    ) -> None:
        self._base = base or BaseSupply(setup)
        self._state, self._setup, self._run_spec, self._sites, self._limits = state, setup, run_spec, sites, limits

    def _station(self, client: int) -> SiteAddress:
        station = self._sites.station(client)
        if station is None:
            raise Refused("it has left")
        return station

    def _with_base(self, node: int, records: dict[str, ArrayRecord]) -> dict[str, ArrayRecord]:
        """What is sent, and the frozen parameters for a node that said it lacks them."""
        return {**records, "base": self._base.record} if self._base.due(node) else records

    def _told(self, client: int, content: RecordDict) -> dict[str, Any]:
        """The facts of an answer, unless it is that the site will not."""
        facts = site_checks.site_facts(content)
        if "refused" in facts:
            cause = site_checks.site_sentence(facts["refused"])
            station = self._sites.station(client)
            if facts.get("wants") == "base" and station is not None and self._base.give(station.node):
                raise SendAgain
            for_good, changed = facts.get("for_good") is True, facts.get("changed") is True
            self._sites.refused(client, cause, for_good=for_good, changed=changed)
            raise Refused(cause)
        station = self._sites.station(client)
        if station is None or facts.get("version") != station.version:
            raise Refused("refused: its answer is about other data than it was asked about")
        return facts


class Training(_Talk):
    """A round's hops."""

    def __init__(
        self,
        plan: Plan,
        state: ServerState,
        setup: WorkerSetup,
        run_spec: RunSpec,
        sites: Sites,
        guard: UpdateGuard,
        limits: SiteLimits = SiteLimits(),  # noqa: B008 - frozen
        base: BaseSupply | None = None,
        squeeze: bool = False,
    ) -> None:
        super().__init__(state, setup, run_spec, sites, limits, base)
        self._plan, self._guard, self._squeeze = plan, guard, squeeze
        self._wire = run_spec.wire if setup.rule.hands_on else FULL
        self._starts: dict[str, ChainModel] = {}
        self._shared = pack(state.shared)
        self._keeps = type(setup.rule).initial_client_state is not SGD.initial_client_state
        self._sends = setup.beside_model()[1]
        self._batching = setup.batching()
        self._fetches = setup.rule.fetches()

    def begin(self, index: int) -> ChainModel:
        """What a chain begins with."""
        name = self._plan.chains[index].start
        if name not in self._starts:
            tensors = rounded(self._state.models[name], self._wire)
            self._starts[name] = ChainModel(tensors, pack(tensors, self._wire))
        return self._starts[name]

    def compose(self, index: int, hop: Hop, token: Any) -> OutgoingMessage:
        """The model, what is sent along, and the round's own model where the rule wants it beside a handed one."""
        carried: ChainModel = token or self.begin(index)
        station, handed = self._station(hop.client), self._handed(index, carried)
        if handed.trained and frozenset((handed.trained[-1], hop.client)) in self._plan.apart:
            raise Refused(
                f"it must not be handed the model of client {handed.trained[-1]}, and those between them were skipped"
            )
        state = carried.client_versions.get(hop.client) or self._state.client_versions.get(hop.client)
        facts = {
            "run": self._run_spec.encode(), "round": self._plan.round, "client": hop.client, "version": station.version,
            "state": state, "hop": hop.index, "repeat": hop.repeat, "first": not handed.trained,
            "squeeze": self._squeeze, "poll": poll_hint(len(self._sites.data)),
        }  # fmt: skip
        records = {"model": handed.record} if self._setup.rule.hands_on or state is None else {}
        if self._fetches and handed.trained:
            records["global"] = self.begin(index).record
        content = say(facts, shared=self._shared, **self._with_base(station.node, records))
        return OutgoingMessage(
            station.node, "train", content, sum(payload(record) for record in (self._shared, *records.values()))
        )

    def open(self, index: int, hop: Hop, token: Any, content: RecordDict, seconds: float) -> CheckedAnswer:
        """The model that was handed on, and a report of the hop."""
        carried: ChainModel = token or self.begin(index)
        facts, rule = self._told(hop.client, content), self._setup.rule
        handed, trained = self.begin(index).tensors, self._state.trained
        given = self._handed(index, carried)
        before = given.tensors
        sent = unpack_like(arrays(content, "sent"), self._sends, FULL, "refused: what it sent beside the model")
        check_size(sent, self._state.shared, "what it sent beside the model", len(self._plan.chains[index]))
        lengths = {BESIDE: sent_norm(sent)} if sent else {}
        after = carried.tensors
        announced, samples, steps = self._work(hop, facts)
        record = carried.record
        if rule.hands_on:
            record = arrays(content, "model")
            if self._squeeze:
                record = restore(record, given.record, self._wire, "refused: its model")
            after = unpack_like(
                record, handed, self._wire, "refused: its model",
                lambda name: is_trained(name, handed[name], trained),
            )  # fmt: skip
            check_size(after, handed, "its model's", trained=trained)
            site_checks.check_untrained(after, before, trained, announced * rule.epochs_in(self._plan.round), "its model's")
            lengths[UPDATE] = moved(before, after, trained)
            lengths[BUFFERS] = buffers_moved(before, after, trained)
            self._guard.check_alone(lengths[UPDATE], before, trained)
        report = HopReport(
            hop.client,
            hop.index,
            hop.repeat,
            samples,
            steps,
            *self._traffic(facts, sent),
            _seconds(facts, seconds),
            site_checks.training_metrics(facts.get("metrics"), ("loss", *sorted(rule.reports())), self._limits),
        )
        client_versions = {**carried.client_versions, **self._state_version(hop.client, facts)}
        clients, least = (*carried.trained, hop.client), self._plan.chains[index].least
        if rule.hands_on and 1 < len(clients) <= least:
            after = rounded(blended(carried.tensors, after, len(clients)), self._wire)
            record = pack(after, self._wire)
        return CheckedAnswer(ChainModel(after, record, _added(carried.sent, sent), client_versions, clients), report, lengths)

    def _handed(self, index: int, carried: ChainModel) -> ChainModel:
        """What the next client of a chain begins with: while too few have trained, the round's own model."""
        return carried if len(carried.trained) >= self._plan.chains[index].least else self.begin(index)

    def verdicts(self, waiting: Sequence[CheckedAnswer], more: bool) -> dict[int, str | None] | None:
        """By the guard's bounds."""
        return self._guard.verdicts([(opened.report.client, opened.lengths) for opened in waiting], more)

    def output(self, token: Any) -> ChainOutput:
        """What the last client handed on."""
        carried: ChainModel = token
        return ChainOutput(carried.tensors, carried.sent, carried.client_versions)

    def _work(self, hop: Hop, facts: dict[str, Any]) -> tuple[int, int, int]:
        """Samples announced, and samples and steps that count: a client trains all it announced, in the batches it was told."""
        train, epochs = self._sites.data.train, self._setup.rule.epochs_in(self._plan.round)
        announced, counted = int(train.sizes[hop.client]), int(train.counted[hop.client])
        steps, counted_steps = (epochs * int(self._batching.steps(np.array(size))) for size in (announced, counted))
        told = facts.get("samples"), facts.get("steps")
        if told != (announced, steps) or not all(type(n) is int for n in told):
            said = [site_checks.shown(n) if isinstance(n, (int, float)) else "no number of" for n in told]
            raise Refused(f"refused: it says it made {said[1]} steps on {said[0]} samples, and {announced} were announced")
        return announced, counted, counted_steps

    def _traffic(self, facts: dict[str, Any], sent: Tensors) -> tuple[int, int]:
        """Bytes down and up, as a local run counts them."""
        model = wire_bytes(self._model(), self._wire) if self._setup.rule.hands_on else 0
        least = model + total_bytes(self._state.shared)
        down, up = facts.get("down"), model + total_bytes(sent) + METRIC_BYTES * len(self._setup.rule.reports())
        if isinstance(down, bool) or not isinstance(down, int) or not least <= down <= least + model or facts.get("up") != up:
            raise Refused("refused: it counts other bytes than were sent")
        return down, up

    def _model(self) -> Tensors:
        return next(iter(self._state.models.values()))

    def _state_version(self, client: int, facts: dict[str, Any]) -> dict[int, str]:
        state = facts.get("state")
        if not self._keeps:
            return {}
        match = STATE_VERSION.fullmatch(state) if isinstance(state, str) else None
        if match is None or match[1] != f"{self._plan.round:06d}":
            raise Refused("refused: it does not say which state it keeps")
        return {client: str(state)}


@dataclass(frozen=True)
class SiteQuestion:
    """Which client is to score which model on which of its parts; `personal`: after making it its own."""

    client: int
    model: str
    personal: bool
    parts: tuple[str, ...]


class Evaluating(_Talk, Questions):
    """The questions of one evaluation."""

    def __init__(
        self,
        questions: Sequence[SiteQuestion],
        state: ServerState,
        setup: WorkerSetup,
        run_spec: RunSpec,
        sites: Sites,
        limits: SiteLimits = SiteLimits(),  # noqa: B008 - frozen
        base: BaseSupply | None = None,
    ) -> None:
        super().__init__(state, setup, run_spec, sites, limits, base)
        self._questions = questions
        self._packed: dict[str, tuple[ArrayRecord, ArrayRecord]] = {}

    def compose(self, index: int, hop: Hop, token: Any) -> OutgoingMessage:
        """The model, whole whatever the wire, and what it is evaluated with."""
        question, station = self._questions[index], self._station(hop.client)
        model, beside = self._models(question.model)
        state = self._state.client_versions.get(hop.client)
        facts = {
            "run": self._run_spec.encode(), "round": self._state.round, "client": hop.client, "version": station.version,
            "state": state, "parts": list(question.parts), "personal": question.personal,
            "poll": poll_hint(len(self._sites.data)),
        }  # fmt: skip
        records = {"model": model} if self._setup.rule.hands_on or state is None else {}
        content = say(facts, beside=beside, **self._with_base(station.node, records))
        return OutgoingMessage(station.node, "evaluate", content, payload(beside) + sum(map(payload, records.values())))

    def open(self, index: int, hop: Hop, token: Any, content: RecordDict, seconds: float) -> CheckedAnswer:
        """Means over the samples of each part."""
        facts, question = self._told(hop.client, content), self._questions[index]
        sizes = {part: int(getattr(self._sites.data, part).sizes[hop.client]) for part in question.parts}
        sums = site_checks.scores(facts.get("parts"), sizes, tuple(self._setup.task.metrics), self._limits)
        found = {part: {name: value / max(1, sizes[part]) for name, value in own.items()} for part, own in sums.items()}
        return CheckedAnswer(found, HopReport(hop.client, 0, 0, 0, 0, 0, 0, seconds))

    def _models(self, name: str) -> tuple[ArrayRecord, ArrayRecord]:
        if name not in self._packed:
            model, beside = self._state.evaluated(name)
            self._packed[name] = pack(model), pack(beside)
        return self._packed[name]


def _added(total: Tensors, sent: Tensors) -> Tensors:
    """The running sum of what a chain's clients sent, as `client.client_state.ClientStates` adds it."""
    result = dict(total)
    for name, tensor in sent.items():
        value = tensor.to(torch.float64 if tensor.is_floating_point() else torch.int64)
        result[name] = result[name] + value if name in result else value
    return result


def _seconds(facts: dict[str, Any], waited: float) -> float:
    """What a client says of its training, which cannot have taken longer than its answer."""
    return min(max(0.0, site_checks.number(facts.get("seconds", 0.0), "its time")), max(0.0, waited))
