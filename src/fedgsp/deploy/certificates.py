"""What a deployment's parties know each other by: a certificate authority, the server's certificate, and a key a node.

All keys are on the curve P-384, which is what Flower accepts for nodes. Private parts are written for their owner only.
"""

from __future__ import annotations

import datetime
import ipaddress
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from fedgsp.core.errors import InputError
from fedgsp.core.files import explained

AUTHORITY_DAYS = 3650
SERVER_DAYS = 825
"""Longer is refused by some systems' own rules for server certificates."""
OWNER_ONLY = 0o600


@dataclass(frozen=True)
class Authority:
    """Who signs server certificates. Whoever has its key can pose as the server: it belongs on no machine of the federation."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    @classmethod
    def make(cls, name: str) -> Authority:
        """A new authority that signs itself."""
        key = ec.generate_private_key(ec.SECP384R1())
        subject = _named(name)
        built = (
            _builder(subject, subject, key.public_key(), AUTHORITY_DAYS)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_usage(signs_certificates=True), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        )
        return cls(built.sign(key, hashes.SHA384()), key)

    @classmethod
    def read(cls, certificate: Path, key: Path) -> Authority:
        """An authority from its two files."""
        found: Any = serialization.load_pem_private_key(_content(key), password=None)
        return cls(read_certificate(certificate), found)

    def write(self, certificate: Path, key: Path) -> None:
        """Leave both in files."""
        write_public(certificate, self.certificate.public_bytes(serialization.Encoding.PEM))
        write_secret(key, _pem(self.key))

    def sign_server(self, hosts: Sequence[str], certificate: Path, key: Path) -> None:
        """A key and a certificate for a server that is reached by these names and addresses."""
        own = ec.generate_private_key(ec.SECP384R1())
        names = x509.SubjectAlternativeName([_alternative(host) for host in dict.fromkeys(hosts)])
        issuer_key = x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key())
        built = (
            _builder(_named(hosts[0]), self.certificate.subject, own.public_key(), SERVER_DAYS)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(signs_certificates=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage([x509.oid.ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
            .add_extension(names, critical=False)
            .add_extension(issuer_key, critical=False)
        )
        signed = built.sign(self.key, hashes.SHA384())
        write_public(certificate, signed.public_bytes(serialization.Encoding.PEM))
        write_secret(key, _pem(own))


def make_node_key(private: Path, public: Path, comment: str) -> None:
    """A key pair of a node, in the format of OpenSSH: the private part never leaves the site, the public one is registered."""
    key = ec.generate_private_key(ec.SECP384R1())
    encoding, form = serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH
    write_secret(private, key.private_bytes(encoding, form, serialization.NoEncryption()))
    line = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    write_public(public, line + f" {comment}\n".encode())


def read_node_key(path: Path) -> ec.EllipticCurvePrivateKey:
    """A node's private key, refused with a sentence where Flower would refuse it."""
    try:
        key = serialization.load_ssh_private_key(_content(path), password=None)
    except (ValueError, TypeError) as error:
        raise InputError(f"{path} is not a private key in the format of OpenSSH without a password: {error}.") from error
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise InputError(f"{path} is not a key on a NIST curve; make one with: fedgsp site key {path.parent}.")
    return key


def read_node_public(path: Path) -> bytes:
    """A node's public key as Flower's messages carry it (PEM)."""
    try:
        key = serialization.load_ssh_public_key(_content(path))
    except ValueError as error:
        raise InputError(f"{path} is not a public key in the format of OpenSSH: {error}.") from error
    if not isinstance(key, ec.EllipticCurvePublicKey):
        raise InputError(f"{path} is not a key on a NIST curve.")
    return public_pem(key)


def public_pem(key: ec.EllipticCurvePublicKey) -> bytes:
    """A public key as Flower's messages carry it."""
    return key.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)


def read_certificate(path: Path) -> x509.Certificate:
    """A certificate from its file."""
    try:
        return x509.load_pem_x509_certificate(_content(path))
    except ValueError as error:
        raise InputError(f"{path} is not a certificate in PEM.") from error


def write_secret(path: Path, content: bytes) -> None:
    """A file that only its owner may read, from its first byte on; an existing one is never overwritten."""
    with explained(path):
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, OWNER_ONLY)
        except FileExistsError:
            raise InputError(f"{path} exists already; remove it first, if it may be replaced.") from None
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)


def write_public(path: Path, content: bytes) -> None:
    """A file that anybody may read."""
    with explained(path):
        path.write_bytes(content)


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}.") from error


def _named(name: str) -> Any:
    return x509.Name([x509.NameAttribute(x509.oid.NameOID.COMMON_NAME, name[:64])])


def _alternative(host: str) -> Any:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _builder(subject: Any, issuer: Any, public_key: Any, days: int) -> Any:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public_key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))  # clocks of sites may be a little behind
        .not_valid_after(now + datetime.timedelta(days=days))
    )


def _usage(*, signs_certificates: bool) -> Any:
    return x509.KeyUsage(
        digital_signature=not signs_certificates, key_cert_sign=signs_certificates, crl_sign=signs_certificates,
        content_commitment=False, key_encipherment=False, data_encipherment=False, key_agreement=False,
        encipher_only=False, decipher_only=False,
    )  # fmt: skip


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    form, plain = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    return key.private_bytes(serialization.Encoding.PEM, form, plain)
