"""gRPC as a way into the store, for what MassTasker has words for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, NoReturn, Self

import grpc
import pytest
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp
from google.rpc.error_details_pb2 import BadRequest, ErrorInfo
from grpc_status import rpc_status

from tasks_app.access import tokens
from tasks_app.models import Scope, Task
from taskstore.errors import CommitRefused, InvalidInput, LimitExceeded
from taskstore.masstasker import masstasker_pb2 as pb
from taskstore.masstasker.masstasker_pb2_grpc import MassTaskerStub
from taskstore.types.scalars import INT64_MAX, LATEST_MS
from taskstore.types.tasks import NOBODY, Change, NewTask, Order, Refusal

from .ways import Manager, Seen, Step

# What the fields of a request are called elsewhere.
NAMES = {
    "created": "adds", "deleted": "deletes", "predicates": "depends", "not_before": "timespec", "own_for": "duration",
}  # fmt: skip


class Grpc(Manager):
    """MassTasker's calls over a socket, from the server of `up`. What they can't look up the manager does.

    To the store all these clients are owner 0: who did what is remembered here. A test that asks for what can't be
    said ends there.
    """

    needs = "grpc_channel"

    def __init__(self, channel: grpc.Channel, *patterns: str) -> None:
        super().__init__(None, *patterns)
        self.channel = channel
        self.stub: Any = MassTaskerStub(channel)
        # In the place of what is not there, in a group that may be named.
        text: dict[str, Any] = {
            "group": (*patterns, "mail")[0],
            "data": b"",
            "data_type": "",
            "error": "",
            "labels": {},
            "unique": "",
        }
        self.nothing = Seen(**dict.fromkeys(Seen.__dataclass_fields__, 0) | text)
        _, secret = tokens.create("the suite", Scope.WORK, patterns)
        self.metadata = [("authorization", f"Bearer {secret}")]
        # Of each id, who made it and who ended it.
        self.owners: dict[int, int] = {}
        self.enders: dict[int, int] = {}

    def within(self, *patterns: str) -> Self:
        other = type(self)(self.channel, *patterns)
        other.owners, other.enders = self.owners, self.enders
        return other

    def commit(  # type: ignore[override]
        self,
        *,
        owner: int,
        adds: Iterable[NewTask] = (),
        updates: Iterable[Change] = (),
        deletes: Iterable[int] = (),
        depends: Iterable[int] = (),
    ) -> list[Seen]:
        adds, updates, deletes, depends = list(adds), list(updates), list(deletes), list(depends)
        has_keys = any(add.unique is not None or add.unique_for_ms for add in adds)
        if has_keys or any(change.unique is not None for change in updates):
            # No message has a key: such tasks are added by others, and gRPC ends and replaces them.
            asked = {"adds": adds, "updates": updates, "deletes": deletes, "depends": depends}
            tasks = super().commit(owner=NOBODY, **asked)
            self.owners.update({task.id: owner for task in tasks if not task.duplicate})
            self.enders.update(dict.fromkeys([*[change.id for change in updates], *deletes], owner))
            return [self.with_owner(task) for task in tasks]
        changed = [change.id for change in updates]
        can_say(bool(adds or updates or deletes), "refuse an Update that changes nothing")
        can_say(all(0 <= task_id <= INT64_MAX for task_id in (*changed, *deletes, *depends)), "name such an id")
        can_say(len({*changed, *deletes}) == len(changed) + len(deletes), "list an id twice")
        found = {task_id: task for task_id, task in zip(changed, self.find(changed), strict=True) if task}
        self.must_be_free_to(owner, [*changed, *deletes])
        kept = [found[change.id] for change in updates if change.data is None and change.id in found]
        can_say(all(task.owner == owner for task in kept), "tell one client from another")
        request = pb.UpdateRequest(
            created=[message_of_add(add) for add in adds]
            + [message_of_change(change, found.get(change.id, self.nothing)) for change in updates],
            deleted=[pb.TaskRef(id=task_id) for task_id in (*changed, *deletes)],
            predicates=depends,
        )
        with translated(set(changed), adds=len(adds)):
            ids = self.stub.Update(request, metadata=self.metadata).created_ids
        self.enders.update(dict.fromkeys([*changed, *deletes], owner))
        return self.made(ids, owner)

    def claim(  # type: ignore[override]
        self,
        group: str,
        *,
        owner: int,
        duration_ms: int = 60_000,
        limit: int = 1,
        order: Order | None = None,
        depends: Iterable[int] = (),
    ) -> list[Seen]:
        can_say(limit == 1, "claim several at once")
        can_say(duration_ms > 0, "claim for no time")
        can_say(order is not Order.RANDOM, "claim at random")
        can_say(not depends, "claim under a condition")
        can_say(bool(group), "refuse a group without a name")
        own_for = Duration(seconds=duration_ms // 1_000, nanos=duration_ms % 1_000 * 1_000_000)
        with translated():
            try:
                answer = self.stub.Query(pb.QueryRequest(group=group, own_for=own_for), metadata=self.metadata)
            except grpc.RpcError as refusal:
                if refusal.code() is grpc.StatusCode.NOT_FOUND:
                    return []
                raise
        return self.made([answer.task.id], owner)

    def find(self, ids: Iterable[int]) -> list[Seen | None]:
        found = [task and self.with_owner(task) for task in super().find(ids)]
        self.compare(filter(None, found))
        return found

    def group(self, name: str, **asked: Any) -> list[Seen]:
        found = [self.with_owner(task) for task in super().group(name, **asked)]
        self.compare(found)
        return found

    def groups(self) -> list[str]:
        return sorted({task.group for task in self.debug("")})

    def history(self, task_id: int) -> list[Step] | None:
        steps = super().history(task_id)
        return steps and [self.with_people(step) for step in steps]

    def made(self, ids: Sequence[int], owner: int) -> list[Seen]:
        """The new tasks, by whom they were made."""
        can_say(abs(owner) <= INT64_MAX, "name such an owner")
        self.owners.update(dict.fromkeys(ids, owner))
        return [task for task in self.find(ids) if task]

    def must_be_free_to(self, owner: int, ids: Iterable[int]) -> None:
        """What another owner holds would be refused elsewhere."""
        now_ms = Task.objects.now_ms()
        held = [task for task in self.find(ids) if task and task.available_at_ms > now_ms]
        can_say(all(task.owner == owner for task in held), "tell one client from another")

    def with_people(self, step: Step) -> Step:
        ended_by = self.enders.get(step.id, step.ended_by)
        return replace(step, owner=self.owners.get(step.id, step.owner), ended_by=ended_by)

    def with_owner(self, task: Seen) -> Seen:
        return replace(task, owner=self.owners.get(task.id, task.owner))

    def compare(self, tasks: Iterable[Seen]) -> None:
        """What gRPC shows of these tasks is the same."""
        expected = {task.id: message_of(task) for task in tasks}
        for group in {task.group for task in expected.values()}:
            shown = {task.id: task for task in self.debug(group)}
            assert [task for task in expected.values() if task.group == group and shown[task.id] != task] == []

    def debug(self, group: str) -> Sequence[pb.Task]:
        tasks: Sequence[pb.Task] = self.stub.Debug(pb.DebugRequest(group=group), metadata=self.metadata).tasks
        return tasks


def can_say(is_so: bool, what: str) -> None:
    if not is_so:
        pytest.skip(f"MassTasker's clients can't {what}")


def message_of(task: Seen) -> pb.Task:
    return pb.Task(id=task.id, **fields_of(task), not_before=time_of(task.available_at_ms))


def message_of_add(add: NewTask) -> pb.Task:
    can_say(bool(add.group), "refuse a group without a name")
    can_say(add.priority == 0, "name a priority")
    return pb.Task(id=add.id, **fields_of(add), **not_before(add.timespec_ms))


def message_of_change(change: Change, kept: Seen) -> pb.Task:
    """Its successor, with all that it keeps said again."""
    can_say(change.priority is None, "name a priority")
    can_say(not change.release, "give a task back")
    can_say(change.group is None, "change a group without an id of its own")
    labels = kept.labels if change.labels is None else dict(change.labels)
    said: Any = replace(change, group=kept.group, labels=labels)
    if change.data is None:
        said = replace(said, data=kept.data)
        said = replace(said, data_type=kept.data_type) if change.data_type is None else said
    if change.error is None:
        said = replace(said, error=kept.error)
    return pb.Task(id=change.id, **fields_of(said), **not_before(change.timespec_ms))


def fields_of(item: Any) -> dict[str, Any]:
    # The label of dead letters is REST's alone.
    labels = {name: value for name, value in item.labels.items() if name != "failed_from"}
    said = {"group": item.group, "labels": labels, "error": item.error}
    if item.data or item.data_type:
        said["data"] = AnyMessage(type_url=item.data_type or "", value=item.data)
    return said


def not_before(timespec_ms: int) -> dict[str, Any]:
    """A delay is counted from the store's clock, which is the client's here."""
    if not timespec_ms:
        return {}
    return {"not_before": time_of(timespec_ms if timespec_ms > 0 else Task.objects.now_ms() - timespec_ms)}


def time_of(ms: int) -> Timestamp:
    can_say(ms <= LATEST_MS, "name such a time")
    return Timestamp(seconds=ms // 1_000, nanos=ms % 1_000 * 1_000_000)


@contextmanager
def translated(changed: set[int] = frozenset(), adds: int = 0) -> Iterator[None]:  # type: ignore[assignment]
    """Statuses as the manager's errors. `changed`: the ids of the updates; after so many adds theirs begin."""
    try:
        yield
    except grpc.RpcError as refusal:
        raise_as_error(refusal, changed, adds)


def raise_as_error(refusal: grpc.RpcError, changed: set[int], adds: int) -> NoReturn:
    status = rpc_status.from_call(refusal)  # type: ignore[arg-type]
    info, wrong = ErrorInfo(), BadRequest()
    for detail in status.details if status else ():
        detail.Unpack(info)
        detail.Unpack(wrong)
    if info.reason == CommitRefused.code:
        raise CommitRefused(refusal_of(info.metadata, changed)) from None
    if info.reason in (InvalidInput.code, LimitExceeded.code):
        fields = {path_elsewhere(each.field, adds): [each.description] for each in wrong.field_violations}
        raise (LimitExceeded if info.reason == LimitExceeded.code else InvalidInput)(fields) from None
    raise refusal


def refusal_of(lists: Mapping[str, str], changed: set[int]) -> Refusal:
    ids = {name: tuple(map(int, text.split(", "))) for name, text in lists.items()}
    missing = ids.get("deleted", ())
    return Refusal(
        changes=tuple(task_id for task_id in missing if task_id in changed),
        deletes=tuple(task_id for task_id in missing if task_id not in changed),
        depends=ids.get("predicates", ()),
        owned=ids.get("owned", ()),
    )


def path_elsewhere(path: str, adds: int) -> str:
    """`created[0].not_before` is `adds[0].timespec`."""
    what, dot, field = path.partition(".")
    name, bracket, place = what.partition("[")
    if name == "created" and int(place[:-1]) >= adds:
        name, place = "updates", f"{int(place[:-1]) - adds}]"
    return NAMES.get(name, name) + bracket + place + dot + NAMES.get(field, field)
