"""Use a cluster while its parts are killed, and check everything that was acknowledged."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from lab.benchmarks.report import number, table
from lab.chaos.history import History, events_in
from lab.chaos.load import at_work, set_limits
from lab.chaos.outcome import SceneResult, outcome_of
from lab.chaos.truth import truth_of
from lab.testing.places import wait_until

from .nodes import Cluster

CLIENTS = 4
SETTLE_S = 2.0  # Of work before each fault and after the last.


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    name: str  # The part that is killed, and how the store recovers.
    act: Callable[[Cluster], None]
    goal_s: float  # The longest time without an acknowledged change.


@dataclass(frozen=True, slots=True, kw_only=True)
class Happened:
    fault: Fault
    began_s: float  # Monotonic.
    ended_s: float  # Everything is there again.


def lose_primary(cluster: Cluster) -> None:
    """Kill the primary with its Patroni, like a lost machine; it returns once the other one has replaced it."""
    old = cluster.leader()
    cluster.parts[old].kill()
    wait_until(lambda: cluster.leader() not in ("", old), "the standby becomes the primary")
    wait_until(cluster.is_ready, "the store finds the new primary")
    cluster.parts[old].begin()


def kill_web_node(cluster: Cluster) -> None:
    node = [*cluster.parts.values()][-1]
    node.kill()
    node.begin()


FAULTS = (
    Fault(name="primary: the standby takes over; it rejoins as a standby", act=lose_primary, goal_s=30),
    Fault(name="web node: haproxy uses the other one", act=kill_web_node, goal_s=2),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    outcome: SceneResult
    faults: Sequence[Happened]
    acknowledged_s: Sequence[float]  # When changes were acknowledged, in order, and when the clients ended.


def play(cluster: Cluster, seed: str, say: Callable[[str], None]) -> Observed:
    """Run the demo on a started cluster. Raises CannotTry."""
    notes = cluster.new_folder("clients")
    set_limits(f"http://{cluster.address}", cluster.token)
    say(f"{CLIENTS} clients are using {cluster.address}")
    with at_work([cluster.address], cluster.token, notes, count=CLIENTS, seed=seed, resends=True):
        faults = [happen(fault, cluster, say) for fault in FAULTS]
        time.sleep(SETTLE_S)
    say("the clients have ended: comparing their responses with the database")
    truth = truth_of(notes, cluster.plan.url("primary"), f"http://{cluster.address}", cluster.token)
    history = History(list(events_in(notes.glob("client-*.jsonl"))), truth, may_be_unavailable=True)
    acknowledged_s = sorted(event.received_s for event in history.done if not event.is_nothing)
    outcome = outcome_of(history, faults=len(faults))
    return Observed(outcome=outcome, faults=faults, acknowledged_s=[*acknowledged_s, history.end_s])


def happen(fault: Fault, cluster: Cluster, say: Callable[[str], None]) -> Happened:
    time.sleep(SETTLE_S)
    say(f"kill -9: {fault.name}")
    began_s = time.monotonic()
    fault.act(cluster)
    wait_until(cluster.is_ready, "the store can be used again")
    wait_until(cluster.is_whole, "both databases are there again")
    happened = Happened(fault=fault, began_s=began_s, ended_s=time.monotonic())
    say(f"everything is up again after {happened.ended_s - began_s:.1f} s")
    return happened


def report(observed: Observed, conditions: Mapping[str, str]) -> str:
    """Return the conditions, the requests, and the longest gaps."""
    outcome = observed.outcome
    told = "\n".join(f"* {name}: {value}" for name, value in conditions.items())
    counts = (outcome.operations, outcome.faults, outcome.in_doubt, len(outcome.violations))
    promises = table([["", "acknowledged", "faults", "in doubt", "violations"], ["requests", *map(number, counts)]])
    head = ["kill -9", "longest gap, s", "goal, s", "met"]
    gaps = table([head, *(_gap(each, observed.acknowledged_s) for each in observed.faults)])
    return "\n\n".join([told, promises, gaps]) + "\n"


def _gap(happened: Happened, acknowledged_s: Sequence[float]) -> list[str]:
    """Return the longest time without an acknowledged change that overlaps the fault."""
    overlapping = (b - a for a, b in pairwise(acknowledged_s) if b > happened.began_s and a < happened.ended_s)
    gap_s, goal_s = max(overlapping), happened.fault.goal_s
    return [happened.fault.name, f"{gap_s:.1f}", f"{goal_s:g}", "yes" if gap_s <= goal_s else "NO"]
