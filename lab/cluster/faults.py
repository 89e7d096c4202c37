"""The faults of a cluster, and their remedies."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from lab.chaos.stage import wait_until

from .nodes import Cluster, Supervised

DATABASE_GAP_S = 30.0
WEB_GAP_S = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    name: str  # The part that is killed.
    remedy: str  # How the store recovers.
    act: Callable[[Cluster], None]  # Returns when the cluster is complete again.
    goal_s: float | None = None  # The longest time without an acknowledged change.


@dataclass(frozen=True, slots=True, kw_only=True)
class Happened:
    fault: Fault
    began_s: float  # Monotonic.
    ended_s: float

    @property
    def whole_after_s(self) -> float:
        return self.ended_s - self.began_s


def happen(fault: Fault, cluster: Cluster) -> Happened:
    began_s = time.monotonic()
    fault.act(cluster)
    wait_until(cluster.is_ready, "the store can be used again")
    wait_until(cluster.is_whole, "all databases are there again")
    return Happened(fault=fault, began_s=began_s, ended_s=time.monotonic())


def primary(cluster: Cluster) -> None:
    """Kill the primary with its Patroni, like a lost machine; it returns once another one has replaced it."""
    old = cluster.leader()
    program = cluster.databases[old]
    cluster.supervisor.take_away(program)
    wait_until(lambda: cluster.leader() not in ("", old), "another database becomes the primary")
    wait_until(cluster.is_ready, "the store finds the new primary")
    cluster.supervisor.give_back(program)


def postgresql(cluster: Cluster) -> None:
    """Kill only PostgreSQL on the primary; its Patroni restarts it."""
    cluster.kill_postgresql(cluster.leader())


def standby(cluster: Cluster) -> None:
    """Kill the synchronous standby with its Patroni."""
    name = cluster.synchronous()
    again(cluster, cluster.databases[name])
    wait_until(lambda: cluster.is_standby(name), "the standby is there again")


def web_node(cluster: Cluster) -> None:
    node = cluster.nodes[-1]
    again(cluster, node)
    wait_until(node.is_ready, "the web node is ready again")


def pgbouncer(cluster: Cluster) -> None:
    again(cluster, cluster.pgbouncer)


def haproxy(cluster: Cluster) -> None:
    again(cluster, cluster.haproxy)


def etcd(cluster: Cluster) -> None:
    again(cluster, cluster.etcd[0])
    wait_until(cluster.etcd_is_healthy, "all members of etcd are there again")


def again(cluster: Cluster, each: Supervised) -> None:
    cluster.supervisor.kill(each)
    wait_until(lambda: each.is_running, "it is started again")


PRIMARY = Fault(
    name="primary",
    remedy="a standby takes over; it rejoins as a standby",
    act=primary,
    goal_s=DATABASE_GAP_S,
)
FAULTS = (
    PRIMARY,
    Fault(
        name="PostgreSQL of the primary",
        remedy="Patroni restarts it",
        act=postgresql,
        goal_s=DATABASE_GAP_S,
    ),
    Fault(
        name="synchronous standby",
        remedy="commits wait for another standby",
        act=standby,
        goal_s=DATABASE_GAP_S,
    ),
    Fault(
        name="web node",
        remedy="haproxy uses the other nodes",
        act=web_node,
        goal_s=WEB_GAP_S,
    ),
    Fault(name="pgbouncer", remedy="restarted", act=pgbouncer),
    Fault(name="haproxy", remedy="restarted", act=haproxy),
    Fault(name="a member of etcd", remedy="the other members continue", act=etcd),
)
