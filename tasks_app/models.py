"""The tables of the database: columns, indexes, facts about one row.

A task is changed through the verbs of `Task.objects` only (managers.py).
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from enum import StrEnum
from typing import Any, ClassVar, Self, TypeAlias

from django.conf import settings
from django.db import models

from taskstore.errors import Immutable
from taskstore.types.batches import Batch as BatchAnswer
from taskstore.types.bulk import WORDS, ItemOutcome, OperationState
from taskstore.types.tasks import FAILED_FROM, Ending, Standing, State

from .core.operations import Duplicate, GroupScope, TaskRecord, state_at, why_out_of_reach
from .database import collation_of
from .database.group_patterns import LabelIndex
from .database.rows import whole_data
from .managers import BatchQuerySet, TaskManager, TaskQuerySet


class IdField(models.BigIntegerField):  # type: ignore[type-arg]  # Not subscriptable at run time.
    """A key that the store gives. On SQLite it is the number of the row itself, which saves an index."""

    def db_type(self, connection: Any) -> str:
        return str(connection.data_types["BigAutoField"])


class NameField(models.CharField):  # type: ignore[type-arg]  # Not subscriptable at run time.
    """Text that both databases order alike, by code point."""

    def db_parameters(self, connection: Any) -> dict[str, Any]:
        return super().db_parameters(connection) | {"collation": collation_of(connection)}


class KeyField(models.TextField):  # type: ignore[type-arg]  # Not subscriptable at run time.
    """Text that is only looked up as a whole, and compared by its bytes."""

    def db_type(self, connection: Any) -> str:
        # Not `text` or `varchar`, for which Django would make a second index on PostgreSQL, for LIKE.
        return "character varying"

    def db_parameters(self, connection: Any) -> dict[str, Any]:
        return super().db_parameters(connection) | {"collation": collation_of(connection)}


class DataField(models.BinaryField):  # type: ignore[type-arg]  # Not subscriptable at run time.
    """The data of a task: in its row, or in that of the payload which it shares with its successors."""

    def select_format(self, compiler: Any, sql: str, params: Any) -> Any:
        table, _, column = sql.rpartition(".")
        if column != '"data"':  # What was made of it, not the column itself.
            return sql, params
        return whole_data(table), params


class Stored(models.Model):
    """A table without Django's four permissions: the rights to it are those of Task."""

    class Meta:
        abstract = True
        default_permissions = ()


class Unchanged(Stored):
    """A table whose rows are inserted and deleted, never changed; see triggers.py."""

    class Meta(Stored.Meta):
        abstract = True

    def _do_update(self, base_qs: Any, using: str, pk_val: Any, *_: Any) -> Any:  # type: ignore[override]
        """Have `loaddata`, which updates what is there before it inserts, pass over it."""
        return [()] if base_qs.filter(pk=pk_val).exists() else []


class Counted(Stored):
    """A table with numbers of tasks, which follow from those: `loaddata` passes over it; see `count_on`."""

    class Meta(Stored.Meta):
        abstract = True

    def _do_update(self, *_: Any) -> Any:
        return [()]


class Task(Unchanged):
    """An immutable record. An update or a claim deletes it and makes a successor with a new id."""

    id: models.BigIntegerField[int, int] = IdField(primary_key=True)  # Given by the store, used once, for ever.
    group = NameField(max_length=255)
    available_at_ms = models.BigIntegerField()
    owner = models.BigIntegerField()
    data = DataField()
    data_type = models.TextField()
    error = models.TextField()
    labels = models.JSONField()
    priority = models.SmallIntegerField()
    origin = models.BigIntegerField()  # The id of the first task of the chain.
    claims = models.IntegerField()
    leased_since_ms = models.BigIntegerField()  # When the lease began; 0: not leased.
    created_at_ms = models.BigIntegerField()  # When the first task of the chain was added.
    made_at_ms = models.BigIntegerField()  # When this id was made.
    made_by_commit = models.BigIntegerField()
    payload = models.BigIntegerField(default=0)  # The number of its row in Payload; 0: the data is here.
    unique = models.TextField(default="")  # The key that its chain holds; empty: none. See UniqueKey.
    standing = models.SmallIntegerField(default=0)  # What it is by its content; see Standing.
    batch = models.BigIntegerField(default=0)  # The one that its chain belongs to; 0: none.

    # Of a task that `commit` returns in the place of an add whose key was taken.
    duplicate: bool = False
    ending: str = ""  # How it has ended; empty: it has not.

    objects: ClassVar[TaskManager] = TaskManager.from_queryset(TaskQuerySet)()

    class Meta(Unchanged.Meta):
        # One for each Action.
        permissions = [
            ("see", "Can see groups, counts, and tasks without their data"),
            ("see_payloads", "Can see the data of tasks"),
            ("work", "Can add tasks"),
            ("operate", "Can requeue, move, edit and purge tasks, pause groups, and see the audit log"),
            ("administer", "Can administer the store's people and tokens"),
            ("commands", "Can submit shell commands"),
        ]
        indexes = [
            # Claims: the longest available of the highest priority.
            models.Index(fields=["group", "priority", "available_at_ms", "id"], name="task_claim"),
            # Listings of a group, the oldest available time first. With the lease also the
            # counts of what lies in the future, without looking at a row.
            models.Index(fields=["group", "available_at_ms", "id", "leased_since_ms", "standing"], name="task_listing"),
            # The living task of a chain, by its origin.
            models.Index(fields=["origin"], name="task_origin", condition=~models.Q(origin=models.F("id"))),
            # Errors in a group, and of all groups, the newest first.
            models.Index(fields=["group", "id"], name="task_error", condition=~models.Q(error="")),
            models.Index(fields=["id"], name="task_error_newest", condition=~models.Q(error="")),
            # What has failed, for now or for good, in a group and in all of them, the newest first.
            models.Index(
                fields=["group", "standing", "id"],
                name="task_failed",
                condition=models.Q(standing__gte=Standing.RETRYING),
            ),
            models.Index(
                fields=["standing", "id"],
                name="task_failed_newest",
                condition=models.Q(standing__gte=Standing.RETRYING),
            ),
            # Those that bear a label.
            LabelIndex(fields=["id", "labels"], name="task_labels"),
            # The members of a batch.
            models.Index(fields=["batch", "id"], name="task_batch", condition=~models.Q(batch=0)),
        ]

    def __str__(self) -> str:
        return f"{self.id} in {self.group}"

    @classmethod
    def of(cls, record: TaskRecord) -> Self:
        """The row that a record describes, without asking the database."""
        task = cls.from_db(None, TaskRecord._fields, record)
        if isinstance(record, Duplicate):
            task.duplicate, task.ending = True, record.ending
        return task

    def state(self, now_ms: int) -> State:
        """The state at that moment."""
        return state_at(now_ms, self.available_at_ms, self.leased_since_ms, self.standing)

    @property
    def leased(self) -> bool:
        return self.leased_since_ms > 0

    @property
    def is_failed(self) -> bool:
        return bool(self.error)

    @property
    def failed_from(self) -> str:
        """The group that a dead letter failed in; empty: it is none."""
        return str(self.labels.get(FAILED_FROM, ""))

    def _do_update(self, base_qs: Any, using: str, pk_val: Any, *others: Any) -> Any:  # type: ignore[override]
        """Have `loaddata` pass over a task that has ended, too."""
        has_ended = EndedTask._base_manager.using(using).filter(pk=pk_val).exists()
        return [()] if has_ended else super()._do_update(base_qs, using, pk_val, *others)

    def save(self, *args: Any, **kwargs: Any) -> None:
        raise Immutable("Tasks are immutable: use Task.objects.commit(adds=... or updates=...)")

    save_base = save  # Else it would be a way round.

    def delete(self, *args: Any, **kwargs: Any) -> tuple[int, dict[str, int]]:
        raise Immutable("Tasks are deleted by a commit: use Task.objects.commit(deletes=[...])")


class Payload(Unchanged):
    """Data that is too large to be written again with each successor. The living task of a chain has it."""

    id: models.BigIntegerField[int, int] = IdField(primary_key=True)  # Of the task that brought it.
    size = models.BigIntegerField()  # How many bytes it takes in JSON. First: SQLite reads all of what is before it.
    data = models.BinaryField()

    def __str__(self) -> str:
        return f"payload {self.id}"


class KeptPayload(Stored):
    """A payload that is needed by those who were told of its task before it ended, or by an answer that is kept."""

    id = models.BigIntegerField(primary_key=True)
    until_ms = models.BigIntegerField(db_index=True)
    gone = models.SmallIntegerField()  # 1: its last task has ended. 0: nobody knows of an end.

    def __str__(self) -> str:
        return f"payload {self.id} until {self.until_ms}"


class UniqueKey(Stored):
    """A key that a chain of tasks holds, or that is kept from others for a time after the chain has ended."""

    pk = models.CompositePrimaryKey("group", "key")
    group = NameField(max_length=255)  # That the add named, wherever the task is now.
    key = NameField(max_length=255)
    origin = models.BigIntegerField()  # Of the chain.
    until_ms = models.BigIntegerField()  # Until when it is kept, even if the chain ends.
    ended = models.BigIntegerField()  # The last id of the chain; 0: it lives.
    ending = models.TextField()  # As in EndedTask; empty: it lives.
    ended_in = NameField(max_length=255)  # The group of the last id.

    class Meta(Stored.Meta):
        indexes = [
            # The key of a chain that ends.
            models.Index(fields=["origin"], name="key_of_chain"),
            # What is kept no longer.
            models.Index(fields=["until_ms"], name="key_kept", condition=~models.Q(ended=0)),
        ]

    def __str__(self) -> str:
        return f"{self.key} in {self.group}"


class EndedTask(Unchanged):
    """The end of an id that no longer exists: a row of the trail (contract.md section 5)."""

    id: models.BigIntegerField[int, int] = IdField(primary_key=True)
    group = NameField(max_length=255)
    available_at_ms = models.BigIntegerField()
    owner = models.BigIntegerField()
    error = models.TextField()
    priority = models.SmallIntegerField()
    origin = models.BigIntegerField()
    claims = models.IntegerField()
    leased_since_ms = models.BigIntegerField()
    created_at_ms = models.BigIntegerField()
    made_at_ms = models.BigIntegerField()
    made_by_commit = models.BigIntegerField()
    ended_at_ms = models.BigIntegerField()
    ended_by_commit = models.BigIntegerField()
    ended_by = models.BigIntegerField()  # The client whose commit or claim it was.
    ending = models.CharField(max_length=20, choices=[(ending.value, ending.value) for ending in Ending])
    successor = models.BigIntegerField(null=True)
    operator = models.TextField()  # Empty: a worker did it.
    reason = models.TextField()

    class Meta(Unchanged.Meta):
        # A chain from its first task to its last.
        indexes = [models.Index(fields=["origin", "id"], name="endedtask_chain")]

    def __str__(self) -> str:
        return f"{self.id} in {self.group}, {self.ending}"

    @property
    def leased(self) -> bool:
        return self.leased_since_ms > 0


class CancelledTask(Stored):
    """The last id of a leased task that was cancelled, for the worker that held it. It is kept for an hour."""

    id: models.BigIntegerField[int, int] = IdField(primary_key=True)
    owner = models.BigIntegerField()
    at_ms = models.BigIntegerField(db_index=True)
    group = NameField(max_length=255)

    def __str__(self) -> str:
        return f"{self.id} of {self.owner}"


class KeptAnswer(Stored):
    """The answer to a request with an idempotency key."""

    key = KeyField(primary_key=True)  # With its holder's name in front.
    digest = models.CharField(max_length=64)
    at_ms = models.BigIntegerField(db_index=True)
    answer = models.TextField()
    ids = models.TextField()  # Of the new tasks, with commas.

    def __str__(self) -> str:
        return str(self.key)


class CountDelta(Counted):
    """By how much a batch changed the numbers of a group. Folded into GroupTotal, Rate and WorkDone, and gone."""

    group = NameField(max_length=255)
    minute = models.BigIntegerField()  # Of the batch's time: minutes since the Epoch.
    tasks = models.IntegerField()
    leases = models.IntegerField()
    errors = models.IntegerField()
    finished = models.IntegerField()
    retrying = models.IntegerField()
    failed = models.IntegerField()
    entered = models.IntegerField()
    left = models.IntegerField()
    failures = models.IntegerField()
    claimed = models.IntegerField()
    waits = models.TextField()  # See tally.Delta and tally.text_of.
    runs = models.TextField()
    done = models.TextField()

    def __str__(self) -> str:
        return f"{self.group}: {self.tasks:+}"


class GroupTotal(Counted):
    """The numbers of a group, but for the deltas that are still to be folded. A group without tasks has none."""

    group = NameField(max_length=255, primary_key=True)
    tasks = models.BigIntegerField()
    leases = models.BigIntegerField()  # Tasks that are leased, whether or not the lease runs.
    errors = models.BigIntegerField()  # Tasks with an error.
    finished = models.BigIntegerField()  # These three: of the tasks that are not leased.
    retrying = models.BigIntegerField()
    failed = models.BigIntegerField()

    def __str__(self) -> str:
        return f"{self.group}: {self.tasks}"


class Rate(Stored):
    """Counts of the events in a group within a minute, ten minutes or an hour."""

    group = NameField(max_length=255)
    minutes = models.SmallIntegerField()  # How long: 1, 10 or 60.
    minute = models.BigIntegerField()  # When it began: minutes since the Epoch.
    entered = models.BigIntegerField()
    left = models.BigIntegerField()
    failures = models.BigIntegerField()
    claimed = models.BigIntegerField()
    tasks = models.BigIntegerField()  # How many there were at the end: the backlog.
    waits = models.TextField()  # How long what was claimed had been available; see tally.text_of.
    runs = models.TextField()  # How long what its holder was done with had been leased.

    class Meta(Stored.Meta):
        constraints = [
            # Also finds the rates of a group in the order of time.
            models.UniqueConstraint(fields=["group", "minutes", "minute"], name="rate_of_group")
        ]
        indexes = [
            # What is old enough to go, or to be summed up.
            models.Index(fields=["minutes", "minute"], name="rate_age")
        ]

    def __str__(self) -> str:
        return f"{self.group} at minute {self.minute}"


class Level(Stored):
    """How much there was over all groups at the end of a minute. Kept for a day; without a server there is none."""

    minute = models.BigIntegerField(primary_key=True)  # The one that ended: minutes since the Epoch.
    ready = models.BigIntegerField()  # Tasks.
    claimed = models.BigIntegerField()
    expired = models.BigIntegerField()
    scheduled = models.BigIntegerField()
    retrying = models.BigIntegerField()
    failed = models.BigIntegerField()
    workers = models.BigIntegerField()  # That were heard and not lost.

    def __str__(self) -> str:
        return f"minute {self.minute}"


class WorkDone(Stored):
    """How many tasks a client was done with within a minute. Kept for an hour."""

    minute = models.BigIntegerField()  # Since the Epoch.
    client = models.BigIntegerField()  # The owner that its commits named, whether or not it was ever heard.
    tasks = models.BigIntegerField()  # See tally.Delta.done.

    class Meta(Stored.Meta):
        constraints = [
            # Also finds what was done within the last minutes, and what is old enough to go.
            models.UniqueConstraint(fields=["minute", "client"], name="work_of_client")
        ]

    def __str__(self) -> str:
        return f"{self.client} at minute {self.minute}: {self.tasks}"


class PausedGroup(Stored):
    """A group in which claims find nothing for now."""

    group = NameField(max_length=255, primary_key=True)
    by = models.CharField(max_length=150)
    reason = models.TextField()
    at = models.DateTimeField(auto_now_add=True)

    def __str__(self) -> str:
        return str(self.group)

    @property
    def at_ms(self) -> int:
        return round(self.at.timestamp() * 1000)


class GroupLimit(Stored):
    """How many tasks of a group may be leased at once, or be claimed within a time; see core/limits.py."""

    name = NameField(max_length=255, primary_key=True)  # With a star at the end: each group that begins so.
    running = models.IntegerField(null=True)
    claims = models.IntegerField(null=True)  # Within `per_ms`.
    per_ms = models.BigIntegerField(null=True)
    by = models.TextField(default="")  # A label: separately for each of its values.
    set_by = models.CharField(max_length=150)
    at = models.DateTimeField(auto_now=True)

    def __str__(self) -> str:
        return str(self.name)


class LimitChange(Stored):
    """A change of limits for which rows of LimitedTask or LimitedValue are still to be written."""

    name = NameField(max_length=255)  # Of the limit.
    holds = models.SmallIntegerField()  # 1: claims need rows of LimitedTask, and are put off.

    def __str__(self) -> str:
        return str(self.name)


class LimitedTask(Stored):
    """A task of a group with a limit that has to be counted as leased, or to be found by its value."""

    id: models.BigIntegerField[int, int] = IdField(primary_key=True)
    group = NameField(max_length=255)
    value = KeyField()  # Of the label that the limit names; empty without one.
    priority = models.SmallIntegerField()
    available_at_ms = models.BigIntegerField()
    leased = models.SmallIntegerField()  # Whether it is: 1 or 0.

    class Meta(Stored.Meta):
        indexes = [
            # Those that are leased; of the others the values, and the best of each value.
            models.Index(
                fields=["group", "leased", "value", "-priority", "available_at_ms", "id"], name="limited_tasks"
            )
        ]

    def __str__(self) -> str:
        return f"{self.id} in {self.group}"


class LimitedValue(Stored):
    """A value of the label of a limit that claims have to look at: there is a new task, or room for one.

    Rows are only added, so that nobody waits for others. Claims delete those of values of which none can be claimed.
    """

    group = NameField(max_length=255)
    value = KeyField()
    from_ms = models.BigIntegerField()  # Not before: a task is scheduled for then, or the rate allows one. 0: now.

    class Meta(Stored.Meta):
        indexes = [models.Index(fields=["group", "from_ms", "value", "id"], name="limited_values")]

    def __str__(self) -> str:
        return f"{self.value} in {self.group}"


class RecentClaim(Stored):
    """How many tasks were claimed at a time, where a rate is limited. Kept for as long as that takes."""

    group = NameField(max_length=255)
    value = KeyField()
    at_ms = models.BigIntegerField()
    claims = models.BigIntegerField()
    again_ms = models.BigIntegerField()  # When they were found to be of a time in the future; 0: never.

    class Meta(Stored.Meta):
        constraints = [models.UniqueConstraint(fields=["group", "value", "at_ms"], name="claims_of_value")]
        indexes = [models.Index(fields=["group", "at_ms"], name="claims_of_group")]

    def __str__(self) -> str:
        return f"{self.claims} of {self.group}"


class Batch(Stored):
    """Tasks that end together, and what is added when they have; see core/batches.py."""

    id: models.BigIntegerField[int, int] = IdField(primary_key=True)  # Given by the store.
    name = models.CharField(max_length=255)
    mark = models.CharField(max_length=400)  # By which whoever made it finds it.
    parent = models.BigIntegerField()  # The batch that stays open while this one is; 0: none.
    hold = models.SmallIntegerField()  # 1: it stays open until it is released.
    failed_ends = models.SmallIntegerField()  # 1: dead letters count as ended.
    refuses = models.SmallIntegerField(default=0)  # 1: it is being deleted, and takes no more tasks.
    has_failed = models.SmallIntegerField(default=0)  # 1: `on_failure` was added; 2: it is still to be added.
    children = models.BigIntegerField(default=0)  # How many open batches have it as their parent.
    failed_children = models.BigIntegerField(default=0)  # How many of those that closed have failed, or were deleted.
    created_at_ms = models.BigIntegerField()
    closed_at_ms = models.BigIntegerField(default=0)  # 0: it is open.
    steps = models.IntegerField(default=0)  # How many levels are still added within it, one after the other,
    then = models.IntegerField(default=0)  # how many tasks when it closes,
    on_failure = models.IntegerField(default=0)  # and at the first failure.
    problem = models.TextField(default="")  # Why it could not add them; empty: nothing was in the way.
    root = models.BigIntegerField()  # The batch that was made with the plan that this one is a part of; see BatchPlan.
    path = models.CharField(max_length=500)  # The part; empty: all of it.

    objects = BatchQuerySet.as_manager()

    class Meta(Stored.Meta):
        verbose_name_plural = "batches"
        indexes = [
            models.Index(fields=["mark"], name="batch_mark"),
            models.Index(fields=["parent", "id"], name="batch_parent", condition=~models.Q(parent=0)),
            # Those that are open, and those that closed long ago.
            models.Index(fields=["closed_at_ms", "id"], name="batch_closed"),
            models.Index(fields=["root"], name="batch_root"),
        ]

    def __str__(self) -> str:
        return f"batch {self.pk} {self.name}".rstrip()

    def told(self) -> BatchAnswer:
        """The batch as it is answered with. It was read by `counted`."""
        *numbers, trouble = self.numbers.split(" ", 6)  # type: ignore[attr-defined]
        is_open, failed, ended, gone, own_gone, planned = map(int, numbers)
        lost = "" if self.closed_at_ms else self.lost  # type: ignore[attr-defined]
        # Narrower rights show only when something was to be added with them.
        has_lost = bool(lost) or (not self.closed_at_ms and trouble != "" and self.lacking() != [])
        problem = "" if self.closed_at_ms else lost or trouble
        if self.refuses:
            state = "deleted"
        elif self.closed_at_ms:
            state = "failed" if (own_gone or self.failed_children) and not self.failed_ends else "succeeded"
        else:
            state = "held" if problem or (self.hold and not is_open) else "open"
        return BatchAnswer(
            id=self.pk,
            name=self.name,
            state=state,
            total=is_open + failed + ended + gone,
            open=is_open,
            failed=failed + gone,
            ended=ended,
            created_at_ms=self.created_at_ms,
            closed_at_ms=self.closed_at_ms or None,
            parent=self.parent or None,
            children=self.children,
            hold=bool(self.hold),
            failed_ends=bool(self.failed_ends),
            failed_children=self.failed_children,
            gone=gone,
            planned=planned,
            deleted=bool(self.refuses),
            problem=problem,
            lost_rights=has_lost,
        )

    def lacking(self) -> list[tuple[BatchPlan, str]]:
        """Return its plans, without their tasks, whose holders may not add them, each with the reason."""
        here = f"{self.root}/{self.path}"
        plans = list(BatchPlan.objects.filter(level__gte=here, level__lt=f"{here}~").exclude(holder="").defer("adds"))
        known = RightsHolder.objects.in_bulk([plan.holder for plan in plans])
        found: list[tuple[BatchPlan, str]] = []
        for plan in plans:
            # A backup may be restored without the holders of rights.
            holder = known.get(plan.holder) or RightsHolder.unknown(plan.holder)
            if why := holder.why_lacking(json.loads(plan.reach)):
                found.append((plan, why))
        return found


class DueTime(Stored):
    """What became of a due time of a schedule, of which the last ones are kept; see schedules/past.py."""

    class Outcome(models.TextChoices):
        ADDED = "added"
        SKIPPED = "skipped"  # What was added before had not ended, or had its unique key.
        MISSED = "missed"  # No server was running, or a later due time had come.
        EXPIRED = "expired"
        PAUSED = "paused"
        FAILED = "failed"  # It could not be added.

    schedule = models.BigIntegerField()  # Its origin.
    due_ms = models.BigIntegerField()
    outcome = models.CharField(max_length=10)
    why = models.TextField()  # For people; empty: the outcome says it.
    origin = models.BigIntegerField()  # Of the task that was added, or that was in the way; 0: there is none.

    class Meta(Stored.Meta):
        constraints = [models.UniqueConstraint(fields=["schedule", "due_ms"], name="due_time_of_schedule")]

    def __str__(self) -> str:
        return f"schedule {self.schedule} at {self.due_ms}: {self.outcome}"


class BatchCount(Stored):
    """The numbers of a batch, in parts: so that transactions which change them don't wait for each other."""

    batch = models.BigIntegerField()
    part = models.SmallIntegerField()
    open = models.BigIntegerField()  # Members that have not ended.
    failed = models.BigIntegerField()  # Members that are dead letters, or jobs and commands that failed for good.
    ended = models.BigIntegerField()  # Members that have succeeded.
    gone = models.BigIntegerField(default=0)  # Members that were cancelled, purged or removed before they succeeded.

    class Meta(Stored.Meta):
        constraints = [models.UniqueConstraint(fields=["batch", "part"], name="count_of_batch")]

    def __str__(self) -> str:
        return f"batch {self.batch}: {self.open} open"


class BatchGroup(Stored):
    """A group that is named in a batch: only those who may see all of them see the batch."""

    batch = models.BigIntegerField()
    group = NameField(max_length=255)

    class Meta(Stored.Meta):
        constraints = [models.UniqueConstraint(fields=["batch", "group"], name="group_of_batch")]

    def __str__(self) -> str:
        return f"{self.group} in batch {self.batch}"


class BatchPlan(Stored):
    """Tasks that a batch adds when it closes, or at its first failure: a level of a plan, as it was added.

    Each is read when it is due, and deleted with that; nothing of the levels below is read or written then.
    """

    root = models.BigIntegerField()  # The batch that was made with the plan.
    level = NameField(max_length=530)  # "17/tf": what batch 17 adds when what follows it fails.
    holder = models.CharField(max_length=150)  # With whose rights, see RightsHolder; empty: those of the program.
    number = models.IntegerField()  # Of tasks.
    size = models.BigIntegerField()  # The bytes of `adds`.
    words = models.TextField()  # For people.
    groups = models.TextField()  # JSON: the groups that this level and those below it name.
    reach = models.TextField()  # JSON: the groups of this level, and those that schedules among its tasks feed.
    adds = models.TextField()  # JSON, see taskstore.types.batches.

    class Meta(Stored.Meta):
        indexes = [models.Index(fields=["level"], name="level_of_plan")]

    def __str__(self) -> str:
        return f"{self.level}: {self.words}"


class RightsHolder(Stored):
    """The rights with which batches add tasks later, by their holder; access/rights.py keeps them current."""

    name = models.CharField(max_length=150, primary_key=True)  # As the audit log has it.
    groups = models.TextField()  # JSON: patterns of GroupScope, or null.
    commands = models.SmallIntegerField()  # 1: groups of shell commands, too.
    lost = models.TextField(default="")  # Why these rights are gone; empty: they are not.

    def __str__(self) -> str:
        return self.name

    @classmethod
    def unknown(cls, name: str) -> RightsHolder:
        """Return a holder of whom the store knows nothing."""
        return cls(name=name, groups="[]", commands=0, lost=f"{name} is not known any more")

    @property
    def scope(self) -> GroupScope:
        """Return what the holder may do, without regard to whether the rights are lost."""
        return GroupScope.of_holder(self.name, self.groups, may_command=bool(self.commands))

    def why_lacking(self, groups: Iterable[str]) -> str:
        """Say why the rights do not suffice to add to these groups, whatever a server allows; empty: they do."""
        why = why_out_of_reach(self.scope, groups)
        return self.lost or (f"{self.name}: {why}" if why else "")


class Client(Stored):
    """A worker's last heartbeat."""

    id = models.BigIntegerField(primary_key=True)  # The owner that its claims and commits name.
    name = models.CharField(max_length=255)
    host = models.CharField(max_length=255)
    pid = models.BigIntegerField(null=True)
    groups = models.JSONField()  # Names.
    version = models.CharField(max_length=255)
    info = models.TextField()  # A JSON object. As text: NUL in a text of it is no problem then.
    seen_at_ms = models.BigIntegerField()
    token = models.BigIntegerField(null=True)  # The one that it came with.

    class Meta(Stored.Meta):
        # Who was heard last; who has been silent for long.
        indexes = [models.Index(fields=["seen_at_ms"], name="client_seen")]

    def __str__(self) -> str:
        return self.name or f"client {self.id}"


class ProgressReport(Stored):
    """How far a task is, by the word of its owner. What belongs to an earlier lease or an ended task goes later."""

    origin = models.BigIntegerField(primary_key=True)
    claims = models.IntegerField()  # Of the task: they identify the lease.
    done = models.FloatField()  # From 0 to 1.
    text = models.CharField(max_length=255)
    at_ms = models.BigIntegerField()

    def __str__(self) -> str:
        return f"task {self.origin}: {self.done:.0%}"


class Scope(models.TextChoices):
    """The scope of a token; each of the first three includes the ones before it."""

    READ = "read"
    WORK = "work"
    OPERATE = "operate"
    COMMANDS = "commands"  # What `work` may, and also decide what shells run.


class Token(Stored):
    """The right of a program to use the API. Only a hash of the secret is kept."""

    name = models.CharField(max_length=100)
    hash = models.CharField(max_length=64, unique=True, editable=False)
    scope = models.CharField(max_length=10, choices=Scope.choices)
    groups = models.JSONField(default=list, blank=True)  # Patterns of GroupScope; empty: every group.
    clients = models.JSONField(default=list, blank=True)  # The owners that it may act for; empty: every one.
    created_at = models.DateTimeField(auto_now_add=True)
    expires_at = models.DateTimeField(null=True, blank=True)
    last_used_at = models.DateTimeField(null=True, blank=True, editable=False)
    revoked_at = models.DateTimeField(null=True, blank=True)

    def __str__(self) -> str:
        return self.name

    @property
    def group_scope(self) -> GroupScope:
        return GroupScope(tuple(self.groups) or None)


class OneTimePassword(Stored):
    """Says that the password of a user was made by somebody else. It goes when they choose their own."""

    user = models.OneToOneField(
        settings.AUTH_USER_MODEL, on_delete=models.CASCADE, primary_key=True, db_constraint=False
    )

    def __str__(self) -> str:
        return f"one-time password of {self.user}"


class SessionGeneration(Stored):
    """The sessions of a user that are still good: those that were begun in this generation."""

    user = models.OneToOneField(
        settings.AUTH_USER_MODEL, on_delete=models.CASCADE, primary_key=True, db_constraint=False
    )
    number = models.BigIntegerField()  # A random one, so that a restored backup brings none back.

    def __str__(self) -> str:
        return f"session generation of {self.user}"


class EndedSession(Stored):
    """A session whose user has signed out. Its row is kept for as long as a copy of its cookie could be used."""

    id = models.CharField(max_length=32, primary_key=True)
    until_ms = models.BigIntegerField(db_index=True)

    def __str__(self) -> str:
        return self.id


def choices(words: type[StrEnum]) -> list[tuple[str, str]]:
    """Return the words of a field, each with what a form says for it."""
    return [(word.value, word.value.capitalize()) for word in words]


class BulkOperation(Stored):
    """A bulk operation by a person or a program: the request and its progress."""

    State: TypeAlias = OperationState

    verb = models.CharField(max_length=10)  # The name of an action, see taskstore.types.bulk.
    parameters = models.JSONField(default=dict)  # The options of the action.
    selection = models.JSONField(default=dict)  # See bulk.selection.Selection.
    in_words = models.TextField()  # The selection.
    group = NameField(max_length=255)  # The one that all tasks of the selection are in; empty: several, or none.
    expected = models.BigIntegerField()  # Tasks that the person saw and agreed to.
    undoes = models.BigIntegerField(null=True, db_index=True)  # The operation that this one takes back.
    by = models.CharField(max_length=150)
    reason = models.TextField()
    began_at_ms = models.BigIntegerField()
    state = models.CharField(max_length=10, choices=choices(State), default=State.RUNNING)
    place = models.TextField()  # Up to where tasks were looked at; empty: not begun.
    done = models.BigIntegerField(default=0)
    skipped = models.BigIntegerField(default=0)
    failed = models.BigIntegerField(default=0)
    gone = models.BigIntegerField(default=0)  # Expected, but changed or finished by workers before their turn came.
    cancelled_by = models.CharField(max_length=150)  # Empty: nobody wants it to end early.
    ended_at_ms = models.BigIntegerField(null=True)
    held_by = models.CharField(max_length=40)  # The process that runs it; empty: none.
    held_until_ms = models.BigIntegerField(default=0)  # Then another process may go on with it.

    class Meta(Stored.Meta):
        indexes = [
            # What is to be run; what ended lately.
            models.Index(fields=["state", "ended_at_ms"], name="bulkoperation_state")
        ]

    def __str__(self) -> str:
        return f"operation {self.pk}: {self.verb} {self.in_words}"

    @property
    def words(self) -> str:
        return WORDS[self.verb].words if self.verb in WORDS else self.verb


class BulkItem(Stored):
    """The change that a bulk operation made to a task, and the task before it. Kept as long as it can be undone."""

    Outcome: TypeAlias = ItemOutcome

    operation = models.BigIntegerField()
    origin = models.BigIntegerField()
    task = models.BigIntegerField()  # The id that it had; 0: it came back.
    outcome = models.CharField(max_length=10, choices=choices(Outcome))
    why = models.TextField()  # It was skipped, or failed.
    commit = models.BigIntegerField(default=0)  # The number of the one that did it.
    group = NameField(max_length=255)
    available_at_ms = models.BigIntegerField(default=0)
    leased_since_ms = models.BigIntegerField(default=0)
    error = models.TextField()
    labels = models.JSONField(default=dict)
    priority = models.SmallIntegerField(default=0)
    claims = models.IntegerField(default=0)
    created_at_ms = models.BigIntegerField(default=0)
    data = models.BinaryField(default=b"")  # Of a task that was purged.
    data_type = models.TextField()
    unique = models.TextField(default="")
    batch = models.BigIntegerField(default=0)
    unique_group = models.TextField(default="")  # Of the key of a living task; see UniqueKey.

    class Meta(Stored.Meta):
        constraints = [
            # Once for each task, however often a process dies. Also finds what is to be undone, in order.
            models.UniqueConstraint(fields=["operation", "origin"], name="item_of_operation")
        ]

    def __str__(self) -> str:
        return f"{self.origin} {self.outcome} by operation {self.operation}"


class SavedSearch(Stored):
    """A search that a person keeps under a name."""

    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, db_constraint=False, related_name="+")
    name = models.CharField(max_length=100)
    q = models.TextField()  # In the words of the box.

    class Meta(Stored.Meta):
        constraints = [
            # Also finds those of a user.
            models.UniqueConstraint(fields=["user", "name"], name="saved_search_name")
        ]

    def __str__(self) -> str:
        return self.name


class AuditEntry(Unchanged):
    """A change by a person or by a token with the scope `operate`: who, when, what, how many, why, and how it ended.

    Never changed, and deleted only when it is old; see triggers.py.
    """

    at = models.DateTimeField(auto_now_add=True)
    actor = models.CharField(max_length=150)  # The name of an Actor.
    action = models.CharField(max_length=20)  # requeue, move, purge, add, edit, delete, ...
    group = NameField(max_length=255)  # Empty: several groups, or none.
    selection = models.TextField()  # In words: "3 tasks", "all failed", "task 17".
    reason = models.TextField()
    done = models.IntegerField()
    skipped = models.IntegerField()
    details = models.JSONField(default=dict)  # Ids, destination, why tasks were skipped.
    duration_ms = models.IntegerField()

    class Meta(Unchanged.Meta):
        indexes = [
            # The list, the newest first; and that of a person, of an action, of a group.
            models.Index(fields=["-at", "-id"], name="audit_newest"),
            models.Index(fields=["actor", "-at", "-id"], name="audit_actor"),
            models.Index(fields=["action", "-at", "-id"], name="audit_action"),
            models.Index(fields=["group", "-at", "-id"], name="audit_group"),
        ]
        verbose_name_plural = "audit entries"

    def __str__(self) -> str:
        return f"{self.actor}: {self.action} {self.selection}"

    @property
    def at_ms(self) -> int:
        return round(self.at.timestamp() * 1000)
