"""What planners and server rules that are not ours give, checked: once before anything is written, then in every round.

Whoever wrote the part reads its name, its file and what is wrong. Ours are trusted, and cost nothing here.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from fedgsp.client.rules import SGD
from fedgsp.core.chain import Chain, Plan
from fedgsp.core.errors import FedgspError, InputError, RunFailed, described, is_theirs
from fedgsp.core.state import ServerState, Setting
from fedgsp.core.tensors import Tensors, misfit
from fedgsp.door import full_name, theirs
from fedgsp.plan import Planner, RoundSizes
from fedgsp.plan.checks import whole
from fedgsp.server.rule import ServerRule, Update, View

if TYPE_CHECKING:
    from fedgsp.core.profiles import Profiles
    from fedgsp.core.seeds import Seeds
    from fedgsp.engine.base import WorkerSetup


@contextmanager
def asking(what: str, part: Any, when: str, failure: type[FedgspError] = RunFailed) -> Iterator[None]:
    """Ask a part for something; an exception of a foreign one becomes a sentence, one of ours stays what it is: our bug."""
    try:
        yield
    except InputError as error:
        raise (error if failure is InputError else failure(str(error))) from error
    except (FedgspError, MemoryError):
        raise
    except Exception as error:
        if not theirs(part) and not is_theirs(error):
            raise
        raise failure(f"the {what} {full_name(part)} failed {when}: {described(error)}.").with_trace() from error


def try_planner(planner: Planner, job: WorkerSetup, roster: NDArray[np.int64], rounds: int) -> None:
    """Before a run: all schedules, and the first round's plan, of a planner that is not ours."""
    if not theirs(planner):
        return
    profiles = job.data.profiles(roster)
    with asking("planner", planner, "before round 1", InputError):
        for round_ in range(1, rounds + 1):
            _schedule(planner, round_, len(profiles))
        _check_plan(planner, planner.plan(1, profiles, job.seeds), 1, profiles, _keeps(job))


def planned(planner: Planner, round_: int, profiles: Profiles, job: WorkerSetup, seeds: Seeds | None = None) -> Plan:
    """A round's plan; the round is the loop's, whatever the planner says. `seeds` are the run's, if not others."""
    with asking("planner", planner, f"in round {round_}"):
        plan = planner.plan(round_, profiles, job.seeds if seeds is None else seeds)
        return _check_plan(planner, plan, round_, profiles, _keeps(job)) if theirs(planner) else plan


def routed(rule: ServerRule, state: ServerState, plan: Plan, seeds: Seeds) -> Plan:
    """The plan with the model that each chain begins with."""
    with asking("server rule", rule, f"in round {plan.round}"):
        found = rule.route(state, plan, seeds)
    if theirs(rule):
        who = f"the server rule {full_name(rule)}"
        if not isinstance(found, Plan) or [c.clients for c in found.chains] != [c.clients for c in plan.chains]:
            raise RunFailed(
                f"{who}: 'route' must give the plan of round {plan.round} with its chains, and only name their starts."
            )
        odd = [chain.start for chain in found.chains if chain.start not in state.models]
        if odd:
            raise RunFailed(
                f"{who}: 'route' starts a chain of round {plan.round} from the model {odd[0]!r}, which is not there."
            )
    return found


def begun(rule: ServerRule, model: Tensors, setting: Setting) -> ServerState:
    """The state before round 1."""
    with asking("server rule", rule, "before round 1", InputError):
        return _checked(rule, rule.init(model, setting), model, 0, "'init' gave", InputError)


def started(rule: ServerRule, state: ServerState, plan: Plan, planned: Sequence[int]) -> Update:
    """A round's update."""
    with asking("server rule", rule, f"at the start of round {plan.round}"):
        update = rule.start(state, plan, planned)
    if not isinstance(update, Update):
        raise RunFailed(
            f"the server rule {full_name(rule)}: 'start' gave {type(update).__name__}; it gives an update, derived from "
            f"fedgsp.server.Update."
        )
    return update


def finished(rule: ServerRule, update: Update, before: ServerState, round_: int) -> ServerState:
    """The state after a round. The loop counts the rounds: what the rule says of it does not matter."""
    with asking("server rule", rule, f"at the end of round {round_}"):
        like = next(iter(before.models.values()))
        return _checked(rule, update.finish(), like, round_, f"'finish' gave in round {round_}", RunFailed)


def _checked(
    rule: ServerRule, state: ServerState, like: Tensors, round_: int, gave: str, failure: type[FedgspError]
) -> ServerState:
    if theirs(rule):
        wrong = state_misfit(state, like) or _view_misfit(rule, state)
        if wrong is not None:
            raise failure(f"the server rule {full_name(rule)}: {gave} {wrong}.")
        state = _apart(state)
    return replace(state, round=round_)


def state_misfit(state: ServerState, like: Tensors) -> str | None:
    """What is wrong with a state whose models must be like `like`, as the rest of a sentence; None if nothing is."""
    if not isinstance(state, ServerState):
        return f"{_word(state)}, not a ServerState"
    if not isinstance(state.models, dict) or not state.models:
        return "a state without models"
    for name, model in state.models.items():
        if (wrong := misfit(model, like)) is not None:
            return f"a state whose model {name!r} {wrong}"
    groups = {"slots": state.slots, "shared": {"": state.shared}}
    for kind, group in groups.items():
        if not isinstance(group, dict):
            return f"a state whose {kind} are {_word(group)}, not a dict"
        for name, members in group.items():
            if not isinstance(members, dict) or not all(isinstance(t, torch.Tensor) for t in members.values()):
                which = f"{kind} {name!r}" if name else kind
                return f"a state whose {which} are not a dict of tensors by name"
    odd = [name for name in (*state.models, *state.slots) if not isinstance(name, str) or "|" in name]
    if odd:
        return f"a state with the name {odd[0]!r}; names of models and slots are texts without '|'"
    try:
        survives = json.loads(json.dumps(state.extra)) == state.extra
    except (TypeError, ValueError):
        survives = False
    return None if survives else (
        "a state whose extra does not survive JSON, so it would not be the same after a resume: only dicts with texts as keys, "
        "lists, texts, finite numbers, true, false and None do"
    )  # fmt: skip


def _view_misfit(rule: ServerRule, state: ServerState) -> str | None:
    views = rule.views(state)
    if not isinstance(views, tuple | list) or not views or not all(isinstance(view, View) for view in views):
        return f"a state of which 'views' gives {_word(views)}, and not one View or more"
    odd = [view.model for view in views if view.model not in state.models and view.model not in state.slots]
    if odd:
        return f"a state of which 'views' evaluates the model {odd[0]!r}, which is not there"
    whose = [client for view in views for client in view.clients or ()]
    twice = len(whose) > len(set(whose)) or sum(view.clients is None for view in views) > 1
    return "a state of which 'views' shows two models to one client" if twice else None


def _apart(state: ServerState) -> ServerState:
    """The same with no tensor twice and none with a gradient: a checkpoint stores each by itself."""
    seen: set[int] = set()

    def own(tensor: torch.Tensor) -> torch.Tensor:
        tensor, place = tensor.detach(), tensor.untyped_storage().data_ptr()
        if place in seen:
            return tensor.clone()
        seen.add(place)
        return tensor

    def apart(group: dict[str, Tensors]) -> dict[str, Tensors]:
        return {name: {key: own(tensor) for key, tensor in members.items()} for name, members in group.items()}

    return replace(state, models=apart(state.models), slots=apart(state.slots), shared=apart({"": state.shared})[""])


def _schedule(planner: Planner, round_: int, clients: int) -> RoundSizes:
    """A round's sizes, refused where they cannot be."""
    schedule = planner.schedule(round_, clients)
    who = f"the planner {full_name(planner)}"
    if not isinstance(schedule, RoundSizes):
        raise InputError(f"{who}: 'schedule' gave {_word(schedule)} for round {round_}, not RoundSizes.")
    for field in fields(RoundSizes):
        value = getattr(schedule, field.name)
        if field.name not in ("about", "share") and not whole(value, 1):
            raise InputError(f"{who}: 'schedule' says {field.name} {value!r} for round {round_}, not a whole number above 0.")
    if schedule.share is not None and not (isinstance(schedule.share, float) and 0 < schedule.share <= 1):
        raise InputError(f"{who}: 'schedule' says share {schedule.share!r} for round {round_}, not None or a share above 0.")
    if schedule.trained > clients or schedule.sampled > schedule.groups or schedule.shortest > schedule.longest:
        raise InputError(
            f"{who}: 'schedule' cannot be right for round {round_} and {clients} clients: {schedule.sampled} of "
            f"{schedule.groups} groups with {schedule.shortest} to {schedule.longest} clients, {schedule.trained} in all."
        )
    return schedule


def _check_plan(planner: Planner, plan: Plan, round_: int, profiles: Profiles, keeps: bool) -> Plan:
    """The plan with whole numbers of Python's own and the loop's round, or a sentence why it cannot be walked."""
    who = f"the planner {full_name(planner)}"
    if not isinstance(plan, Plan) or not all(isinstance(chain, Chain) for chain in plan.chains):
        raise InputError(f"{who} gave {_word(plan)} in round {round_}, not a Plan of Chains.")
    if not plan.chains:
        raise InputError(f"{who} gave a plan without chains in round {round_}; at least one client must train.")
    here, trains = set(profiles.clients.tolist()), set[int]()
    for number, chain in enumerate(plan.chains):
        odd = [client for client in chain.clients if not whole(client, 0) or int(client) not in here]
        if odd:
            raise InputError(
                f"{who} put the client {odd[0]!r} into chain {number} of round {round_}, which is not there; clients are the "
                f"numbers in profiles.clients, not rows of it."
            )
        if len(set(chain.clients)) < len(chain.clients):
            raise InputError(
                f"{who} put a client twice into chain {number} of round {round_}; to walk a chain several times give it passes."
            )
        if keeps and trains & set(chain.clients):
            raise InputError(
                f"{who} put client {min(trains & set(chain.clients))} into two chains of round {round_}; where clients keep a "
                f"state between visits, each may train in one chain only."
            )
        trains.update(map(int, chain.clients))
    if not whole(plan.groups, len(plan.chains)) or not whole(plan.left_out, 0):
        raise InputError(
            f"{who} says {plan.groups!r} groups and {plan.left_out!r} clients left out in round {round_}, with "
            f"{len(plan.chains)} chains; both are whole numbers, and there are no fewer groups than chains."
        )
    if profiles.known is None:
        _check_foretold(who, plan, _schedule(planner, round_, len(profiles)), len(trains))
    chains = tuple(replace(chain, clients=tuple(map(int, chain.clients))) for chain in plan.chains)
    return Plan(round_, chains, int(plan.groups), int(plan.left_out))


def _check_foretold(who: str, plan: Plan, told: RoundSizes, trains: int) -> None:
    """The room on disk, the workers and what server rules know of chains are taken from the schedule."""
    if told.about:
        return
    longest, passes = max(len(chain.clients) for chain in plan.chains), max(chain.passes for chain in plan.chains)
    for name, found, said in (
        ("groups", plan.groups, told.groups),
        ("chains", len(plan.chains), told.sampled),
        ("clients in the longest chain", longest, told.longest),
        ("clients in all", trains, told.trained),
        ("passes", passes, told.passes),
    ):
        if found > said or (name in ("groups", "passes") and found != said):
            raise InputError(
                f"{who} does not keep to its schedule in round {told.round}: {found} {name}, where 'schedule' (for a grouper: "
                f"'shape') says {said}; make them agree, or say about=True where sizes depend on the data."
            )


def _keeps(job: WorkerSetup) -> bool:
    """Whether clients keep a state between their visits."""
    return type(job.rule).initial_client_state is not SGD.initial_client_state


def _word(value: object) -> str:
    return type(value).__name__
