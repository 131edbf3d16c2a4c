"""What goes between the scheduler and its workers, the same for every transport, and what engines say while they work."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from fedgsp.core.chain import Chain, HopReport
from fedgsp.core.errors import FedgspError, RemoteTraceback, described, trace_of
from fedgsp.core.sums import PartialSum
from fedgsp.core.tensors import Tensors
from fedgsp.data.federated import Rows
from fedgsp.evaluate.forward import SampleScores
from fedgsp.server.mean import Weighing

# Tasks: what a worker is handed.


@dataclass(frozen=True, eq=False)
class Segment:
    """Consecutive hops of chain number `index` that one worker can do.

    All other hops are `absent` there; those `before` were done elsewhere. `last`: the chain ends with it.
    `client_versions` names the committed states of its clients; `states` has those that the worker cannot read itself.
    """

    index: int
    chain: Chain
    absent: frozenset[int] = frozenset()
    client_versions: dict[int, str] = field(default_factory=dict)
    states: dict[int, Any] = field(default_factory=dict)
    before: tuple[HopReport, ...] = ()
    last: bool = True


@dataclass(frozen=True, eq=False)
class TrainTask:
    """Segments to train one after the other: one, or several whole chains that are short.

    `models` is where the round's models are, as the transport has published them; `carried` what hops elsewhere handed on.
    `weighing`: add results up instead of handing them over.
    """

    segments: tuple[Segment, ...]
    round: int
    models: Any
    carried: Any = None
    weighing: Weighing | None = None

    def label(self) -> str:
        """For a profile."""
        more = len(self.segments) - 1
        return f"round {self.round}, chain {self.segments[0].index}" + (f" and {more} more" if more else "")


@dataclass(frozen=True, eq=False)
class EvaluateTask:
    """Evaluate the model `name` on some rows, made its own by the client `owner` first, if there is one.

    `samples` is where those rows are, for a worker that does not have them.
    """

    number: int
    models: Any
    name: str
    rows: Rows
    owner: int | None = None
    round: int = 0
    client_versions: dict[int, str] = field(default_factory=dict)
    states: dict[int, Any] = field(default_factory=dict)
    samples: Any = None

    def label(self) -> str:
        """For a profile."""
        return f"round {self.round}, {len(self.rows)} samples"


@dataclass(frozen=True, eq=False)
class SumTask:
    """Hand over what was added up in this round, and forget it."""

    round: int

    def label(self) -> str:
        """For a profile."""
        return f"round {self.round}, sums"


Task = TrainTask | EvaluateTask | SumTask


# Answers: what a worker says of a task, or the transport of a worker.


@dataclass(frozen=True)
class HopDone:
    """A client of chain `chain` has trained; `waited` is how long it took from asking it to its answer, where that is known.

    `moving` is how long of it the server itself was pushing and pulling bytes.
    `lengths` says how far it moved what it was handed, where somebody measured it.

    Args:
        round: The round.
        chain: Number of the chain.
        report: What the client says of its training.
        waited: Seconds from asking to the answer, where known.
        moving: Seconds of it in which the server moved bytes.
        lengths: How far the model was moved, where measured.
    """

    round: int
    chain: int
    report: HopReport
    waited: float | None = None
    moving: float | None = None
    lengths: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class StillWorking:
    """The worker is well, in the midst of many short chains that it says nothing else of."""


@dataclass(frozen=True, eq=False)
class ChainOutput:
    """What a segment hands on; `tensors` is None where it was added to a sum.

    `sent` is what its clients sent beside the model, `client_versions` names the states that they wrote,
    `states` has those that were written nowhere.
    """

    tensors: Tensors | None
    sent: Tensors
    client_versions: dict[int, str]
    states: dict[int, Tensors] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class TrainDone:
    """All segments of a task are done: the hops of each, and what each hands on (as the transport carries it)."""

    hops: tuple[tuple[HopReport, ...], ...]
    outputs: Any
    peak_memory: int = 0


@dataclass(frozen=True)
class EvaluateDone:
    """Scores of one task."""

    number: int
    scores: SampleScores
    peak_memory: int


@dataclass(frozen=True)
class SumDone:
    """What a worker has added up, or None if that is lost."""

    partial: PartialSum | None


@dataclass(frozen=True)
class TaskFailed:
    """A task came to nothing at chain or evaluation `index`: what went wrong and where, and the traceback of an exception.

    `expected` is the exception where it is one of ours, with a sentence for the user. `exception` is it in this process;
    it does not travel.
    """

    index: int
    client: int | None
    cause: str
    expected: FedgspError | None = None
    trace: str = ""
    exception: Exception | None = None

    @classmethod
    def of(cls, index: int, client: int | None, error: Exception) -> TaskFailed:
        """What is said of an exception that came out of a task."""
        ours = isinstance(error, FedgspError) and type(error).__module__.startswith("fedgsp.")  # others' may not travel
        expected = error if isinstance(error, FedgspError) and ours else None
        return cls(index, client, described(error), expected, trace_of(error), error)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "exception": None}

    def origin(self) -> Exception:
        """What to raise `from`."""
        return self.exception or RemoteTraceback(self.trace)

    def raise_expected(self) -> None:
        """Raise an exception that is a sentence for the user already."""
        if isinstance(self.exception, FedgspError):
            raise self.exception
        if self.expected is not None:
            raise self.expected from RemoteTraceback(self.trace)


@dataclass(frozen=True)
class ModelLost:
    """What a task was to go on from was on a node that is gone; the worker itself is well."""


@dataclass(frozen=True)
class WorkerGone:
    """A worker is dead or was ended, and another was started in its place.

    It was at `client` of chain `chain`, where that is known. `blameless`: its chains had nothing to do with it.
    """

    cause: str
    chain: int | None = None
    client: int | None = None
    blameless: bool = False


Answer = HopDone | StillWorking | TrainDone | EvaluateDone | SumDone | TaskFailed | ModelLost | WorkerGone


# Events: what callbacks and the event log are told.


@dataclass(frozen=True)
class HopSkipped:
    """A client failed, was late or sent what cannot be used: its chain goes on without it, from the last good model.

    `lost_bytes` were sent to it for nothing, `seconds` went by until that was known.
    """

    round: int
    chain: int
    hop: int
    client: int
    cause: str
    lost_bytes: int = 0
    seconds: float = 0.0


@dataclass(frozen=True)
class NotEvaluated:
    """A client gave no scores of a round's model, so the round's figures are about the others."""

    round: int
    client: int
    cause: str


@dataclass(frozen=True)
class WorkerLost:
    """A worker died or failed in chain `chain`, which is run again; `trace` is the exception's, where there was one.

    Args:
        round: The round.
        chain: Number of the chain.
        client: Whose hop it was, where known.
        cause: What happened, in words.
        trace: The traceback, where there was one.
    """

    round: int
    chain: int
    client: int | None
    cause: str
    trace: str | None = None


@dataclass(frozen=True)
class WorkerSlow:
    """A worker has been at `what` (a client's training, an evaluation, its start) for far longer than `usual`: it may hang.

    Args:
        round: The round.
        chain: Number of the chain, if it was training.
        client: Whose hop it is, where known.
        what: What the worker is at.
        worker: Which worker.
        seconds: How long it has been.
        usual: How long it usually takes, where known.
    """

    round: int
    chain: int | None
    client: int | None
    what: str
    worker: str
    seconds: float
    usual: float | None

    def __str__(self) -> str:
        usual = "" if self.usual is None else f", where {self.usual:.2g} s is usual"
        return f"worker ({self.worker}) has been at {self.what} for {self.seconds:.0f} s{usual}; it may hang"


EngineEvent = HopDone | HopSkipped | WorkerLost | WorkerSlow
Listener = Callable[[EngineEvent], None]
