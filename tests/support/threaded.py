"""A module that starts a thread when it is imported, as some libraries do: whoever has it must not fork."""

from __future__ import annotations

import threading

from fedgsp.core.fork_server import serve

__all__ = ["nothing", "serve"]

threading.Thread(target=threading.Event().wait, daemon=True).start()


def nothing() -> None:
    """What a child would do."""
