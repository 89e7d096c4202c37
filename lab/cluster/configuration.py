"""The ports and passwords of a cluster, and the configuration of each program, for a failover within 30 seconds."""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from lab.testing.servers import CHANCE, PORTS, is_taken

HOST, DATABASE = "127.0.0.1", "taskstore"
DATABASES, NODES = ("db-1", "db-2"), ("web-1", "web-2")
SUPERUSER, REPLICATOR, REWINDER, PATRONI = "postgres", "replicator", "rewinder", "patroni"
# A primary that is gone is replaced once its key in etcd has run out: TTL_S after it was last renewed, which happens
# every LOOP_WAIT_S. Patroni takes no TTL below 20 s, and wants LOOP_WAIT_S + 2 * RETRY_TIMEOUT_S within it: so long
# may etcd be away without a primary giving up.
TTL_S, LOOP_WAIT_S, RETRY_TIMEOUT_S = 20, 5, 5
# etcd's default is a tenth of that, with which a leader on a busy machine loses its role.
ETCD_HEARTBEAT_MS, ETCD_ELECTION_MS = 500, 5_000
# The store itself responds while its database is unavailable.
NOBODY_READY = '{"detail": "No server is ready now: try again.", "code": "unavailable"}'

HAPROXY = """global
    maxconn 4000

defaults
    timeout connect 2s
    timeout check 2s

# The PostgreSQL that Patroni reports as the primary.
listen primary
    bind {host}:{primary_port}
    mode tcp
    # pgbouncer keeps connections open and limits their lifetime itself.
    timeout client 1d
    timeout server 1d
    option httpchk GET /primary
    http-check expect status 200
    # End connections to a former primary, which must not be written to.
    default-server check inter 1s fall 2 rise 1 on-marked-down shutdown-sessions
{databases}

# The web nodes that are ready. A claim may wait for a minute, the console's socket for an hour.
listen web
    bind {host}:{web_port}
    mode http
    timeout client 90s
    timeout server 90s
    timeout tunnel 1h
    option forwardfor
    option httpchk
    http-check send meth GET uri /readyz ver HTTP/1.1 hdr Host {host}
    http-check expect status 200
    # Send a request that reached no node to another one at once.
    retries 3
    option redispatch 1
    http-error status 503 content-type application/json string '{nobody_ready}' hdr Retry-After 1
    default-server check inter 500ms fall 2 rise 1
{nodes}
"""
PGBOUNCER = """[databases]
{database} = host={host} port={primary_port} dbname={database}
[pgbouncer]
listen_addr = {host}
listen_port = {port}
unix_socket_dir =
auth_type = scram-sha-256
auth_file = users.txt
pool_mode = transaction
max_client_conn = 1000
default_pool_size = 20
ignore_startup_parameters = extra_float_digits,options
; By default 15 s pass after a failed connection until the next is tried: a new primary would wait for that.
server_login_retry = 1
server_connect_timeout = 3
; Rather tell a server to try again than let it wait for two minutes.
query_wait_timeout = 10
"""


@dataclass(frozen=True)
class Plan:
    """Ports by name, which were free a moment ago, and passwords by user: other local users can reach the ports."""

    port: Mapping[str, int]
    password: Mapping[str, str]

    @classmethod
    def new(cls) -> Self:
        names = ("etcd", "peer", *DATABASES, *(f"{name}-patroni" for name in DATABASES), *NODES)
        free = (port for port in CHANCE.sample(PORTS, len(PORTS)) if not is_taken(port))
        users = (SUPERUSER, REPLICATOR, REWINDER, PATRONI, DATABASE)
        return cls(
            dict(zip((*names, "pgbouncer", "primary", "web"), free, strict=False)),
            {user: secrets.token_hex() for user in users},
        )

    def url(self, port: str, user: str = DATABASE) -> str:
        """Return the address of PostgreSQL behind a port. The superuser has a database of its own name."""
        return f"postgresql://{user}:{self.password[user]}@{HOST}:{self.port[port]}/{user}"


def etcd(program: str, plan: Plan) -> list[str]:
    client, peer = (f"http://{HOST}:{plan.port[name]}" for name in ("etcd", "peer"))
    options = {
        "name": "etcd",
        "data-dir": "data",
        "listen-client-urls": client,
        "advertise-client-urls": client,
        "listen-peer-urls": peer,
        "initial-advertise-peer-urls": peer,
        "initial-cluster": f"etcd={peer}",
        "heartbeat-interval": str(ETCD_HEARTBEAT_MS),
        "election-timeout": str(ETCD_ELECTION_MS),
    }
    return [program, *(f"--{name}={value}" for name, value in options.items())]


def patroni(name: str, plan: Plan, folder: Path, binaries: Path) -> str:
    """Of one database. JSON is YAML too."""
    users = {"superuser": SUPERUSER, "replication": REPLICATOR, "rewind": REWINDER}
    return json.dumps(
        {
            "scope": DATABASE,
            "name": name,
            "restapi": {
                **_listening(plan.port[f"{name}-patroni"]),
                "authentication": {"username": PATRONI, "password": plan.password[PATRONI]},
            },
            "etcd3": {"hosts": [f"{HOST}:{plan.port['etcd']}"]},
            "bootstrap": {
                "dcs": {
                    "ttl": TTL_S,
                    "loop_wait": LOOP_WAIT_S,
                    "retry_timeout": RETRY_TIMEOUT_S,
                    # Acknowledged commits are on the standby too, and only such a standby is promoted.
                    "synchronous_mode": True,
                    "postgresql": {"use_pg_rewind": True, "parameters": {"max_connections": 100}},
                },
                "initdb": [{"encoding": "UTF8"}, {"locale": "C"}, "data-checksums"],
                "pg_hba": [f"host {what} all {HOST}/32 scram-sha-256" for what in ("all", "replication")],
            },
            "postgresql": {
                **_listening(plan.port[name]),
                "data_dir": str(folder / "data"),
                "bin_dir": str(binaries),
                "pgpass": str(folder / "pgpass"),
                "authentication": {
                    role: {"username": user, "password": plan.password[user]} for role, user in users.items()
                },
                # Relative, because the path of a socket has a maximum length.
                "parameters": {"unix_socket_directories": "."},
                # Start a standby now, not at the primary's next checkpoint.
                "basebackup": [{"checkpoint": "fast"}],
                # A killed primary may have writes that no standby has, and can't always be rewound.
                "remove_data_directory_on_rewind_failure": True,
                "remove_data_directory_on_diverged_timelines": True,
            },
        }
    )


def _listening(port: int) -> dict[str, str]:
    return {"listen": f"{HOST}:{port}", "connect_address": f"{HOST}:{port}"}


def haproxy(plan: Plan) -> str:
    port = plan.port
    return HAPROXY.format(
        host=HOST,
        primary_port=port["primary"],
        web_port=port["web"],
        nobody_ready=NOBODY_READY,
        databases="\n".join(
            f"    server {name} {HOST}:{port[name]} port {port[f'{name}-patroni']}" for name in DATABASES
        ),
        nodes="\n".join(f"    server {name} {HOST}:{port[name]}" for name in NODES),
    )


def pgbouncer(plan: Plan) -> str:
    return PGBOUNCER.format(
        database=DATABASE, host=HOST, primary_port=plan.port["primary"], port=plan.port["pgbouncer"]
    )


def pgbouncer_users(plan: Plan) -> str:
    return f'"{DATABASE}" "{plan.password[DATABASE]}"\n'
