"""The parts of a cluster and their addresses on the loopback."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from dataclasses import dataclass, field

from lab.chaos.processes import CHANCE, PORTS, is_taken

HOST = "127.0.0.1"
DATABASE = "taskstore"


@dataclass(frozen=True, slots=True, kw_only=True)
class EtcdMember:
    name: str
    port: int
    peer_port: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DatabaseNode:
    """A PostgreSQL and its Patroni."""

    name: str
    port: int
    patroni_port: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WebNode:
    name: str
    port: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Passwords:
    """Passwords, generated for each cluster because other local users can reach its ports."""

    superuser: str = field(default_factory=secrets.token_hex)
    replication: str = field(default_factory=secrets.token_hex)
    rewind: str = field(default_factory=secrets.token_hex)
    store: str = field(default_factory=secrets.token_hex)
    patroni: str = field(default_factory=secrets.token_hex)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    etcd: tuple[EtcdMember, ...]
    databases: tuple[DatabaseNode, ...]
    nodes: tuple[WebNode, ...]
    pgbouncer_port: int
    primary_port: int  # Of haproxy, for the primary PostgreSQL.
    web_port: int  # Of haproxy, for the web nodes that are ready.
    passwords: Passwords = field(default_factory=Passwords)

    @property
    def url(self) -> str:
        """The address of the store."""
        return f"http://{HOST}:{self.web_port}"

    @property
    def direct_url(self) -> str:
        """The address of the primary without pgbouncer, for sessions."""
        return f"postgresql://{DATABASE}:{self.passwords.store}@{HOST}:{self.primary_port}/{DATABASE}"

    @property
    def pooled_url(self) -> str:
        return f"postgresql://{DATABASE}:{self.passwords.store}@{HOST}:{self.pgbouncer_port}/{DATABASE}"

    @property
    def superuser_url(self) -> str:
        return f"postgresql://postgres:{self.passwords.superuser}@{HOST}:{self.primary_port}/postgres"


def new_plan(*, nodes: int, standbys: int, etcd: int) -> Plan:
    """Return a plan with this number of parts, on ports that are free now."""
    ports = free_ports()
    return Plan(
        etcd=tuple(EtcdMember(name=f"etcd-{n}", port=next(ports), peer_port=next(ports)) for n in range(1, etcd + 1)),
        databases=tuple(
            DatabaseNode(name=f"db-{n}", port=next(ports), patroni_port=next(ports)) for n in range(1, standbys + 2)
        ),
        nodes=tuple(WebNode(name=f"web-{n}", port=next(ports)) for n in range(1, nodes + 1)),
        pgbouncer_port=next(ports),
        primary_port=next(ports),
        web_port=next(ports),
    )


def free_ports() -> Iterator[int]:
    """Yield distinct free ports in random order."""
    return (port for port in CHANCE.sample(PORTS, len(PORTS)) if not is_taken(port))
