"""Waking processes that stopped themselves, however slow the machine is: only one that has stopped can be woken."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path


class Waker:
    """Wakes the process whose number is in the file `flag`, once it is asked to and the process has stopped."""

    def __init__(self, flag: Path) -> None:
        self._flag = flag
        self._thread: threading.Thread | None = None

    def ask(self) -> None:
        """Wake it as soon as it can be; to ask again changes nothing."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._wake, daemon=True)
            self._thread.start()

    def _wake(self) -> None:
        while True:
            time.sleep(0.02)
            try:
                pid = int(self._flag.read_text())
                if Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "T":
                    os.kill(pid, signal.SIGCONT)
                    return
            except FileNotFoundError:
                if self._flag.exists():
                    return  # the process is gone
            except ValueError:
                pass  # its number is being written
