"""The calls of operators: what is done to groups, and to many tasks at once. They need a token that may `operate`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from msgspec import field
from msgspec.structs import replace

from .. import endpoints
from ..types.bulk import ItemsPage, Operation, OperationsPage, Preview
from ..types.groups import GroupPause, Pause
from ..types.scalars import prepare
from ..types.tasks import State
from .calls import Call, decoder, given, new_key


class AskedPreview(Preview, frozen=True, kw_only=True):
    """A preview, and what was asked for: `bulk_start` takes both."""

    asked: dict[str, Any] = field(default_factory=dict)  # The verb and which tasks, as they were sent.


prepare(AskedPreview)


class Operating:
    __slots__ = ()

    def pause(self, group: str, reason: str = "") -> Call[Pause]:
        """Claims find nothing in the group from now on. A paused group stays paused as it is."""
        return Call.of(endpoints.PAUSE, path={"name": group}, body={"reason": reason}, read=_pause)

    def resume(self, group: str, reason: str = "") -> Call[None]:
        """Claims find again what is in the group."""
        return Call.of(endpoints.RESUME, path={"name": group}, body={"reason": reason}, read=lambda content: None)

    def bulk_preview(
        self,
        /,
        verb: str,
        *,
        group: str | None = None,
        state: State | str | None = None,
        q: str = "",
        ids: Iterable[int] | None = None,
        **options: str | int | bool | None,
    ) -> Call[AskedPreview]:
        """How many tasks would be meant, and which. `verb`: requeue, move, edit or purge.

        Which: those with the ids, or all that are in the group and the state and meet the search. A requeue sends
        dead letters back to the group that they failed in, unless they are to stay `here`, the one option that a
        preview takes.
        """
        named = None if ids is None else list(ids)
        asked = {"verb": verb, "q": q, **given(group=group, state=state, ids=named, **options)}
        read = decoder(AskedPreview)
        return Call.of(endpoints.BULK_PREVIEW, body=asked, read=lambda content: replace(read(content), asked=asked))

    def bulk_start(
        self,
        /,
        preview: AskedPreview,
        *,
        take_claimed: bool = False,
        reason: str = "",
        typed: str = "",
        **options: str | int | bool | None,
    ) -> Call[Operation]:
        """Do it to the tasks of a preview, in the background; `operation` tells how far it has come.

        `options` are those of the action, see `taskstore.types.bulk_actions`: `to` and `create` of a move, `error` and
        `priority` of an edit, `at` (ms since the Epoch), `spread_minutes` and `here` of a requeue.
        Raises InvalidInput when their number has changed by more than 10 and 1 %, and when `typed` is not what
        the preview wants as `to_type`.
        """
        body = {
            **preview.asked,
            **given(**options),
            "bound": preview.bound,
            "as_of": preview.as_of,
            "expected": preview.count,
            "claimed": "take" if take_claimed else "skip",
            "reason": reason,
            "typed": typed,
        }
        return Call.of(endpoints.BULK, body=body, key=new_key())

    def operations(
        self, *, state: str | None = None, after: int | None = None, limit: int = 50
    ) -> Call[OperationsPage]:
        """A page of operations, the newest first."""
        query = given(state=state, after=after, limit=limit)
        return Call.of(endpoints.OPERATIONS, query=query)

    def operation(self, id: int) -> Call[Operation]:
        """How far an operation has come, and whether it can be undone. Raises NotFound."""
        return Call.of(endpoints.OPERATION, path={"id": id})

    def operation_items(
        self, id: int, *, outcome: str | None = None, after: int | None = None, limit: int = 50
    ) -> Call[ItemsPage]:
        """A page of what became of each task, and why it was skipped or failed. Raises NotFound."""
        query = given(outcome=outcome, after=after, limit=limit)
        return Call.of(endpoints.OPERATION_ITEMS, path={"id": id}, query=query)

    def cancel_operation(self, id: int) -> Call[Operation]:
        """Let it end after what it is at. One that has ended stays as it is. Raises NotFound."""
        return Call.of(endpoints.CANCEL_OPERATION, path={"id": id})

    def undo_operation(self, id: int, reason: str = "") -> Call[Operation]:
        """Take it back, but for what has changed since: an operation of its own. Raises NotFound, InvalidInput.

        When the connection breaks it raises CommitUnknown: `operations` shows whether it was begun.
        """
        return Call.of(endpoints.UNDO_OPERATION, path={"id": id}, body={"reason": reason}, once=True)


def _pause(content: bytes) -> Pause:
    paused = decoder(GroupPause)(content).paused
    if paused is None:
        raise ValueError("it is not paused")
    return paused
