"""What is answered about bulk operations, as types (contract.md section 4)."""

from __future__ import annotations

from typing import Annotated

from django.urls import reverse
from msgspec import UNSET, Meta, Struct, UnsetType

from taskstore.types.tasks import State

from .. import bulk
from ..bulk import Parameters, Verb
from ..models import BulkItem, BulkOperation
from ..wire.scalars import Ids, Int64
from .bulk_requests import WithClaimed

# The choices of Django are no types that msgspec could describe.
VerbWord = Annotated[str, Meta(extra_json_schema={"enum": Verb.values})]
StateWord = Annotated[str, Meta(extra_json_schema={"enum": BulkOperation.State.values})]
OutcomeWord = Annotated[str, Meta(extra_json_schema={"enum": BulkItem.Outcome.values})]


class ByState(Struct, frozen=True, kw_only=True):
    """They add up to the count."""

    ready: int
    claimed: int
    expired: int
    scheduled: int


class TargetAnswer(Struct, frozen=True, kw_only=True):
    """A group that a requeue puts tasks into."""

    group: str
    count: Annotated[int, Meta(description="Tasks, without those that are claimed.")]
    claimed: Annotated[int, Meta(description="So many more when `claimed` is take.")]


class PreviewAnswer(Struct, frozen=True, kw_only=True):
    """What would be meant, at this moment."""

    count: Annotated[int, Meta(description="Send it as `expected`.")]
    by_state: ByState
    claimed: Annotated[int, Meta(description="Under a lease that runs: they are skipped unless `claimed` is take.")]
    ready_already: Annotated[int, Meta(description="Ready, not failed and no dead letters: a requeue skips them.")]
    group: Annotated[str, Meta(description="The one that all are in; empty: several, or there is no task.")]
    samples: Annotated[Ids, Meta(description="A few of the ids.")]
    bound: Annotated[Int64, Meta(description="Send it as it is: tasks that were added later are not touched.")]
    as_of: Annotated[int, Meta(description="Send it as it is: the time of the preview, in ms.")]
    to_type: Annotated[str, Meta(description="What has to be sent as `typed`; empty: nothing.")]
    targets: Annotated[
        tuple[TargetAnswer, ...] | UnsetType, Meta(description="Only of a requeue: where the tasks go, the most first.")
    ] = UNSET
    ended: Annotated[
        int | UnsetType, Meta(description="Only of a requeue: commands that have ended, which it skips.")
    ] = UNSET

    @classmethod
    def of(cls, verb: Verb, seen: bulk.Preview) -> PreviewAnswer:
        return cls(
            count=seen.count,
            by_state=ByState(**{state.value: number for state, number in seen.by_state.items()}),
            claimed=seen.by_state[State.CLAIMED],
            ready_already=seen.ready_already,
            group=seen.group,
            samples=tuple(seen.samples),
            bound=seen.selection.bound,
            as_of=seen.selection.as_of_ms,
            to_type=bulk.to_type(verb, seen),
            targets=_targets(seen) if verb is Verb.REQUEUE else UNSET,
            ended=seen.ended if verb is Verb.REQUEUE else UNSET,
        )


def _targets(seen: bulk.Preview) -> tuple[TargetAnswer, ...]:
    return tuple(TargetAnswer(group=each.group, count=each.count, claimed=each.claimed) for each in seen.targets)


class BulkParameters(Struct, frozen=True, kw_only=True):
    """How it is done, in the words of the request."""

    to: str
    create: bool
    error: str | None
    priority: int | None
    at: int
    spread_minutes: int
    here: bool
    claimed: WithClaimed

    @classmethod
    def of(cls, parameters: Parameters) -> BulkParameters:
        return cls(
            to=parameters.to,
            create=parameters.create,
            error=parameters.error,
            priority=parameters.priority,
            at=parameters.at_ms,
            spread_minutes=parameters.spread_minutes,
            here=parameters.here,
            claimed=WithClaimed.TAKE if parameters.takes_claimed else WithClaimed.SKIP,
        )


class Links(Struct, frozen=True, kw_only=True):
    """Where the operation is, and what can be done with it."""

    operation: str
    items: str
    cancel: str
    undo: str

    @classmethod
    def of(cls, operation: BulkOperation) -> Links:
        names = {
            "operation": "operation",
            "items": "operation_items",
            "cancel": "cancel_operation",
            "undo": "undo_operation",
        }
        return cls(**{link: reverse(f"rest_api:{name}", args=[operation.pk]) for link, name in names.items()})


class OperationAnswer(Struct, frozen=True, kw_only=True):
    """What is done to many tasks, and how far it has come."""

    id: Int64
    verb: VerbWord
    selection: Annotated[str, Meta(description="In words.")]
    group: Annotated[str, Meta(description="The one that all tasks are in; empty: several, or none.")]
    parameters: BulkParameters
    state: StateWord
    expected: int
    done: int
    skipped: int
    failed: int
    gone: Annotated[int, Meta(description="Expected, but changed or ended by others before their turn came.")]
    by: Annotated[str, Meta(description="A user's name, or `token:` and the name of a token.")]
    reason: str
    began: Annotated[int, Meta(description="Milliseconds since the Epoch.")]
    ended: Annotated[int | None, Meta(description="null: it has not.")]
    cancelled_by: Annotated[str, Meta(description="Empty: nobody.")]
    undoes: Annotated[Int64 | None, Meta(description="The operation that this one takes back; null: it is no undo.")]
    links: Links
    reasons: Annotated[
        dict[str, int] | UnsetType, Meta(description="Why tasks were skipped, and how many. Not in the list.")
    ] = UNSET
    undoable: Annotated[bool | UnsetType, Meta(description="Not in the list.")] = UNSET
    not_undoable: Annotated[
        str | UnsetType, Meta(description="Why it can't be undone; empty: it can. Not in the list.")
    ] = UNSET

    @classmethod
    def of(cls, operation: BulkOperation) -> OperationAnswer:
        """With what takes a look of its own into the database."""
        why_not = bulk.why_not_undoable(operation)
        reasons = bulk.reasons(operation.pk, operation.gone)
        return cls._of(operation, reasons=reasons, undoable=not why_not, not_undoable=why_not)

    @classmethod
    def in_list(cls, operation: BulkOperation) -> OperationAnswer:
        return cls._of(operation)

    @classmethod
    def _of(cls, operation: BulkOperation, **more: object) -> OperationAnswer:
        return cls(
            id=operation.pk,
            verb=operation.verb,
            selection=operation.in_words,
            group=operation.group,
            parameters=BulkParameters.of(Parameters.read(operation.parameters)),
            state=operation.state,
            expected=operation.expected,
            done=operation.done,
            skipped=operation.skipped,
            failed=operation.failed,
            gone=operation.gone,
            by=operation.by,
            reason=operation.reason,
            began=operation.began_at_ms,
            ended=operation.ended_at_ms,
            cancelled_by=operation.cancelled_by,
            undoes=operation.undoes,
            links=Links.of(operation),
            **more,  # type: ignore[arg-type]
        )


class OperationsAnswer(Struct, frozen=True, kw_only=True):
    """Operations, the newest first."""

    operations: tuple[OperationAnswer, ...]
    after: Annotated[Int64 | None, Meta(description="Send it as `after` to go on; null: there are no more.")]


class ItemAnswer(Struct, frozen=True, kw_only=True):
    """What became of a task."""

    origin: Int64
    task: Annotated[Int64, Meta(description="The id that it had; 0: it came back.")]
    outcome: OutcomeWord
    why: Annotated[str, Meta(description="It was skipped, or failed.")]

    @classmethod
    def of(cls, item: BulkItem) -> ItemAnswer:
        return cls(origin=item.origin, task=item.task, outcome=item.outcome, why=item.why)


class ItemsAnswer(Struct, frozen=True, kw_only=True):
    """Tasks of an operation, by their origins. They are kept for as long as it can be undone."""

    items: tuple[ItemAnswer, ...]
    after: Annotated[Int64 | None, Meta(description="Send it as `after` to go on; null: there are no more for now.")]
