"""The server of the watched page: two addresses to read from, and nothing that changes anything."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Sequence
from http.cookies import SimpleCookie
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from fedgsp.core import __version__
from fedgsp.core.errors import InputError
from fedgsp.report.live.access import COOKIE, AccessGuard, is_loopback
from fedgsp.report.live.feed import LiveRuns
from fedgsp.report.page import build, policy

DEFAULT_HOST = "127.0.0.1"
USUAL_PORT = 8427
"""Taken where it is free, so that a page finds its server again after both were stopped."""

EVERY_MS = 1000
LONGEST_TARGET = 65_536
SLOWEST_REQUEST = 30


class WatchServer(ThreadingHTTPServer):
    """Serves the live page of some places until it is shut down."""

    daemon_threads = True

    def __init__(
        self, places: Sequence[Path], host: str = DEFAULT_HOST, port: int | None = None, every: int = EVERY_MS
    ) -> None:
        self.guard = AccessGuard.at(host)
        self.runs = LiveRuns(places)
        self.every = every
        self._host = host
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        if port is not None and not 0 <= port <= 65535:
            raise InputError(f"a port is a number from 0 to 65535, not {port}.")
        for tried in (USUAL_PORT, 0) if port is None else (port,):
            try:
                super().__init__((host.strip("[]"), tried), _Handler)
                return
            except OSError as error:
                refused = error
        raise InputError(
            f"cannot serve on {host}, port {tried}: {refused.strerror or refused}; choose others with `host=` and `port=`."
        ) from refused

    def server_bind(self) -> None:
        """Without the look-up of a name that http.server makes, which can take seconds."""
        socket_address = self.server_address
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(socket_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])

    @property
    def url(self) -> str:
        """Where a person goes."""
        host = socket.gethostname() if self._host in ("0.0.0.0", "::", "[::]") else self._host
        shown = f"[{host}]" if ":" in host and not host.startswith("[") else host
        asked = f"/?token={self.guard.token}" if self.guard.token else "/"
        return f"http://{shown}:{self.server_port}{asked}"

    @property
    def is_local(self) -> bool:
        """Whether only this machine can reach it."""
        return is_loopback(self._host)

    def in_background(self) -> threading.Thread:
        """Serve from a thread of its own, that ends with the process."""
        thread = threading.Thread(target=self.serve_forever, name="fedgsp-watch", daemon=True)
        thread.start()
        return thread


class _Handler(BaseHTTPRequestHandler):
    """One connection."""

    server: WatchServer
    server_version = f"fedgsp/{__version__}"
    sys_version = ""
    timeout = SLOWEST_REQUEST

    def do_GET(self) -> None:
        """The page, or what is new."""
        refused = self.server.guard.refusal(self.headers, str(self.connection.getsockname()[0]))  # type: ignore[arg-type]
        if refused is not None:
            self._send(403, f"Refused: {refused}.\n")
            return
        if len(self.path) > LONGEST_TARGET:
            self._send(414, "The address is too long.\n")
            return
        asked = urlsplit(self.path)
        query = parse_qs(asked.query)
        token = query.get("token", [""])[0]
        if asked.path == "/" and token and self.server.guard.matches(token):
            self._let_in(token)
        elif not self.server.guard.knows(self.headers.get("Cookie")):
            self._send(401, "This page asks for a token: use the whole address that fedgsp watch printed.\n")
        elif asked.path == "/":
            page = build(self.server.runs.everything(), f"Served by fedgsp {__version__}.", live=True, every=self.server.every)
            self._send(200, page, "text/html; charset=utf-8")
        elif asked.path == "/updates":
            self._updates(query)
        else:
            self._send(404, "There is nothing here.\n")

    do_HEAD = do_GET  # noqa: N815 - the name is http.server's

    def _refuse_method(self) -> None:
        self.close_connection = True
        self._send(405, "This server only shows.\n")

    do_POST = do_PUT = do_DELETE = do_PATCH = do_OPTIONS = _refuse_method  # noqa: N815

    def _let_in(self, token: str) -> None:
        """Keep the token in a cookie that no script sees, and out of the address."""
        cookie: SimpleCookie = SimpleCookie({COOKIE: token})
        for name, value in (("httponly", "1"), ("samesite", "Strict"), ("path", "/")):
            cookie[COOKIE][name] = value
        self._send(303, "", extra={"Location": "/", "Set-Cookie": cookie[COOKIE].OutputString()})

    def _updates(self, query: dict[str, list[str]]) -> None:
        try:
            said = json.loads(query.get("have", ["{}"])[0])
            have = {str(run): (str(epoch), int(last)) for run, (epoch, last) in said.items()}
            federations = max(0, int(query.get("federations", ["0"])[0]))
        except (ValueError, TypeError, AttributeError):
            self._send(400, "What the page has cannot be read.\n")
            return
        news = self.server.runs.updates(have, federations)
        self._send(200, json.dumps(news, separators=(",", ":"), allow_nan=False), "application/json")

    def _send(self, code: int, body: str, kind: str = "text/plain; charset=utf-8", extra: dict[str, str] | None = None) -> None:
        content = body.encode()
        self.send_response(code)
        headers = {
            "Content-Type": kind,
            "Content-Length": str(len(content)),
            "Content-Security-Policy": f"{policy(live=True)}; frame-ancestors 'none'",
            "Cache-Control": "no-store",
            "X-Content-Type-Options": "nosniff",
            "Referrer-Policy": "no-referrer",
            "Cross-Origin-Resource-Policy": "same-origin",
            "Cross-Origin-Opener-Policy": "same-origin",
            **({"Allow": "GET, HEAD"} if code == 405 else {}),
            **(extra or {}),
        }
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name is http.server's
        """Say nothing: the terminal belongs to the run."""
