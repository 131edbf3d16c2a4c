"""One round's chains on their way through the cluster."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from fedgsp.core.blame import RemoteTraceback
from fedgsp.core.chain import ChainResult, HopReport, Plan
from fedgsp.core.errors import RunFailed
from fedgsp.core.state import ServerState
from fedgsp.core.sums import PartialSum
from fedgsp.core.tensors import total_bytes
from fedgsp.engine.bundles import MOST_BYTES, TURNS, Speed
from fedgsp.engine.crew import MOST_ATTEMPTS
from fedgsp.engine.job import Absent, HopDone, Job, Listener, WorkerLost
from fedgsp.engine.ray.asked import Asked, kept_by
from fedgsp.engine.ray.parcel import unpack
from fedgsp.engine.ray.staff import Died, Handed, Lost, Member, Staff
from fedgsp.engine.ray.tasks import Baton, GatherTask, Leg, Task, WalkTask
from fedgsp.engine.worker import Broke, Hopped
from fedgsp.server.mean import Weighing

FEW_RESULTS = 4
"""A sum is as large as so many results: from more than that for each worker on it pays to fetch sums."""
BUNDLE_SECONDS, MOST_CHAINS = 0.2, 1024
"""As for the local engine, but a message costs more here, and results that are added up take no room."""


@dataclass
class _Walk:
    """How far a chain has come: its next hop, where the leg under way ends, what was done, and a reference to its model."""

    next: int = 0
    end: int = 0
    told: int = 0
    hops: tuple[HopReport, ...] = ()
    batons: Any = None
    marks: dict[int, str] = field(default_factory=dict)
    failures: int = 0
    alone: bool = False


class Round:
    """Chains go to workers that have their clients' samples, longest first, short ones together."""

    def __init__(
        self, staff: Staff, job: Job, speed: Speed, plan: Plan, state: ServerState, board: Any, listener: Listener,
        absent: Absent, meanwhile: Asked | None, weighing: Weighing | None,
    ) -> None:  # fmt: skip
        self._staff, self._job, self._speed, self._plan, self._state, self._board = staff, job, speed, plan, state, board
        self._listener, self._absent, self._meanwhile = listener, absent, meanwhile
        chains, workers = len(plan.chains), max(1, len(staff.members))
        self._weighing = weighing if chains > FEW_RESULTS * workers else None
        fitting = MOST_CHAINS if self._weighing else MOST_BYTES // max(1, *(total_bytes(m) for m in state.models.values()))
        self._most = max(1, min(MOST_CHAINS, fitting, chains // (workers * TURNS)))
        self._work = speed.work(plan, job.data)
        self._pending = deque(sorted(range(chains), key=lambda i: (-self._work[i], i)))
        self._walks = [_Walk() for _ in plan.chains]
        self._under_way = chains  # neither handed over nor added to a worker's sum
        self._left = chains
        for member in staff.members:  # what is added up of a round that failed counts no more
            member.summed = []

    def results(self) -> Iterator[ChainResult]:
        """Hand out, listen, yield."""
        while self._left:
            self._hand_out()
            for member, task, message in self._staff.messages():
                if isinstance(message, Died):
                    self._died(message)
                elif isinstance(task, WalkTask) and task.board is self._board:
                    yield from self._of_walk(member, task, message)
                elif isinstance(task, GatherTask):
                    yield from self._of_sums(member, message)
                elif self._meanwhile is not None:
                    self._meanwhile.heard(task, message)

    def _hand_out(self) -> None:
        for member in self._staff.idle():
            legs, batons = self._legs(member)
            if legs:
                self._staff.hand(member, WalkTask(tuple(legs), self._plan.round, self._board, self._weighing), batons)
            elif self._under_way == 0 and member.summed:
                self._staff.hand(member, GatherTask(self._plan.round))
            elif self._meanwhile is not None:
                self._meanwhile.hand_out(member)

    def _legs(self, member: Member) -> tuple[list[Leg], Any]:
        """What this worker can do next: some whole chains, or as many hops of one as it has samples for."""
        chosen, seconds = [], 0.0
        for index in self._pending:
            walk, chain = self._walks[index], self._plan.chains[index]
            whole = member.shards is None or all(self._has(member, client) for client in chain.clients)
            if whole and not walk.alone and walk.batons is None:
                chosen.append(index)
                seconds += self._work[index]
                if len(chosen) >= self._most or seconds >= BUNDLE_SECONDS:
                    break
            elif not chosen and (whole or self._has(member, chain.clients[walk.next % len(chain.clients)])):
                chosen.append(index)
                break
        for index in chosen:
            self._pending.remove(index)
        return [self._leg(index, member) for index in chosen], self._walks[chosen[0]].batons if chosen else None

    def _has(self, member: Member, client: int) -> bool:
        return member.shards is None or self._staff.supply.shard_of[client] in member.shards

    def _leg(self, index: int, member: Member) -> Leg:
        walk, chain, absent = self._walks[index], self._plan.chains[index], self._absent.get(index, frozenset())
        stops = tuple(chain.stops())
        walk.told, walk.end = 0, walk.next
        while walk.end < len(stops) and self._has(member, stops[walk.end].client):
            walk.end += 1
        here = range(walk.next, walk.end)
        elsewhere = frozenset(hop for hop in range(len(stops)) if hop not in here)
        kept = kept_by(member, self._job, self._state, [stops[hop].client for hop in here])
        return Leg(index, chain, absent | elsewhere, kept, walk.hops, walk.end == len(stops))

    def _of_walk(self, member: Member, task: WalkTask, message: Any) -> Iterator[ChainResult]:
        if isinstance(message, Hopped):
            self._walks[message.index].told += 1
            self._tell(message.index, message.report)
        elif isinstance(message, Broke):
            if message.expected is not None:
                raise message.expected from RemoteTraceback(message.trace)
            for leg in task.legs:
                self._anew(leg.index, alone=True)
            if task.weighing is not None and len(task.legs) > 1:
                self._died(self._staff.dismiss(member))  # its sum has those before the one that failed
            self._failed(message.index, message.client, message.error, message.trace)
        elif isinstance(message, Lost):
            self._restart(task)
        elif isinstance(message, Handed):
            yield from self._arrived(member, task, message)

    def _arrived(self, member: Member, task: WalkTask, handed: Handed) -> Iterator[ChainResult]:
        batons: list[Baton] | None = None
        if any(leg.last for leg in task.legs):
            batons = self._staff.fetch(handed.batons)
            if batons is None:  # the node is gone that had it
                self._restart(task)
                if task.weighing is not None:
                    self._died(self._staff.dismiss(member))  # its sum has what is run again
                return
        for place, (leg, hops) in enumerate(zip(task.legs, handed.walked.hops, strict=True)):
            walk = self._walks[leg.index]
            if len(task.legs) > 1:
                for report in hops:
                    self._tell(leg.index, report)
            walk.hops, walk.next = (*walk.hops, *hops), walk.end
            if batons is None:
                walk.batons = handed.batons
                self._pending.appendleft(leg.index)
                continue
            baton = batons[place]
            walk.batons, walk.marks = None, {**baton.marks, **self._written(baton)}
            self._under_way -= 1
            if not walk.hops:
                self._left -= 1
            elif baton.model is None:
                member.summed.append(leg.index)
            else:
                self._left -= 1
                chain, sent = self._plan.chains[leg.index], unpack(baton.sent)
                yield ChainResult(leg.index, chain, unpack(baton.model), walk.hops, sent, walk.marks)

    def _of_sums(self, member: Member, message: Any) -> Iterator[ChainResult]:
        indices, member.summed = member.summed, []
        if not isinstance(message, PartialSum):  # it was on its way when its node went
            self._under_way += len(indices)
            for index in indices:
                self._anew(index)
            return
        self._left -= len(indices)
        for index in indices:
            walk, partial = self._walks[index], message if index == indices[-1] else None
            yield ChainResult(index, self._plan.chains[index], {}, walk.hops, {}, walk.marks, summed=True, partial=partial)

    def _written(self, baton: Baton) -> dict[int, str]:
        """Put states that came over the wire where clients' states are kept."""
        store = self._job.store
        if store is None:
            return {}
        return {client: store.write(client, self._plan.round, unpack(state)) for client, state in baton.states.items()}

    def _tell(self, index: int, report: HopReport) -> None:
        self._speed.learn(report)
        self._listener(HopDone(self._plan.round, index, report))

    def _died(self, died: Died) -> None:
        """What a dead worker had done of this round is done again."""
        self._under_way += len(died.summed)
        for index in died.summed:
            self._listener(WorkerLost(self._plan.round, index, None, died.cause))
            self._anew(index)
        task = died.task
        if isinstance(task, WalkTask) and task.board is self._board:
            first = task.legs[0].index
            walk, chain = self._walks[first], self._plan.chains[first]
            client = chain.clients[(walk.next + walk.told) % len(chain.clients)] if len(task.legs) == 1 else None
            for leg in task.legs:
                self._anew(leg.index, alone=not died.with_node)
            self._failed(first, client, died.cause, None, counts=not died.with_node)
        elif self._meanwhile is not None:
            self._meanwhile.heard(task, died)

    def _failed(self, index: int, client: int | None, cause: str, trace: str | None, counts: bool = True) -> None:
        walk = self._walks[index]
        walk.failures += counts
        self._listener(WorkerLost(self._plan.round, index, client, cause, trace))
        if walk.failures >= (MOST_ATTEMPTS if trace is None else 2):  # an exception will most likely repeat itself
            name = self._job.data.clients[client] if client is not None else f"(start of chain {index})"
            said = f"client '{name}' failed {walk.failures} times in round {self._plan.round}: {cause}."
            raise RunFailed(said).with_trace(trace is not None) from (RemoteTraceback(trace) if trace else None)

    def _restart(self, task: Task) -> None:
        for leg in task.legs if isinstance(task, WalkTask) else ():
            self._listener(WorkerLost(self._plan.round, leg.index, None, "the node that had its model is gone"))
            self._anew(leg.index)

    def _anew(self, index: int, alone: bool = False) -> None:
        """Begin a chain again from its start; the model it had may be gone."""
        walk = self._walks[index]
        self._walks[index] = _Walk(failures=walk.failures, alone=walk.alone or alone)
        self._pending.appendleft(index)
