"""Where gRPC listens, and what has to be right before it may."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from contextlib import contextmanager

from django.conf import settings

from tasks_app.grpc_api.port import GrpcPort

from .commands import CannotRun
from .listening import Address, resolve

OPTION = "--grpc-port (0: no gRPC)"


@contextmanager
def held_grpc_port(host: str, port: int) -> Iterator[GrpcPort | None]:
    """The port, which nobody else gets meanwhile; None where it is 0.

    Raises CannotRun when it is in use, or when strangers would read along.
    """
    if not port:
        yield None
        return
    address = resolve(host, port, OPTION)
    refuse_plaintext(address)
    check_certificate()
    with address.share():
        yield GrpcPort(address=address.authority)


def refuse_plaintext(address: Address) -> None:
    if not (address.is_loopback or settings.TASKSTORE_GRPC_CERTIFICATE):
        raise CannotRun(
            f"with --host {address.host} other machines reach gRPC, which needs TLS for that: set "
            "TASKSTORE_GRPC_CERTIFICATE and TASKSTORE_GRPC_KEY, or leave gRPC out with --grpc-port 0"
        )


def check_certificate() -> None:
    """Raises CannotRun when there is one that can't be used: gRPC would not say why."""
    certificate, key = settings.TASKSTORE_GRPC_CERTIFICATE, settings.TASKSTORE_GRPC_KEY
    if not (certificate or key):
        return
    if not (certificate and key):
        raise CannotRun("TASKSTORE_GRPC_CERTIFICATE and TASKSTORE_GRPC_KEY belong together: set both, or neither")
    try:
        # Nobody is there to be asked for a password.
        ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(certificate, key, password="")
    except OSError as problem:
        raise CannotRun(
            f"can't use the certificate {certificate} with the key {key} "
            f"(TASKSTORE_GRPC_CERTIFICATE, TASKSTORE_GRPC_KEY): {problem.strerror or problem}"
        ) from None
