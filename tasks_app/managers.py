"""The words of Python callers: the verbs (`TaskManager`) and an operator's words (`TaskQuerySet`).

Each verb has an async twin with an `a` in front: `acommit`, `aclaim`, `acancel`, `afind`, `agroup`, `agroups`.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from functools import cache, partial
from typing import TYPE_CHECKING, Any, NoReturn, Self
from uuid import uuid4

from asgiref.sync import sync_to_async
from django.conf import settings
from django.core.exceptions import SynchronousOnlyOperation
from django.core.signals import setting_changed
from django.db import connections, models, transaction
from django.db.models import BinaryField, BooleanField, Case, Exists, F, OuterRef, Q, Subquery, Sum, Value, When
from django.db.models.expressions import RawSQL
from django.db.models.functions import Cast, Coalesce, Concat, Length, Substr
from django.dispatch import Signal, receiver

from taskstore.errors import CommitRefused, Forbidden, Immutable, StoreBusy, TaskStoreError, refuse
from taskstore.types.batches import Batch as BatchAnswer
from taskstore.types.batches import NewBatch, Plan, Planned
from taskstore.types.cancelling import cancelled, error_of
from taskstore.types.limits import LimitsRequest, Rate, problems_of
from taskstore.types.scalars import Limits
from taskstore.types.sentences import group_name
from taskstore.types.tasks import NOBODY, Change, Ending, NewTask, Order, Standing, State, holds_results

from . import database
from .core.limits import GroupLimit
from .core.meters import meters
from .core.operations import (
    EVERY_GROUP,
    Apart,
    BatchStep,
    Claim,
    Commit,
    GroupScope,
    Operation,
    Operator,
    Step,
    TaskRecord,
    as_seen,
)
from .core.validation import refuse_forbidden, refuse_wrong_kinds, task_ids, validate
from .database.batches import ALL_WITHIN, NUMBERS
from .database.group_patterns import BEARS_SOME, bounds_of
from .database.limit_changes import change_limits, finish_changes, limits_now
from .writer import totals
from .writer.peers import tell_once_committed
from .writer.writer import note_once_committed, running

if TYPE_CHECKING:
    from .models import Batch, Task


READ_AT_ONCE = 100
PATIENCE_S = 5.0  # With workers that keep changing tasks that are to be cancelled.


class TaskQuerySet(models.QuerySet["Task"]):
    """Reading tasks. What would change rows raises Immutable and names the verb to use."""

    def in_group(self, name: str) -> Self:
        return self.filter(group=name)

    def within(self, scope: GroupScope) -> Self:
        """Tasks of the groups that the scope allows."""
        return self.filter(in_groups_of(scope))

    def available(self, now_ms: int) -> Self:
        """Tasks that anyone may claim: their available time has come."""
        return self.filter(available_at_ms__lte=now_ms)

    def ready(self, now_ms: int) -> Self:
        """Tasks that wait for their first claim, or have been given back without an error."""
        return self.available(now_ms).standing(Standing.OPEN)

    def expired(self, now_ms: int) -> Self:
        """Tasks whose lease ran out and that nobody has claimed since."""
        return self.available(now_ms).filter(leased_since_ms__gt=0)

    def claimed(self, now_ms: int) -> Self:
        return self.filter(available_at_ms__gt=now_ms, leased_since_ms__gt=0)

    def later(self, now_ms: int) -> Self:
        """Tasks that nobody holds and nobody may claim yet, also after a failure."""
        return self.filter(available_at_ms__gt=now_ms, leased_since_ms=0)

    def scheduled(self, now_ms: int) -> Self:
        return self.filter(available_at_ms__gt=now_ms).standing(Standing.OPEN)

    def standing(self, standing: Standing) -> Self:
        """Tasks that are not leased, with this standing."""
        # In the words of the index of failed tasks, which SQLite would not recognize else.
        also = {"standing__gte": Standing.RETRYING} if standing >= Standing.RETRYING else {}
        return self.filter(leased_since_ms=0, standing=standing, **also)

    def with_error(self) -> Self:
        return self.exclude(error="")

    def in_state(self, state: State, now_ms: int) -> Self:
        if state.name in Standing.__members__:
            return self.standing(Standing[state.name])
        chosen: Self = getattr(self, state.value)(now_ms)
        return chosen

    def bearing(self, name: str, value: str | None = None) -> Self:
        """Tasks with this label; None: whatever its value."""
        if "\0" in f"{name}{value}":  # No label holds it, and PostgreSQL would not even look.
            return self.none()
        return self.filter(self._bears(name, value))

    def bearing_any(self, labels: Mapping[str, str]) -> Self:
        """Tasks with at least one of these labels: none without any."""
        bearing_one = _any_of(self._bears(name, value) for name, value in labels.items())
        # Said once more because SQLite would not see behind the OR that its index has all of them.
        return self.filter(_raw(BEARS_SOME), bearing_one)

    def _bears(self, name: str, value: str | None) -> Q:
        return _raw(*database.dialect_of(self.db).bears(name, value))

    def of_chain(self, origin: int) -> Self:
        """The living task of a chain, if it has one."""
        # In these words, because the index holds only tasks whose origin is not their own id.
        return self.filter(Q(id=origin) | (Q(origin=origin) & ~Q(origin=F("id"))))

    def of_chains(self, origins: Collection[int]) -> Self:
        """The living tasks of several chains."""
        return self.filter(Q(id__in=origins) | (Q(origin__in=origins) & ~Q(origin=F("id"))))

    def in_batch(self, batch: int) -> Self:
        """The tasks of a batch and of those within it, with the records of those that have ended."""
        from .models import Batch  # It imports this module.

        # The first condition in the words of the index, which SQLite would not recognize else. The batches are read
        # before: a planner that does not know how few they are might read all tasks.
        return self.exclude(batch=0).filter(batch__in=list(Batch.objects.tree(batch).values_list("pk", flat=True)))

    def longest_available_first(self) -> Self:
        return self.order_by("available_at_ms", "id")

    def beginnings(self, size: int) -> Self:
        """With `data_start`, the first `size` bytes, and `data_size`, that of the whole, in place of the data."""
        from .models import Payload  # It imports this module.

        shared = Payload.objects.filter(id=OuterRef("payload")).values("data")
        data = Case(When(payload=0, then="data"), default=Subquery(shared), output_field=BinaryField())
        start = Substr(data, 1, size, output_field=BinaryField())
        return self.defer("data").annotate(data_start=start, data_size=Length(data))

    def after(self, task: Task | TaskRecord) -> Self:
        """What follows a task in the order of `longest_available_first`."""
        # The first condition bounds the scan of the index, which the second alone would not.
        return self.filter(
            Q(available_at_ms__gte=task.available_at_ms),
            Q(available_at_ms__gt=task.available_at_ms) | Q(id__gt=task.id),
        )

    def lean(self) -> Self:
        """With data that is Apart where it is kept so, once `of_one_moment` has read them."""
        from .models import Payload  # It imports this module.

        size = Payload.objects.filter(id=OuterRef("payload")).values("size")
        own = Case(When(payload=0, then="data"), output_field=BinaryField())
        return self.defer("data").annotate(own_data=own, size_apart=Subquery(size))

    def of_one_moment(self) -> Iterator[Task]:
        """The tasks one by one, any number of them, as one statement sees them. A few megabytes are read at once."""
        with database.reading(using=self.db):
            if self._fields is not None:  # type: ignore[attr-defined]  # Plain rows.
                yield from self.iterator(chunk_size=READ_AT_ONCE)
            else:
                # Closed before the transaction ends, also when nobody reads on.
                with closing(self._lean_ones()) as found:
                    yield from database.with_data(found, self.db)

    def _lean_ones(self) -> Generator[Task]:
        for task in self.lean().iterator(chunk_size=READ_AT_ONCE):
            yield _with_own_data(task)

    def records(self) -> Iterator[TaskRecord]:
        """The same as records, perhaps with data that is Apart."""
        with database.reading(using=self.db), closing(self._lean_ones()) as found:
            for task in found:
                yield TaskRecord(*[getattr(task, name) for name in TaskRecord._fields])

    def _refuse(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise Immutable(
            "Tasks are immutable: use Task.objects.commit(adds=..., updates=..., deletes=...) or .claim(...)"
        )

    # The types differ because these never return.
    create = bulk_create = bulk_update = update = delete = _refuse
    get_or_create = update_or_create = _raw_delete = _refuse
    acreate = abulk_create = abulk_update = aupdate = adelete = _refuse
    aget_or_create = aupdate_or_create = _refuse


class BatchQuerySet(models.QuerySet["Batch"]):
    """Reading batches. They change by commits of tasks."""

    def within(self, scope: GroupScope) -> Self:
        """Batches of which the scope allows every group."""
        from .models import BatchGroup  # It imports this module.

        hidden = BatchGroup.objects.exclude(in_groups_of(scope)).filter(batch=OuterRef("pk"))
        return self if scope.is_everything else self.exclude(Exists(hidden))

    def counted(self) -> Self:
        """With what `told` tells: of the batches and of those within them."""
        from .models import BatchPlan, RightsHolder

        text = models.TextField()
        here = Concat(Cast(OuterRef("root"), text), Value("/"), OuterRef("path"), output_field=text)
        lost = RightsHolder.objects.filter(name=OuterRef("holder")).exclude(lost="").values("lost")
        planned = BatchPlan.objects.filter(level__gte=here, level__lt=Concat(here, Value("~"), output_field=text))
        why = planned.exclude(holder="").annotate(lost=Subquery(lost)).exclude(lost=None).values("lost")[:1]
        return self.annotate(
            lost=Coalesce(Subquery(why), Value(""), output_field=models.TextField()),
            numbers=RawSQL(NUMBERS, [], output_field=models.TextField()),  # noqa: S611
        )

    def tree(self, top: int) -> Self:
        """A batch and those within it."""
        return self.filter(pk__in=RawSQL(ALL_WITHIN, [top]))  # noqa: S611 - a constant.

    def shown(self) -> Self:
        """Those that somebody made, without the steps within them."""
        return self.exclude(mark="", parent__gt=0)

    def failing(self) -> Self:
        """Those of which a member, or a batch within, has failed, unless that counts as succeeded."""
        from .models import BatchCount

        counts = BatchCount.objects.filter(batch=OuterRef("pk")).values("batch")
        lost = counts.annotate(lost=Sum("failed") + Sum("gone")).filter(lost__gt=0)
        return self.filter(Q(failed_children__gt=0) | Exists(lost), failed_ends=0)

    def still_open(self) -> Self:
        return self.filter(closed_at_ms=0)


# With `made`: by the ids before, the first id and the present group of each; and `using`, whose transaction it is in.
tasks_cancelled = Signal()


class TaskManager(models.Manager["Task"]):
    """The verbs. Inside the caller's `transaction.atomic()` they join it: both happen or neither."""

    def get_queryset(self) -> TaskQuerySet:
        return TaskQuerySet(self.model, using=self._db)

    def commit(
        self,
        *,
        owner: int,
        adds: Iterable[NewTask] = (),
        updates: Iterable[Change] = (),
        deletes: Iterable[int] = (),
        depends: Iterable[int] = (),
        scope: GroupScope = EVERY_GROUP,
        operator: Operator | None = None,
    ) -> list[Task]:
        """Change everything that is named, or nothing, if all `depends` exist.

        Returns the new tasks in the order adds, then updates. In the place of an add whose `unique` key was taken it
        returns the task that holds the key, with `duplicate` True: of one that has ended only its id and its `ending`,
        of one that is out of the scope the id 0. Raises CommitRefused with every
        reason when something is gone or leased to another client (drop the work, claim again),
        InvalidInput when a value makes no sense. Source: contract.md section 3, `/update`.
        """
        added, updated = tuple(adds), tuple(updates)
        refuse_wrong_kinds(added, updated)
        commit = Commit(
            owner=owner,
            adds=added,
            updates=updated,
            deletes=tuple(deletes),
            depends=tuple(depends),
            scope=scope,
            operator=operator,
        )
        return self._models(self.perform(commit))

    def cancel(
        self,
        ids: Iterable[int | str],
        *,
        by: str = "",
        reason: str = "",
        scope: GroupScope = EVERY_GROUP,
        ends_leases: bool = True,
    ) -> list[int]:
        """Cancel tasks, each named by any id of its chain, or by that of a result of Django's: all of them, or none.

        Jobs and commands are kept as cancelled, with `by` and `reason` in their error; others are deleted. A worker
        that holds one learns of it within a second: it ends what it runs, and what it commits is refused.

        Returns the present ids of those that were cancelled; the others have ended already. Raises Forbidden when one
        may not be changed, or is leased and `ends_leases` is false, and StoreBusy when workers keep changing them.
        Source: contract.md section 9.
        """
        wanted: Any = list(dict.fromkeys(int(each) if _is_number(each) else each for each in ids))
        refuse(task_ids("ids", wanted))
        if not isinstance(reason, str):
            raise TypeError(f"reason must be text, not {reason!r:.100}")
        wanted += self._origins_of(wanted)
        operator = Operator(name=by, ending=Ending.CANCELLED, reason=reason, overrides=ends_leases)
        end_s = time.monotonic() + PATIENCE_S
        while True:
            tasks = self.get_queryset().within(scope).of_chains(wanted).only("id", "group")
            living = {task.id: task.group for task in tasks if not holds_results(task.group)}
            steps = [cancelled(task_id, group, error_of(by, reason)) for task_id, group in living.items()]
            updates = [step for step in steps if isinstance(step, Change)]
            for group in (change.group or "" for change in updates):
                if not scope.allows(group):
                    raise Forbidden(f'to cancel it, the token needs access to the group "{group}", which keeps it')
            deletes = [step for step in steps if isinstance(step, int)]
            try:
                if living:
                    self.commit(owner=NOBODY, updates=updates, deletes=deletes, scope=scope, operator=operator)
                return sorted(living)
            except CommitRefused as refused:
                if owned := refused.refusal.owned:
                    raise Forbidden(f"task {owned[0]} is leased: to cancel it takes the scope operate") from None
                if time.monotonic() > end_s:
                    raise StoreBusy("workers keep changing these tasks: try again later") from None

    def _origins_of(self, ids: Collection[int]) -> list[int]:
        """Return the first ids of the chains of those that have ended."""
        from .models import EndedTask  # It imports this module.

        ended = EndedTask.objects.using(self.writing_alias).filter(id__in=ids).exclude(origin=F("id"))
        return sorted(set(ended.values_list("origin", flat=True)))

    def create_batch(
        self,
        *,
        owner: int,
        adds: Iterable[NewTask] = (),
        name: str = "",
        then: Planned = None,
        on_failure: Planned = None,
        batches: Iterable[Planned] = (),
        steps: Iterable[Planned] = (),
        parent: int = 0,
        hold: bool = False,
        failed_ends: bool = False,
        scope: GroupScope = EVERY_GROUP,
    ) -> tuple[BatchAnswer, list[Task]]:
        """Create a batch with its first tasks. Returns it, and the tasks as `commit` does.

        When all its tasks have succeeded, `then` is added once: a task, several, or a Plan; `on_failure` when the first
        one has failed. `batches`: Plans of batches within it, which begin at once. `steps`: what is added within it,
        one after the other, each when all before it has succeeded. `parent`: an open batch that stays open until this
        one closes. `hold`: it stays open until it is released. `failed_ends`: what has failed counts as succeeded. A
        later commit may add tasks with `batch=ID` while it is open.

        Raises InvalidInput, and CommitRefused when the parent is not open. Source: contract.md section 9.
        """
        added = tuple(adds)
        refuse_wrong_kinds(added)
        new = NewBatch(
            name=name,
            plan=Plan(then=then, on_failure=on_failure, batches=batches, steps=steps),  # type: ignore[arg-type]
            parent=parent,
            hold=hold,
            failed_ends=failed_ends,
            mark=uuid4().hex,
        )
        tasks = self._models(self.perform(Commit(owner=owner, adds=added, scope=scope, batch=new)))
        return self.batch_marked(new.mark), tasks

    def batch_marked(self, mark: str) -> BatchAnswer:
        """Return the batch that was created with this mark last."""
        from .models import Batch  # It imports this module.

        batch: Batch = Batch.objects.using(self.writing_alias).counted().filter(mark=mark).latest("pk")
        return batch.told()

    def change_batch(
        self,
        batch: int,
        step: Step,
        scope: GroupScope = EVERY_GROUP,
        *,
        also: Iterable[int] = (),
        takes_over: Iterable[int] = (),
    ) -> None:
        """Release a batch, have it take no more tasks, or open it again. Raises CommitRefused if it does not exist.

        `also`: batches within it with which the same is done. `takes_over`: the rows of its plans that are added with
        these rights from now on.
        """
        change = BatchStep(batch, step, also=tuple(also), takes_over=tuple(takes_over))
        self.perform(Commit(owner=NOBODY, scope=scope, batch=change))

    def set_limits(
        self, name: str, *, running: int | None = None, rate: Rate | None = None, by: str = "", by_whom: str = ""
    ) -> GroupLimit:
        """Limit a group; with a star at the end of the name each group that begins so. A former limit is replaced.

        `running`: how many tasks may be leased at once; `rate`: how many may be claimed within any such time; `by`:
        separately for each value of this label. Returns the limit. Raises InvalidInput, and StoreBusy when other
        transactions last for too long. Source: contract.md section 9.
        """
        if not isinstance(rate, Rate | None):
            raise TypeError(f"rate must be a Rate, such as Rate(100, 60_000) for 100 in a minute, not {rate!r:.100}")
        refuse(problems_of(LimitsRequest(name, running=running, rate=rate, by=by)))
        limit = GroupLimit(name, running, rate.claims if rate else None, rate.per_ms if rate else None, by)
        self._change_limits(name, limit, by_whom)
        return limit

    def remove_limits(self, name: str) -> GroupLimit | None:
        """Remove the limit of this name. Returns it; None if there is none."""
        removed = next((limit for limit in self.limits() if limit.name == name), None)
        if removed:
            self._change_limits(name, None)
        return removed

    def limits(self) -> list[GroupLimit]:
        """Return the limits of all groups, sorted by name."""
        return limits_now(database.dialect_of(self.writing_alias))

    def _change_limits(self, name: str, limit: GroupLimit | None, by_whom: str = "") -> None:
        using = self.writing_alias
        with database.atomic(using):
            is_done = change_limits(name, limit, by_whom, database.dialect_of(using))
            transaction.on_commit(partial(self._follow_change, name, is_done=is_done), using=using)

    def _follow_change(self, name: str, *, is_done: bool) -> None:
        """Finish the change, aside where there is a writer, and let claims look at what they may take now."""
        dialect = database.dialect_of(self.writing_alias)
        writer = running(dialect.using)
        if not is_done:
            writer.finish_changes_of_limits() if writer else finish_changes(dialect.using)
        self.wake(totals.names(GroupScope((name,)), dialect.using))

    def wake(self, groups: Iterable[str]) -> None:
        """Once the transaction commits, let claims that wait for these groups look whether there is something."""
        using = self.writing_alias
        writer = running(using)
        if writer is None:
            tell_once_committed(groups, using)
            return
        for group in groups:
            transaction.on_commit(partial(writer.look_into, group), using=using)

    def claim(
        self,
        groups: str | Iterable[str],
        *,
        owner: int,
        duration_ms: int = 60_000,
        limit: int = 1,
        order: Order = Order.RANDOM,
        depends: Iterable[int] = (),
        scope: GroupScope = EVERY_GROUP,
    ) -> list[Task]:
        """Take up to `limit` available tasks of the group, or of several groups, and lease them for `duration_ms`.

        Returns their successors, or an empty list when nothing is available. Raises CommitRefused
        when one of `depends` is gone, also when nothing is available.
        """
        claim = Claim(
            groups=_names(groups),
            owner=owner,
            duration_ms=duration_ms,
            limit=limit,
            order=Order(order),
            depends=tuple(depends),
            scope=scope,
        )
        return self._models(self.perform(claim))

    def perform(self, operation: Operation, *, is_checked: bool = False) -> list[TaskRecord]:
        """Do a commit or a claim that is there as a value already. See `commit` and `claim`.

        Returns records, perhaps with data that is Apart (see `with_data`): to make a model of each row costs more than
        all else here. `is_checked`: its values have been looked at already, beside the event loop as they are many.
        """
        self._check(operation, is_checked=is_checked)
        using = self.writing_alias
        writer = running(using)
        if writer is not None and writer.is_on_this_loop:
            raise SynchronousOnlyOperation("this would wait for its own event loop: await acommit, aclaim or aperform")
        try:
            if writer is not None and not connections[using].in_atomic_block:
                records = writer.submit_from_thread(operation)
            else:
                records = database.run(operation, using, told=partial(note_once_committed, using))
                totals.now_and_then_fold(using)
        except TaskStoreError as error:
            meters.note_refusal(error)
            raise
        if isinstance(operation, Commit) and operation.operator and operation.operator.ending is Ending.CANCELLED:
            _tell_cancelled(operation, records, using)
        return records

    def _check(self, operation: Operation, *, is_checked: bool) -> None:
        if is_checked:
            refuse_forbidden(operation)
        else:
            validate(operation, limits())

    def check_writable(self) -> None:
        """Raise StoreUnavailable, or what Django raises, when nothing can be written now."""
        if writer := running(self.writing_alias):
            writer.check_from_thread()
        else:
            database.probe(self.writing_alias)

    def find(self, ids: Iterable[int], scope: GroupScope = EVERY_GROUP) -> list[Task | None]:
        """The tasks in the order of the ids, None for an id that does not exist (any more)."""
        wanted = list(ids)
        refuse(task_ids("ids", wanted))
        found = {record.id: self.model.of(record) for record in self.with_data(self.read(wanted, scope))}
        return [found.get(task_id) for task_id in wanted]

    def read(self, ids: Sequence[int], scope: GroupScope = EVERY_GROUP) -> list[TaskRecord]:
        """Those of the tasks that exist, in no particular order, perhaps with data that is Apart."""
        found = database.read(ids, using=self.db)
        return [as_seen(record, scope) for record in found if scope.allows(record.group)]

    def with_data(self, records: Iterable[TaskRecord]) -> Iterator[TaskRecord]:
        """The records with their data, wherever it is kept, of which a few megabytes are read at once."""
        return database.with_data(records, self.writing_alias)

    def _models(self, records: Iterable[TaskRecord]) -> list[Task]:
        return list(map(self.model.of, self.with_data(records)))

    def group(self, name: str, *, owned: bool = False, limit: int | None = None) -> TaskQuerySet:
        """The available tasks of a group, the oldest available time first; with `owned` all of them.

        At most `limit`; None or 0: no limit. Raises InvalidInput for a name that no group can have.
        """
        if name:  # Clients of gRPC may have put tasks into a group without a name.
            refuse(group_name("name", name))
        if limit is not None and limit < 0:
            refuse([("limit", f"must be at least 0, not {limit}; 0 means no limit")])
        tasks = self.get_queryset().in_group(name).longest_available_first()
        if not owned:
            tasks = tasks.available(self.now_ms())
        return tasks[:limit] if limit else tasks

    def groups(self, scope: GroupScope = EVERY_GROUP) -> list[str]:
        """Return the names of the non-empty groups, sorted."""
        return totals.names(scope, self.db)

    def now_ms(self) -> int:
        """The time by the database's clock, the only one that counts."""
        return database.now_ms(using=self.db)

    def newest_id(self) -> int:
        """The largest id that was given out; 0 in a store that was never used."""
        return database.newest_id(using=self.db)

    async def acommit(self, **asked: Any) -> list[Task]:
        return await sync_to_async(self._models)(await self.aperform(Commit(**_as_values(asked))))

    async def aclaim(self, groups: str | Iterable[str], **asked: Any) -> list[Task]:
        claim = Claim(groups=_names(groups), **_as_values(asked))
        return await sync_to_async(self._models)(await self.aperform(claim))

    async def acancel(self, ids: Iterable[int], **asked: Any) -> list[int]:
        return await sync_to_async(self.cancel)(ids, **asked)

    async def aperform(self, operation: Operation, *, is_checked: bool = False) -> list[TaskRecord]:
        writer = running(self.writing_alias)
        if writer is None or not writer.is_on_this_loop:
            return await sync_to_async(self.perform)(operation, is_checked=is_checked)
        self._check(operation, is_checked=is_checked)
        try:
            return await writer.submit(operation)
        except TaskStoreError as error:
            meters.note_refusal(error)
            raise

    async def afind(self, ids: Iterable[int], scope: GroupScope = EVERY_GROUP) -> list[Task | None]:
        return await sync_to_async(self.find)(ids, scope)

    async def agroup(self, name: str, *, owned: bool = False, limit: int | None = None) -> list[Task]:
        return await sync_to_async(lambda: list(self.group(name, owned=owned, limit=limit)))()

    async def agroups(self, scope: GroupScope = EVERY_GROUP) -> list[str]:
        return await sync_to_async(self.groups)(scope)

    @property
    def writing_alias(self) -> str:
        return self._db or models.manager.router.db_for_write(self.model, **self._hints)  # type: ignore[attr-defined]


def _with_own_data(task: Task) -> Task:
    own, size = task.own_data, task.size_apart  # type: ignore[attr-defined]  # See `lean`.
    task.data = Apart(task.payload, size or 0) if task.payload else bytes(own)
    return task


def _names(groups: str | Iterable[str]) -> tuple[str, ...]:
    return (groups,) if isinstance(groups, str) else tuple(groups)


def _as_values(asked: Mapping[str, Any]) -> dict[str, Any]:
    """What a verb was asked with, as an operation keeps it."""
    kinds = dict.fromkeys(("adds", "updates", "deletes", "depends"), tuple) | {"order": Order}
    return {name: kinds[name](value) if name in kinds else value for name, value in asked.items()}


@cache  # Every operation is held against them: six looks at the settings each time otherwise.
def limits() -> Limits:
    """The limits that the settings name; contract.md section 8 where they name none."""
    names = {
        "data_bytes": "TASKSTORE_MAX_DATA_BYTES",
        "changes": "TASKSTORE_MAX_CHANGES",
        "labels": "TASKSTORE_MAX_LABELS",
        "groups": "TASKSTORE_MAX_CLAIM_GROUPS",
        "values": "TASKSTORE_MAX_VALUES",
        "plan_bytes": "TASKSTORE_MAX_PLAN_BYTES",
    }
    return Limits(**{name: getattr(settings, key) for name, key in names.items() if hasattr(settings, key)})


def in_groups_of(scope: GroupScope) -> Q:
    """The condition that a row's group is one that the scope allows."""
    return Q() if scope.patterns is None else _any_of(map(_matching, scope.patterns))


@receiver(setting_changed)
def _forget_limits(**_: Any) -> None:
    """In tests: settings of a server do not change."""
    limits.cache_clear()


def _any_of(conditions: Iterable[Q]) -> Q:
    combined = Q(pk__in=[])  # Nothing, when there is no condition.
    for condition in conditions:
        combined |= condition
    return combined


def _raw(sql: str, parameters: tuple[str, ...] = ()) -> Q:
    return Q(RawSQL(sql, parameters, output_field=BooleanField()))  # noqa: S611 - all words are ours


def _matching(pattern: str) -> Q:
    """The groups that a pattern of GroupScope allows."""
    first, beyond = bounds_of(pattern)
    return Q(group__gte=first, group__lt=beyond) if beyond else Q(group=first)


def _tell_cancelled(commit: Commit, records: Sequence[TaskRecord], using: str) -> None:
    """Tell the receivers, such as those of Django's tasks, by the ids before what the tasks have become."""
    made = zip(commit.updates, records[len(commit.adds) :], strict=False)
    jobs = {change.id: (record.origin, record.group) for change, record in made}
    if jobs:
        tasks_cancelled.send(TaskManager, made=jobs, using=using)


def _is_number(value: object) -> bool:
    """Return whether it is the id of a result, as Django has it."""
    return isinstance(value, str) and value.isascii() and value.isdecimal()
