"""The bodies of requests, as types (contract.md sections 3 and 4)."""

from __future__ import annotations

import json
from collections.abc import Container, Iterator
from dataclasses import replace
from typing import Annotated, Any

from msgspec import UNSET, Meta, UnsetType, field

from taskstore.types import sentences
from taskstore.types.requests import Asked
from taskstore.types.scalars import prepare
from taskstore.types.tasks import Change, NewTask, Order, Problem

from ..core.operations import EVERY_GROUP, Claim, Commit, GroupScope, Operation, ResendKey
from ..core.validation import group_name, is_utf8, text
from ..managers import limits
from ..models import Client
from ..wire.scalars import (
    CLIENT_TEXT_LENGTH,
    ClientText,
    Duration,
    Ids,
    Int64,
    Key,
    MostAtOnce,
    ProcessId,
    ServerSet,
    Wait,
)
from ..wire.tasks import Add, WithData, problems_of

INFO_LENGTH = 10_000
MOST_GROUPS_OF_CLIENT = 1_000
EMPTIED = {"data_type": "", "error": ""}  # By an update that does not give them, beside the data.


class AddOrMove(Add, frozen=True, kw_only=True):
    """A task to add or, with `keep`, to move into this group."""

    keep: Annotated[
        bool,
        Meta(
            description="Move the task `id`, which must be among the `deletes`, into this group. Data (with its type), "
            "error, labels and priority stay unchanged unless they are given; `timespec` means the same as in an "
            "update."
        ),
    ] = False
    release: Annotated[bool, Meta(description="Only with `keep`. Give the task back: owner 0, not leased.")] = False

    def problems(self) -> Iterator[Problem]:
        yield from super().problems()
        if self.release and not self.keep:
            yield "release", "must be given together with keep: a new task has no lease to give back"

    def in_commit(self, deletes: Container[int]) -> NewTask:
        """The successor of the task `id` if that is among the deletes; otherwise the id is ignored."""
        new = self.new_task()
        if self.id not in deletes:
            return new
        return replace(new, id=self.id, moving=self.change() if self.keep else None)

    def change(self) -> Change:
        return Change(
            id=self.id,
            group=self.group or None,
            data=self.given_data,
            timespec_ms=self.timespec_ms,
            release=self.release,
            unique=self.given_key,
            **self.named,
        )


class Update(WithData, frozen=True, kw_only=True):
    """A task to replace with a successor that has a new id. Its group stays; use an add with `keep` to move it."""

    id: Int64
    keep: Annotated[
        bool,
        Meta(
            description="Data (with its type) and error stay unchanged unless they are given. Without `keep` an "
            "update empties those that are not given."
        ),
    ] = False
    release: Annotated[bool, Meta(description="Give the task back: owner 0, not leased.")] = False
    group: ServerSet = UNSET

    def change(self) -> Change:
        data, named = self.given_data, self.named
        if not self.keep:
            data, named = data or b"", EMPTIED | named
        return Change(
            id=self.id,
            data=data,
            timespec_ms=self.timespec_ms,
            release=self.release,
            unique=self.given_key,
            **named,
        )


class AskedOperation(Asked, frozen=True, kw_only=True):
    """What an update and a claim have in common; each makes an operation of the store of itself."""

    clientid: Int64
    key: Key = ""

    def operation(self, scope: GroupScope, key: ResendKey | None) -> Operation:
        raise NotImplementedError

    def every_problem(self) -> Iterator[Problem]:
        yield from self.problems()
        yield from problems_of(self.operation(EVERY_GROUP, key=None))


class UpdateRequest(AskedOperation, frozen=True, kw_only=True):
    """One all-or-nothing change, on the condition that all `depends` exist."""

    adds: tuple[AddOrMove, ...] = ()
    updates: tuple[Update, ...] = ()
    deletes: Ids = ()
    depends: Ids = ()

    @property
    def groups(self) -> frozenset[str]:
        """Those that the adds name."""
        return frozenset(add.group for add in self.adds if add.group)

    def problems(self) -> Iterator[Problem]:
        for kind, items in (("adds", self.adds), ("updates", self.updates)):
            for place, item in enumerate(items):
                for name, right in item.problems():
                    yield f"{kind}[{place}].{name}", right
        yield from self._wrong_moves()

    def _wrong_moves(self) -> Iterator[Problem]:
        if not any(add.keep for add in self.adds):
            return
        deletes, taken = frozenset(self.deletes), set()
        for place, add in enumerate(self.adds):
            if add.keep and (add.id not in deletes or add.id in taken):
                yield f"adds[{place}].keep", "must be given together with an id that is in deletes and in no other add"
            taken.add(add.id)

    def operation(self, scope: GroupScope, key: ResendKey | None) -> Commit:
        deletes = frozenset(self.deletes)
        return Commit(
            key=key,
            owner=self.clientid,
            adds=tuple(add.in_commit(deletes) for add in self.adds),
            updates=tuple(update.change() for update in self.updates),
            deletes=self.deletes,
            depends=self.depends,
            scope=scope,
        )


class ImportRequest(AskedOperation, frozen=True, kw_only=True):
    """New tasks, whatever ids they come with. Dead letters stay dead letters."""

    adds: tuple[Add, ...]

    @property
    def groups(self) -> frozenset[str]:
        """Those that the adds name."""
        return frozenset(add.group for add in self.adds if add.group)

    def operation(self, scope: GroupScope, key: ResendKey | None) -> Commit:
        return Commit(owner=self.clientid, adds=tuple(add.imported() for add in self.adds), scope=scope, key=key)


class ClaimRequest(AskedOperation, frozen=True, kw_only=True):
    """Take available tasks of a group: they are replaced by successors that are leased to the client."""

    group: str | UnsetType = UNSET
    groups: Annotated[
        tuple[str, ...],
        Meta(description="Several groups instead of `group`: higher priority first, then a fair share for each group."),
    ] = ()
    wait: Wait = 0
    duration: Duration = 60_000
    depends: Ids = ()
    limit: MostAtOnce = 1
    order: Order = Order.RANDOM

    @property
    def wanted(self) -> tuple[str, ...]:
        """The groups that it names."""
        return self.groups if self.group is UNSET else (self.group,)

    def problems(self) -> Iterator[Problem]:
        if self.group is not UNSET and self.groups:
            yield "groups", sentences.not_together("group")
        if len(self.groups) > limits().groups:
            return  # That is what is wrong, whatever their names are: see `validate`.
        for place, group in enumerate(self.groups):
            yield from group_name(f"groups[{place}]", group)

    def operation(self, scope: GroupScope, key: ResendKey | None) -> Operation:
        return Claim(
            groups=self.wanted,
            wait_ms=self.wait,
            key=key,
            owner=self.clientid,
            duration_ms=self.duration,
            limit=self.limit,
            order=self.order,
            depends=self.depends,
            scope=scope,
        )


class ClientRequest(Asked, frozen=True, kw_only=True):
    """A worker's report about itself."""

    name: ClientText = ""
    host: ClientText = ""
    pid: ProcessId | UnsetType = UNSET
    groups: Annotated[tuple[str, ...], Meta(description="The groups that it claims from.")] = ()
    version: ClientText = ""
    info: Annotated[
        dict[str, Any],
        Meta(
            description="Any other information, as an object. With `stopped`: true the client has sent its last "
            "report and is no longer listed."
        ),
    ] = field(default_factory=dict)

    def problems(self) -> Iterator[Problem]:
        for name in ("name", "host", "version"):
            yield from text(name, getattr(self, name), CLIENT_TEXT_LENGTH)
        if len(self.groups) > MOST_GROUPS_OF_CLIENT:
            yield "groups", sentences.at_most(MOST_GROUPS_OF_CLIENT, "names", len(self.groups))
            return
        for place, group in enumerate(self.groups):
            yield from group_name(f"groups[{place}]", group)
        if not is_utf8(self.info_as_text):
            yield "info", sentences.VALID_UTF8
        elif len(self.info_as_text) > INFO_LENGTH:
            yield "info", sentences.at_most(INFO_LENGTH, "characters as JSON", len(self.info_as_text))

    @property
    def info_as_text(self) -> str:
        return json.dumps(self.info, ensure_ascii=False)

    def client(self, clientid: int) -> Client:
        return Client(
            id=clientid,
            name=self.name,
            host=self.host,
            pid=None if self.pid is UNSET else self.pid,
            groups=list(self.groups),
            version=self.version,
            info=self.info_as_text,
        )


prepare(UpdateRequest, ClaimRequest, ClientRequest)
