"""Servers on which no store answers: every call ends with UNIMPLEMENTED."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address

import grpc
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

HOST = "127.0.0.1"


@contextmanager
def empty_server(credentials: grpc.ServerCredentials | None = None) -> Iterator[str]:
    """Its address; with credentials it speaks TLS."""
    server = grpc.server(ThreadPoolExecutor(1))
    port = server.add_secure_port(f"{HOST}:0", credentials or grpc.insecure_server_credentials())
    server.start()
    yield f"{HOST}:{port}"
    server.stop(None).wait()


def certificate_for_this_machine() -> tuple[bytes, bytes]:
    """A certificate that nobody else has signed, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    day, now = timedelta(days=1), datetime.now(UTC)
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number(), now - day, now + day)
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address(HOST))]), critical=False)
        .sign(key, hashes.SHA256())
    )
    plain = serialization.NoEncryption()
    key_bytes = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain)
    return made.public_bytes(serialization.Encoding.PEM), key_bytes
