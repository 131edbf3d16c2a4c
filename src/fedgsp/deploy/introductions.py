"""How sites introduce themselves: the question that the server asks, and what it believes of the answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from flwr.app import RecordDict

from fedgsp.core.chain import HopReport, Stop
from fedgsp.data.federated import PARTS
from fedgsp.engine.flower.pump import Letter, Opened
from fedgsp.engine.flower.records import Refused, heard, say
from fedgsp.engine.flower.sheet import Sheet
from fedgsp.run.roster import Kind, Member

LARGEST_NUMBER = 999_999
MOST_SAMPLES = 10**9


@dataclass(frozen=True)
class Said:
    """What a site said of itself; the number is -1 where it asks for none."""

    member: Member
    kind: Kind


class Introducing:
    """The dialect of `query.hello`."""

    def __init__(self, nodes: Sequence[int], sheet: Sheet, kind: Kind | None, clients: Mapping[int, int]) -> None:
        self._nodes, self._sheet, self._kind, self._clients = nodes, sheet, kind, clients
        self.for_good: set[int] = set()

    def compose(self, index: int, stop: Stop, token: Any) -> Letter:
        """Who are you?"""
        node = self._nodes[index]
        return Letter(node, "query.hello", say({"sheet": self._sheet.encode(), "number": self._clients.get(node)}))

    def open(self, index: int, stop: Stop, token: Any, content: RecordDict, seconds: float) -> Opened:
        """What a site says, believed as far as it makes sense."""
        try:
            facts = heard(content)
        except Refused as error:
            if error.for_good:
                self.for_good.add(self._nodes[index])
            raise
        if "refused" in facts:
            if facts.get("for_good") is True:
                self.for_good.add(self._nodes[index])
            raise Refused(str(facts["refused"])[:300])
        return Opened(said_by(facts), HopReport(index, 0, 0, 0, 0, 0, 0, seconds))

    def judge(self, waiting: Sequence[Opened], more: bool) -> dict[int, str | None] | None:
        """Taken as they come."""
        return dict.fromkeys(range(len(waiting)))


def said_by(facts: Mapping[str, Any]) -> Said:
    """What a site says, refused where it makes no sense."""
    name, number, counts = facts["name"], facts["number"], facts["counts"]
    classes, shape = facts["classes"], facts["shape"]
    sizes = [facts[part] for part in PARTS]
    wholes = [*sizes, classes, *shape, *(counts or ()), *(() if number is None else (number,))]
    if not all(isinstance(n, int) and not isinstance(n, bool) and 0 <= n <= MOST_SAMPLES for n in wholes):
        raise Refused("what it says of itself makes no sense")
    if number is not None and number > LARGEST_NUMBER:
        raise Refused(f"it asks for the number {number}")
    if not (isinstance(name, str) and 0 < len(name) <= 100 and name.isprintable()):
        raise Refused("its name is not one")
    if counts is not None and len(counts) < classes:
        raise Refused("its histogram has fewer classes than it says")
    version, dtype, divisor = str(facts["version"])[:64], str(facts["dtype"])[:16], float(facts["divisor"])
    train, validation, test = sizes
    told = None if counts is None else tuple(counts)
    member = Member(-1 if number is None else number, name, version, train, validation, test, told)
    return Said(member, Kind(classes, tuple(shape), dtype, divisor))
