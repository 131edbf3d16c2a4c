"""A node's life: connect, ask for work, hand it to the app's process, send the answer; and start again when the server has.

It asks quickly while a run is on and slowly when nothing came for a while. Nothing that an app does ends it: an app that dies
or does not come back costs its hop. Nothing that a SuperLink does ends it either: one that is away, or has forgotten this
node, is asked again until it is back, also while the app works. When a run was resumed meanwhile, what the app still does for
its earlier part is given up after a moment.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from fedgsp.core.errors import InputError, RunFailed, Terminated
from fedgsp.core.files import read_toml
from fedgsp.core.heartbeat import BEAT_SECONDS
from fedgsp.deploy.certificates import read_node_key
from fedgsp.deploy.layout import checked_address
from fedgsp.deploy.node import fleet
from fedgsp.deploy.node.app_call import AppCall, run_name
from fedgsp.deploy.node.warm_app import AppFailed, WarmApp
from fedgsp.deploy.superlink import Distrusted, SuperLink, SuperLinkRefused, Unreachable

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric import ec

QUICK_SECONDS, IDLE_SECONDS = 0.1, 3.0
"""Between two questions for work: while a run is on (unless the server says otherwise), and else."""
RUN_SECONDS = 60.0
"""A run is on for so long after the last message."""
SLOWEST_POLL = 10.0
AWAY_SECONDS = 1.0
ALIVE_SECONDS = 5.0
WORKING_SECONDS = 1.0
"""Between two questions while the app works."""
GRACE_SECONDS = 3.0
"""How long work for the earlier part of a run that was resumed may go on: starting a process anew takes as long."""
MOST_WAITING = 8

Say = Callable[[str], None]


@dataclass(frozen=True)
class NodeSettings:
    """Where a site's files are, and which SuperLink it is for."""

    site: Path
    address: str
    authority: Path | None
    key: Path | None
    alive: Path
    """A file that is touched whenever the SuperLink has answered."""

    @classmethod
    def of(cls, folder: Path, superlink: str | None, *, insecure: bool) -> NodeSettings:
        """From a site's folder, refused with a sentence where something is missing.

        Args:
            folder: The site's folder.
            superlink: host:port, where it is not what `superlink.txt` says.
            insecure: Without TLS and keys.

        Raises:
            InputError: Something is missing or makes no sense.
        """
        folder = folder.resolve()
        state = read_toml(folder / "site.toml", "the site's settings").get("state", {})  # the app looks at the rest of it
        alive = folder / str(state.get("folder", "state") if isinstance(state, dict) else "state") / "alive"
        if superlink is None:
            try:
                superlink = (folder / "superlink.txt").read_text().strip()
            except OSError:
                raise InputError(f"{folder} has no superlink.txt; say where the SuperLink is with --superlink.") from None
        address = checked_address(superlink, "the SuperLink's address")
        if insecure:
            return cls(folder / "site.toml", address, None, None, alive)
        for name in ("ca.crt", "node.key"):
            if not (folder / name).is_file():
                raise InputError(f"{folder} has no {name}; without keys and TLS a node starts with --insecure only.")
        return cls(folder / "site.toml", address, folder / "ca.crt", folder / "node.key", alive)


@dataclass
class Polling:
    """How long to wait until the next question for work."""

    quick: float = QUICK_SECONDS
    idle: float = IDLE_SECONDS
    last: float = float("-inf")

    def worked(self, now: float, told: float | None) -> None:
        """There was a message, and perhaps a word on how often to ask."""
        self.last = now
        if told is not None:
            self.quick = min(max(told, QUICK_SECONDS), SLOWEST_POLL)

    def seconds(self, now: float) -> float:
        """Until the next question."""
        return self.quick if self._on(now) else max(self.idle, self.quick)

    def closely(self, now: float) -> bool:
        """Whether a run is on of so few nodes that each may beat its heart often all the time."""
        return self._on(now) and self.quick <= BEAT_SECONDS

    def _on(self, now: float) -> bool:
        return now - self.last < max(RUN_SECONDS, 3 * self.quick)


@dataclass
class WarmNode:
    """See the module. `run` ends by an exception only."""

    settings: NodeSettings
    say: Say = print
    app: WarmApp = field(default_factory=WarmApp)
    polling: Polling = field(default_factory=Polling)
    _touched: float = float("-inf")
    _next: list[fleet.Received] = field(default_factory=list)

    def run(self) -> None:
        """Be a node until told to end (SIGTERM, Ctrl-C)."""
        settings = self.settings
        key = None if settings.key is None else read_node_key(settings.key)
        self._check_server(key)
        connection = fleet.FleetConnection(settings.address, settings.authority, key)
        try:
            self._warm_up()
            while True:
                self._join(connection)
                with suppress(fleet.NotKnown):
                    self._serve(connection)
                self.say("the SuperLink does not know this node any more; joining again")
        except (KeyboardInterrupt, Terminated):
            self.say("told to end")
            raise
        finally:
            self.app.end()
            connection.close()

    def _warm_up(self) -> None:
        """Whoever sees this node connected may count on its app: it is ready, and has found nothing wrong with the site."""
        self.app.site = self.settings.site
        self.app.start()
        try:
            self.app.await_ready()
        except AppFailed as error:
            raise InputError(f"this node's app cannot be started: {error}") from error

    def _check_server(self, key: ec.EllipticCurvePrivateKey | None) -> None:
        """Refuse a server that is not ours; one that does not answer yet is waited for."""
        link = SuperLink(self.settings.address, self.settings.authority)
        try:
            if key is not None:
                link.knows(key)
        except Distrusted as error:
            raise RunFailed(str(error)) from error
        except (Unreachable, SuperLinkRefused):
            pass

    def _join(self, connection: fleet.FleetConnection) -> None:
        said = None
        while True:
            try:
                number = connection.activate()
            except (fleet.Away, fleet.NotKnown, fleet.RunOver) as error:
                if str(error) != said:
                    self.say(f"not connected to {self.settings.address} yet: {error}; trying again")
                said = str(error)
                time.sleep(AWAY_SECONDS)
                continue
            break
        settings = self.settings
        authority, key = (None if path is None else str(path) for path in (settings.authority, settings.key))
        self.app.tell(node=number, address=settings.address, authority=authority, key=key)
        self.say(f"connected to {settings.address} as node {number}")

    def _serve(self, connection: fleet.FleetConnection) -> None:
        """Work, until the SuperLink does not know this node any more."""
        away = False
        while True:
            received = None
            try:
                received = self._next.pop(0) if self._next else connection.receive()
                self._alive()
                if away:
                    self.say("the SuperLink is back")
                away = False
                if received is not None:
                    self._work(connection, received)
            except fleet.Away as error:
                if not away:
                    self.say(f"the SuperLink is away: {error}")
                away = True
                time.sleep(AWAY_SECONDS)
            except fleet.RunOver as error:
                self.say(f"a message of a run that is over: {error}")
            now = time.monotonic()
            connection.promise(self.polling.closely(now))
            if received is None:
                time.sleep(self.polling.seconds(now))

    def _alive(self) -> None:
        """Touch a file, for whoever checks this node's health."""
        now = time.monotonic()
        if now - self._touched < ALIVE_SECONDS:
            return
        self._touched = now
        with suppress(OSError):
            self.settings.alive.parent.mkdir(parents=True, exist_ok=True)
            self.settings.alive.touch()

    def _work(self, connection: fleet.FleetConnection, received: fleet.Received) -> None:
        """One message."""
        connection.promise(True)
        kind, begun = received.message.metadata.message_type, time.monotonic()
        names = list(received.contents)
        facts = {
            "root": received.root, "names": names, "run": received.run, "node": connection.node,
            "site": str(self.settings.site),
        }  # fmt: skip
        poll: float | None = None
        took, joined = 0.0, connection.joined
        try:
            blobs = [received.contents[name] for name in names]
            call = AppCall(self.app, facts, blobs, fleet.seconds_left(received))
            self._watch(connection, received, call)
            told, (message, tree, *parts) = call.result()
            answer = fleet.Answered(message, tree, dict(zip(told["names"], parts, strict=True)))
            poll, took = told["poll"], told["seconds"]
        except AppFailed as error:
            self.say(f"{kind}: {error}")
            if error.late or call.given_up:  # nobody waits for it any more
                self.polling.worked(time.monotonic(), None)
                return
            answer = fleet.failure(received, fleet.CRASHED, "the app's process died")
        self.polling.worked(time.monotonic(), poll)
        if connection.joined != joined:
            self.say(f"{kind}: the SuperLink that asked for it is gone")
            return
        connection.answer(received, answer, took)
        size = sum(map(len, answer.contents.values()))
        self.say(
            f"{kind} of run {received.run}: {time.monotonic() - begun:.2f} s, {took:.2f} of it in the app, {size} bytes back"
        )

    def _watch(self, connection: fleet.FleetConnection, received: fleet.Received, call: AppCall) -> None:
        """While the app works: be there for the SuperLink, also for another one, and see whether the run was resumed."""
        given_up = float("inf")
        while not call.over.wait(WORKING_SECONDS):
            if time.monotonic() >= given_up and not call.given_up:
                self.say("the run was resumed; what is still done for its earlier part is given up")
                call.give_up()
            if len(self._next) >= MOST_WAITING:
                continue
            try:
                newer = connection.receive()
            except fleet.NotKnown:
                self._join(connection)
                continue
            except (fleet.Away, fleet.RunOver):
                continue
            self._alive()
            if newer is not None:
                self._next.append(newer)
                if newer.run != received.run and run_name(newer) == run_name(received) is not None:
                    given_up = time.monotonic() + GRACE_SECONDS
