"""How sites introduce themselves: the question that the server asks, and what it believes of the answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from flwr.app import RecordDict

from fedgsp.core.chain import Hop, HopReport
from fedgsp.data.federated import SPLITS
from fedgsp.deploy.site_log import SampleFormat, SiteRecord
from fedgsp.engine.transports.flower.records import Refused, heard, say
from fedgsp.engine.transports.flower.transport import CheckedAnswer, OutgoingMessage, Questions

if TYPE_CHECKING:
    from fedgsp.engine.transports.flower.run_spec import RunSpec

LARGEST_NUMBER = 999_999
MOST_SAMPLES = 10**9


@dataclass(frozen=True)
class Registration:
    """What a site said of itself; the number is -1 where it asks for none."""

    member: SiteRecord
    samples: SampleFormat


class RegistrationQuery(Questions):
    """The conversation of `query.hello`."""

    def __init__(self, nodes: Sequence[int], run_spec: RunSpec, kind: SampleFormat | None, clients: Mapping[int, int]) -> None:
        self._nodes, self._run_spec, self._kind, self._clients = nodes, run_spec, kind, clients
        self.for_good: set[int] = set()

    def compose(self, index: int, hop: Hop, token: Any) -> OutgoingMessage:
        """Who are you?"""
        node = self._nodes[index]
        return OutgoingMessage(node, "query.hello", say({"run": self._run_spec.encode(), "number": self._clients.get(node)}))

    def open(self, index: int, hop: Hop, token: Any, content: RecordDict, seconds: float) -> CheckedAnswer:
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
        return CheckedAnswer(registration_of(facts), HopReport(index, 0, 0, 0, 0, 0, 0, seconds))


def registration_of(facts: Mapping[str, Any]) -> Registration:
    """What a site says, refused where it makes no sense."""
    name, number, counts = facts["name"], facts["number"], facts["counts"]
    classes, shape = facts["classes"], facts["shape"]
    sizes = [facts[part] for part in SPLITS]
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
    member = SiteRecord(-1 if number is None else number, name, version, train, validation, test, told)
    return Registration(member, SampleFormat(classes, tuple(shape), dtype, divisor))
