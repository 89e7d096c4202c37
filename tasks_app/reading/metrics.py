"""Metrics for Prometheus: the work of the server (meters.py), and the contents of the store.

The numbers of groups are those of /stats: kept with each commit, never counted. The largest groups have a row each.
All others share one row, without the label `group` and with `groups="others"`: a group may have any name.
Only the numbers by label are counted, in a small share of the time.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from itertools import accumulate

from django.conf import settings
from django.db import Error as DatabaseFailure
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric, Sample
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.openmetrics import exposition as openmetrics
from prometheus_client.registry import Collector

from taskstore.types.tasks import State

from ..control.pauses import paused_groups
from ..core.meters import HISTOGRAMS, REASONS, meters
from ..database import dialect_of, store_alias
from ..database.time_limits import TookTooLong, at_most
from ..writer.totals import Summary, counted, largest, summary
from .search.conditions import IN_STATE

LIMIT_S, COUNTING_LIMIT_S = 5.0, 2.0  # Prometheus waits for ten.
REST = 20  # After tasks were counted, they are not counted again for so many times as long as that took.
GROUPS = 100
MEDIA_TYPES = (CONTENT_TYPE_PLAIN_0_0_4, openmetrics.CONTENT_TYPE_LATEST)

# Counters, by the field of `Work`.
WORK = {
    "commits": ("taskstore_commits", "Commits, without claims."),
    "claimed": ("taskstore_tasks_claimed", "Claimed tasks."),
    "taken_over": ("taskstore_leases_expired", "Tasks claimed again after their lease had ended."),
    "done": ("taskstore_tasks_done", "Claimed tasks that their owner deleted, changed or moved."),
    "entered": ("taskstore_tasks_entered", "Tasks added to a group or moved into it."),
    "left": ("taskstore_tasks_left", "Tasks deleted from a group or moved out of it."),
    "failures": ("taskstore_failures", "Tasks that received an error."),
}
# Gauges, by the name in `meters`.
LEVELS = {
    "processes": "Server processes.",
    "waiting_claims": "Waiting claims, including one per process for schedules.",
    "queued_operations": "Commits and claims waiting for their transaction.",
    "websockets": "Console pages with live numbers.",
}


def page(accept: str) -> tuple[bytes, str]:
    """Return all metrics as text with its media type: OpenMetrics if the client accepts it, else Prometheus' own."""
    plain, open_metrics = MEDIA_TYPES
    if "application/openmetrics-text" in accept:
        return openmetrics.generate_latest(Everything()), open_metrics  # type: ignore[no-untyped-call]
    return generate_latest(Everything()), plain


class Everything(Collector):
    """All metrics, in the form that prometheus_client writes."""

    def collect(self) -> Iterator[Metric]:
        for field, (name, text) in WORK.items():
            yield CounterMetricFamily(name, text, meters.sum_of(field))
        refusals = CounterMetricFamily("taskstore_refusals", "Rejected requests, by reason.", labels=["reason"])
        for reason in REASONS:
            refusals.add_metric([reason], meters.sum_of(reason))
        yield refusals
        yield _histogram("batch_operations", "taskstore_batch_operations", "Commits and claims per transaction.")
        yield _histogram("batch_us", "taskstore_batch_seconds", "Duration of a transaction.", unit=1_000_000)
        text = "For how long a transaction kept all others from writing, on SQLite."
        yield _histogram("alone_us", "taskstore_sqlite_writing_seconds", text, unit=1_000_000)
        for level, text in LEVELS.items():
            yield GaugeMetricFamily(f"taskstore_{level}", text, meters.sum_of(level))
        try:
            with at_most(LIMIT_S, using=store_alias()):
                families = list(_of_groups())
        except (DatabaseFailure, TookTooLong):  # The metrics of the server must not depend on the database.
            families = []
        yield GaugeMetricFamily("taskstore_store_up", "1, or 0 if the store can't be read.", bool(families))
        yield from families
        if families and (label := getattr(settings, "TASKSTORE_METRICS_LABEL", "")):
            yield _by_label.family(label)


class _ByLabel:
    """The tasks by the value of a label, as they were counted last. Threads share it: two may count at once."""

    def __init__(self) -> None:
        self._last: tuple[str, float, Mapping[str, Mapping[str, int]]] = ("", 0, {})

    def family(self, label: str) -> Metric:
        counted, next_s, numbers = self._last
        if counted != label or time.monotonic() >= next_s:
            began_s = time.monotonic()
            try:
                with at_most(COUNTING_LIMIT_S, using=store_alias()):
                    numbers = _counted_by(label)
            except (DatabaseFailure, TookTooLong):
                numbers = {}
            ended_s = time.monotonic()
            self._last = label, ended_s + REST * (ended_s - began_s), numbers
        family = GaugeMetricFamily("taskstore_tasks_by_label", "Tasks that have a label, by its value, in each state.")
        most = getattr(settings, "TASKSTORE_METRICS_GROUPS", GROUPS)
        largest_first = sorted(numbers, key=lambda value: -sum(numbers[value].values()))
        for value in largest_first[:most]:
            for state in State:
                _sample(family, numbers[value].get(state, 0), label=label, value=value, state=state.value)
        others = sum((Counter(numbers[value]) for value in largest_first[most:]), Counter())
        if others:
            for state in State:
                _sample(family, others[state], label=label, values="others", state=state.value)
        return family


_by_label = _ByLabel()


def _counted_by(label: str) -> Mapping[str, Mapping[str, int]]:
    """Count the tasks that have the label, by its value and their state."""
    dialect = dialect_of(store_alias())
    at_ms, (bears, parameters) = dialect.now_ms(), dialect.bears(label, None)
    states = " ".join(f"WHEN {within.format(now_ms=at_ms)} THEN '{state}'" for state, within in IN_STATE.items())
    sql = f"""
        SELECT {dialect.label_value} AS value, CASE {states} END AS state, count(*)
        FROM tasks_app_task WHERE {bears} GROUP BY 1, 2
    """  # noqa: S608 - all words are ours
    numbers: dict[str, dict[str, int]] = defaultdict(dict)
    for value, state, number in dialect.rows(sql, [label, *parameters]):
        numbers[value][state] = number
    return numbers


def _histogram(kept_as: str, name: str, text: str, unit: int = 1) -> Metric:
    bounds = [*(str(bound / unit) for bound in HISTOGRAMS[kept_as]), "+Inf"]
    counts = accumulate(meters.buckets_of(kept_as))
    return HistogramMetricFamily(
        name, text, list(zip(bounds, counts, strict=True)), meters.sum_of(f"{kept_as}_sum") / unit
    )


def _of_groups() -> Iterator[Metric]:
    """Yield the metrics of the store: the largest groups one by one, the others as a sum."""
    found = counted(largest(getattr(settings, "TASKSTORE_METRICS_GROUPS", GROUPS)))
    counts = {group: numbers for group, (numbers, *_) in found.items()}
    every = summary()
    text = "How long the oldest transaction of the database has been open, which keeps deleted rows; 0 on SQLite."
    open_ms, _ = dialect_of(store_alias()).oldest_transaction()
    yield GaugeMetricFamily("taskstore_oldest_transaction_seconds", text, open_ms / 1_000)
    yield GaugeMetricFamily("taskstore_groups", "Non-empty groups.", every.groups)
    family = GaugeMetricFamily("taskstore_tasks", "Tasks in each state.")
    for state in State:
        total = getattr(every.numbers, state)
        _add(family, {group: getattr(each, state) for group, each in counts.items()}, every, total, state=state.value)
    yield family
    failed = GaugeMetricFamily("taskstore_tasks_failed", "Tasks with an error, in any state.")
    _add(failed, {group: each.errors for group, each in counts.items()}, every, every.numbers.errors)
    yield failed
    tasks = GaugeMetricFamily("masstasker_num_tasks", "All tasks, under the name that MassTasker uses.")
    _add(tasks, {group: each.tasks for group, each in counts.items()}, every, every.numbers.tasks)
    yield tasks
    oldest = GaugeMetricFamily(
        "taskstore_oldest_ready_seconds", "How long the oldest ready task has been ready; 0 if there is none."
    )
    for group, (_, longest_ready_ms, *_) in found.items():
        _sample(oldest, (longest_ready_ms or 0) / 1_000, group=group)
    yield oldest
    pauses = GaugeMetricFamily("taskstore_group_paused", "1 if the group is paused.")
    paused = paused_groups(min(counts), max(counts)) if counts else set()
    for group in counts:
        _sample(pauses, group in paused, group=group)
    yield pauses


def _add(family: Metric, numbers: Mapping[str, int], every: Summary, total: int, **labels: str) -> None:
    for group, number in numbers.items():
        _sample(family, number, group=group, **labels)
    if every.groups > len(numbers):
        # The groups were read a moment before the sums.
        others = max(0, total - sum(numbers.values()))
        _sample(family, others, groups="others", **labels)


def _sample(family: Metric, number: float, **labels: str) -> None:
    # The family's own method gives every row the same labels.
    family.samples.append(Sample(family.name, labels, number))
