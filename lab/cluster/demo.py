"""Use a cluster while it grows and while its parts are killed, and check everything that was acknowledged."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

from lab.benchmarks.machine import cores
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
    seconds: float  # Of each measurement, and of the work between two faults.
    faults: Sequence[Fault]
    times: int = 1  # How often each part is killed.
    measures: bool = True  # Whether to measure one, two and more nodes first.


FULL = Pace(clients=8, seconds=15, faults=FAULTS)
QUICK = Pace(clients=4, seconds=3, faults=(PRIMARY,))


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """A period of undisturbed work. Times are monotonic."""

    nodes: int
    began_s: float
    ended_s: float
    wal_bytes: int  # The size of the primary's log written in this period.

    @property
    def seconds(self) -> float:
        return self.ended_s - self.began_s


@dataclass(frozen=True)
class Observed:
    """The faults and measurements, and the clients' records."""

    windows: Sequence[Window]
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

    def changes(self, window: Window) -> int:
        """Return the number of changes acknowledged in the period."""
        return sum(window.began_s <= at_s < window.ended_s for at_s in self.acknowledged_s)

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
        windows = list(growing(cluster, pace, say)) if pace.measures else grown(cluster)
        faults = list(breaking(cluster, pace, say))
    say("the clients have ended: comparing their responses with the database")
    truth = truth_of(notes, cluster.plan.direct_url, cluster.plan.url, cluster.token)
    history = History(list(events_in(notes.glob("client-*.jsonl"))), truth, may_be_unavailable=True)
    return Observed(windows, faults, history)


def grown(cluster: Cluster) -> list[Window]:
    """Start all web nodes at once, without measuring."""
    while len(cluster.nodes) < len(cluster.plan.nodes):
        cluster.add_node()
    time.sleep(SETTLE_S)
    return []


def growing(cluster: Cluster, pace: Pace, say: Callable[[str], None]) -> Iterator[Window]:
    """Measure with one web node, two, and so on."""
    while True:
        time.sleep(SETTLE_S)
        say(f"measuring for {pace.seconds:g} s, web nodes: {len(cluster.nodes)}")
        yield measured(cluster, pace.seconds)
        if len(cluster.nodes) == len(cluster.plan.nodes):
            return
        cluster.add_node()


def measured(cluster: Cluster, seconds: float) -> Window:
    before, began_s = cluster.wal_bytes(), time.monotonic()
    time.sleep(seconds)
    ended_s, after = time.monotonic(), cluster.wal_bytes()
    return Window(nodes=len(cluster.nodes), began_s=began_s, ended_s=ended_s, wal_bytes=after - before)


def breaking(cluster: Cluster, pace: Pace, say: Callable[[str], None]) -> Iterator[Happened]:
    """Kill one part after the other, if another one can replace it."""
    for fault in [fault for fault in pace.faults for _ in range(pace.times)]:
        if len(cluster.nodes) >= fault.least_nodes and len(cluster.databases) > fault.least_standbys:
            say(f"kill -9: {fault.name}; {fault.remedy}")
            happened = happen(fault, cluster)
            say(f"everything is up again after {happened.whole_after_s:.1f} s")
            yield happened
            time.sleep(pace.seconds / 3)


def report(observed: Observed, conditions: Mapping[str, str]) -> str:
    """Return the report: conditions, requests, gaps, and the throughput by number of nodes."""
    told = "\n".join(f"* {name}: {value}" for name, value in conditions.items())
    parts = [told, promises(observed), statuses(observed), gaps(observed)]
    if observed.windows:
        parts += [rates(observed), about_cores(observed)]
    return "\n\n".join(filter(None, parts)) + "\n"


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


def rates(observed: Observed) -> str:
    """Return the table of throughput by number of web nodes."""
    head = ["web nodes", "changes/s", "WAL per change, bytes"]
    return table([head, *(_rate(observed, window) for window in observed.windows)])


def _rate(observed: Observed, window: Window) -> list[str]:
    changes = observed.changes(window)
    wal = number(round(window.wal_bytes / changes)) if changes else NOTHING
    return [str(window.nodes), number(round(changes / window.seconds)), wal]


def about_cores(observed: Observed) -> str:
    """Return a note if the machine itself is the limit."""
    nodes = max(window.nodes for window in observed.windows)
    if nodes < 2:
        return ""
    return (
        f"Everything, including the clients, shares {cores()} cores, so additional web nodes don't increase throughput"
        " here. They are intended for separate machines."
    )
