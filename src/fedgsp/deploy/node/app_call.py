"""What a node has its app do now, while the node itself is there for the SuperLink."""

from __future__ import annotations

import json
import threading
from contextlib import suppress
from typing import Any

from fedgsp.deploy.node import fleet
from fedgsp.deploy.node.warm_app import AppFailed, WarmApp


class AppCall:
    """A question to the app, in a thread of its own; `over` is set when there is an answer, or will be none."""

    def __init__(self, app: WarmApp, facts: dict[str, Any], blobs: list[bytes], seconds: float) -> None:
        self.over, self.given_up = threading.Event(), False
        self._app, self._failed = app, AppFailed("its thread died")
        self._found: tuple[dict[str, Any], list[bytes]] | None = None
        threading.Thread(target=self._ask, args=(facts, blobs, seconds), name="app", daemon=True).start()

    def give_up(self) -> None:
        """Nobody wants its answer any more."""
        self.given_up = True
        self._app.interrupt()

    def result(self) -> tuple[dict[str, Any], list[bytes]]:
        """What the app said."""
        if self._found is None:
            raise self._failed
        return self._found

    def _ask(self, facts: dict[str, Any], blobs: list[bytes], seconds: float) -> None:
        try:
            self._found = self._app.ask(facts, blobs, seconds)
        except AppFailed as error:
            self._failed = error
        finally:
            self.over.set()


def run_name(received: fleet.Received) -> str | None:
    """What fedgsp calls the run of a message, which stays the same when it is resumed; Flower's number does not."""
    with suppress(Exception):  # a message that is not ours
        record: Any = fleet.inflated(received.root, dict(received.contents)).content["fedgsp"]
        return str(json.loads(record["json"])["run"]["run"])
    return None
