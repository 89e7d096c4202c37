"""The tasks for a claim on PostgreSQL, chosen and locked among those that no other transaction has locked."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..core.operations import TaskRecord
from .claim_pools import CANDIDATES, NO_MARK_MS, Demand, Pools, Queried, best_first, order_of
from .dialect import IS_RUNNING, Dialect
from .rows import Statement, Steps
from .transaction_values import Seen

USUAL_PRIORITY = 0
# How many milliseconds the statement that asks has taken so far.
TOOK_MS = "CAST(extract(epoch FROM clock_timestamp() - statement_timestamp()) * 1000 AS bigint)"


class Candidates(Dialect):
    def __init__(self, using: str, *, waits: bool) -> None:
        super().__init__(using, waits=waits)
        self.pools = Pools()

    def share_claims(self, writers: int, own_class: int) -> None:
        self.pools.writers, self.pools.own_class = writers, own_class

    def _lock_chosen(self, group: str, demand: Demand) -> Statement:
        # The ids are looked up by an index-only scan and locked by number: the planner
        # would join the whole table otherwise.
        return Statement(
            f"""
            SELECT {self.selected}
            FROM tasks_app_task
            WHERE id = ANY(ARRAY(
                SELECT id FROM ({self._available}) AS candidates ORDER BY priority DESC, {order_of(demand)} LIMIT %s
            ))
            FOR UPDATE SKIP LOCKED
            """,
            [*self._of(group, self.pools.mark_of(group), demand.limit if demand.oldest else CANDIDATES), demand.limit],
        )

    def _lock_earliest(self, group: str, asked: Queried) -> Statement:
        # Locked one by one until there are enough: what another transaction holds is passed over.
        return self.earliest(group, asked, self.pools.mark_of(group), "FOR UPDATE SKIP LOCKED")

    def with_starts(self, groups: Iterable[str]) -> tuple[str, Sequence[Any]]:
        starts = {group: self.pools.start_of(group) for group in groups}
        table = "unnest(%s::text[], %s::bigint[]) AS names(name, start_ms)"
        return table, [self.list_of_names(starts), self.list_of(starts.values())]

    def _unusual(self, parameters: Sequence[Any]) -> Statement:
        """The names of the groups that are paused, or have something available of a higher priority than is known."""
        sql = f"""
            SELECT name FROM unnest(%s::text[], %s::smallint[]) AS known(name, highest)
            WHERE EXISTS (SELECT FROM tasks_app_pausedgroup WHERE "group" = name) OR EXISTS (
                WITH RECURSIVE priorities(priority) AS (
                    SELECT max(priority) FROM tasks_app_task WHERE "group" = name AND priority > highest
                    UNION ALL
                    SELECT (SELECT max(priority) FROM tasks_app_task
                            WHERE "group" = name AND priority < priorities.priority AND priority > highest)
                    FROM priorities
                    WHERE priorities.priority IS NOT NULL
                )
                SELECT FROM priorities, LATERAL (
                    SELECT FROM tasks_app_task
                    WHERE "group" = name AND priority = priorities.priority
                        AND available_at_ms <= (SELECT {self.clock})
                    LIMIT 1
                ) AS available
                WHERE priorities.priority IS NOT NULL
            )
        """
        return Statement(sql, parameters)

    def read_pool(self, group: str, number: int) -> Statement:
        """What `note_pool` is told, when a batch claims so many."""
        start_ms = self.pools.mark_of(group, 0)
        return Statement(
            f"""
            SELECT priority, array_agg(id ORDER BY available_at_ms, id), min(available_at_ms)
            FROM ({self._available}) AS candidates
            GROUP BY priority
            UNION ALL
            SELECT NULL, ARRAY[%s, {TOOK_MS}], {self.clock}
            ORDER BY priority DESC NULLS FIRST
            """,
            [*self._of(group, start_ms, self.pools.number_to_read(number)), start_ms],
        )

    def note_pool(self, group: str, rows: Sequence[Any], taken: Iterable[int]) -> None:
        (_, [start_ms, took_ms], now_ms), *levels = rows
        self.pools.note_cost(group, start_ms, took_ms, min([oldest_ms for *_, oldest_ms in levels], default=now_ms))
        self.pools.note(group, levels, taken)

    def _look_behind_locks(self, demands: Mapping[str, Demand], seen: Seen) -> Steps[None]:
        """Where others had locked what was chosen: choose again among what they have not.

        Only there, because it reads many rows. A claim would wait for another client's transaction otherwise.
        """
        short = {group for group, demand in demands.items() if len(seen.candidates[group]) < demand.limit}
        for group in short:
            self.pools.forget(group)
        more = sorted((yield from self.groups_with_more(short, seen)))
        seen.exhausted = short.difference(more)
        if not more:
            return
        seen.ids = ()  # What is locked from here on may have larger ones.
        locks = [self._lock_others(group, demands[group], seen.candidates[group]) for group in more]
        *found, [(seen.now_ms,)] = yield [*locks, Statement(f"SELECT {self.clock}")]
        for group, rows in zip(more, found, strict=True):
            # Something of a higher priority may have become available since the first look.
            seen.candidates[group] += best_first(rows, demands[group])
            seen.candidates[group].sort(key=lambda task: -task.priority)

    def _lock_others(self, group: str, demand: Demand, locked: Sequence[TaskRecord]) -> Statement:
        # Rows are locked one by one until there are enough: none is locked that is not needed.
        return Statement(
            f"""
            SELECT {self.selected}
            FROM tasks_app_task
            WHERE id = ANY(ARRAY(
                SELECT id
                FROM tasks_app_task
                WHERE id = ANY(ARRAY(SELECT id FROM ({self._available}) AS candidates)) AND id <> ALL(%s::bigint[])
                ORDER BY priority DESC, {order_of(demand)}
                LIMIT %s
                FOR UPDATE SKIP LOCKED
            ))
            """,
            [
                *self._of(group, NO_MARK_MS, CANDIDATES),
                self.list_of(task.id for task in locked),
                demand.limit - len(locked),
            ],
        )

    @staticmethod
    def _of(group: str, start_ms: int, number: int) -> Sequence[Any]:
        """The parameters of _available: the available time at which the scan starts, and how many it finds."""
        return (*[group] * 4, start_ms, group, number)

    @property
    def _available(self) -> str:
        """A query for the longest available tasks of a group, of each priority.

        Its parameters: see _of.
        """
        # The usual priority is tried without being looked for: `max` would read the index from its end, where the rows
        # of claimed tasks are, and these stay there as long as somebody holds an old snapshot.
        # The time is a subquery that is evaluated once: an index scan can't be bounded by a volatile function.
        # The start is compared together with the priority, too, because only `task_claim` has them in this order:
        # PostgreSQL would as soon read the whole group by `task_listing`. The end is not, because a scan that compares
        # its end so goes on through all that is leased.
        return f"""
            WITH RECURSIVE priorities(priority) AS (
                SELECT COALESCE(
                    (SELECT max(priority) FROM tasks_app_task WHERE "group" = %s AND priority > {USUAL_PRIORITY}),
                    {USUAL_PRIORITY}
                ) WHERE {IS_RUNNING}
                UNION ALL
                SELECT CASE WHEN priorities.priority > {USUAL_PRIORITY} THEN COALESCE(
                    (SELECT max(priority) FROM tasks_app_task
                    WHERE "group" = %s AND priority < priorities.priority AND priority > {USUAL_PRIORITY}),
                    {USUAL_PRIORITY}
                ) ELSE (
                    SELECT max(priority) FROM tasks_app_task WHERE "group" = %s AND priority < priorities.priority
                ) END
                FROM priorities
                WHERE priorities.priority IS NOT NULL
            )
            SELECT id, available_at_ms, priority
            FROM priorities, (SELECT CAST(%s AS bigint) AS start_ms) AS scan, LATERAL (
                SELECT id, available_at_ms
                FROM tasks_app_task
                WHERE "group" = %s
                AND priority = priorities.priority AND available_at_ms >= start_ms
                AND available_at_ms <= (SELECT {self.clock})
                AND (priority, available_at_ms) >= (priorities.priority, start_ms)
                ORDER BY priority, available_at_ms, id
                LIMIT %s
            ) AS longest_available
            WHERE priorities.priority IS NOT NULL
        """
