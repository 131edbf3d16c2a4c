"""The ClientApp of every site: it introduces itself, trains and scores, within what its `site.toml` allows.

The SuperNode is told where that file is by its node configuration: `site="/etc/fedgsp/site.toml"`. Whatever a server asks that
the site does not allow, or that makes no sense, is answered with a sentence instead of an exception, which would travel to
the server with a traceback and whatever that shows.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from flwr.app import Context, Message, RecordDict
from flwr.clientapp import ClientApp

from fedgsp.core.errors import FedgspError
from fedgsp.engine.flower.records import Refused, heard, say
from fedgsp.engine.flower.site import Site, read_site

app = ClientApp()

Handler = Callable[[Site, dict[str, Any], RecordDict], RecordDict]


@app.query("hello")
def hello(message: Message, context: Context) -> Message:
    """Who the site is, how much it holds, and of its classes what it chooses to tell."""

    def answer(site: Site, facts: dict[str, Any], content: RecordDict) -> RecordDict:
        from fedgsp.engine.flower.hello import introduce

        return say(introduce(site, facts))

    return _answered(message, context, answer)


@app.train()
def train(message: Message, context: Context) -> Message:
    """Train the model that was handed over and hand it on."""

    def answer(site: Site, facts: dict[str, Any], content: RecordDict) -> RecordDict:
        from fedgsp.engine.flower.visit import train as visit

        return visit(site, facts, content)

    return _answered(message, context, answer)


@app.evaluate()
def evaluate(message: Message, context: Context) -> Message:
    """Score a model on the site's own test samples."""

    def answer(site: Site, facts: dict[str, Any], content: RecordDict) -> RecordDict:
        from fedgsp.engine.flower.visit import evaluate as score

        return score(site, facts, content)

    return _answered(message, context, answer)


def _answered(message: Message, context: Context, handler: Handler) -> Message:
    try:
        where = context.node_config.get("site")
        if not isinstance(where, str):
            raise Refused(
                "its SuperNode was not told where site.toml is (--node-config 'site=\"/path/site.toml\"')", for_good=True
            )
        answer = handler(read_site(Path(where)), heard(message.content), message.content)
    except Refused as error:
        answer = say({"refused": str(error), "for_good": error.for_good, "changed": error.changed})
    except FedgspError as error:
        answer = say({"refused": str(error).rstrip("."), "for_good": False})
    except Exception as error:  # our own bug, or a lack of memory: the kind of it is enough for the server
        answer = say({"refused": f"it failed: {type(error).__name__}", "for_good": False})
        raise_for_the_log(error)
    return Message(answer, reply_to=message)


def raise_for_the_log(error: Exception) -> None:
    """Leave the traceback with the site, where the person is who can look into it."""
    import traceback

    traceback.print_exception(error)
