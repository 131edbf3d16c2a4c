"""How sites introduce themselves: the question that the server asks, and what it believes of the answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from flwr.app import RecordDict

from fedgsp.core.chain import Hop, HopReport
from fedgsp.data.federated import SPLITS
from fedgsp.deploy.site_log import SampleFormat, SiteRecord
from fedgsp.engine.transports.flower import site_checks
from fedgsp.engine.transports.flower.conversation import CheckedAnswer, OutgoingMessage, Questions
from fedgsp.engine.transports.flower.records import say
from fedgsp.engine.transports.flower.site_checks import SiteLimits
from fedgsp.engine.transports.flower.wire import Refused

if TYPE_CHECKING:
    from fedgsp.engine.transports.flower.run_spec import RunSpec

LONGEST_NAME = 100
LONGEST_VERSION = 64


@dataclass(frozen=True)
class Registration:
    """What a site said of itself; the number is -1 where it asks for none."""

    member: SiteRecord
    samples: SampleFormat


class RegistrationQuery(Questions):
    """The conversation of `query.hello`."""

    def __init__(self, nodes: Sequence[int], run_spec: RunSpec, clients: Mapping[int, int], limits: SiteLimits) -> None:
        self._nodes, self._run_spec, self._clients, self._limits = nodes, run_spec, clients, limits
        self.for_good: set[int] = set()

    def compose(self, index: int, hop: Hop, token: Any) -> OutgoingMessage:
        """Who are you?"""
        node = self._nodes[index]
        return OutgoingMessage(node, "query.hello", say({"run": self._run_spec.encode(), "number": self._clients.get(node)}))

    def open(self, index: int, hop: Hop, token: Any, content: RecordDict, seconds: float) -> CheckedAnswer:
        """What a site says, believed as far as it makes sense."""
        try:
            facts = site_checks.site_facts(content)
        except Refused as error:
            if error.for_good:
                self.for_good.add(self._nodes[index])
            raise
        if "refused" in facts:
            if facts.get("for_good") is True:
                self.for_good.add(self._nodes[index])
            raise Refused(site_checks.site_sentence(facts["refused"]))
        return CheckedAnswer(registration_of(facts, self._limits), HopReport(index, 0, 0, 0, 0, 0, 0, seconds))


def registration_of(facts: Mapping[str, Any], limits: SiteLimits = SiteLimits()) -> Registration:  # noqa: B008 - frozen
    """What a site says of itself.

    Args:
        facts: The facts of its answer.
        limits: What the server's settings allow.

    Returns:
        The same, as it is believed.

    Raises:
        Refused: It makes no sense, or is beyond the limits.
    """
    told = {key: facts.get(key) for key in ("name", "number", "version", "classes", "shape", "dtype", "divisor", "counts")}
    name = site_checks.text(told["name"], LONGEST_NAME, "its name")
    number = -1 if told["number"] is None else site_checks.whole(told["number"], limits.sites - 1, "the number it asks for")
    version = site_checks.text(told["version"], LONGEST_VERSION, "the version of its data")
    train, validation, test = (
        site_checks.whole(facts.get(part), limits.samples, f"the number of its {part} samples") for part in SPLITS
    )
    classes = site_checks.whole(told["classes"], limits.classes, "the number of its classes")
    divisor = site_checks.number(told["divisor"], "its divisor")
    if told["dtype"] not in site_checks.DTYPES or not divisor > 0:
        raise Refused("refused: its samples are of no type that is known")
    counts = site_checks.class_counts(told["counts"], classes, train, limits)
    member = SiteRecord(number, name, version, train, validation, test, counts)
    return Registration(member, SampleFormat(classes, site_checks.sample_shape(told["shape"]), str(told["dtype"]), divisor))
