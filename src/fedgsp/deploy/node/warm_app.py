"""The node's side of its app's process: started before it is needed, asked, and replaced when it dies or does not come back."""

from __future__ import annotations

import socket
import subprocess
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedgsp.core.imports import python
from fedgsp.deploy.node import frames

START_SECONDS = 300.0
STOP_SECONDS = 2.0


class AppFailed(Exception):
    """The app's process gave no answer; `late` where it took too long and was ended for it."""

    def __init__(self, cause: str, *, late: bool = False) -> None:
        super().__init__(cause)
        self.late = late


@dataclass
class WarmApp:
    """An app's process. To be started; `ask` waits until it is ready, and starts another one where it has died.

    One thread may ask while another one tells, interrupts or ends.
    """

    site: Path = Path("site.toml")
    connected: dict[str, Any] = field(default_factory=dict)
    """What the process must know to tell of the node's death."""
    _child: subprocess.Popen[bytes] | None = None
    _link: socket.socket | None = None
    _ready: bool = False
    _ended: bool = False
    _sending: threading.Lock = field(default_factory=threading.Lock)

    @property
    def pid(self) -> int | None:
        """The number of the process, while there is one."""
        return None if self._child is None else self._child.pid

    def start(self) -> None:
        """Start the process; it gets ready while others go on. Not after `end`."""
        self.stop()
        if self._ended:
            return
        ours, theirs = socket.socketpair()
        with theirs:
            self._child = subprocess.Popen(
                [*python("fedgsp.deploy.node.app_process", "main()"), str(theirs.fileno()), str(self.site)],
                pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL,
            )  # fmt: skip
        self._link, self._ready = ours, False
        self._introduce()

    def tell(self, **connected: Any) -> None:
        """Say where the node is connected, and as what."""
        self.connected = connected
        self._introduce()

    def ask(self, facts: dict[str, Any], blobs: list[bytes], seconds: float) -> tuple[dict[str, Any], list[bytes]]:
        """One question and its answer.

        Args:
            facts: What is asked.
            blobs: The bytes that go with it.
            seconds: How long the answer may take.

        Returns:
            The answer's facts and bytes.

        Raises:
            AppFailed: There is none. Another process is on its way already.
        """
        if self._child is None or self._child.poll() is not None:
            self.start()
        link = self._link
        if link is None:
            raise AppFailed("the node ends")
        try:
            self.await_ready()
            with self._sending:
                frames.send(link, facts, blobs)
            return frames.receive(link, time.monotonic() + seconds)
        except frames.Closed:
            cause = f"the app's process died ({self._how()})"
            self.start()
            raise AppFailed(cause) from None
        except frames.Late:
            self.start()
            raise AppFailed(f"the app's process was ended: no answer within {seconds:g} s", late=True) from None

    def interrupt(self) -> None:
        """Whatever is asked now is for nobody any more: its asker gets `AppFailed`, and another process is started."""
        child = self._child
        if child is not None:
            child.kill()

    def end(self) -> None:
        """End the process for good."""
        self._ended = True
        self.stop()

    def await_ready(self) -> None:
        """Wait until the process has everything at hand.

        Raises:
            AppFailed: It died on the way, took too long, or found something wrong with the site.
        """
        if self._ready:
            return
        assert self._link is not None
        try:
            facts, _ = frames.receive(self._link, time.monotonic() + START_SECONDS)
        except (frames.Closed, frames.Late) as error:
            raise AppFailed(f"its process did not get ready ({self._how()})") from error
        if "wrong" in facts:
            raise AppFailed(str(facts["wrong"]))
        self._ready = True

    def stop(self) -> None:
        """End the process, whatever it does."""
        link, child, self._link, self._child = self._link, self._child, None, None
        if link is not None:
            with suppress(frames.Closed):
                frames.send(link, {"bye": True})
        if child is not None:
            child.kill()
            child.wait(STOP_SECONDS)
        if link is not None:
            link.close()

    def _introduce(self) -> None:
        link = self._link
        if link is not None and self.connected:
            with suppress(frames.Closed), self._sending:
                frames.send(link, {"connected": self.connected})

    def _how(self) -> str:
        child = self._child
        if child is None:
            return "it was ended"
        try:
            code = child.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            return "it closed its connection"
        return f"signal {-code}" if code < 0 else f"code {code}"
