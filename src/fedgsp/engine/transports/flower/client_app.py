"""The ClientApp of every site: it introduces itself, trains and scores, within what its `site.toml` allows.

The SuperNode is told where that file is by its node configuration: `site="/etc/fedgsp/site.toml"`. Whatever a server asks that
the site does not allow, or that makes no sense, is answered with a sentence instead of an exception, which would travel to
the server with a traceback and whatever that shows. Of an exception in a rule or a model the server is told the kind and, if it
passed through a module that the server itself named, the line there; the traceback stays in the site's own log.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from flwr.app import Context, Message, RecordDict
from flwr.clientapp import ClientApp

from fedgsp.core.errors import FedgspError, cause_of, place_of
from fedgsp.engine.transports.flower.records import heard, say
from fedgsp.engine.transports.flower.run_spec import RunSpec, kinds_in
from fedgsp.engine.transports.flower.site import Site, read_site
from fedgsp.engine.transports.flower.wire import Refused

app = ClientApp()

Handler = Callable[[Site, dict[str, Any], RecordDict], RecordDict]


@app.query("hello")
def hello(message: Message, context: Context) -> Message:
    """Who the site is, how much it holds, and of its classes what it chooses to tell."""

    def answer(site: Site, facts: dict[str, Any], content: RecordDict) -> RecordDict:
        from fedgsp.engine.transports.flower.registration import introduce

        return say(introduce(site, facts))

    return _answered(message, context, answer)


@app.train()
def train(message: Message, context: Context) -> Message:
    """Train the model that was handed over and hand it on."""

    def answer(site: Site, facts: dict[str, Any], content: RecordDict) -> RecordDict:
        from fedgsp.engine.transports.flower.site_tasks import train as train_here

        return train_here(site, facts, content)

    return _answered(message, context, answer)


@app.evaluate()
def evaluate(message: Message, context: Context) -> Message:
    """Score a model on the site's own test samples."""

    def answer(site: Site, facts: dict[str, Any], content: RecordDict) -> RecordDict:
        from fedgsp.engine.transports.flower.site_tasks import evaluate as evaluate_here

        return evaluate_here(site, facts, content)

    return _answered(message, context, answer)


def _answered(message: Message, context: Context, handler: Handler) -> Message:
    try:
        where = context.node_config.get("site")
        if not isinstance(where, str):
            raise Refused(
                "its SuperNode was not told where site.toml is (--node-config 'site=\"/path/site.toml\"')", for_good=True
            )
        answer = handler(read_site(Path(where)), heard(message.content), message.content)
    except Exception as error:
        answer = say(_refusal(error, message.content))
    return Message(answer, reply_to=message)


def _refusal(error: Exception, content: RecordDict) -> dict[str, Any]:
    """What is answered in place of a result. A traceback stays with the site, where the person is who can look into it."""
    sentence = error.__cause__ if isinstance(error, Refused) else error
    came_from = cause_of(sentence) if isinstance(sentence, FedgspError) else None if isinstance(error, Refused) else error
    if came_from is None:  # a sentence of ours
        said = str(error).rstrip(".")
    else:  # a bug in a rule or a model, or ours, or a lack of memory
        traceback.print_exception(error)
        said = f"it failed: {_told(came_from, content)}"
    if isinstance(error, Refused):
        return {"refused": said, "for_good": error.for_good, "changed": error.changed, "wants": error.wants}
    return {"refused": said, "for_good": False}


def _told(error: BaseException, content: RecordDict) -> str:
    """What the server may know of an exception: its kind, and where it was in code that the server itself named."""
    named: list[str] = []
    with suppress(Exception):
        run_spec = RunSpec.decode(heard(content).get("run"))
        named = [kind.partition(":")[0] for kind in (*kinds_in(run_spec.rule), run_spec.model) if ":" in kind]
    place = place_of(error, named)
    return type(error).__name__ + (f" ({place})" if place else "")
