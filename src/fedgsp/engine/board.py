"""The board of the process pool: where every worker reads the models of the moment."""

from __future__ import annotations

from dataclasses import dataclass, field

from fedgsp.core.state import ServerState
from fedgsp.engine.share import Layout, Region, lay_out


@dataclass
class Board:
    """The models of the moment, where every worker can read them."""

    region: Region = field(default_factory=Region)
    models: dict[str, Layout] = field(default_factory=dict)
    shared: Layout = field(default_factory=dict)
    slots: dict[str, Layout] = field(default_factory=dict)
    largest: int = 0
    state: ServerState | None = None

    def show(self, state: ServerState, slots: frozenset[str] = frozenset()) -> None:
        """Models and `shared` always, of the slots only those asked for: moments and the like stay with the server."""
        if state is self.state and slots <= self.slots.keys():
            return
        end, places = 0, []
        self.models, self.slots = {}, {}
        for name, tensors in state.models.items():
            begin = end
            self.models[name], end = lay_out(tensors, begin)
            self.largest = max(self.largest, end - begin)
            places.append((tensors, self.models[name]))
        for name in sorted(slots):
            self.slots[name], end = lay_out(state.slots[name], end)
            places.append((state.slots[name], self.slots[name]))
        self.shared, end = lay_out(state.shared, end)
        places.append((state.shared, self.shared))
        self.region.reserve(end)
        for tensors, layout in places:
            self.region.write(tensors, layout)
        self.state = state
