"""The process in which a node calls its app: warm, so a hop starts at once, and apart, so that its death costs that hop only.

It has everything imported before the first message, and keeps it. It reads frames from its node. When the node is gone without
a word (killed), it tells the SuperLink so, which would otherwise find out by missing heartbeats only, and ends.
"""

from __future__ import annotations

import os
import queue
import socket
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from fedgsp.deploy.node import frames

Frame = tuple[dict[str, Any], list[bytes]]


def main() -> None:
    """Serve the node at the other end of the socket whose number is the first argument, until it says goodbye or is gone."""
    link = socket.socket(fileno=int(sys.argv[1]))
    waiting: queue.Queue[Frame] = queue.Queue()
    threading.Thread(target=_listen, args=(link, waiting), name="listen", daemon=True).start()
    app = _warmed()
    if (wrong := _trouble(Path(sys.argv[2]))) is not None:
        frames.send(link, {"wrong": wrong})
        return
    frames.send(link, {"ready": True})
    while True:
        facts, blobs = waiting.get()
        begun = time.monotonic()
        answer, poll = _answer(app, facts, blobs)
        names = list(answer.contents)
        told = {"names": names, "poll": poll, "seconds": time.monotonic() - begun}
        with suppress(frames.Closed):  # then `_listen` sees to it
            frames.send(link, told, [answer.message, answer.tree, *(answer.contents[name] for name in names)])


def _warmed() -> Any:
    """The app, with all that a message would import."""
    import torch

    torch.set_num_threads(1)
    import fedgsp.engine.transports.flower.registration
    import fedgsp.engine.transports.flower.site_tasks  # noqa: F401
    from fedgsp.deploy.node import fleet  # noqa: F401
    from fedgsp.engine.transports.flower.client_app import app
    from fedgsp.parts import kinds

    kinds("local")
    return app


def _trouble(site: Path) -> str | None:
    """What is wrong with the site's settings, in a sentence."""
    from fedgsp.core.errors import FedgspError
    from fedgsp.engine.transports.flower.site import read_site

    try:
        read_site(site)
    except FedgspError as error:
        return str(error)
    return None


def _answer(app: Any, facts: dict[str, Any], blobs: list[bytes]) -> tuple[Any, float | None]:
    """What the app says, and how often the server would like to be asked for work."""
    from fedgsp.deploy.node import fleet
    from fedgsp.engine.transports.flower.records import heard

    message = fleet.inflated(facts["root"], dict(zip(facts["names"], blobs, strict=True)))
    poll: float | None = None
    with suppress(Exception):  # a message that is not ours is the app's to answer
        poll = float(heard(message.content)["poll"])
    return fleet.called(app, message, facts["run"], facts["node"], {"site": facts["site"]}), poll


def _listen(link: socket.socket, waiting: queue.Queue[Frame]) -> None:
    parent: dict[str, Any] = {}
    while True:
        try:
            facts, blobs = frames.receive(link)
        except frames.Closed:
            with suppress(Exception):
                _tell_of_death(parent)
            os._exit(1)
        if "bye" in facts:
            os._exit(0)
        if "connected" in facts:
            parent = facts["connected"]
        else:
            waiting.put((facts, blobs))


def _tell_of_death(parent: dict[str, Any]) -> None:
    """Say at the SuperLink what the node itself cannot say any more."""
    if not parent.get("node"):
        return
    from fedgsp.deploy.certificates import read_node_key
    from fedgsp.deploy.superlink import SuperLink

    authority, key = (None if parent[name] is None else Path(parent[name]) for name in ("authority", "key"))
    link = SuperLink(parent["address"], authority, seconds=5.0)
    link.deactivate(parent["node"], None if key is None else read_node_key(key))
    print(f"the node's process is gone; the SuperLink at {parent['address']} knows", flush=True)
