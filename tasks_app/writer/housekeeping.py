"""Housekeeping by one elected process: fold counts, coarsen rates, prune history, delete old records."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import accumulate

from django.conf import settings

from taskstore.types.batches import THEN
from taskstore.types.groups import LOST_MS
from taskstore.types.job_record import RESULT_FOR
from taskstore.types.limits import MOST_PER_MS
from taskstore.types.tasks import NOBODY, Ending, Standing

from ..conf import retention
from ..core.operations import BatchStep, Commit, Operator, Step
from ..database import MINUTE_MS, Dialect, Statement, Steps, dialect_of, history_partitions, transact
from ..database.batches import READ_AT_ONCE, WAITS_FOR_NOTHING
from ..database.group_patterns import bounds_of
from ..database.limit_changes import finish_changes
from ..database.outage import HOUSEKEEPING, WRITER, outage
from ..database.rows import quoted
from ..database.time_limits import TookTooLong, at_most
from .background import BackgroundLoop
from .connection import WriterConnection
from .totals import LEVELS, Happened, add_to_rates, fold, numbers_of_all, when_elected

LIMIT_S = 5.0
GRACE_MS = 10_000  # How long after its end a minute can still be measured.

COLUMNS = ("minute", *LEVELS, "workers")


def keep(using: str = "") -> float:
    """Store the present counts as the level of the minute that has just ended, unless another process has.

    Returns the seconds until the next call, 0 when another process is housekeeping right now. Leaves out a minute
    that ended a while ago, or for which the database takes too long.
    """
    dialect = dialect_of(using)
    is_settled = True
    with suppress(TookTooLong), at_most(LIMIT_S, using=dialect.using):
        minute, past_ms = divmod(dialect.now_ms(), MINUTE_MS)
        if past_ms <= GRACE_MS:
            [(is_settled,)] = dialect.rows(*dialect.election())  # On SQLite, every process is elected.
            if is_settled and not dialect.rows("SELECT 1 FROM tasks_app_level WHERE minute = %s", [minute - 1]):
                numbers = numbers_of_all(dialect.using)
                [(workers,)] = dialect.rows(
                    f"SELECT count(*) FROM tasks_app_client WHERE seen_at_ms > {dialect.clock} - %s", [LOST_MS]
                )
                level = (minute - 1, *(getattr(numbers, state) for state in COLUMNS[1:-1]), workers)
                with dialect.turn():
                    dialect.send(dialect.insert("tasks_app_level", COLUMNS, [level], "ON CONFLICT DO NOTHING"))
    return (MINUTE_MS - dialect.now_ms() % MINUTE_MS) / 1_000 if is_settled else 0.0


FOLD_EVERY_S = 0.5
CHORES_EVERY_S = 30.0
LEVEL_EVERY_S = 60.0
LIMITS_EVERY_S = 5.0
STEP = 5_000  # Rows of one deletion, which commits must not wait for.
STEP_OF_GROUPS = 1_000
STEP_OF_BATCHES = 100
STEP_OF_PAYLOADS, STEP_BYTES = 1_000, 64 * 2**20
STEP_OF_TASKS = 1_000  # Each adds a row to the history.

DAY_MS = 24 * 60 * MINUTE_MS
DAY_MINUTES = 24 * 60
WORK_KEPT_MINUTES = 60
CANCELLED_MS = 60 * MINUTE_MS
HISTORY_ROWS = 10_000_000  # On SQLite.

# A step of work. It returns whether there is more.
Chore = Callable[[Dialect], Steps[bool]]


class Housekeeper:
    """Runs on the current event loop from its creation until it is stopped."""

    def __init__(self, connection: WriterConnection) -> None:
        self.connection = connection
        self._left: list[Chore] = []
        self._next_round_s = 0.0
        # Not at once: a process that ends soon needs no level.
        self._levels = BackgroundLoop("counts of the minute", self._keep_level, first_in_s=LEVEL_EVERY_S)
        self.limits = BackgroundLoop("changes of limits", self._finish_changes, first_in_s=FOLD_EVERY_S)
        # A loop each, so that a failing one does not delay the others.
        self._loops = [
            self.limits,
            BackgroundLoop("folding of counts", self._fold, first_in_s=FOLD_EVERY_S),
            BackgroundLoop("housekeeping", self._do_chore, first_in_s=FOLD_EVERY_S),
            self._levels,
        ]

    async def stop(self) -> None:
        """Stop at once. The next process folds the rest; until then, readers add it up."""
        for loop in self._loops:
            loop.end(amid_step=True)
        for loop in self._loops:
            await loop.ended()
        await self.connection.close()

    async def _fold(self) -> float:
        try:
            await self._change(fold)
        except Exception as problem:
            outage.failed(HOUSEKEEPING, problem)
            raise
        # The writer uses the same server, and may be idle for a long time.
        outage.worked(HOUSEKEEPING, WRITER)
        return FOLD_EVERY_S

    async def _do_chore(self) -> float:
        now_s = time.monotonic()
        if not self._left and now_s >= self._next_round_s:
            self._left, self._next_round_s = chores(self.connection.dialect), now_s + CHORES_EVERY_S
        if self._left:
            chore = self._left.pop(0)  # A failing chore is tried again in the next round.
            if await self._change(chore):
                self._left.insert(0, chore)
        return FOLD_EVERY_S

    async def _finish_changes(self) -> float:
        """Those that this process has begun, and those of processes that have died."""
        is_done = await self.limits.aside(finish_changes, self.connection.dialect.using)
        return LIMITS_EVERY_S if is_done else FOLD_EVERY_S

    async def _keep_level(self) -> float:
        return max(FOLD_EVERY_S, await self._levels.aside(keep, self.connection.using))

    async def _change(self, chore: Chore) -> bool:
        """Do a step of the chore. Returns whether there is more."""
        return await self.connection.change(when_elected(chore, self.connection.dialect))


def chores(dialect: Dialect) -> list[Chore]:
    """Return the chores of one round, which delete what has expired."""
    return [
        forget_answers,
        forget_cancelled,
        forget_claims,
        OldValues().forget,
        forget_payloads,
        forget_keys,
        *(partial(coarsen, tier) for tier in TIERS),
        forget_rates,
        forget_work,
        forget_levels,
        forget_audit,
        forget_sessions,
        OldProgress().forget,
        forget_undo,
        forget_operations,
        close_batches,
        *(partial(forget_batches, table, column) for table, column in BATCH_TABLES),
        forget_plans,
        OldTasks().delete,
        *(HISTORY_BY_DAY if dialect.has_history_days else [History().forget]),
    ]


def _forget(table: str, key: str, which: str, parameters: Sequence[object]) -> Steps[bool]:
    """Delete up to STEP matching rows. Returns whether there may be more."""
    chosen = f"SELECT {key} FROM {table} WHERE {which} LIMIT {STEP}"
    [rows] = yield [Statement(f"DELETE FROM {table} WHERE ({key}) IN ({chosen}) RETURNING 1", parameters)]
    return len(rows) == STEP


def forget_answers(dialect: Dialect) -> Steps[bool]:
    """Delete the answers that were kept for resends."""
    [[(now_ms,)]] = yield [Statement(f"SELECT {dialect.clock}")]
    before_ms = now_ms - retention.key_ms()
    return (yield from _forget("tasks_app_keptanswer", "key", "at_ms < %s ORDER BY at_ms", [before_ms]))


def forget_claims(dialect: Dialect) -> Steps[bool]:
    """Delete the claims that count for no rate any more, of groups that nobody claims from.

    Two days later than that: the clock may have been set forward, and go back.
    """
    [[(now_ms,)]] = yield [Statement(f"SELECT {dialect.clock}")]
    return (yield from _forget("tasks_app_recentclaim", "id", "at_ms < %s", [now_ms - MOST_PER_MS - 2 * DAY_MS]))


def forget_cancelled(dialect: Dialect) -> Steps[bool]:
    """Delete what was kept for workers that held a cancelled task: those that have not asked are gone."""
    [[(now_ms,)]] = yield [Statement(f"SELECT {dialect.clock}")]
    return (yield from _forget("tasks_app_cancelledtask", "id", "at_ms < %s", [now_ms - CANCELLED_MS]))


def forget_payloads(dialect: Dialect) -> Steps[bool]:
    """Delete data that nobody needs any more, some megabytes of it."""
    size = "SELECT size FROM tasks_app_payload WHERE tasks_app_payload.id = kept.id"
    [found] = yield [
        Statement(
            f"SELECT id, gone, coalesce(({size}), 0) FROM tasks_app_keptpayload AS kept"
            f" WHERE until_ms < (SELECT {dialect.clock}) ORDER BY until_ms LIMIT {STEP_OF_PAYLOADS}"
        )
    ]
    before = accumulate((size for *_, size in found), initial=0)
    rows = [row for row, bytes_before in zip(found, before, strict=False) if bytes_before < STEP_BYTES]
    for table, ids in (
        ("tasks_app_payload", [payload for payload, gone, _ in rows if gone]),
        ("tasks_app_keptpayload", [payload for payload, *_ in rows]),
    ):
        if ids:
            yield [Statement(f"DELETE FROM {table} WHERE {dialect.is_listed}", [dialect.list_of(ids)])]
    return len(rows) < len(found) or len(found) == STEP_OF_PAYLOADS


def forget_keys(dialect: Dialect) -> Steps[bool]:
    """Delete the keys that were kept for a time after their tasks had ended."""
    which = f"ended > 0 AND until_ms <= (SELECT {dialect.clock}) ORDER BY until_ms"
    return (yield from _forget("tasks_app_uniquekey", '"group", key', which, []))


BATCH_TABLES = (("batchgroup", "batch"), ("batchcount", "batch"), ("batch", "id"))  # The batch itself comes last.


def close_batches(dialect: Dialect) -> Steps[bool]:
    """Close batches that have nothing to wait for any more.

    Their last commits do that, unless what is to be added was too much for one transaction, something was against it,
    or the process died that had shared the lock of a batch.
    """
    [rows] = yield [
        Statement(
            f"""
            SELECT id, (
                SELECT CAST(coalesce(sum(size), 0) AS bigint) FROM tasks_app_batchplan
                WHERE level = CAST(waiting.root AS text) || '/' || waiting.path
                    || CASE WHEN steps > 0 THEN 's' || substr(CAST(10000 + steps AS text), 2) || '.' ELSE '{THEN}' END
            )
            FROM tasks_app_batch AS waiting
            WHERE {WAITS_FOR_NOTHING}
            ORDER BY random() LIMIT {STEP_OF_BATCHES}
            """
        )
    ]
    sizes = accumulate(size for _, size in rows)
    chosen = [batch for (batch, _), size in zip(rows, sizes, strict=True) if size <= READ_AT_ONCE] or [
        batch for batch, _ in rows[:1]
    ]
    if chosen:
        commits = [Commit(owner=NOBODY, batch=BatchStep(batch, Step.LOOK)) for batch in chosen]
        yield from transact(commits, dialect)
    return len(chosen) < len(rows)


def forget_plans(dialect: Dialect) -> Steps[bool]:
    """Delete the plans of batches that were deleted so long ago that the undo has expired."""
    which = "NOT EXISTS (SELECT 1 FROM tasks_app_batch AS batch WHERE batch.root = tasks_app_batchplan.root)"
    return (yield from _forget("tasks_app_batchplan", "id", which, []))


def forget_batches(table: str, column: str, dialect: Dialect) -> Steps[bool]:
    """Delete batches, or a part of them, that closed before the beginning of the history."""
    before_ms = yield from _days_ago_ms(retention.days(), dialect)
    closed = "SELECT id FROM tasks_app_batch WHERE closed_at_ms > 0 AND closed_at_ms < %s"
    return (yield from _forget(f"tasks_app_{table}", "id", f"{column} IN ({closed})", [before_ms]))


# ---- Rates: by the minute for a day, by ten minutes for a week, by the hour for thirty days


@dataclass(frozen=True, slots=True)
class Tier:
    """Rates of `minutes` each that are older than `kept_minutes` are added to rates of `next_minutes`."""

    minutes: int
    next_minutes: int
    kept_minutes: int


TIERS = (Tier(1, 10, DAY_MINUTES), Tier(10, 60, 7 * DAY_MINUTES))
LAST_TIER_MINUTES = 60
RATES_KEPT_MINUTES = 30 * DAY_MINUTES


def coarsen(tier: Tier, dialect: Dialect) -> Steps[bool]:
    """Add old rates to the next tier, and delete them."""
    before = (yield from _minute_now(dialect)) - tier.kept_minutes
    [rows] = yield [
        Statement(
            f"""
            SELECT id, "group", minute, {", ".join(quoted(Happened._fields))}
            FROM tasks_app_rate
            WHERE minutes = %s AND minute < %s
            ORDER BY minute
            LIMIT {STEP}
            """,
            [tier.minutes, before],
        )
    ]
    if rows:
        happened = [(group, minute, Happened.read(values)) for _, group, minute, *values in rows]
        yield from add_to_rates(tier.next_minutes, happened, dialect)
        ids = dialect.list_of(row[0] for row in rows)
        yield [Statement(f"DELETE FROM tasks_app_rate WHERE {dialect.is_listed}", [ids])]
    return len(rows) == STEP


def forget_rates(dialect: Dialect) -> Steps[bool]:
    before = (yield from _minute_now(dialect)) - RATES_KEPT_MINUTES
    which = "minutes = %s AND minute < %s ORDER BY minute"
    return (yield from _forget("tasks_app_rate", "id", which, [LAST_TIER_MINUTES, before]))


def forget_work(dialect: Dialect) -> Steps[bool]:
    """Delete the work counts of all clients: nothing says whether a client will return."""
    before = (yield from _minute_now(dialect)) - WORK_KEPT_MINUTES
    return (yield from _forget("tasks_app_workdone", "id", "minute < %s ORDER BY minute", [before]))


def forget_levels(dialect: Dialect) -> Steps[bool]:
    # Without a limit: only one a minute expires.
    before = (yield from _minute_now(dialect)) - DAY_MINUTES
    yield [Statement("DELETE FROM tasks_app_level WHERE minute < %s", [before])]
    return False


def _minute_now(dialect: Dialect) -> Steps[int]:
    [[(now_ms,)]] = yield [Statement(f"SELECT {dialect.clock}")]
    return int(now_ms) // MINUTE_MS


def forget_audit(dialect: Dialect) -> Steps[bool]:
    """Delete old audit entries. A trigger refuses to delete younger ones (triggers.py)."""
    before_s = max((yield from _days_ago_ms(retention.audit_days(), dialect)), 0) // 1_000
    return (yield from _forget("tasks_app_auditentry", "id", f"at < {dialect.time_of} ORDER BY at", [before_s]))


def forget_sessions(dialect: Dialect) -> Steps[bool]:
    """Delete ended sessions once their cookies have expired."""
    [[(now_ms,)]] = yield [Statement(f"SELECT {dialect.clock}")]
    return (yield from _forget("tasks_app_endedsession", "id", "until_ms < %s", [now_ms]))


class OldValues:
    """A pass over the values of limits that claims have to look at: those without a task to claim are deleted."""

    def __init__(self) -> None:
        self._last = 0  # The last row read.

    def forget(self, dialect: Dialect) -> Steps[bool]:
        """Delete the old ones of a step of rows. Returns whether there may be more."""
        [rows] = yield [
            Statement(
                f"""
                SELECT id, EXISTS (
                    SELECT 1 FROM tasks_app_limitedtask AS task
                    WHERE task."group" = noted."group" AND leased = 0 AND task.value = noted.value
                )
                FROM tasks_app_limitedvalue AS noted WHERE id > %s ORDER BY id LIMIT {STEP}
                """,
                [self._last],
            )
        ]
        if old := [row_id for row_id, is_needed in rows if not is_needed]:
            sql = f"DELETE FROM tasks_app_limitedvalue WHERE {dialect.is_listed}"
            yield [Statement(sql, [dialect.list_of(old)])]
        self._last = rows[-1][0] if rows else 0
        return len(rows) == STEP


class OldProgress:
    """A pass over the reports of progress: those of ended tasks and of earlier leases are deleted."""

    def __init__(self) -> None:
        self._last = 0  # The last origin read.

    def forget(self, dialect: Dialect) -> Steps[bool]:
        """Delete the old ones of a step of reports. Returns whether there may be more."""
        [rows] = yield [
            Statement(
                f"SELECT origin FROM tasks_app_progressreport WHERE origin > %s ORDER BY origin LIMIT {STEP}",
                [self._last],
            )
        ]
        if rows:
            first, self._last = self._last, rows[-1][0]
            is_present = "task.claims = report.claims AND task.leased_since_ms > 0"
            yield [
                Statement(
                    f"""
                    DELETE FROM tasks_app_progressreport AS report
                    WHERE origin > %s AND origin <= %s
                        AND NOT EXISTS (
                            SELECT 1 FROM tasks_app_task AS task WHERE task.id = report.origin AND {is_present}
                        )
                        AND NOT EXISTS (
                            SELECT 1 FROM tasks_app_task AS task
                            WHERE task.origin = report.origin AND task.origin <> task.id AND {is_present}
                        )
                    """,
                    [first, self._last],
                )
            ]
        return len(rows) == STEP


# ---- Tasks that are older than the retention of their group

RETENTION = "retention"  # The operator in the history.


class OldTasks:
    """A pass over the groups that have a retention rule, a commit at a time.

    Open batches keep what has failed, and results for a later step.
    """

    def __init__(self) -> None:
        self._left: list[tuple[str, retention.Rule]] = []
        self._starts = sorted({rule.start for rule in retention.rules()})  # The prefixes of groups still to read.
        self._last = ""  # The last group read of the first prefix.

    def delete(self, dialect: Dialect) -> Steps[bool]:
        """Delete old tasks of one group. Returns whether there is more. Skips groups without old tasks."""
        if not self._left and self._starts:
            self._left = yield from self._next_groups()
        while self._left:
            group, rule = self._left[-1]
            [[(now_ms,)]] = yield [Statement(f"SELECT {dialect.clock}")]
            before_ms = int(now_ms) - (rule.kept_ms or 0)
            [rows] = yield [
                Statement(
                    f"""
                    SELECT id
                    FROM tasks_app_task AS task
                    WHERE "group" = %s AND available_at_ms < %s AND leased_since_ms = 0 AND made_at_ms < %s
                        AND NOT (batch <> 0 AND EXISTS (
                            SELECT 1 FROM tasks_app_batch AS own JOIN tasks_app_batch AS whole ON whole.id = own.root
                            WHERE own.id = task.batch AND (
                                own.closed_at_ms = 0 AND standing = %s
                                OR whole.closed_at_ms = 0 AND {dialect.label(RESULT_FOR)} <> ''
                            )
                        ))
                    ORDER BY available_at_ms, id
                    LIMIT %s
                    """,
                    [group, before_ms, before_ms, int(Standing.FAILED), STEP_OF_TASKS],
                )
            ]
            ids = tuple(task_id for (task_id,) in rows)
            if ids:
                # A commit like any other, with history. A refused one is tried again in the next round.
                reason = f"{rule.pattern} is kept for {rule.kept}"
                operator = Operator(name=RETENTION, ending=Ending.DELETED, reason=reason)
                yield from transact([Commit(owner=NOBODY, deletes=ids, operator=operator)], dialect)
            if len(ids) < STEP_OF_TASKS:
                self._left.pop()
            if ids:
                break
        return bool(self._left or self._starts)

    def _next_groups(self) -> Steps[list[tuple[str, retention.Rule]]]:
        """Read some groups: reading all names, which may be very many, would delay commits by seconds."""
        start = self._starts[0]
        [rows] = yield [
            Statement(
                f"""
                SELECT "group"
                FROM tasks_app_grouptotal
                WHERE "group" >= %s AND "group" > %s AND "group" < %s
                ORDER BY "group"
                LIMIT {STEP_OF_GROUPS}
                """,
                [start, self._last, bounds_of(f"{start}*")[1]],
            )
        ]
        if len(rows) == STEP_OF_GROUPS:
            [self._last] = rows[-1]
        else:
            self._starts.pop(0)
            self._last = ""
        found = ((group, retention.rule_of(group)) for (group,) in rows)
        return [(group, rule) for group, rule in found if rule is not None and rule.kept_ms is not None]


# ---- Bulk operations

ENDED_LONG_AGO = "state IN ('done', 'cancelled') AND ended_at_ms < %s"


def forget_undo(dialect: Dialect) -> Steps[bool]:
    """Delete the undo data of old operations, except of those that are being undone."""
    before_ms = yield from _days_ago_ms(retention.UNDO_DAYS, dialect)
    old = f"SELECT id FROM tasks_app_bulkoperation WHERE {ENDED_LONG_AGO}"
    undone = "SELECT undoes FROM tasks_app_bulkoperation WHERE state = 'running' AND undoes IS NOT NULL"
    which = f"operation IN ({old} AND id NOT IN ({undone}))"
    return (yield from _forget("tasks_app_bulkitem", "id", which, [before_ms]))


def forget_operations(dialect: Dialect) -> Steps[bool]:
    """Delete operations that ended long ago."""
    before_ms = yield from _days_ago_ms(retention.OPERATIONS_DAYS, dialect)
    return (yield from _forget("tasks_app_bulkoperation", "id", ENDED_LONG_AGO, [before_ms]))


def _days_ago_ms(days: int, dialect: Dialect) -> Steps[int]:
    [[(now_ms,)]] = yield [Statement(f"SELECT {dialect.clock}")]
    return int(now_ms) - days * DAY_MS


# ---- History


def forget_strays(dialect: Dialect) -> Steps[bool]:
    """Delete old rows that had no partition for their day.

    Also deletes rows further ahead than history is kept, which a wrong clock made: they would stay until then.
    """
    [[(now_ms,)]] = yield [Statement(f"SELECT {dialect.clock}")]
    kept_ms = retention.days() * DAY_MS
    times_ms = [now_ms - kept_ms, now_ms + kept_ms]
    return (yield from _forget(history_partitions.DEFAULT, "id", "ended_at_ms < %s OR ended_at_ms > %s", times_ms))


# On PostgreSQL.
HISTORY_BY_DAY: tuple[Chore, ...] = (history_partitions.make_ahead, history_partitions.drop_old, forget_strays)


class History:
    """On SQLite: a pass over the history, from the oldest row to the first one to keep.

    It follows `rowid`, which grows with each insert, because an index by time would slow down every commit.
    """

    def __init__(self) -> None:
        self._place = -1  # The last rowid read.

    def forget(self, dialect: Dialect) -> Steps[bool]:
        """Delete a step of old rows, and rows beyond the maximum number. Returns whether there may be more."""
        # The oldest rows go first, so the highest rowid bounds the number of rows.
        most = getattr(settings, "TASKSTORE_HISTORY_ROWS", HISTORY_ROWS)
        [[(now_ms,)], [(surplus_to,)], page] = yield [
            Statement(f"SELECT {dialect.clock}"),
            Statement("SELECT coalesce(max(rowid), 0) - %s FROM tasks_app_endedtask", [most]),
            Statement(
                f"""
                SELECT rowid, id, ended_at_ms, made_at_ms
                FROM tasks_app_endedtask
                WHERE rowid > %s
                ORDER BY rowid
                LIMIT {STEP}
                """,
                [self._place],
            ),
        ]
        before_ms = now_ms - retention.days() * DAY_MS
        old = [task_id for place, task_id, ended_at_ms, _ in page if ended_at_ms < before_ms or place <= surplus_to]
        if old:
            yield [Statement(f"DELETE FROM tasks_app_endedtask WHERE {dialect.is_listed}", [dialect.list_of(old)])]
        if not page:
            return False
        self._place, *_, made_at_ms = page[-1]
        return len(page) == STEP and (made_at_ms < before_ms or self._place <= surplus_to)
