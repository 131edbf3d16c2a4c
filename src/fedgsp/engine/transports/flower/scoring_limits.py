"""How much a site tells by scores: which parts it scores, how small they may be, how many models a round and in all.

Scores are an oracle. A model that says the same class of everything scores that class's count; as many models as classes tell
the histogram of the scored part, and a part of one sample tells its label. So a site counts the models that it scored on a
version of its data (`scores.json` in its state) and refuses above its limits. Asking the same again costs nothing, since it
tells nothing new. A server can lie about rounds and runs; the limit of all models holds whatever it says.
"""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING

from flwr.app import ArrayRecord, RecordDict

from fedgsp.engine.transports.flower.histogram import locked
from fedgsp.engine.transports.flower.wire import Refused

if TYPE_CHECKING:
    from fedgsp.engine.transports.flower.run_spec import RunSpec
    from fedgsp.engine.transports.flower.site import Site

SCORES = "scores.json"
ROUNDS_KEPT = 16
"""Rounds whose questions are remembered one by one; of those before only their number is."""


def check_validation(run_spec: RunSpec, site: Site) -> None:
    """Refuse a run that would have a larger share of the training samples scored than the site allows."""
    if run_spec.validation > site.validation:
        raise Refused(
            f"the site '{site.name}' lets at most the share {site.validation:g} of its training samples be scored, and the run "
            f"wants {run_spec.validation:g}",
            for_good=True,
        )


def check_part(site: Site, part: str, size: int) -> None:
    """Refuse to score a part that is too small to hide a sample."""
    if size < site.least:
        raise Refused(f"the site '{site.name}' scores no part with fewer than {site.least} samples, as its {part} samples are")


def spend(site: Site, version: str, run_spec: RunSpec, round_: int, question: str) -> None:
    """Count a question, unless it was asked before.

    Args:
        site: The site.
        version: The version of its data.
        run_spec: The run that asks.
        round_: The round that it says it is in.
        question: Which model, on which parts (`question_of`).

    Raises:
        Refused: The site answers no more of them, in this round or at all.
    """
    with locked(site.state / SCORES) as table:
        known = table.setdefault("versions", {}).setdefault(version, {"models": 0, "rounds": {}})
        rounds: dict[str, list[str]] = known["rounds"]
        asked = rounds.get(f"{run_spec.run}/{round_}", [])
        if question in asked:
            return
        if len(asked) >= site.evaluations:
            raise Refused(f"the site '{site.name}' scores at most {site.evaluations} models a round")
        if known["models"] >= site.evaluations_in_all:
            raise Refused(f"the site '{site.name}' has scored {known['models']} models on these samples, and scores no more")
        known["models"] += 1
        rounds.pop(f"{run_spec.run}/{round_}", None)
        rounds[f"{run_spec.run}/{round_}"] = [*asked, question]
        for old in list(rounds)[:-ROUNDS_KEPT]:
            del rounds[old]


def question_of(content: RecordDict, parts: list[str], personal: bool, state: str | None) -> str:
    """A digest of what is asked: the tensors, and what they are to be judged on."""
    sha = hashlib.sha256(json.dumps([sorted(parts), personal, state]).encode())
    for name in ("model", "beside"):
        record = content.get(name)
        for key, array in sorted(record.items()) if isinstance(record, ArrayRecord) else ():
            sha.update(f"{name}/{key}/{array.dtype}/{array.shape}".encode() + array.data)
    return sha.hexdigest()[:32]
