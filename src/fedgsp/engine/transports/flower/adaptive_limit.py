"""How long a client may take for a hop: from its size and what was measured, between a floor and a cap.

    limit = slack * (overhead + seconds a sample * samples),   floor <= limit <= cap

Overhead is the largest that a recent hop of anybody had beside training (queueing, starting a process, sending the model); the
speed is the client's own, the slowest of its last few, or while it has not trained yet the slowest of the others'. Before
anything is known the cap counts.
"""

from __future__ import annotations

from collections import deque

SLACK = 3.0
RECENT = 3
OVERHEADS = 32


class AdaptiveTimeLimit:
    """What is known of the clients' speed."""

    def __init__(self, floor: float, cap: float) -> None:
        self._floor, self._cap = floor, cap
        self._speeds: dict[int, deque[float]] = {}
        self._overheads: deque[float] = deque(maxlen=OVERHEADS)

    def learn(self, client: int, samples: int, trained: float, waited: float) -> None:
        """A hop took `waited` seconds, of which the client says it trained for `trained`."""
        inside = min(max(trained, 0.0), waited)
        self._overheads.append(waited - inside)
        self._speeds.setdefault(client, deque(maxlen=RECENT)).append(inside / max(1, samples))

    def limit(self, client: int, samples: int) -> float:
        """How many seconds the client may take for so many samples."""
        if not self._overheads:
            return self._cap
        own = self._speeds.get(client)
        speed = max(own) if own else max(max(others) for others in self._speeds.values())
        return min(self._cap, max(self._floor, SLACK * (max(self._overheads) + speed * samples)))
