"""Report the demo as Markdown tables, which are readable on a terminal too."""

from __future__ import annotations

from collections.abc import Mapping

from lab.benchmarks.machine import cores
from lab.benchmarks.report import NOTHING, number, table

from .demo import Observed, Window
from .faults import Happened


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
