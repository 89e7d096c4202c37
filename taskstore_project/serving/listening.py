"""Addresses and ports to listen on, for HTTP and gRPC."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Any

from django.conf import settings

from tasks_app.grpc_api.port import GrpcPort

from ..base_command import CannotRun

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
            f"--host {address.host} lets other machines reach gRPC, which then needs TLS: set "
            "TASKSTORE_GRPC_CERTIFICATE and TASKSTORE_GRPC_KEY, or turn gRPC off with --grpc-port 0"
        )


def check_certificate() -> None:
    """Raises CannotRun when there is one that can't be used: gRPC would not say why."""
    certificate, key = settings.TASKSTORE_GRPC_CERTIFICATE, settings.TASKSTORE_GRPC_KEY
    if not (certificate or key):
        return
    if not (certificate and key):
        raise CannotRun("TASKSTORE_GRPC_CERTIFICATE and TASKSTORE_GRPC_KEY must be set together")
    try:
        # Nobody is there to be asked for a password.
        ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(certificate, key, password="")
    except OSError as problem:
        raise CannotRun(
            f"can't use the certificate {certificate} with the key {key} "
            f"(TASKSTORE_GRPC_CERTIFICATE, TASKSTORE_GRPC_KEY): {problem.strerror or problem}"
        ) from None


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """An address to listen on, from a host and a port of the command line."""

    host: str  # As the user wrote it.
    family: socket.AddressFamily
    name: tuple[Any, ...]  # For bind().
    option: str  # Which one chooses another port.

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach it."""
        return ip_address(self.name[0]).is_loopback

    @property
    def authority(self) -> str:
        """`127.0.0.1:8048`: host and port as they stand in an address."""
        return _authority(*self.name[:2])

    def bind(self) -> socket.socket:
        """Take the port; nobody is let in before `listen`. Raises CannotRun when it is in use."""
        bound = socket.socket(self.family, socket.SOCK_STREAM)
        try:
            # Else a restart would have to wait until the connections of the server before are forgotten.
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            bound.bind(self.name)
        except OSError as problem:
            bound.close()
            raise self._cannot_listen(problem) from None
        return bound

    def listen(self, bound: socket.socket) -> None:
        """Let clients in. Raises CannotRun when another process was faster."""
        try:
            bound.listen(socket.SOMAXCONN)
        except OSError as problem:
            raise self._cannot_listen(problem) from None

    def share(self) -> socket.socket:
        """Take the port for listeners of ours that bind it once more by themselves, with SO_REUSEPORT.

        Nobody is let in here. Raises CannotRun when the port is in use, also by a server that shares it likewise.
        """
        with self.bind() as alone:
            # Two servers that share would both get a port that nobody listens on.
            self.listen(alone)
            alone.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            shared = socket.socket(self.family, socket.SOCK_STREAM)
            shared.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            shared.bind(self.name)
        return shared

    def _cannot_listen(self, problem: OSError) -> CannotRun:
        return CannotRun(
            f"can't listen on port {self.name[1]} of {self.host} ({problem.strerror}): "
            f"stop the program that uses it, or choose another port with {self.option}"
        )


def resolve(host: str, port: int, option: str = "--port") -> Address:
    """The address of a host name or number. Raises CannotRun when there is none."""
    try:
        family, _, _, _, name = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except (OSError, UnicodeError) as problem:
        raise CannotRun(f"--host {host} must be an address of this machine: {problem}") from None
    return Address(host=host, family=family, name=name, option=option)


def local_url(bound: socket.socket) -> str:
    """The address by which programs on this machine reach the socket."""
    address, port = bound.getsockname()[:2]
    number = ip_address(address)
    if number.is_unspecified:  # Every address of this machine: take the one that needs no network.
        number = ip_address("127.0.0.1" if number.version == 4 else "::1")
    return f"http://{_authority(str(number), port)}"


def _authority(number: str, port: int) -> str:
    return f"[{number}]:{port}" if ":" in number else f"{number}:{port}"
