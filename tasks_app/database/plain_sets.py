"""PostgreSQL: plain claims of a group, commits that only delete, and the changes of bulk operations, in few statements.

Each decides for all of its kind in the batch, writes history and successors, and returns what the responses and the
counts need: no row comes back to be written. It leaves undone what is unusual: a commit of which a task is missing or
leased to another client, a claim for which there is too little, a request that is repeated. That goes the general way,
in the same transaction. The rules are those of core/rules.py, and a test compares them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import accumulate, chain
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import msgspec

from taskstore.types.schedules import SCHEDULES
from taskstore.types.tasks import COMMAND_GROUPS, FAILED_FROM, RESULTS, Change, Ending, Order, Standing

from ..conf import retention
from ..core import idempotency
from ..core.operations import Claim, Commit, Operation, Operator, Supply, TaskRecord
from ..core.room import LARGE_BYTES
from ..core.tally import Delta, bucket_of, work_in
from .claim_pools import keys_of
from .limits import known as known_limits
from .new_groups import are_known
from .postgresql import LIMITS_VERSION
from .postgresql_arrays import numbers_in
from .rows import COLUMNS, ENDED_COLUMNS, ITEM_COLUMNS, ITEM_FIELDS, KEPT_COLUMNS, Row, Statement, quoted, record_of
from .transaction import most_bytes
from .transaction_values import Written, delta_rows

if TYPE_CHECKING:
    from .plain import PlainPostgreSQL

LEAST = 6  # Tasks for each statement beside the first: these are long, and many of them cost more than they save.
MOST = 2_048  # Tasks of a batch.
MOST_GROUPS = 4
MOST_LIMITS = 20  # Each task that is deleted is compared with all of them.
NOTHING_MADE, CLAIMED = idempotency.text_of([]), idempotency.text_of([], is_claim=True)


class Outcome(NamedTuple):
    """What was done of the operations, by their places in the batch, and what is still to be written of it."""

    decisions: dict[int, list[TaskRecord]]
    written: Written


class Sets:
    """The operations of a batch by how they are done: `rest` the general way. Numbers are places in the batch.

    Empty where operations may concern the same tasks: then each has to see what the one before it left. And where they
    concern few tasks: that is quicker in general.
    """

    def __init__(self, operations: Sequence[Operation], dialect: PlainPostgreSQL) -> None:
        self.operations, self.dialect, self.limits = operations, dialect, known_limits(dialect.using)
        self.claims: dict[str, list[int]] = defaultdict(list)
        self.ends: list[list[int]] = []  # A statement for those of workers, and one for each that an operator began.
        self.changes: list[int] = []  # A statement for each.
        self.rest: list[int] = []
        self._priorities: dict[str, int] = {}
        self._chosen: dict[str, list[int]] = {}
        self._short: list[str] = []  # Groups of which the next batches need more than is known.
        self._named: list[int] = []
        self._sort()

    def __bool__(self) -> bool:
        return bool(self.claims or self.ends or self.changes)

    def _sort(self) -> None:
        wanted: dict[str, int] = defaultdict(int)
        ends = list[int]()
        ended = 0
        is_mixed = len(self.limits.names) > MOST_LIMITS
        for place, operation in enumerate(self.operations):
            if type(operation) is Claim and _is_plain_claim(operation) and not self.limits.of(operation.groups[0]):
                self.claims[operation.groups[0]].append(place)
                wanted[operation.groups[0]] += operation.limit
            elif type(operation) is Commit and is_plain_end(operation):
                if operation.operator:
                    self.ends.append([place])
                else:
                    ends.append(place)
                ended += len(operation.deletes)
                self._named += operation.deletes
            elif type(operation) is Commit and _is_plain_change(operation) and are_known(operation, self.dialect):
                self.changes.append(place)
                ended += len(operation.updates)
                self._named += operation.changed_ids
            elif isinstance(operation, Claim):
                is_mixed = True
            else:
                self.rest.append(place)
                self._named += (*operation.changed_ids, *operation.depends)
        if ends:
            self.ends.append(ends)
        keys = keys_of(self.operations)
        is_mixed |= len(set(self._named)) < len(self._named) or len(set(keys)) < len(keys)
        claimed = sum(wanted.values())
        statements = len(self.claims) + len(self.ends) + len(self.changes) + bool(self.rest)
        is_mixed |= claimed + ended < LEAST * (statements - 1) or claimed + len(self._named) > MOST
        if is_mixed or not self._choose(wanted):
            self.claims, self.ends, self.changes = {}, [], []

    def _choose(self, wanted: Mapping[str, int]) -> bool:
        """Choose the tasks for the claims. False: too little is known of a group."""
        pools = self.dialect.pools
        if len(wanted) > MOST_GROUPS:
            return False
        if not all(pools.knows(group, number) for group, number in wanted.items()):
            return False
        pools.begin(wanted)
        for group, number in wanted.items():
            self._priorities[group], self._chosen[group] = pools.take(group, number) or (0, [])
            if pools.must_read(group, number):
                self._short.append(group)
        if self._named and not set(self._named).isdisjoint(chain.from_iterable(self._chosen.values())):
            for group in wanted:
                pools.put_back(group, self._chosen[group])
            return False
        return True

    @property
    def statements(self) -> Sequence[Statement]:
        """All that is to be sent; `outcome` is given the rows."""
        claimed = [self._claiming(group, self._claims_of(group)) for group in self.claims]
        ended = [self._ending([cast("Commit", self.operations[place]) for place in places]) for places in self.ends]
        changed = [self._changing(cast("Commit", self.operations[place])) for place in self.changes]
        read = [self.dialect.read_pool(group, len(self._chosen[group])) for group in self._short]
        return [*claimed, *ended, *changed, *read]

    def _claims_of(self, group: str) -> Sequence[Claim]:
        return [cast("Claim", self.operations[place]) for place in self.claims[group]]

    def _claiming(self, group: str, claims: Sequence[Claim]) -> Statement:
        list_of, limits = self.dialect.list_of, [claim.limit for claim in claims]
        wanted, keys = sum(limits), keys_of(claims)
        parameters = [
            len(claims),
            list_of([number for number, limit in enumerate(limits, start=1) for _ in range(limit)]),
            list_of([*accumulate(limits)]),
            list_of([claim.owner for claim in claims]),
            list_of([claim.duration_ms for claim in claims]),
            *self._usual_of(keys),
            *(group, group, self._priorities[group]),
            list_of(self._chosen[group]),
            # What an answer has at most that is neither cut off nor needs a place: see core/room.py.
            min(LARGE_BYTES - 300 * wanted, (most_bytes() - 1_000 * wanted) // 6),
        ]
        is_kept = retention.kept() == retention.FULL
        return Statement(claiming(self.dialect.clock, is_kept=is_kept, has_keys=bool(keys)), parameters)

    def _usual_of(self, keys: Sequence[str]) -> Sequence[Any]:
        return (self.limits.version, *([self.dialect.list_of_names(keys)] if keys else ()))

    def _ending(self, commits: Sequence[Commit]) -> Statement:
        named = sorted(
            (task_id, number, commit.owner)
            for number, commit in enumerate(commits, start=1)
            for task_id in commit.deletes
        )
        names, keys, operator = self.limits.names, keys_of(commits), commits[0].operator
        parameters = [
            len(commits),
            self.dialect.list_of([len(commit.deletes) for commit in commits]),
            *map(self.dialect.list_of, zip(*named, strict=True)),
            *self._usual_of(keys),
            *([self.dialect.list_of_names(names)] if names else []),
        ]
        is_kept = retention.kept() != retention.OFF
        if operator:
            parameters += [*([operator.name, operator.reason] if is_kept else []), operator.bulk]
        is_bounded = any(commit.scope.no_commands_because for commit in commits)
        sql = ending(
            self.dialect.clock,
            is_kept=is_kept,
            has_keys=bool(keys),
            is_bounded=is_bounded,
            has_limits=bool(names),
            by_operator=operator.ending if operator else None,
        )
        return Statement(sql, parameters)

    def _changing(self, commit: Commit) -> Statement:
        operator = cast("Operator", commit.operator)
        named = sorted((change.id, place) for place, change in enumerate(commit.updates))
        names, keys = self.limits.names, keys_of([commit])
        is_kept = retention.kept() == retention.FULL
        parameters = [
            *map(self.dialect.list_of, zip(*named, strict=True)),
            msgspec.json.encode(commit.updates).decode(),
            *self._usual_of(keys),
            *([self.dialect.list_of_names(names)] * 2 if names else []),
            *([operator.name, operator.reason] if is_kept else []),
            operator.bulk,
        ]
        sql = changing(
            self.dialect.clock, is_kept=is_kept, has_keys=bool(keys), has_limits=bool(names), ending=operator.ending
        )
        return Statement(sql, parameters)

    def outcome(self, answers: Sequence[Sequence[Row]]) -> Outcome:
        """What came of the statements. Places that are neither in its decisions nor in `rest` were left undone."""
        rows = iter(answers)
        decisions: dict[int, list[TaskRecord]] = {}
        deltas: dict[str, Delta] = defaultdict(Delta)
        now_ms, next_in_ms, gone, done = 0, dict[str, int](), list[int](), 0
        available = defaultdict[str, int](int)
        for group, places in self.claims.items():
            made = sorted(next(rows))
            if not made:
                self.dialect.pools.put_back(group, self._chosen[group])
                continue
            now_ms = _note_claimed(made, deltas[group])
            gone += [row[OLD_ID] for row in made]
            for row in made:
                place = places[row[NUMBER] - 1]
                decisions.setdefault(place, []).append(record_of(row[: len(COLUMNS)]))
            leases = zip(places, self._claims_of(group), strict=True)
            next_in_ms[group] = min([claim.duration_ms for place, claim in leases if place in decisions])
        for places in self.ends:
            for group, owner, now_ms, numbers, *counts in next(rows):
                _note_ended(owner, counts, now_ms, deltas[group])
                decisions |= {places[number - 1]: [] for number in numbers_in(numbers)}
        for place in chain.from_iterable(self.ends):
            if place in decisions:
                gone += cast("Commit", self.operations[place]).deletes
                done += 1
        for place in self.changes:
            for group, to, now_ms, earliest_ms, there, next_ms, *counts in next(rows):
                _note_changed(counts, deltas[group], deltas[to], is_move=group != to)
                self.dialect.pools.lower(to, earliest_ms)
                if there:
                    available[to] += there
                if next_ms is not None:
                    next_in_ms[to] = min(next_ms - now_ms, next_in_ms.get(to, next_ms))
                decisions[place] = []
            if place in decisions:
                gone += cast("Commit", self.operations[place]).changed_ids
                done += 1
        for group in self._short:
            self.dialect.note_pool(group, next(rows), ())
        supply = Supply(available=available, next_in_ms=next_in_ms, gone=frozenset(gone))
        written = Written(so_far=supply, now_ms=now_ms)
        written.deltas = delta_rows({group: delta for group, delta in deltas.items() if delta}, now_ms)
        written.work = work_in(deltas.values(), done)
        for place, tasks in decisions.items():
            if key := self.operations[place].key:
                ids = ",".join([str(task.id) for task in tasks])
                written.kept.append((key.key, key.digest, now_ms, CLAIMED if ids else NOTHING_MADE, ids))
        return Outcome(decisions, written)


def _is_plain_claim(claim: Claim) -> bool:
    if len(claim.groups) > 1 or claim.depends or claim.order is not Order.RANDOM or claim.duration_ms <= 0:
        return False
    return claim.scope.allows(claim.groups[0])


def is_plain_end(commit: Commit) -> bool:
    if commit.adds or commit.updates or commit.depends or commit.batch or not commit.deletes:
        return False
    return commit.scope.patterns is None and (commit.operator is None or commit.operator.overrides)


def _is_plain_change(commit: Commit) -> bool:
    operator = commit.operator
    if commit.adds or commit.deletes or commit.depends or commit.batch or not (operator and operator.bulk):
        return False
    if commit.scope.patterns is not None or not operator.overrides or operator.ending is Ending.CANCELLED:
        return False
    return all(map(_keeps_content, commit.updates))


def _keeps_content(change: Change) -> bool:
    """Whether only the group, the time and the like change, and a task that moves is no new dead letter."""
    is_same = change.data is None and change.data_type is None and change.unique is None
    is_no_failure = change.failed_from is not None or change.group is None or change.error is None
    return change.release and is_same and is_no_failure


def _note_claimed(rows: Sequence[Row], delta: Delta) -> int:
    """Count what claims did, as core/tally.py does. Returns the time of it."""
    for *_, standing, _, _, available_at_ms, leased_since_ms, _, now_ms in rows:
        if leased_since_ms > 0:
            delta.taken_over += 1
        elif standing:
            delta.stand(standing, -1)
        delta.waits[bucket_of(now_ms - available_at_ms)] += 1
    delta.claimed += len(rows)
    delta.leases += len(rows) - delta.taken_over
    return cast("int", rows[0][-1])


def _note_ended(owner: int, counts: Sequence[Any], now_ms: int, delta: Delta) -> None:
    """Count tasks that commits of this owner deleted."""
    tasks, leased, errors, finished, retrying, failed, since = counts
    delta.tasks -= tasks
    delta.left += tasks
    delta.leases -= leased
    delta.errors -= errors
    delta.finished -= finished
    delta.retrying -= retrying
    delta.failed -= failed
    if since:
        runs = numbers_in(since)
        delta.done[owner] += len(runs)
        for since_ms in runs:
            delta.runs[bucket_of(now_ms - since_ms)] += 1


def _note_changed(counts: Sequence[int], old: Delta, new: Delta, *, is_move: bool) -> None:
    """Count tasks of one group, which may be another one now. None of them is leased any more."""
    tasks, leased, errors, finished, retrying, failed, new_errors, new_retrying, new_failed = counts
    old.leases -= leased
    old.finished -= finished
    new.errors += new_errors
    old.errors -= errors
    new.retrying += new_retrying
    old.retrying -= retrying
    new.failed += new_failed
    old.failed -= failed
    if is_move:
        old.tasks -= tasks
        old.left += tasks
        new.tasks += tasks
        new.entered += tasks


# ---- The statements. Each finds its tasks by their ids alone: without a join, and with no other condition that an
# index serves. After PostgreSQL has counted an empty table, all ways are the same to it, and most pass all tasks.

# How the successor of a claim differs from its task.
SUCCESSOR = {
    "id": "new_id",
    "available_at_ms": "until_ms",
    "owner": "new_owner",
    "claims": "claims + 1",
    "leased_since_ms": "ms",
    "made_at_ms": "ms",
    "made_by_commit": "number",
}
ENDED_JOBS = f"^jobs/[^/]+/({'|'.join(sorted(RESULTS['jobs']))})$"
# After the columns of a task that was claimed.
OLD_ID, NUMBER = len(COLUMNS), -2


def _names(columns: Sequence[str]) -> str:
    return ", ".join(quoted(columns))


def _usual(*, has_keys: bool) -> str:
    """Whether nothing is unusual. Parameters: the version of the limits, and the keys of requests: none is kept."""
    keys = "AND NOT EXISTS (SELECT FROM tasks_app_keptanswer WHERE key = ANY(%s::text[]))" if has_keys else ""
    return f"EXISTS (SELECT FROM tasks_app_log_intact) AND {LIMITS_VERSION} = %s {keys}"


def _trail(of: str, ending: str, owner: str, successor: str, by: str = "'', ''") -> str:
    """`by`: the operator, and the reason."""
    return f"""
    trail AS (
        INSERT INTO tasks_app_endedtask ({_names(ENDED_COLUMNS)})
        SELECT {_names(KEPT_COLUMNS)}, ms, number, {owner}, {ending}, {by}, {successor} FROM {of}
    ),
    """


def _items(of: str, *, keeps_data: bool) -> str:
    """What a bulk operation keeps of its tasks. The parameter: the operation's number; 0: it is none."""
    kept = [f'"{name}"' if keeps_data or name not in ("data", "data_type") else "''" for name in ITEM_FIELDS]
    return f"""
    items AS (
        INSERT INTO tasks_app_bulkitem ({_names(ITEM_COLUMNS)})
        SELECT operation, origin, id, 'done', '', number, {", ".join(kept)}, ''
        FROM {of}, (SELECT %s::bigint AS operation) AS of WHERE operation > 0
    ),
    """


def _bounded(group: str) -> str:
    return f"NOT ({group} = '{SCHEDULES}' OR starts_with({group}, '{COMMAND_GROUPS}'))"


def _unlimited(group: str) -> str:
    """The parameter: the names of limits."""
    return f"""
        AND NOT EXISTS (
            SELECT FROM unnest(%s::text[]) AS limited(name)
            WHERE {group} = name OR (right(name, 1) = '*' AND starts_with({group}, left(name, -1)))
        )
    """


def _count_standing(standing: Standing) -> str:
    return f"count(*) FILTER (WHERE leased_since_ms = 0 AND standing = {standing:d})"


COUNTED = ", ".join(
    [
        "count(*), count(*) FILTER (WHERE leased_since_ms > 0), count(*) FILTER (WHERE error <> '')",
        *map(_count_standing, (Standing.FINISHED, Standing.RETRYING, Standing.FAILED)),
    ]
)


@lru_cache(32)
def claiming(clock: str, *, is_kept: bool, has_keys: bool) -> str:
    """The statement that claims tasks of a group. Returns rows of them as they are now, and what they were.

    Its parameters: the number of claims; for each task in turn its claim; for each claim the place of its last task,
    the owner and the duration; those of _usual; the group, twice, and the priority of its tasks; their ids in order,
    and how many bytes they may have.
    """
    labels = "CASE WHEN labels = '{}' THEN 0 ELSE octet_length(labels::text) END"
    told = [SUCCESSOR.get(name, "labels::text" if name == "labels" else f'"{name}"') for name in COLUMNS]
    return f"""
    WITH now AS MATERIALIZED (
        SELECT {clock} AS ms, ARRAY(SELECT nextval('tasks_app_commits') FROM generate_series(1, %s)) AS numbers,
            %s::bigint[] AS claimed_by, %s::bigint[] AS lasts, %s::bigint[] AS owners, %s::bigint[] AS leases
        WHERE {_usual(has_keys=has_keys)} AND NOT EXISTS (SELECT FROM tasks_app_pausedgroup WHERE "group" = %s)
            AND (SELECT max(priority) FROM tasks_app_task WHERE "group" = %s AND priority > %s) IS NULL
    ),
    locked AS MATERIALIZED (
        SELECT ctid AS place, * FROM tasks_app_task
        WHERE id = ANY(%s::bigint[]) AND (SELECT ms FROM now) - available_at_ms >= 0
        ORDER BY id
        FOR UPDATE SKIP LOCKED
    ),
    made AS MATERIALIZED (
        SELECT taken.*, nextval('tasks_app_ids') AS new_id
        FROM (
            SELECT each.*, ms, claim, numbers[claim] AS number, owners[claim] AS new_owner,
                ms + leases[claim] AS until_ms
            FROM now, (
                SELECT count(*) AS there FROM locked
                HAVING NOT bool_or(payload > 0) AND sum(octet_length(data) + octet_length(error) + {labels}) <= %s
            ) AS counted,
            (SELECT *, row_number() OVER (ORDER BY id) AS turn FROM locked) AS each,
            LATERAL (SELECT claimed_by[turn] AS claim) AS of
            WHERE lasts[claim] <= there
        ) AS taken
        ORDER BY turn
    ),
    gone AS (DELETE FROM tasks_app_task WHERE ctid = ANY(ARRAY(SELECT place FROM made))),
    {_trail("made", "'claimed'", "new_owner", "new_id") if is_kept else ""}
    new AS (
        INSERT INTO tasks_app_task ({_names(COLUMNS)})
        SELECT {", ".join([SUCCESSOR.get(name, f'"{name}"') for name in COLUMNS])} FROM made
    )
    SELECT {", ".join(told)}, id, available_at_ms, leased_since_ms, claim, ms FROM made
    """


@lru_cache(32)
def ending(
    clock: str, *, is_kept: bool, has_keys: bool, is_bounded: bool, has_limits: bool, by_operator: Ending | None = None
) -> str:
    """The statement that deletes the tasks of commits. Returns a row for each group and owner.

    Its parameters: the number of commits, and how many tasks each names; the ids of all in order, and for each its
    commit and the owner; those of _usual; with limits, their names; by an operator, with the trail the name and the
    reason, and the number of the bulk operation. `is_bounded`: commands and schedules are left undone. `by_operator`:
    what the trail says; workers that hold what is cancelled are told, which is left undone.
    """
    ender = "(SELECT enders FROM now)[width_bucket(id, (SELECT named FROM now))]"
    is_free = f"(SELECT ms FROM now) - available_at_ms >= 0 OR owner = {ender}"
    runs = "array_send(array_agg(leased_since_ms) FILTER (WHERE leased_since_ms > 0 AND owner = ender))"
    trail = _trail("ended", "'deleted'", "ender", "NULL")
    if by_operator:
        is_free, runs = "leased_since_ms = 0" if by_operator is Ending.CANCELLED else "true", "NULL::bytea"
        trail = _trail("ended", f"'{by_operator.value}'", "ender", "NULL", "%s::text, %s::text")
    return f"""
    WITH now AS MATERIALIZED (
        SELECT {clock} AS ms, ARRAY(SELECT nextval('tasks_app_commits') FROM generate_series(1, %s)) AS numbers,
            %s::bigint[] AS sizes, %s::bigint[] AS named, %s::bigint[] AS commits, %s::bigint[] AS enders
        WHERE {_usual(has_keys=has_keys)}
    ),
    locked AS MATERIALIZED (
        SELECT ctid AS place, *, width_bucket(id, (SELECT named FROM now)) AS nth FROM tasks_app_task
        WHERE id = ANY((SELECT named FROM now)::bigint[])
            AND ({is_free})
            AND batch = 0 AND payload = 0 AND "unique" = ''
            {"AND " + _bounded('"group"') if is_bounded else ""}
            {_unlimited('"group"') if has_limits else ""}
        ORDER BY id
        FOR UPDATE SKIP LOCKED
    ),
    ended AS MATERIALIZED (
        SELECT each.*, ms, numbers["commit"] AS number, enders[nth] AS ender
        FROM now, (
            SELECT locked.*, commits[nth] AS "commit", count(*) OVER (PARTITION BY commits[nth]) AS found
            FROM locked, now
        ) AS each
        WHERE found = sizes["commit"]
    ),
    {trail if is_kept else ""}
    {_items("ended", keeps_data=True) if by_operator else ""}
    gone AS (DELETE FROM tasks_app_task WHERE ctid = ANY(ARRAY(SELECT place FROM ended)))
    SELECT "group", ender, ms, array_send(array_agg("commit")), {COUNTED}, {runs}
    FROM ended GROUP BY 1, 2, 3
    """


# How the successor of a change by a bulk operation differs from its task.
CHANGED = {
    "id": "new_id",
    "group": "new_group",
    "available_at_ms": "at_ms",
    "owner": "0",
    "error": "new_error",
    "labels": f"new_labels || CASE WHEN source = '' THEN '{{}}' ELSE jsonb_build_object('{FAILED_FROM}', source) END",
    "priority": "COALESCE((change ->> 'priority')::smallint, priority)",
    "leased_since_ms": "0",
    "made_at_ms": "ms",
    "made_by_commit": "number",
    "standing": f"""
        CASE WHEN source <> '' THEN {Standing.FAILED:d} WHEN new_error <> '' THEN {Standing.RETRYING:d} ELSE 0 END
    """,
}


@lru_cache(32)
def changing(clock: str, *, is_kept: bool, has_keys: bool, has_limits: bool, ending: Ending) -> str:
    """The statement that makes the changes of a bulk operation's commit. Returns a row for each group, and where to.

    Its parameters: the ids in order, and for each the place of its change; the changes as JSON; those of _usual; with
    limits, their names, twice; with the trail, the name of the operator and the reason; the number of the bulk
    operation. The successors have their ids in the order of the changes.
    """
    is_usual = " AND ".join(map(_bounded, ('"group"', "new_group")))
    if has_limits:
        is_usual += "".join(map(_unlimited, ('"group"', "new_group")))
    said = (
        f"'{ending.value}'"
        if ending is Ending.REQUEUED
        else f"""
        CASE WHEN new_group = "group" THEN '{ending.value}' ELSE '{Ending.MOVED.value}' END
    """
    )
    return f"""
    WITH now AS MATERIALIZED (
        SELECT {clock} AS ms, nextval('tasks_app_commits') AS number,
            %s::bigint[] AS named, %s::bigint[] AS places, %s::jsonb AS changes
        WHERE {_usual(has_keys=has_keys)}
    ),
    locked AS MATERIALIZED (
        SELECT ctid AS place, *, (SELECT places FROM now)[width_bucket(id, (SELECT named FROM now))] AS turn
        FROM tasks_app_task
        WHERE id = ANY((SELECT named FROM now)::bigint[]) AND batch = 0 AND "unique" = ''
        ORDER BY id
        FOR UPDATE SKIP LOCKED
    ),
    named AS MATERIALIZED (
        SELECT each.*,
            COALESCE(change ->> 'group', "group") AS new_group, COALESCE(change ->> 'error', error) AS new_error,
            COALESCE(NULLIF(change -> 'labels', 'null'), labels) - '{FAILED_FROM}' AS new_labels,
            COALESCE(labels ->> '{FAILED_FROM}', '') AS known, (change ->> 'timespec_ms')::bigint AS spec_ms
        FROM (SELECT *, (SELECT changes FROM now) -> turn::int AS change FROM locked ORDER BY turn) AS each
    ),
    changed AS MATERIALIZED (
        SELECT named.*, ms, number, nextval('tasks_app_ids') AS new_id,
            CASE WHEN spec_ms > 0 THEN spec_ms ELSE ms - spec_ms END AS at_ms,
            COALESCE(change ->> 'failed_from',
                CASE WHEN new_group = "group" OR (new_error <> '' AND new_group <> known) THEN known ELSE '' END
            ) AS source
        FROM named, now
        WHERE cardinality(now.named) = (
            SELECT count(*) FROM named WHERE {is_usual} AND NOT new_group ~ '{ENDED_JOBS}'
        )
    ),
    gone AS (DELETE FROM tasks_app_task WHERE ctid = ANY(ARRAY(SELECT place FROM changed))),
    {_trail("changed", said, "0", "new_id", "%s::text, %s::text") if is_kept else ""}
    {_items("changed", keeps_data=False)}
    new AS (
        INSERT INTO tasks_app_task ({_names(COLUMNS)})
        SELECT {", ".join([CHANGED.get(name, f'"{name}"') for name in COLUMNS])} FROM changed
    )
    SELECT "group", new_group, ms, min(at_ms), count(*) FILTER (WHERE at_ms <= ms),
        min(at_ms) FILTER (WHERE at_ms > ms), {COUNTED}, count(*) FILTER (WHERE new_error <> ''),
        count(*) FILTER (WHERE source = '' AND new_error <> ''), count(*) FILTER (WHERE source <> '')
    FROM changed GROUP BY 1, 2, 3
    """
