"""The bodies of requests that change many tasks, as types (contract.md section 4)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Annotated, Any, TypeVar, cast

from msgspec import UNSET, Meta, UnsetType, defstruct

from taskstore.types import sentences
from taskstore.types.bulk import BulkVerb, WithClaimed
from taskstore.types.bulk_actions import OPTIONS, Kind, Option, actions_with
from taskstore.types.requests import Asked
from taskstore.types.scalars import prepare
from taskstore.types.tasks import Problem, State

from .. import bulk
from ..bulk import Action, Selection
from ..core.operations import GroupScope, ResendKey
from ..core.validation import INT64_MAX, LATEST_MS, group_name
from ..managers import limits
from ..wire.scalars import Ids, Key, Priority, Reason

Time = Annotated[int, Meta(ge=0, le=LATEST_MS)]
Number = Annotated[int, Meta(ge=0, le=INT64_MAX)]
SelectedTasksT = TypeVar("SelectedTasksT", bound="SelectedTasks")
Query = Annotated[str, Meta(description="Search terms as in /search; group:* selects all tasks of the store.")]


# What each kind of option is in a request.
KINDS: Mapping[Kind, Any] = {
    Kind.GROUP: str,
    Kind.TEXT: str,
    Kind.FLAG: bool,
    Kind.PRIORITY: Priority,
    Kind.TIME: Time,
    Kind.MINUTES: Number,
}


NOTES = {Kind.TIME: "Milliseconds since the Epoch; 0 means now.", Kind.MINUTES: "0 means all at once."}


def fields_of(options: Iterable[Option]) -> list[tuple[str, Any, Any]]:
    """Return a field for each option. It may be absent; UNSET then."""
    fields = []
    for option in options:
        stays = "Unchanged if absent." if option.default is None else ""
        description = " ".join(filter(None, [option.description, NOTES.get(option.kind), stays]))
        fields.append((option.name, Annotated[KINDS[option.kind], Meta(description=description)] | UnsetType, UNSET))
    return fields


class SelectedTasks(Asked, frozen=True, kw_only=True):
    """The tasks to preview: those with these ids, or all that match the group, the state and the search."""

    verb: BulkVerb
    group: str | UnsetType = UNSET
    state: State | UnsetType = UNSET
    q: Query = ""
    ids: Annotated[Ids, Meta(description="Instead of `state` and `q`.")] | UnsetType = UNSET

    def problems(self) -> Iterator[Problem]:
        for name in self.options:
            if self.verb not in (actions := actions_with(name)):
                yield name, f"must be given only with {' or '.join(actions)}, not with {self.verb}"
        if self.group is not UNSET:
            yield from group_name("group", self.group)
        if self.ids is UNSET:
            if self.group is UNSET and self.state is UNSET and not self.q.strip():
                yield "q", bulk.SAY_WHICH
            return
        if self.state is not UNSET or self.q.strip():
            yield "ids", sentences.not_together("state", "q")
        if len(self.ids) > limits().changes:
            yield "ids", sentences.at_most(limits().changes, "ids", len(self.ids))

    @property
    def options(self) -> dict[str, Any]:
        """Return the options that are given, by their names."""
        given = {name: getattr(self, name, UNSET) for name in OPTIONS}
        return {name: value for name, value in given.items() if value is not UNSET}

    @property
    def action(self) -> Action:
        """Return what is to be done."""
        return bulk.action_named(self.verb)(**self.options)

    @property
    def groups(self) -> Iterator[str]:
        """Return those that it names."""
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


class AgreedTasks(SelectedTasks, frozen=True, kw_only=True):
    """A bulk operation on the tasks of a preview, with its `bound`, its `as_of`, and its `count` as `expected`."""

    bound: Annotated[int, Meta(ge=1, le=INT64_MAX, description="The value from the preview.")]
    as_of: Annotated[int, Meta(ge=1, le=LATEST_MS, description="The value from the preview.")]
    expected: Annotated[Number, Meta(description="The `count` of the preview.")]
    claimed: WithClaimed = WithClaimed.SKIP
    reason: Reason = ""
    typed: Annotated[str, Meta(description="The `to_type` of the preview.")] = ""
    key: Key = ""

    @property
    def groups(self) -> Iterator[str]:
        yield from super().groups
        if to := self.action.to_group:
            yield to

    @property
    def action(self) -> Action:
        return replace(super().action, takes_claimed=self.claimed is WithClaimed.TAKE)

    def asked(self, scope: GroupScope, key: ResendKey | None) -> bulk.Asked:
        return bulk.Asked(
            action=self.action,
            selection=replace(self.selection(scope), bound=self.bound, as_of_ms=self.as_of),
            expected=self.expected,
            typed=self.typed,
            key=key,
        )


def with_options(name: str, base: type[SelectedTasksT], options: Iterable[Option]) -> type[SelectedTasksT]:
    """Return the type of a request that has a field for each option as well."""
    made: Any = defstruct(
        name,
        fields_of(options),
        bases=(base,),
        namespace={"__doc__": base.__doc__},
        module=__name__,
        frozen=True,
        kw_only=True,
    )
    prepare(made)
    return cast("type[SelectedTasksT]", made)


BulkPreviewRequest = with_options(
    "BulkPreviewRequest", SelectedTasks, [option for option in OPTIONS.values() if option.is_previewed]
)
BulkRequest = with_options("BulkRequest", AgreedTasks, OPTIONS.values())
