"""What goes through Ray's object store: models, what chains hand on, and how a worker says that it is there."""

from __future__ import annotations

from dataclasses import dataclass, field

from fedgsp.core.state import ServerState
from fedgsp.engine.messages import ChainOutput
from fedgsp.engine.transports.ray.tensor_buffer import TensorBuffer, pack, unpack


@dataclass(frozen=True, eq=False)
class PackedModels:
    """The models of a state: put into the object store once, read in place by every worker of a node."""

    models: dict[str, TensorBuffer]
    shared: TensorBuffer
    slots: dict[str, TensorBuffer] = field(default_factory=dict)

    @classmethod
    def of(cls, state: ServerState, slots: frozenset[str]) -> PackedModels:
        """Of the slots only these: moments and the like stay with the server."""
        models = {name: pack(tensors) for name, tensors in state.models.items()}
        return cls(models, pack(state.shared), {name: pack(state.slots[name]) for name in slots})

    def read(self) -> ServerState:
        """The models, in place."""
        models, slots = ({name: unpack(buffer) for name, buffer in group.items()} for group in (self.models, self.slots))
        return ServerState(0, models, slots, unpack(self.shared))


@dataclass(frozen=True, eq=False)
class PackedOutput:
    """See `ChainOutput`."""

    tensors: TensorBuffer | None
    sent: TensorBuffer
    client_versions: dict[int, str]
    states: dict[int, TensorBuffer]

    @classmethod
    def of(cls, output: ChainOutput) -> PackedOutput:
        """A copy."""
        states = {client: pack(state) for client, state in output.states.items()}
        return cls(None if output.tensors is None else pack(output.tensors), pack(output.sent), output.client_versions, states)

    def read(self) -> ChainOutput:
        """In place."""
        states = {client: unpack(state) for client, state in self.states.items()}
        return ChainOutput(
            None if self.tensors is None else unpack(self.tensors), unpack(self.sent), dict(self.client_versions), states
        )


@dataclass(frozen=True)
class NodeFacts:
    """A worker is there: where, what it is made of, whether it sees the driver's files and the folder of client states."""

    node: str
    host: str
    versions: dict[str, str]
    sees_data: bool
    sees_states: bool
    process: int
