"""Use a cluster while its parts are killed, and check everything that was acknowledged."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

from lab.benchmarks.report import NOTHING, number, table
from lab.chaos.history import History, events_in
from lab.chaos.load import at_work
from lab.chaos.outcome import SceneResult, outcome_of
from lab.chaos.stage import wait_until
from lab.chaos.truth import truth_of

from .faults import FAULTS, PRIMARY, Fault, Happened, happen
from .nodes import Cluster
from .plan import HOST

SETTLE_S = 2.0  # Until haproxy and the clients use a new node.


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    clients: int
    seconds: float  # Of work between two faults.
    faults: Sequence[Fault]


FULL = Pace(clients=8, seconds=5, faults=FAULTS)
QUICK = Pace(clients=4, seconds=1, faults=(PRIMARY,))


@dataclass(frozen=True)
class Observed:
    """The faults, and the clients' records."""

    faults: Sequence[Happened]
    history: History

    @cached_property
    def outcome(self) -> SceneResult:
        return outcome_of(self.history, faults=len(self.faults))

    @cached_property
    def statuses(self) -> Mapping[int | None, int]:
        """Return the number of requests by status; None: the connection broke."""
        return Counter(event.status for event in self.history.requests)

    @cached_property
    def acknowledged_s(self) -> list[float]:
        """Return the sorted times of acknowledged changes, without claims that found nothing."""
        return sorted(event.received_s for event in self.history.done if not event.is_nothing)

    def gap_s(self, happened: Happened) -> float:
        """Return the longest time without an acknowledged change that overlaps the fault."""
        # Without a later change, the gap lasts until the clients ended.
        times = pairwise([*self.acknowledged_s, self.ended_s])
        return max(b - a for a, b in times if b > happened.began_s and a < happened.ended_s)

    @cached_property
    def ended_s(self) -> float:
        """Return when the last request was answered or failed."""
        return max(event.received_s for event in self.history.requests)


def play(cluster: Cluster, pace: Pace, seed: str, say: Callable[[str], None]) -> Observed:
    """Run the demo on a cluster without web nodes. Raises CannotTry."""
    cluster.add_node()
    wait_until(cluster.is_ready, "haproxy finds the web node")
    say(f"{pace.clients} clients are using {cluster.plan.url}")
    notes = cluster.new_folder("clients")
    address = f"{HOST}:{cluster.plan.web_port}"
    with at_work([address], cluster.token, notes, count=pace.clients, seed=seed, resends=True):
        while len(cluster.nodes) < len(cluster.plan.nodes):
            cluster.add_node()
        time.sleep(SETTLE_S)
        faults = list(breaking(cluster, pace, say))
    say("the clients have ended: comparing their responses with the database")
    truth = truth_of(notes, cluster.plan.direct_url, cluster.plan.url, cluster.token)
    history = History(list(events_in(notes.glob("client-*.jsonl"))), truth, may_be_unavailable=True)
    return Observed(faults, history)


def breaking(cluster: Cluster, pace: Pace, say: Callable[[str], None]) -> Iterator[Happened]:
    """Kill one part after the other."""
    for fault in pace.faults:
        say(f"kill -9: {fault.name}; {fault.remedy}")
        happened = happen(fault, cluster)
        say(f"everything is up again after {happened.whole_after_s:.1f} s")
        yield happened
        time.sleep(pace.seconds)


def report(observed: Observed, conditions: Mapping[str, str]) -> str:
    """Return the report: conditions, requests, gaps."""
    told = "\n".join(f"* {name}: {value}" for name, value in conditions.items())
    return "\n\n".join([told, promises(observed), statuses(observed), gaps(observed)]) + "\n"


def promises(observed: Observed) -> str:
    outcome = observed.outcome
    head = ["", "acknowledged", "faults", "in doubt", "violations"]
    counts = (outcome.operations, outcome.faults, outcome.in_doubt, len(outcome.violations))
    return table([head, ["requests", *map(number, counts)]])


def statuses(observed: Observed) -> str:
    """Return the table of requests."""
    counted = sorted(observed.statuses.items(), key=lambda item: item[0] or 0)
    names = [str(status or "none, the connection broke") for status, _ in counted]
    return table([["status", *names], ["responses", *(number(count) for _, count in counted)]])


def gaps(observed: Observed) -> str:
    """Return the table of gaps by fault."""
    head = ["kill -9", "longest gap, s", "goal, s", "met", "recovered after, s"]
    return table([head, *(_gap(observed, happened) for happened in observed.faults)])


def _gap(observed: Observed, happened: Happened) -> list[str]:
    fault, gap_s = happened.fault, observed.gap_s(happened)
    goal = (
        ["none", NOTHING] if fault.goal_s is None else [f"{fault.goal_s:g}", "yes" if gap_s <= fault.goal_s else "NO"]
    )
    return [f"{fault.name}: {fault.remedy}", f"{gap_s:.1f}", *goal, f"{happened.whole_after_s:.1f}"]
