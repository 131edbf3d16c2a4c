"""Who may look: only requests that name this server, come from its own page and, on an open address, know the token."""

from __future__ import annotations

import hmac
import ipaddress
import secrets
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from http.cookies import CookieError, SimpleCookie

COOKIE = "fedgsp-watch"
LOCAL = frozenset({"localhost", "127.0.0.1", "[::1]"})


@dataclass(frozen=True)
class AccessGuard:
    """`names` are the hosts that a request may call this server by; `token` is asked for where it is not None."""

    names: frozenset[str]
    token: str | None = None

    @classmethod
    def at(cls, host: str) -> AccessGuard:
        """The guard of a server bound to an address: a token wherever others could reach it."""
        if is_loopback(host):
            return cls(LOCAL | {_bracketed(host)})
        own = {_bracketed(host), socket.gethostname().lower(), socket.getfqdn().lower()}
        return cls(LOCAL | own, secrets.token_urlsafe(24))

    def refusal(self, headers: Mapping[str, str], reached: str) -> str | None:
        """Why a request is refused, or None; `reached` is the address of ours that it came in on.

        A foreign Host is a page of somebody else's whose name was pointed here (DNS rebinding); a foreign Origin is a script of
        somebody else's.
        """
        name = host_of(headers.get("Host", ""))
        if name not in self.names and name != _bracketed(reached):
            return "the Host is not one of this server's"
        origin = headers.get("Origin")
        if origin is not None and origin.lower() != f"http://{headers.get('Host', '').lower()}":
            return "the Origin is not this server's page"
        if headers.get("Sec-Fetch-Site", "none") not in ("none", "same-origin"):
            return "the request comes from another site"
        return None

    def knows(self, cookies: str | None) -> bool:
        """Whether the cookie has the token (true where none is asked for)."""
        if self.token is None:
            return True
        try:
            held = SimpleCookie(cookies or "").get(COOKIE)
        except CookieError:
            return False
        return held is not None and self.matches(held.value)

    def matches(self, token: str) -> bool:
        """Whether this is the token."""
        return self.token is not None and hmac.compare_digest(token.encode(), self.token.encode())


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach an address."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def host_of(header: str) -> str:
    """A Host header without its port."""
    lowered = header.strip().lower()
    if lowered.startswith("["):
        return lowered[: lowered.find("]") + 1]
    return lowered.rpartition(":")[0] if ":" in lowered else lowered


def _bracketed(host: str) -> str:
    return f"[{host.lower()}]" if ":" in host and not host.startswith("[") else host.lower()
