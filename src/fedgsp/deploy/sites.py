"""The server's list of sites: who is there, what they said of themselves, and which of them must be asked again.

A site is known by its name and keeps its number for the whole run, whatever node it comes back on; the number is the one that
its settings ask for, or the lowest that was never given. Everything that a plan depends on goes to the event log before the
plan is made, so that a replay plans the same.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING

from flwr.serverapp import Grid

from fedgsp.core.errors import Paused, RunFailed
from fedgsp.deploy.registration import Registration, RegistrationQuery
from fedgsp.deploy.site_log import SampleFormat, SiteLog, SiteRecord, changes, outline, participants_of
from fedgsp.engine.transports.flower.post import Clock
from fedgsp.engine.transports.flower.pulse import Pulse
from fedgsp.engine.transports.flower.site_messages import SiteAddress
from fedgsp.engine.transports.flower.transport import FlowerTransport, ask, unreachable

if TYPE_CHECKING:
    from fedgsp.data.outline import DataOutline
    from fedgsp.deploy.settings import DeploySettings
    from fedgsp.engine.messages import HopSkipped
    from fedgsp.engine.transports.flower.run_spec import RunSpec
    from fedgsp.run.participants import Participants, RecordEvent, Work


@dataclass
class SiteRegistry:
    """See the module. It is the availability of a run, and where its engine looks up who is where."""

    grid: Grid
    settings: DeploySettings
    run_spec: RunSpec
    clock: Clock
    log: SiteLog = field(default_factory=SiteLog)
    here: dict[int, SiteRecord] = field(default_factory=dict)
    turned_away: dict[int, str] = field(default_factory=dict)
    fixed: bool = False
    pulse: Pulse = field(init=False)

    def __post_init__(self) -> None:
        self.pulse = Pulse(self.grid, self.clock, self.settings.silent_seconds)
        self.samples: SampleFormat | None = self.log.samples
        if self.samples is not None:
            self.run_spec = replace(self.run_spec, classes=self.samples.classes, shape=self.samples.shape)
        self._new: dict[int, Registration] = {}  # those who came before it was settled what samples are like
        self._reasons: dict[str, str] = {}  # why somebody was not let in, until it is in the event log
        self._numbers = {member.name: number for number, member in self.log.known.items()}
        self._nodes: dict[int, int] = {}
        self._logged, self._begun = dict(self.log.here), dict(self.log.here)
        self._stale: set[int] = set()
        self._asked_in = 0
        self._attempt = 1
        self._waited = 0.0  # for a quorum, since the last round that had one
        self._pauses = 0
        self._outline: DataOutline | None = None

    # -- what an engine looks up -----------------------------------------------------------------------------------------

    @property
    def data(self) -> DataOutline:
        """The federation without its samples, as it is now."""
        if self._outline is None:
            assert self.samples is not None
            self._outline = outline(self.samples, self.here.values(), self.bound)
        return self._outline

    @property
    def bound(self) -> float | None:
        """How many times the median a site counts for at most: as the run was begun."""
        begun = self.log.samples is not None
        return self.log.bound if begun else self.settings.counts_at_most

    def station(self, client: int) -> SiteAddress | None:
        """Where a client is to be found."""
        member = self.here.get(client)
        return None if member is None else SiteAddress(self._nodes[client], member.name, member.version)

    def refused(self, client: int, cause: str, *, for_good: bool, changed: bool) -> None:
        """Ask a client whose data changed for its profile before the next round; leave out one that cannot take part."""
        if changed:
            self._stale.add(client)
        if for_good and client in self._nodes:
            self.turned_away[self._nodes[client]] = cause

    # -- who is there ----------------------------------------------------------------------------------------------------

    def wait_for_sites(self) -> DataOutline:
        """Wait until enough sites have introduced themselves; what the federation is like is settled then."""
        until = self.clock.now() + self.settings.wait_seconds
        while True:
            self._look(refresh=False)
            if len(self.here) >= self.settings.sites:
                self._begun = dict(self.here)
                return self.data
            if self.clock.now() >= until:
                away = "".join(f" A site was turned away: {cause}." for cause in list(self.turned_away.values())[:3])
                came, wanted = len(self.here) or len(self._new), self.settings.sites
                within = f"within {self.settings.wait_seconds:g} s"
                raise RunFailed(f"{came} of the {wanted} sites came {within}, so the run was not begun.{away}")
            self.clock.sleep(max(1.0, self.clock.poll))

    def participants(self, round_: int, event: RecordEvent) -> Participants:
        """Who is there for a round; profiles are asked for anew every so often."""
        every = self.settings.profile_every
        due = every > 0 and round_ > 1 and (round_ - 1) % every == 0 and self._asked_in != round_
        self._look(refresh=due)
        if due:
            self._asked_in = round_
        if not any(member.train for member in self.here.values()):
            self._wait_for_quorum(f"no site is there for round {round_}", 1, event)
        self.record(event)
        assert self.samples is not None
        return participants_of(self.samples, self.here, self._attempt, self.bound)

    def enough(self, round_: int, trained: Work, planned: Work, event: RecordEvent) -> bool:
        """Whether the quorum was reached, of samples that count or of sites; if not time and again, wait for sites.

        Of sites, since a few that count for much, and do not answer, must not stop all others.
        """
        quorum = self.settings.quorum
        nobody = planned.clients == 0  # Poisson sampling may draw nobody
        if nobody or (
            trained.samples > 0
            and (trained.samples >= quorum * planned.samples or trained.clients >= max(quorum * planned.clients, 2))
        ):
            self._attempt, self._waited, self._pauses = 1, 0.0, 0
            return True
        facts = {"round": round_, "attempt": self._attempt, "trained": trained.samples, "planned": planned.samples}
        event("below_quorum", **facts)
        if self._attempt % (self.settings.repeats + 1) == 0:
            cause = (
                f"only {trained.samples} of {planned.samples} planned samples were trained in round {round_}, "
                f"{self._attempt} times"
            )
            self._wait_for_quorum(cause, planned.samples, event)
        self._attempt += 1
        return False

    def record(self, event: RecordEvent) -> None:
        """Put what changed into the event log."""
        assert self.samples is not None
        if self.log.samples is None:
            event("federation", run=self.log.run, about=asdict(self.samples), weight_bound=self.settings.weight_bound)
            self.log.samples, self.log.weight_bound = self.samples, self.settings.weight_bound
            self._record_changes(self._begun, event)  # the run was made for these, whoever came or left since
        for name, cause in self._reasons.items():
            event("turned_away", name=name, cause=cause)
        self._reasons.clear()
        self._record_changes(self.here, event)

    def _record_changes(self, here: Mapping[int, SiteRecord], event: RecordEvent) -> None:
        facts = changes(self._logged, here)
        if facts is not None:
            event("sites", **facts)
            self._logged = dict(here)

    def _wait_for_quorum(self, cause: str, planned: int, event: RecordEvent) -> None:
        """Pause: wait for sites that hold enough samples, and give up (without losing anything) when that takes too long.

        Sites may be there and still fail, so every pause of one round is longer than the last, and all of them count.
        """
        settings = self.settings
        event("waiting", cause=cause, seconds=settings.wait_seconds)
        print(f"paused: {cause}; waiting up to {settings.wait_seconds:g} s for sites to come back.", flush=True)
        self._pauses += 1
        seconds = max(self.clock.poll, float(2**self._pauses))
        refresh = True  # who is listed but does not answer is not there
        while self._waited < settings.wait_seconds:
            self.clock.sleep(seconds)
            self._waited, seconds = self._waited + seconds, max(1.0, self.clock.poll)
            self._look(refresh=refresh)
            refresh = False
            there = int(self.data.train.counted.sum()) if self.here else 0
            if there > 0 and there >= settings.quorum * planned:
                return
        raise Paused(
            f"the run is paused: {cause}, and waiting {settings.wait_seconds:g} s for sites did not help; see to them and go "
            f"on with fedgsp deploy resume."
        )

    def _look(self, *, refresh: bool) -> None:
        """Compare the Grid's nodes with the list: drop who is gone, ask who is new, stale or due."""
        try:
            self.pulse.look()
            nodes = {int(node) for node in self.grid.get_node_ids() if not self.pulse.silent(int(node))}
        except Exception as error:
            raise unreachable(error) from error
        for node in self.turned_away.keys() - nodes:
            del self.turned_away[node]
        if refresh:
            self.turned_away.clear()
        clients = {node: client for client, node in self._nodes.items()}
        for client, node in list(self._nodes.items()):
            if node not in nodes or node in self.turned_away:
                self._drop(client)
        known = set(self._nodes.values())
        ask = [
            node
            for node in sorted(nodes - self.turned_away.keys())
            if refresh or (node not in known and node not in self._new) or clients.get(node) in self._stale
        ]
        self._stale.clear()
        self._new = {node: said for node, said in self._new.items() if node in nodes}
        if ask:
            self._ask(ask)

    def _drop(self, client: int) -> None:
        self.here.pop(client, None)
        self._nodes.pop(client, None)
        self._outline = None

    def _ask(self, nodes: Sequence[int]) -> None:
        """Ask nodes who they are; those that do not answer are not there."""
        clients = {node: client for client, node in self._nodes.items()}
        conversation = RegistrationQuery(nodes, self.run_spec, clients, self.settings.limits)

        def skipped(event: HopSkipped) -> None:
            node = nodes[event.chain]
            self._reasons[f"node {node}"] = event.cause
            if node in conversation.for_good:
                self.turned_away[node] = event.cause
            if node in clients:
                self._drop(clients[node])

        transport = FlowerTransport(
            self.grid, conversation, self.settings.hop_seconds_cap, self.settings.in_flight, self.clock, "hello", self.pulse
        )
        found = ask(transport, range(len(nodes)), skipped)
        answers: dict[int, Registration] = {nodes[index]: transport.answers[index] for index in found}
        if self.samples is None:
            self._new.update(answers)
            if len(self._new) < self.settings.sites:
                return
            answers, self._new = self._new, {}
            self._settle_samples(list(answers.values()))
        for node, said in sorted(answers.items(), key=lambda item: (item[1].member.number < 0, item[1].member.name)):
            cause = self._misfit(said) or self._admit(node, said.member)
            if cause is not None:
                self._reasons[said.member.name] = self.turned_away[node] = cause
                if node in clients:
                    self._drop(clients[node])

    def _settle_samples(self, answers: Sequence[Registration]) -> None:
        """What the federation's samples are like: as the settings say, and for the rest as most sites have them."""
        told = self.settings

        def fits(one: SampleFormat) -> bool:
            return (
                (told.shape is None or one.shape == told.shape)
                and (told.dtype is None or _floats(one.dtype) == _floats(told.dtype))
                and (told.classes is None or (bool(one.classes) == bool(told.classes) and one.classes <= told.classes))
            )

        ordered = sorted(answers, key=lambda said: (said.member.number < 0, said.member.number, said.member.name))
        alike = [said.samples for said in ordered if fits(said.samples)]
        if not alike:
            return
        kind = Counter(map(_kind, alike)).most_common(1)[0][0]  # of equals the first
        chosen = [one for one in alike if _kind(one) == kind]
        classes = max(one.classes for one in chosen) if told.classes is None else told.classes
        dtype = told.dtype or chosen[0].dtype
        self.samples = replace(chosen[0], classes=classes, dtype=dtype, wire=told.wire)
        self.run_spec = replace(self.run_spec, classes=classes, shape=self.samples.shape)

    def _misfit(self, said: Registration) -> str | None:
        """Why a site cannot take part, if so."""
        ours, theirs, name = self.samples, said.samples, said.member.name
        if ours is None:
            return f"the site '{name}' has samples of shape {theirs.shape} ({theirs.dtype}) in {theirs.classes} classes"
        if theirs.shape != ours.shape or theirs.divisor != ours.divisor or _floats(theirs.dtype) != _floats(ours.dtype):
            return (
                f"the site '{name}' has samples of shape {theirs.shape} ({theirs.dtype}), the run {ours.shape} ({ours.dtype})"
            )
        if bool(theirs.classes) != bool(ours.classes) or theirs.classes > ours.classes:
            return f"the site '{name}' has {theirs.classes} classes, the run has {ours.classes}"
        if len(said.member.counts or ()) > max(1, ours.classes):
            return f"the site '{name}' tells counts of {len(said.member.counts or ())} classes, the run has {ours.classes}"
        return None

    def _admit(self, node: int, member: SiteRecord) -> str | None:
        """Put a site on the list under its number; why not, if so."""
        name, wanted = member.name, member.number
        number = self._numbers.get(name)
        if number is not None and self._nodes.get(number, node) != node:
            return f"a site called '{name}' is there already"
        if number is None:
            taken = {other: called for called, other in self._numbers.items()}
            number = wanted if wanted >= 0 else next(k for k in itertools.count() if k not in taken)
            if number in taken:
                return f"the site '{name}' asks for the number {number}, which is that of '{taken[number]}'"
        elif 0 <= wanted != number:
            return f"the site '{name}' asks for the number {wanted}, and has been {number} in this run"
        if any(other != number for other, at in self._nodes.items() if at == node):  # else it would count twice
            return f"the site '{name}' has another name on the same node"
        self._numbers[name] = number
        self._nodes[number] = node
        admitted = replace(member, number=number)
        if self.here.get(number) != admitted:
            self.here[number] = admitted
            self._outline = None
        return None


def _kind(samples: SampleFormat) -> tuple[tuple[int, ...], float, bool, bool]:
    """What must be the same at all sites."""
    return samples.shape, samples.divisor, _floats(samples.dtype), bool(samples.classes)


def _floats(dtype: str) -> bool:
    """Whether samples of this type become real numbers for the model, or stay whole (tokens)."""
    return dtype.startswith("float") or dtype in ("uint8", "int8", "bool")
