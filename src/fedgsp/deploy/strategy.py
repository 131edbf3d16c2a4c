"""FedGSP, or any planner and server rule of ours, in a ServerApp of your own, with your own ClientApp and model.

    result = FedGSP(rounds=20).start(grid, ArrayRecord(Net().state_dict()))

The ClientApp is an ordinary one: `train` gets `arrays` and `config` and gives back `arrays` and `metrics` with `num-examples`,
`evaluate` the same without arrays. To be grouped by its data it also answers `query.histogram` with its class counts,
`{"histogram": MetricRecord({"counts": [...]})}`; one that does not is spread evenly at random. Clients that fail, are late, or
send what cannot be used are skipped, and their chains go on. What a client does is not ours here, so there is no replay.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result

from fedgsp.core.chain import ChainResult, Hop, HopReport, Plan
from fedgsp.core.errors import InputError, RunFailed
from fedgsp.core.profiles import Profiles
from fedgsp.core.seeds import Seeds
from fedgsp.core.state import ServerState, Setting
from fedgsp.data.outline import capped
from fedgsp.deploy.client_answers import arrays_of, at_most, averaged, report_of, tensors_of
from fedgsp.deploy.settings import DeploySettings, why_not
from fedgsp.engine.messages import ChainOutput, EngineEvent, HopDone, HopSkipped
from fedgsp.engine.scheduler import ChainScheduler
from fedgsp.engine.transports.flower.adaptive_limit import AdaptiveTimeLimit
from fedgsp.engine.transports.flower.conversation import CheckedAnswer, Conversation, OutgoingMessage, Questions
from fedgsp.engine.transports.flower.post import Clock
from fedgsp.engine.transports.flower.site_checks import check_untrained
from fedgsp.engine.transports.flower.transport import FlowerTransport, ask
from fedgsp.engine.transports.flower.update_guard import UPDATE, UpdateGuard, check_size, moved
from fedgsp.engine.transports.flower.wire import Refused
from fedgsp.method import Method
from fedgsp.methods import named
from fedgsp.plan import HandOver
from fedgsp.run.part_checks import begun, finished
from fedgsp.server import Private, evaluated_model

if TYPE_CHECKING:
    from fedgsp.core.tensors import Tensors

MOST_EXAMPLES = 10_000_000
"""What a client may weigh that did not say beforehand how many examples it has."""


@dataclass(frozen=True)
class FedGSP:
    """A method's planner and server rule over your own clients; `kappa` is the share of groups that train in a round."""

    rounds: int = 10
    method: str | Method = "fedgsp"
    kappa: float | None = None
    seed: int = 0
    evaluate: bool = True
    settings: DeploySettings = field(default_factory=DeploySettings)

    def start(
        self, grid: Grid, arrays: ArrayRecord, train_config: ConfigRecord | None = None, clock: Clock | None = None
    ) -> Result:
        """Train from `arrays`; the result has the model after the last round and the metrics of each."""
        method = self._method()
        run = _Run(grid, method, self.settings, train_config or ConfigRecord(), clock or Clock(poll=self.settings.poll_seconds))
        start, result = tensors_of(arrays, "the initial arrays"), Result()
        run.wait()
        profiles = run.profiles()
        state = begun(method.server, start, Setting(clients=len(profiles), classes=profiles.counts.shape[1]))
        for round_ in range(1, self.rounds + 1):
            every = self.settings.profile_every
            if round_ > 1 and every and (round_ - 1) % every == 0:
                run.forget()
            state, result.train_metrics_clientapp[round_] = run.round(round_, state, Seeds(self.seed))
            if self.evaluate:
                result.evaluate_metrics_clientapp[round_] = run.evaluated(state)
            print(f"round {round_}: {dict(result.evaluate_metrics_clientapp.get(round_, {}))}", flush=True)
        result.arrays = arrays_of(state.evaluated(evaluated_model(method.server, state))[0])
        return result

    def _method(self) -> Method:
        method = named(self.method) if isinstance(self.method, str) else self.method
        if (reason := why_not(method)) is not None:
            raise InputError(reason)
        half = method.server.requires_local
        if method.yields != "one" or half:
            raise InputError(f"the method '{method.name}' needs clients of fedgsp's own; deploy it with fedgsp deploy.")
        if isinstance(method.planner, HandOver):
            raise InputError("the planner 'hand-over' needs clients of fedgsp's own; deploy it with fedgsp deploy.")
        if isinstance(method.server, Private):
            raise InputError("the server rule 'private' needs a run that adds up what it costs; deploy it with fedgsp deploy.")
        if self.kappa is None:
            return method
        if not hasattr(method.planner, "kappa"):
            raise InputError(f"the planner of '{method.name}' has no kappa.")
        return replace(method, planner=replace(method.planner, kappa=self.kappa))  # type: ignore[type-var]


class _Run:
    """The clients of one `start`: nodes are numbered in the order in which they were first seen."""

    def __init__(self, grid: Grid, method: Method, settings: DeploySettings, config: ConfigRecord, clock: Clock) -> None:
        self._grid, self._method, self._settings, self._config, self._clock = grid, method, settings, config, clock
        self.nodes: list[int] = []
        self._counts: dict[int, list[int] | None] = {}
        self._time_limit = AdaptiveTimeLimit(settings.hop_seconds_floor, settings.hop_seconds_cap)
        self._guard = UpdateGuard(settings.norm_bound)
        self.limits = settings.limits

    def wait(self) -> None:
        """Until enough nodes are there."""
        until = self._clock.now() + self._settings.wait_seconds
        while len(list(self._grid.get_node_ids())) < self._settings.sites:
            if self._clock.now() >= until:
                raise RunFailed(f"fewer than {self._settings.sites} nodes came within {self._settings.wait_seconds:g} s.")
            self._clock.sleep(1.0)

    def forget(self) -> None:
        """Ask everybody for its histogram again."""
        self._counts.clear()

    def profiles(self) -> Profiles:
        """Who is there, and what they tell of their data; new ones are asked."""
        here = set(self._grid.get_node_ids())
        self.nodes += sorted(here - set(self.nodes))
        clients = [k for k, node in enumerate(self.nodes) if node in here]
        new = [k for k in clients if k not in self._counts]
        self._counts.update(dict.fromkeys(new))
        transport = self._transport(_Histograms(self))
        for index in ask(transport, new):
            self._counts[new[index]] = transport.answers[index]
        told = {k: self._counts[k] for k in clients}
        width = max((len(counts) for counts in told.values() if counts is not None), default=1)
        counts = np.zeros((len(clients), width), dtype=np.int64)
        for row, client in enumerate(clients):
            counts[row, : len(told[client] or ())] = told[client] or ()
        known = np.array([told[k] is not None for k in clients], dtype=bool)
        sizes = np.where(known, counts.sum(axis=1), 0)
        return Profiles(np.array(clients, dtype=np.int64), counts, sizes, None if known.all() else known)

    def round(self, round_: int, state: ServerState, seeds: Seeds) -> tuple[ServerState, MetricRecord]:
        """One round; repeated while too few of the clients that were asked trained."""
        for _ in range(self._settings.repeats + 1):
            profiles = self.profiles()
            if len(profiles):
                plan = self._method.server.route(state, self._method.planner.plan(round_, profiles, seeds), seeds)
                found = self._trained(plan, state)
                if found is not None:
                    return found
            self._clock.sleep(1.0)
        raise RunFailed(f"too few clients trained in round {round_}, {self._settings.repeats + 1} times.")

    def _trained(self, plan: Plan, state: ServerState) -> tuple[ServerState, MetricRecord] | None:
        self._guard.next_round(plan)
        most = [sum(self.examples(k) or MOST_EXAMPLES for k in chain.clients) for chain in plan.chains]
        update, reports = self._method.server.start(state, plan, most), list[HopReport]()

        def told(event: EngineEvent) -> None:
            if isinstance(event, HopSkipped):
                print(f"round {plan.round}: node {self.nodes[event.client]} is skipped: {event.cause}", flush=True)
            elif isinstance(event, HopDone) and event.waited is not None:
                reports.append(event.report)
                self._time_limit.learn(event.report.client, event.report.samples, event.waited, event.waited)

        transport = self._transport(_Training(self, state, plan, self._guard, self._config), str(plan.round))
        results: Iterable[ChainResult] = ChainScheduler(transport).run_chains(plan, state, told)
        if not all(map(self.examples, plan.clients)):  # what is much is known when all have said how many they have
            results = [*results]
            most_each = self._most([report.samples for report in reports])
            results = [replace(one, hops=tuple(at_most(hop, most_each) for hop in one.hops)) for one in results]
            reports = [at_most(report, most_each) for report in reports]
        for result in results:
            update.add(result)
        if not reports or len(reports) < self._settings.quorum * sum(map(len, plan.chains)):
            return None
        return finished(self._method.server, update, state, plan.round), averaged(reports)

    def evaluated(self, state: ServerState) -> MetricRecord:
        """Metrics of everybody who is there, weighed by their examples."""
        here = set(self._grid.get_node_ids())
        clients = [k for k, node in enumerate(self.nodes) if node in here]
        model = arrays_of(state.evaluated(evaluated_model(self._method.server, state))[0])
        transport = self._transport(_Evaluating(self, model, self._config), str(state.round))
        reports = [transport.answers[index] for index in ask(transport, clients)]
        most = self._most([report.samples for report in reports])
        return averaged([at_most(report, most) for report in reports])

    def examples(self, client: int) -> int:
        """How many a client said it has; 0 for one that does not tell."""
        return sum(self._counts.get(client) or ())

    def weighed(self, report: HopReport) -> HopReport:
        """A report that counts for no more than the bound times the median of what clients told that tell anything."""
        return at_most(report, self._most([self.examples(k) for k in range(len(self.nodes))]))

    def _most(self, sizes: Sequence[int]) -> int:
        """What a client of these may count for at most; 0 where none says."""
        return int(capped(np.array(sizes, dtype=np.int64), self._settings.counts_at_most).max(initial=0))

    def _transport(self, conversation: Conversation, group: str = "") -> FlowerTransport:
        def limit(hop: Hop) -> float:
            return self._time_limit.limit(hop.client, self.examples(hop.client))

        return FlowerTransport(self._grid, conversation, limit, self._settings.in_flight, self._clock, group)


@dataclass
class _Histograms(Questions):
    run: _Run

    def compose(self, index: int, hop: Hop, token: Any) -> OutgoingMessage:
        return OutgoingMessage(self.run.nodes[hop.client], "query.histogram", RecordDict())

    def open(self, index: int, hop: Hop, token: Any, content: RecordDict, seconds: float) -> CheckedAnswer:
        record = content["histogram"]
        counts = record["counts"] if isinstance(record, MetricRecord) else None
        limits = self.run.limits
        if not isinstance(counts, list) or len(counts) > limits.classes:
            raise Refused(f"its histogram is not a list of at most {limits.classes:,} counts")
        if not all(type(n) is int and 0 <= n <= limits.samples for n in counts) or sum(counts) > limits.samples:
            raise Refused(f"its histogram does not have counts that add up to at most {limits.samples:,}")
        return CheckedAnswer(counts, HopReport(hop.client, 0, 0, 0, 0, 0, 0, seconds))


@dataclass
class _Training:
    run: _Run
    state: ServerState
    plan: Plan
    guard: UpdateGuard
    config: ConfigRecord

    def _begin(self, index: int) -> Tensors:
        return self.state.models[self.plan.chains[index].start]

    def compose(self, index: int, hop: Hop, token: Any) -> OutgoingMessage:
        record = arrays_of(token or self._begin(index))
        config = ConfigRecord({**self.config, "server-round": self.plan.round})
        content = RecordDict({"arrays": record, "config": config})
        return OutgoingMessage(self.run.nodes[hop.client], "train", content, sum(len(array.data) for array in record.values()))

    def open(self, index: int, hop: Hop, token: Any, content: RecordDict, seconds: float) -> CheckedAnswer:
        handed: Tensors = token or self._begin(index)
        record = content["arrays"]
        after = tensors_of(record, "its arrays") if isinstance(record, ArrayRecord) else {}
        if {n: (t.shape, t.dtype) for n, t in after.items()} != {n: (t.shape, t.dtype) for n, t in handed.items()}:
            raise Refused("refused: its arrays have other names, shapes or types than those it was handed")
        check_size(after, self._begin(index), "its model's")
        report = report_of(hop, content, seconds, self.run.examples(hop.client) or MOST_EXAMPLES, self.run.limits)
        check_untrained(after, handed, None, MOST_EXAMPLES, "its model's")
        distance = moved(handed, after)
        self.guard.check_alone(distance, handed)
        return CheckedAnswer(after, self.run.weighed(report), {UPDATE: distance})

    def verdicts(self, waiting: Sequence[CheckedAnswer], more: bool) -> dict[int, str | None] | None:
        return self.guard.verdicts([(answer.report.client, answer.lengths) for answer in waiting], more)

    def output(self, token: Any) -> ChainOutput:
        return ChainOutput(token, {}, {})


@dataclass
class _Evaluating(Questions):
    run: _Run
    arrays: ArrayRecord
    config: ConfigRecord

    def compose(self, index: int, hop: Hop, token: Any) -> OutgoingMessage:
        return OutgoingMessage(
            self.run.nodes[hop.client], "evaluate", RecordDict({"arrays": self.arrays, "config": self.config})
        )

    def open(self, index: int, hop: Hop, token: Any, content: RecordDict, seconds: float) -> CheckedAnswer:
        report = report_of(hop, content, seconds, MOST_EXAMPLES, self.run.limits)
        return CheckedAnswer(report, report)
