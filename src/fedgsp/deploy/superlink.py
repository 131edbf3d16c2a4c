"""Talking to a SuperLink: the few calls that operating a deployment needs, over HTTPS with Flower's own messages.

Flower's commands do the same, but each takes seconds to start; and refusals are told apart here, because an operator has to
do something else about each.
"""

from __future__ import annotations

import base64
import http.client
import ssl
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec

from fedgsp.core.errors import FedgspError
from fedgsp.core.imports import need
from fedgsp.deploy.certificates import public_pem

MEDIA = "application/protobuf"
SECONDS = 20.0


class Unreachable(FedgspError):
    """Nobody answers there, or not as a SuperLink would."""


class Distrusted(FedgspError):
    """The server's certificate was not signed by the authority we trust, or is not for this name, or is out of date."""


class SuperLinkRefused(FedgspError):
    """The SuperLink answered, and said no."""

    def __init__(self, status: int, said: str) -> None:
        super().__init__(f"the SuperLink refused ({status}): {said}")
        self.status, self.said = status, said


@dataclass(frozen=True)
class Node:
    """A node as the SuperLink knows it."""

    id: int
    name: str
    status: str
    public_key: bytes

    @property
    def online(self) -> bool:
        """Whether it is connected."""
        return self.status == "online"


@dataclass(frozen=True)
class FlowerRun:
    """A run as the SuperLink knows it: where it stands, and what went over the wire."""

    id: int
    status: str
    outcome: str
    details: str
    bytes_sent: int
    bytes_received: int

    @property
    def over(self) -> bool:
        """Whether it has ended, for good or not."""
        return self.status == "finished"


class SuperLink:
    """A SuperLink at an address; `authority` is the certificate that its own must be signed by, None for plain HTTP."""

    def __init__(self, address: str, authority: Path | None, seconds: float = SECONDS) -> None:
        self.address = address
        self._authority = authority
        self._seconds = seconds
        self.clock_ahead: float | None = None  # seconds that this machine's clock is ahead of the SuperLink's

    def register(self, public_key: bytes, name: str) -> int | None:
        """Make a node's key known; its number, or None where it was known already."""
        proto = _proto("control_pb2")
        try:
            reply = self._call("control/register-node", proto.RegisterNodeRequest(public_key=public_key, name=name))
        except SuperLinkRefused as refusal:
            if "already" in refusal.said.lower():
                return None
            raise
        return int(proto.RegisterNodeResponse.FromString(reply).node_id)

    def unregister(self, node: int) -> None:
        """Forget a node's key: it is refused from then on."""
        self._call("control/unregister-node", _proto("control_pb2").UnregisterNodeRequest(node_id=node))

    def nodes(self) -> list[Node]:
        """All nodes that are registered."""
        proto = _proto("control_pb2")
        listed = proto.ListNodesResponse.FromString(self._call("control/list-nodes", proto.ListNodesRequest()))
        return [Node(n.node_id, n.name, n.status, n.public_key) for n in listed.nodes_info if not n.unregistered_at]

    def run(self, number: int) -> FlowerRun | None:
        """How a run stands; None if there is no such."""
        proto = _proto("control_pb2")
        try:
            listed = proto.ListRunsResponse.FromString(self._call("control/list-runs", proto.ListRunsRequest(run_id=number)))
        except SuperLinkRefused as error:  # one that was restarted since
            if error.status == http.client.NOT_FOUND:
                return None
            raise
        found = listed.run_dict.get(number) if number in listed.run_dict else None
        if found is None:
            return None
        status = found.status
        return FlowerRun(number, status.status, status.sub_status, status.details, found.bytes_sent, found.bytes_recv)

    def stop(self, number: int) -> None:
        """End a run."""
        self._call("control/stop-run", _proto("control_pb2").StopRunRequest(run_id=number))

    def answers(self) -> bool:
        """Whether a SuperLink is there."""
        try:
            self.nodes()
        except SuperLinkRefused:
            return True
        except Unreachable:
            return False
        return True

    def knows(self, key: ec.EllipticCurvePrivateKey) -> bool:
        """Whether a node with this key may join.

        Asked by an activation with an interval that is never accepted: for a key that is not registered the key is what is
        complained of. So nothing changes at the SuperLink, also where the node is connected at this moment.
        """
        proto = _proto("fleet_pb2")
        request = proto.ActivateNodeRequest(public_key=public_pem(key.public_key()), heartbeat_interval=-1.0)
        try:
            self._call("fleet/activate-node", request, _signed(key))
        except SuperLinkRefused as refusal:
            if "interval" in refusal.said.lower():
                return True
            if refusal.status == 401:
                raise
            return False
        return True

    def deactivate(self, node: int, key: ec.EllipticCurvePrivateKey | None) -> None:
        """Say that a node is gone, with its own key; what it was asked for last is known to fail at once."""
        request = _proto("fleet_pb2").DeactivateNodeRequest(node_id=node)
        self._call("fleet/deactivate-node", request, None if key is None else _signed(key))

    def _call(self, path: str, request: Any, headers: dict[str, str] | None = None) -> bytes:
        """The body of the answer to a message."""
        content = request.SerializeToString(deterministic=True)
        asked = time.time()
        connection = self._connection()
        try:
            connection.request("POST", f"/v1/{path}", content, {"content-type": MEDIA, "accept": MEDIA, **(headers or {})})
            answer = connection.getresponse()
            body = answer.read()
        except ssl.SSLCertVerificationError as error:
            raise Distrusted(
                f"the server at {self.address} does not prove to be ours: {error.verify_message}; check its certificate "
                f"and the authority's in {self._authority}."
            ) from error
        except ssl.SSLError as error:
            raise Unreachable(f"what answers at {self.address} does not speak TLS ({error.reason or error}).") from error
        except (OSError, http.client.HTTPException) as error:
            raise Unreachable(f"nobody answers as a SuperLink at {self.address} ({error}).") from error
        finally:
            connection.close()
        self._read_clock(answer.headers.get("date"), asked)
        if answer.status != 200:
            raise SuperLinkRefused(answer.status, body.decode(errors="replace").strip()[:300] or answer.reason)
        return body

    def _connection(self) -> http.client.HTTPConnection:
        host, _, port = self.address.rpartition(":")
        host = host.strip("[]")
        if self._authority is None:
            return http.client.HTTPConnection(host, int(port), timeout=self._seconds)
        context = ssl.create_default_context(cafile=str(self._authority))
        return http.client.HTTPSConnection(host, int(port), timeout=self._seconds, context=context)

    def _read_clock(self, date: str | None, asked: float) -> None:
        if date:
            middle = (asked + time.time()) / 2
            self.clock_ahead = middle - parsedate_to_datetime(date).timestamp() - 0.5  # the header has whole seconds


def _proto(name: str) -> Any:
    return need(f"flwr.proto.{name}", "flower", "a deployment")


def _signed(key: ec.EllipticCurvePrivateKey) -> dict[str, str]:
    """The headers by which a node proves that it has the key: its public part, the time, and a signature of that."""
    timestamp = datetime.now(UTC).isoformat()
    signature = key.sign(timestamp.encode(), ec.ECDSA(hashes.SHA256()))
    constants = need("flwr.supercore.constant", "flower", "a deployment")
    return {
        constants.FLEET_HTTP_PUBLIC_KEY_HEADER: base64.b64encode(public_pem(key.public_key())).decode(),
        need("flwr.common.constant", "flower", "a deployment").TIMESTAMP_HEADER: timestamp,
        constants.FLEET_HTTP_SIGNATURE_HEADER: base64.b64encode(signature).decode(),
    }
