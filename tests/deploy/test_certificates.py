"""Certificates and keys: what is signed is trusted, by TLS itself; what is private is its owner's only."""

from __future__ import annotations

import socket
import ssl
import stat
import threading
from pathlib import Path

import pytest

pytest.importorskip("cryptography")

from fedgsp.core.errors import InputError
from fedgsp.deploy.certificates import (
    Authority,
    make_node_key,
    public_pem,
    read_certificate,
    read_node_key,
    read_node_public,
    write_secret,
)


@pytest.fixture
def signed(tmp_path: Path) -> Path:
    """A folder with an authority and a server certificate for localhost and 127.0.0.1."""
    authority = Authority.make("test authority")
    authority.write(tmp_path / "ca.crt", tmp_path / "ca.key")
    authority.sign_server(["fed.example.org", "localhost", "127.0.0.1"], tmp_path / "server.crt", tmp_path / "server.key")
    return tmp_path


def handshake(folder: Path, authority: Path, name: str) -> None:
    """A real TLS handshake between a server with the folder's certificate and a client that trusts `authority`."""
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(folder / "server.crt", folder / "server.key")
    ours, theirs = socket.socketpair()

    def serve() -> None:
        try:
            server.wrap_socket(theirs, server_side=True).close()
        except OSError:
            theirs.close()

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        client = ssl.create_default_context(cafile=str(authority))
        client.wrap_socket(ours, server_hostname=name).close()
    finally:
        ours.close()
        thread.join()


@pytest.mark.parametrize("name", ["localhost", "127.0.0.1", "fed.example.org"])
def test_a_client_that_trusts_the_authority_accepts_the_server(signed: Path, name: str) -> None:
    handshake(signed, signed / "ca.crt", name)


def test_another_name_is_refused(signed: Path) -> None:
    with pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch"):
        handshake(signed, signed / "ca.crt", "elsewhere.example.org")


def test_another_authority_is_refused(signed: Path, tmp_path: Path) -> None:
    Authority.make("test authority").write(tmp_path / "other.crt", tmp_path / "other.key")
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(signed, tmp_path / "other.crt", "localhost")


def test_the_authority_can_be_taken_up_again(signed: Path) -> None:
    again = Authority.read(signed / "ca.crt", signed / "ca.key")
    again.sign_server(["second.example.org"], signed / "server2.crt", signed / "server2.key")
    for name in ("crt", "key"):
        (signed / f"server2.{name}").replace(signed / f"server.{name}")
    handshake(signed, signed / "ca.crt", "second.example.org")


def test_the_server_cannot_sign_others(signed: Path) -> None:
    from cryptography import x509

    certificate = read_certificate(signed / "server.crt")
    assert certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca is False
    usage = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert list(usage) == [x509.oid.ExtendedKeyUsageOID.SERVER_AUTH]


def test_private_parts_are_for_their_owner_only(signed: Path) -> None:
    make_node_key(signed / "node.key", signed / "node.pub", "site-0")
    for name in ("ca.key", "server.key", "node.key"):
        assert stat.S_IMODE((signed / name).stat().st_mode) == 0o600, name


def test_a_node_key_is_what_openssh_and_flower_read(tmp_path: Path) -> None:
    make_node_key(tmp_path / "node.key", tmp_path / "node.pub", "site-0")
    kind, _, comment = (tmp_path / "node.pub").read_text().split()
    assert (kind, comment) == ("ecdsa-sha2-nistp384", "site-0")
    assert read_node_public(tmp_path / "node.pub") == public_pem(read_node_key(tmp_path / "node.key").public_key())
    assert read_node_public(tmp_path / "node.pub").startswith(b"-----BEGIN PUBLIC KEY-----")


def test_no_key_is_overwritten(tmp_path: Path) -> None:
    make_node_key(tmp_path / "node.key", tmp_path / "node.pub", "site-0")
    before = (tmp_path / "node.key").read_bytes()
    with pytest.raises(InputError, match="exists already"):
        make_node_key(tmp_path / "node.key", tmp_path / "node.pub", "site-0")
    assert (tmp_path / "node.key").read_bytes() == before


def test_what_is_no_key_is_refused_with_a_sentence(tmp_path: Path) -> None:
    write_secret(tmp_path / "node.key", b"not a key")
    with pytest.raises(InputError, match="not a private key"):
        read_node_key(tmp_path / "node.key")
    with pytest.raises(InputError, match="cannot read"):
        read_node_key(tmp_path / "none.key")
    with pytest.raises(InputError, match="not a certificate"):
        read_certificate(tmp_path / "node.key")
