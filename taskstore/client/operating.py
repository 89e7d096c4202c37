"""Calls for operators: pausing groups and bulk operations. They need a token with the scope `operate`."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import structs

from .. import endpoints
from ..errors import InvalidInput
from ..types.bulk import (
    BulkPreviewRequest,
    BulkRequest,
    ItemsPage,
    Operation,
    OperationsPage,
    Preview,
    SelectedTasks,
    WithClaimed,
)
from ..types.groups import GroupPause, Pause
from ..types.requests import ReasonRequest
from ..types.tasks import State
from .calls import Call, decoder, given, new_key, verb


class AskedPreview(Preview, frozen=True, kw_only=True):
    """A preview together with its request, as `bulk_start` needs both."""

    asked: SelectedTasks


class Operating:
    @verb
    def pause(self, group: str, reason: str = "") -> Call[Pause]:
        """Stop handing out tasks of the group; commits still work. A group that is paused already keeps its pause.

        `reason` is shown to other operators.
        """

        def pause_in(content: bytes) -> Pause:
            paused = decoder(GroupPause)(content).paused
            if paused is None:
                raise ValueError("it is not paused")
            return paused

        _refuse_empty(group)
        return Call.of(endpoints.PAUSE, path={"name": group}, body=ReasonRequest(reason=reason), read=pause_in)

    @verb
    def resume(self, group: str, reason: str = "") -> Call[None]:
        """Hand out tasks of the group again."""
        _refuse_empty(group)
        return Call.of(
            endpoints.RESUME, path={"name": group}, body=ReasonRequest(reason=reason), read=lambda content: None
        )

    @verb
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
        """Preview a bulk operation: how many tasks it would change, and a sample of them.

        `verb`: requeue, move, edit or purge. Select tasks by `ids`, or by `group`, `state` and the search `q`
        together. The only option of a preview is `here` of a requeue, which keeps dead letters in their group instead
        of returning them to the group in which they failed.
        """
        named = None if ids is None else tuple(ids)
        asked = BulkPreviewRequest(verb=verb, q=q, **given(group=group, state=state, ids=named, **options))
        read = decoder(Preview)
        return Call.of(
            endpoints.BULK_PREVIEW,
            body=asked,
            read=lambda content: AskedPreview(**structs.asdict(read(content)), asked=asked),
        )

    @verb
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
        """Start the bulk operation of a preview in the background. `operation` reports its progress.

        `take_claimed`: include leased tasks, whose workers' results will be rejected. `options`: `to` and `create` of a
        move; `error` and `priority` of an edit; `at` (ms since the Epoch), `spread_minutes` and `here` of a requeue.
        Raises InvalidInput if the number of tasks has changed by more than 10 and by more than 1 % since the preview,
        or if `typed` is not the preview's `to_type`.
        """
        body = BulkRequest(
            **{**structs.asdict(preview.asked), **given(**options)},
            bound=preview.bound,
            as_of=preview.as_of,
            expected=preview.count,
            claimed=WithClaimed.TAKE if take_claimed else WithClaimed.SKIP,
            reason=reason,
            typed=typed,
        )
        return Call.of(endpoints.BULK, body=body, key=new_key())

    @verb
    def operations(
        self, *, state: str | None = None, after: int | None = None, limit: int = 50
    ) -> Call[OperationsPage]:
        """Return a page of bulk operations, newest first. `after`: the `after` of the previous page."""
        query = given(state=state, after=after, limit=limit)
        return Call.of(endpoints.OPERATIONS, query=query)

    @verb
    def operation(self, id: int) -> Call[Operation]:
        """Return an operation with its progress and whether it can be undone. Raises NotFound."""
        return Call.of(endpoints.OPERATION, path={"id": id})

    @verb
    def operation_items(
        self, id: int, *, outcome: str | None = None, after: int | None = None, limit: int = 50
    ) -> Call[ItemsPage]:
        """Return a page of an operation's tasks, each with its outcome and why it was skipped or failed.

        Raises NotFound.
        """
        query = given(outcome=outcome, after=after, limit=limit)
        return Call.of(endpoints.OPERATION_ITEMS, path={"id": id}, query=query)

    @verb
    def cancel_operation(self, id: int) -> Call[Operation]:
        """Cancel an operation after its current step. Has no effect once it has ended. Raises NotFound."""
        return Call.of(endpoints.CANCEL_OPERATION, path={"id": id})

    @verb
    def undo_operation(self, id: int, reason: str = "") -> Call[Operation]:
        """Undo an operation, except for tasks changed since. Returns the undo, which is an operation too.

        Raises NotFound; InvalidInput if it can't be undone; CommitUnknown if the connection breaks, in which case
        `operations` shows whether the undo was started.
        """
        return Call.of(endpoints.UNDO_OPERATION, path={"id": id}, body=ReasonRequest(reason=reason), once=True)


def _refuse_empty(group: str) -> None:
    if not group:  # It would be the address of something else.
        raise InvalidInput({"group": ["must not be empty"]})
