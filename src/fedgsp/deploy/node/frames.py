"""What a node and its app's process say to each other: facts as JSON, and blobs of bytes behind them, over a socket."""

from __future__ import annotations

import json
import select
import socket
import struct
import time
from collections.abc import Sequence
from typing import Any

HEAD = struct.Struct("!I")
AT_ONCE = 1 << 20

Blob = bytes | bytearray | memoryview


class Closed(Exception):
    """The other side is gone."""


class Late(Exception):
    """The other side did not answer in time."""


def send(link: socket.socket, facts: dict[str, Any], blobs: Sequence[Blob] = ()) -> None:
    """Send one frame.

    Args:
        link: The socket.
        facts: Plain data.
        blobs: Bytes that go with them, as they are.

    Raises:
        Closed: Nobody listens any more.
    """
    head = json.dumps({"facts": facts, "sizes": [len(blob) for blob in blobs]}).encode()
    try:
        link.sendall(HEAD.pack(len(head)) + head)
        for blob in blobs:
            link.sendall(blob)
    except OSError as error:
        raise Closed from error


def receive(link: socket.socket, deadline: float | None = None) -> tuple[dict[str, Any], list[bytes]]:
    """Wait for one frame.

    Args:
        link: The socket.
        deadline: When to give up, by the monotonic clock; None waits for ever.

    Returns:
        The facts and the blobs.

    Raises:
        Closed: The other side is gone.
        Late: The deadline has passed.
    """
    (size,) = HEAD.unpack(_exactly(link, HEAD.size, deadline))
    head = json.loads(_exactly(link, size, deadline))
    return head["facts"], [bytes(_exactly(link, size, deadline)) for size in head["sizes"]]


def _exactly(link: socket.socket, size: int, deadline: float | None) -> bytearray:
    data = bytearray(size)
    view, at = memoryview(data), 0
    while at < size:
        if deadline is not None:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([link], [], [], left)[0]:
                raise Late
        try:
            got = link.recv_into(view[at : at + AT_ONCE])
        except OSError as error:
            raise Closed from error
        if not got:
            raise Closed
        at += got
    return data
