"""The bodies of requests that change many tasks, as types (contract.md section 4)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from enum import StrEnum
from typing import Annotated

from msgspec import UNSET, Meta, UnsetType
from msgspec.json import Decoder

from taskstore.types.bulk import WithClaimed
from taskstore.types.tasks import Problem, State

from .. import bulk
from ..bulk import Parameters, Selection
from ..core.operations import GroupScope, ResendKey
from ..core.validation import INT64_MAX, LATEST_MS, group_name
from ..managers import limits
from ..wire.scalars import Ids, Key, Priority, Reason
from ..wire.tasks import Asked

Time = Annotated[int, Meta(ge=0, le=LATEST_MS)]
Number = Annotated[int, Meta(ge=0, le=INT64_MAX)]
Query = Annotated[str, Meta(description="Terms as /search takes them; group:* means all tasks of the store.")]


class BulkVerb(StrEnum):
    """What can be done to many tasks. An undo is asked for at the operation that it takes back."""

    REQUEUE = "requeue"
    MOVE = "move"
    EDIT = "edit"
    PURGE = "purge"


# What only one verb has a use for.
BELONGS_TO = {
    **dict.fromkeys(("at", "spread_minutes", "here"), BulkVerb.REQUEUE),
    **dict.fromkeys(("to", "create"), BulkVerb.MOVE),
    **dict.fromkeys(("error", "priority"), BulkVerb.EDIT),
}


class BulkPreviewRequest(Asked, frozen=True, kw_only=True):
    """Which tasks are meant: those with the ids, or all that are in the group and the state and meet the search."""

    verb: BulkVerb
    group: str | UnsetType = UNSET
    state: State | UnsetType = UNSET
    q: Query = ""
    ids: Annotated[Ids, Meta(description="Instead of `state` and `q`.")] | UnsetType = UNSET
    here: (
        Annotated[bool, Meta(description="Whether requeued dead letters stay in their group; else they are sent back.")]
        | UnsetType
    ) = UNSET

    def problems(self) -> Iterator[Problem]:
        for name, verb in BELONGS_TO.items():
            if getattr(self, name, UNSET) is not UNSET and self.verb is not verb:
                yield name, f"absent: only {verb} has a use for it"
        if self.group is not UNSET:
            yield from group_name("group", self.group)
        if self.ids is UNSET:
            if self.group is UNSET and self.state is UNSET and not self.q.strip():
                yield "q", bulk.SAY_WHICH
            return
        if self.state is not UNSET or self.q.strip():
            yield "ids", "either ids, or state and q"
        if len(self.ids) > limits().changes:
            yield "ids", f"at most {limits().changes} at once, not {len(self.ids)}"

    @property
    def groups(self) -> Iterator[str]:
        """Those that it names."""
        if self.group is not UNSET:
            yield self.group

    def selection(self, scope: GroupScope) -> Selection:
        return Selection(
            group=self.group or "",
            state=self.state or None,
            q=self.q,
            ids=None if self.ids is UNSET else tuple(dict.fromkeys(self.ids)),
            scope=scope,
        )


class BulkRequest(BulkPreviewRequest, frozen=True, kw_only=True):
    """What is to be done to the tasks of a preview, of which `bound`, `as_of` and `count`, as `expected`, come back."""

    bound: Annotated[int, Meta(ge=1, le=INT64_MAX, description="As the preview gave it.")]
    as_of: Annotated[int, Meta(ge=1, le=LATEST_MS, description="As the preview gave it.")]
    expected: Annotated[Number, Meta(description="The `count` of the preview.")]
    to: Annotated[str, Meta(description="The group to move to.")] | UnsetType = UNSET
    create: Annotated[bool, Meta(description="Whether `to` may be a new group.")] | UnsetType = UNSET
    error: Annotated[str, Meta(description="The new error text; empty: none. Absent: it stays.")] | UnsetType = UNSET
    priority: Priority | UnsetType = UNSET
    at: Annotated[Time, Meta(description="When requeued tasks are available, in ms; 0: now.")] | UnsetType = UNSET
    spread_minutes: Annotated[Number, Meta(description="Over how long, evenly; 0: all at once.")] | UnsetType = UNSET
    claimed: WithClaimed = WithClaimed.SKIP
    reason: Reason = ""
    typed: Annotated[str, Meta(description="What `to_type` of the preview says.")] = ""
    key: Key = ""

    @property
    def groups(self) -> Iterator[str]:
        yield from super().groups
        if self.to:
            yield self.to

    def asked(self, scope: GroupScope, key: ResendKey | None) -> bulk.Asked:
        selection = self.selection(scope)
        return bulk.Asked(
            verb=bulk.Verb(self.verb),
            selection=replace(selection, bound=self.bound, as_of_ms=self.as_of),
            expected=self.expected,
            parameters=self.parameters,
            typed=self.typed,
            key=key,
        )

    @property
    def parameters(self) -> Parameters:
        return Parameters(
            to=self.to or "",
            create=self.create or False,
            error=None if self.error is UNSET else self.error,
            priority=None if self.priority is UNSET else self.priority,
            at_ms=self.at or 0,
            spread_minutes=self.spread_minutes or 0,
            here=self.here or False,
            takes_claimed=self.claimed is WithClaimed.TAKE,
        )


# As in requests.py: made before two threads could meet a type at the same moment.
for _asked in (BulkPreviewRequest, BulkRequest):
    Decoder(_asked)
