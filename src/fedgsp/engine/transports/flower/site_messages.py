"""What server and sites say to each other about training and evaluation, and what the server believes of it.

Everything that comes back is checked against what must come: the samples and steps that the announced size makes, the shapes,
types and finiteness of every tensor, the length of the update. What does not fit is refused with a sentence; the hop is skipped
and nothing of it is used.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from flwr.app import ArrayRecord, RecordDict

from fedgsp.client.rules import SGD
from fedgsp.client.train import METRIC_BYTES
from fedgsp.core.chain import Hop, HopReport, Plan
from fedgsp.core.tensors import FULL, Tensors, rounded, total_bytes, wire_bytes
from fedgsp.engine.messages import ChainOutput
from fedgsp.engine.transports.flower.records import Refused, arrays, heard, pack, say, unpack_like
from fedgsp.engine.transports.flower.transport import CheckedAnswer, OutgoingMessage, Questions
from fedgsp.engine.transports.flower.update_guard import UpdateGuard, check_counters, check_size, moved

if TYPE_CHECKING:
    from fedgsp.core.state import ServerState
    from fedgsp.engine.base import WorkerSetup
    from fedgsp.engine.transports.flower.engine import Sites
    from fedgsp.engine.transports.flower.run_spec import RunSpec

STATE_VERSION = re.compile(r"(\d{6,})-[0-9a-f]{32}")
MOST_METRICS = 32


@dataclass(frozen=True)
class SiteAddress:
    """Where a client is: its node, what it is called, and the version of its data."""

    node: int
    name: str
    version: str


@dataclass(frozen=True)
class ChainModel:
    """What a chain hands on: the model, the sum of what was sent beside it, its clients' states by their versions."""

    tensors: Tensors
    record: ArrayRecord
    sent: Tensors = field(default_factory=dict)
    client_versions: dict[int, str] = field(default_factory=dict)
    trained: bool = False


class _Talk:
    """What both have in common."""

    def __init__(self, state: ServerState, setup: WorkerSetup, run_spec: RunSpec, sites: Sites) -> None:
        self._state, self._setup, self._run_spec, self._sites = state, setup, run_spec, sites

    def _station(self, client: int) -> SiteAddress:
        station = self._sites.station(client)
        if station is None:
            raise Refused("it has left")
        return station

    def _told(self, client: int, content: RecordDict) -> dict[str, Any]:
        """The facts of an answer, unless it is that the site will not."""
        facts = heard(content)
        if "refused" in facts:
            cause = _sentence(facts["refused"])
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
        self, plan: Plan, state: ServerState, setup: WorkerSetup, run_spec: RunSpec, sites: Sites, guard: UpdateGuard
    ) -> None:
        super().__init__(state, setup, run_spec, sites)
        self._plan, self._guard = plan, guard
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
        station = self._station(hop.client)
        state = carried.client_versions.get(hop.client) or self._state.client_versions.get(hop.client)
        facts = {
            "run": self._run_spec.encode(), "round": self._plan.round, "client": hop.client, "version": station.version,
            "state": state, "hop": hop.index, "repeat": hop.repeat, "first": not carried.trained,
        }  # fmt: skip
        records = {"model": carried.record} if self._setup.rule.hands_on or state is None else {}
        if self._fetches and carried.trained:
            records["global"] = self.begin(index).record
        content = say(facts, shared=self._shared, **records)
        return OutgoingMessage(
            station.node, "train", content, sum(_payload(record) for record in (self._shared, *records.values()))
        )

    def open(self, index: int, hop: Hop, token: Any, content: RecordDict, seconds: float) -> CheckedAnswer:
        """The model that was handed on, and a report of the hop."""
        carried: ChainModel = token or self.begin(index)
        facts, rule = self._told(hop.client, content), self._setup.rule
        handed = self.begin(index).tensors
        sent = unpack_like(arrays(content, "sent"), self._sends, FULL, "refused: what it sent beside the model")
        check_size(sent, self._state.shared, "what it sent beside the model", len(self._plan.chains[index]))
        far: float | None = None
        after = carried.tensors
        samples, steps = self._work(hop, facts)
        if rule.hands_on:
            after = unpack_like(arrays(content, "model"), handed, self._wire, "refused: its model")
            check_size(after, handed, "its model's")
            check_counters(after, "its model's")
            distance = moved(carried.tensors, after)
            self._guard.check_alone(distance, carried.tensors)
            far = distance / math.sqrt(max(1, steps))
        report = HopReport(
            hop.client,
            hop.index,
            hop.repeat,
            samples,
            steps,
            *self._traffic(facts, sent),
            _seconds(facts),
            self._metrics(facts),
        )
        client_versions = {**carried.client_versions, **self._state_version(hop.client, facts)}
        record = arrays(content, "model") if rule.hands_on else carried.record
        return CheckedAnswer(ChainModel(after, record, _added(carried.sent, sent), client_versions, True), report, far)

    def verdicts(self, waiting: Sequence[CheckedAnswer], more: bool) -> dict[int, str | None] | None:
        """By the guard's bound, unless the rule hands no model on."""
        lengths = [opened.moved for opened in waiting if opened.moved is not None]
        if len(lengths) < len(waiting):
            return dict.fromkeys(range(len(waiting)))
        return self._guard.verdicts(lengths, more)

    def output(self, token: Any) -> ChainOutput:
        """What the last client handed on."""
        carried: ChainModel = token
        return ChainOutput(carried.tensors, carried.sent, carried.client_versions)

    def _work(self, hop: Hop, facts: dict[str, Any]) -> tuple[int, int]:
        """Samples and steps: a client trains all it announced, in the batches that it was told."""
        rule, announced = self._setup.rule, int(self._sites.data.train.sizes[hop.client])
        steps = rule.epochs_in(self._plan.round) * int(self._batching.steps(np.array(announced)))
        told = facts.get("samples"), facts.get("steps")
        if told != (announced, steps) or any(isinstance(n, bool) for n in told):
            raise Refused(f"refused: it says it made {told[1]!r} steps on {told[0]!r} samples, and {announced} were announced")
        return announced, steps

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

    def _metrics(self, facts: dict[str, Any]) -> dict[str, float]:
        found = facts.get("metrics")
        if not isinstance(found, dict) or len(found) > MOST_METRICS:
            raise Refused("refused: it reports no metrics")
        for name in ("loss", *self._setup.rule.reports()):
            if name not in found:
                raise Refused(f"refused: it does not report its {name}")
        if not all(_is_number(value) for value in found.values()):
            raise Refused("refused: a metric of its is not a finite number")
        return {str(name): float(value) for name, value in found.items()}

    def _state_version(self, client: int, facts: dict[str, Any]) -> dict[int, str]:
        state = facts.get("state")
        if not self._keeps:
            return {}
        match = STATE_VERSION.fullmatch(state) if isinstance(state, str) else None
        if match is None or int(match[1]) != self._plan.round:
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
        self, questions: Sequence[SiteQuestion], state: ServerState, setup: WorkerSetup, run_spec: RunSpec, sites: Sites
    ) -> None:
        super().__init__(state, setup, run_spec, sites)
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
        }  # fmt: skip
        records = {"model": model} if self._setup.rule.hands_on or state is None else {}
        content = say(facts, beside=beside, **records)
        return OutgoingMessage(station.node, "evaluate", content, _payload(beside) + sum(map(_payload, records.values())))

    def open(self, index: int, hop: Hop, token: Any, content: RecordDict, seconds: float) -> CheckedAnswer:
        """Sums over the samples of each part."""
        facts, question = self._told(hop.client, content), self._questions[index]
        parts = facts.get("parts")
        if not isinstance(parts, dict) or parts.keys() != set(question.parts):
            raise Refused("refused: it did not score what it was asked to")
        names = {"loss", *self._setup.task.metrics}
        for part, sums in parts.items():
            size = int(getattr(self._sites.data, part).sizes[hop.client])
            if not isinstance(sums, dict) or sums.keys() != {"samples", *names} or sums["samples"] != size:
                raise Refused(f"refused: its scores are not of the {size} {part} samples that it announced")
            if not all(_is_number(sums[name]) for name in names):
                raise Refused("refused: a score of its is not a finite number")
        found = {part: {name: float(sums[name]) for name in names} for part, sums in parts.items()}
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


def _payload(record: ArrayRecord) -> int:
    return sum(len(array.data) for array in record.values())


def _seconds(facts: dict[str, Any]) -> float:
    seconds = facts.get("seconds", 0.0)
    return max(0.0, float(seconds)) if _is_number(seconds) else 0.0


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def _sentence(cause: Any) -> str:
    """What a site says of itself, as one line of bounded length."""
    text = str(cause)[:300]
    return "".join(letter if letter.isprintable() else " " for letter in text)
